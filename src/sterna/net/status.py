"""A broker's reports about itself."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import sterna
from sterna.core.adhoc.options import NAME as AD_HOC
from sterna.core.adhoc.serving import Serving
from sterna.core.broker import Broker
from sterna.core.mobile.reversing import Reversing
from sterna.core.names import LinkId, Peer
from sterna.core.overlay.branches import Branches
from sterna.core.overlay.electing import Electing
from sterna.core.overlay.election import Election
from sterna.core.terms.messages import TERMS
from sterna.devices.inputs import PREFIX
from sterna.wire.frames import Role

if TYPE_CHECKING:
    from sterna.net.broker import BrokerServer

PAGE = 1_000
"""About how many clients, or subscriptions of clients, one answer has: the loop is for all."""

_NO_FILTERS = frozenset({"advertisement", TERMS})
"""What clients announce besides what they subscribe to."""


def status(server: "BrokerServer") -> dict[str, Any]:
    """The broker's state in a few figures."""
    node, log, links = server.node, server.driver.log, server.sessions.links
    settings, snapshots = server.configuration.settings, server.engine.snapshots
    memory = server.budget.count()
    clients = [link for link, peer in node.peers.items() if peer is Peer.CLIENT]
    return {
        "name": server.config.name,
        "version": sterna.__version__,
        "address": server.address.url,
        "is_ready": server.is_ready,
        "is_settled": node.is_settled and not server.engine.held,
        "durability": str(server.config.durability.level),
        "overlay": str(server.config.network.overlay),
        "election": election(server),
        "ad_hoc": ad_hoc(server),
        "strategy": str(settings.routing.strategy),
        "handover": str(settings.handover.protocol),
        "neighbours": {
            link: link in node.up for link, peer in node.peers.items() if peer is Peer.BROKER
        },
        "neighbours_stalled": server.progress.stalled(),
        "clients_here": sum(link in links for link in clients),
        "clients_away": sum(link not in links for link in clients),
        "clients_elsewhere": len(node.hosted()),
        "mqtt": {
            "address": None if server.mqtt_address is None else str(server.mqtt_address),
            "websocket": None
            if server.websocket_address is None
            else str(server.websocket_address),
            "clients_here": sum(link in links for link in clients if link.startswith(PREFIX)),
            "clients_away": sum(link not in links for link in clients if link.startswith(PREFIX)),
        },
        "connections": len(server.sessions.roles),
        "peers_waiting": server.pausing.waiting,
        "subscriptions": len(node.router.subscriptions),
        "advertisements": sum(map(len, node.router.advertisements.values())),
        "filters_uncompiled": node.router.subscriptions.uncompiled,
        "memory": {
            "bytes": memory.total,
            "bytes_max": server.budget.bytes_max,
            "neighbours_bytes": sum(memory.neighbours.values()),
            "clients_bytes": sum(memory.here.values()),
            "away_bytes": memory.away,
            "unfinished_bytes": memory.unfinished,
            "queue_events": memory.queued.events,
            "queue_bytes": memory.queued.bytes,
            "spilled_bytes": server.driver.spill.used_bytes,
            "spill_bytes_max": server.driver.spill.bytes_max,
            "spill_bytes_on_disk": server.driver.spill.bytes_on_disk,
        },
        "inputs": server.engine.inputs,
        "inputs_idle": server.engine.idle_inputs,
        "events": server.metrics.events,
        "log": None
        if log is None or snapshots is None
        else {
            "bytes_on_disk": log.bytes_on_disk,
            "inputs_since_snapshot": log.records_since_snapshot,
            "snapshots_failed": snapshots.failures,
            "snapshot_problem": snapshots.problem,
        },
        "journal_bytes": server.driver.journalist.bytes_on_disk,
        "loop": {
            "holds": server.watchdog.holds,
            "held_s_max": server.watchdog.longest.seconds,
            "busy_s_max": server.watchdog.busiest.busy_s,
            "busy_at": server.watchdog.busiest.stack,
        },
    }


def election(server: "BrokerServer") -> dict[str, Any] | None:
    """Where the broker is in the tree that brokers make; None if they make none."""
    found = electing_of(server)
    if found is None:
        return None
    node, radio = server.node, server.reach.radio
    return {
        "leader": found.leader,
        "since_us": found.reign.since,
        "round": found.round,
        "next_hop": found.next_hop,
        "hops": len(found.path) - 1,
        "brokers": len(server.driver.members.brokers()),
        "in_reach": {
            name: str(radio.places[name].address)
            for name in sorted(found.heard)
            if name in radio.places
        },
        "cut_off": cut_off(node),
        "is_waiting_for_order": node.is_unsure,
        "datagrams": dict(radio.datagrams),
    }


def ad_hoc(server: "BrokerServer") -> dict[str, Any] | None:
    """Whether a device serves, and what it knows of others; None where brokers always serve."""
    node = server.node
    serving, tables = node.part(AD_HOC), node.part(Reversing.name)
    if not (isinstance(serving, Serving) and isinstance(tables, Reversing)):
        return None
    wanting = [each for each in tables.subscribers.values() if each.filters or each.queue]
    return {
        "serves": not serving.is_asleep,
        "yields": serving.yields and not serving.is_asleep,
        "serving": server.reach.serving(serving.options.silent_us / 1e6),
        "subscribers": len(wanting),
        "subscribers_lost": sum(each.is_lost for each in wanting),
        "kept_events": sum(len(each.queue) for each in wanting),
    }


def electing_of(server: "BrokerServer") -> Election | None:
    """The broker's part in the election, if there is one."""
    part = server.node.part(Electing.name)
    return part.election if isinstance(part, Electing) else None


def cut_off(node: Broker) -> dict[LinkId, int]:
    """For each neighbour that was lost how many events are kept for what was behind it."""
    part = node.part(Branches.name)
    return (
        {}
        if not isinstance(part, Branches)
        else {link: len(cut.kept) for link, cut in part.cuts.items()}
    )


def topology(server: "BrokerServer") -> dict[str, Any]:
    """The network as the broker knows it."""
    members, found = server.driver.members, electing_of(server)
    return {
        "leader": None if found is None else found.leader,
        "next_hop": None if found is None else found.next_hop,
        "cut_off": list(cut_off(server.node)),
        "ad_hoc": ad_hoc(server),
        "at": server.config.name,
        "brokers": members.brokers(),
        "links": [[link.a, link.b] for link in members.links()],
        "neighbours": [
            {"name": link, "is_up": link in server.node.up}
            for link, peer in server.node.peers.items()
            if peer is Peer.BROKER
        ],
    }


def queues(server: "BrokerServer") -> dict[str, Any]:
    """The queues of the broker: what waits for which session."""
    node = server.node
    waiting = []
    for link, peer in node.peers.items():
        session = server.sessions.links.get(link)
        waiting.append(
            {
                "name": link,
                "role": str(Role.BROKER if peer is Peer.BROKER else Role.CLIENT),
                "is_here": session is not None,
                "unconfirmed_messages": node.backlog(link),
                "kept_events": node.kept(link).events,
                "unsent_bytes": 0 if session is None else session.waiting_bytes,
                "subscriptions": sum(
                    len(names) for kind, names in node.claimed(link) if kind not in _NO_FILTERS
                ),
            }
        )
    return {"at": server.config.name, "queues": waiting}


def clients(server: "BrokerServer", start: int) -> dict[str, Any]:
    """The clients of the broker with their subscriptions: some of them, from a position on."""
    node = server.node
    links = [link for link, peer in node.peers.items() if peer is Peer.CLIENT]
    links += node.hosted()
    found: list[dict[str, Any]] = []
    count = 0
    for link in links[start : start + PAGE]:
        session = server.sessions.links.get(link)
        filters = _filters(server, link)
        is_linked = link in node.peers
        found.append(
            {
                "name": link,
                "is_here": session is not None,
                "is_elsewhere": not is_linked,
                "address": None if session is None else session.address,
                "kept_events": node.kept(link).events,
                "unconfirmed_messages": node.backlog(link) if is_linked else 0,
                "subscriptions": filters,
            }
        )
        count += len(filters)
        if count >= PAGE:
            break
    following = start + len(found)
    return {
        "at": server.config.name,
        "clients": found,
        "following": following if following < len(links) else None,
    }


def _filters(server: "BrokerServer", link: LinkId) -> list[dict[str, str]]:
    """What a client subscribes to; a subscription that follows it, as the client has written it."""
    known: dict[str, str] = {}
    for kind, routes in server.node.claimed(link):
        if kind not in _NO_FILTERS and isinstance(routes, Mapping):
            for id_, route in routes.items():
                known[str(id_).removeprefix(f"{link}/")] = str(route.filter)
    return [{"name": name, "filter": filter_} for name, filter_ in known.items()]
