"""Runs that must be right; one that is not is kept, and the failure says how to replay it."""

import hashlib
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from sterna.core import facts
from sterna.core.broker import Broker
from sterna.core.client import Client
from sterna.core.confirming.facts import SubscriptionKnown
from sterna.core.facts import Fact
from sterna.core.handover.fetching import Fetching
from sterna.core.handover.home import Home
from sterna.core.handover.hosting import Hosting
from sterna.core.handover.prefetching import Prefetching
from sterna.core.handover.relocation import Relocation
from sterna.core.location.moving import Moving
from sterna.core.names import NodeId, RouteId, Time
from sterna.core.routing.offers import EARLIER
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.sim.network import NeverSettlesError, Observer
from sterna.sim.run import Outcome, Simulation
from sterna.sim.script import Script
from sterna.wire.codec import to_json


def run_rightly(script: Script, make: "Callable[[Script], Checked] | None" = None) -> Outcome:
    """Run a script whose every delivery must be right, and every table whenever it has settled."""
    try:
        outcome = (make or Checked)(script).run()
    except (AssertionError, NeverSettlesError) as error:
        pytest.fail(f"{error}\n{_replay(script)}", pytrace=False)
    if outcome.findings:
        listed = "\n".join(str(finding) for finding in outcome.findings)
        pytest.fail(f"{listed}\n{_replay(script)}", pytrace=False)
    return outcome


class Once(Observer):
    """No broker routes an event twice, and what a client has already has come before.

    What a policy of the client did without at one broker may come from another one, too late.

    Events from before all brokers know the subscription that brings them (it was confirmed, or the
    network has settled) may be passed over: a client that roams may get them late, from a broker
    that knew the subscription earlier than the others, when it has newer ones already.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._routed: set[tuple[NodeId, EventId]] = set()
        self._came: set[tuple[NodeId, EventId]] = set()
        self._wishes: dict[tuple[NodeId, str], Filter] = {}
        self._known: dict[tuple[NodeId, str], Time] = {}
        """Since when all brokers know a wish, once they do."""
        self._links: dict[NodeId, set[NodeId]] = defaultdict(set)

    def settled(self, now: Time) -> None:
        """The network has settled: all brokers know all wishes of those that are connected."""
        for wish in self._wishes:
            if self._links[wish[0]]:
                self._known.setdefault(wish, now)

    def fact(self, fact: Fact) -> None:
        match fact:
            case facts.Forwarded():
                passed = {(fact.at, event.id) for events in fact.to.values() for event in events}
                self.problems += [f"{at} routes {id_} twice" for at, id_ in passed & self._routed]
                self._routed |= passed
            case facts.Delivered() | facts.Stray():
                self._came |= {(fact.at, event.id) for event in fact.events}
            case facts.Missed():
                self._came |= {(fact.at, id_) for id_ in fact.events}
            case facts.Discarded() if fact.policy:  # Another broker may still have it.
                self._came |= {(fact.client, event.id) for event in fact.events}
            case facts.Repeated():
                self.problems += [
                    f"{event.id} never came to {fact.at}"
                    for event in fact.events
                    if (fact.at, event.id) not in self._came and self._is_wanted(fact.at, event)
                ]
            case facts.Subscribed():
                self._wishes[fact.at, fact.subscription] = fact.filter
                self._known.pop((fact.at, fact.subscription), None)
            case SubscriptionKnown(but_not=()):
                self._known.setdefault((fact.at, fact.subscription), fact.time)
            case facts.Unsubscribed():
                del self._wishes[fact.at, fact.subscription]
                self._known.pop((fact.at, fact.subscription), None)
            case facts.Attached():
                self._links[fact.at].add(fact.link)
            case facts.Detached():
                self._links[fact.at].discard(fact.link)
            case facts.Forgotten():  # It may have missed what was published before.
                self._known = {wish: at for wish, at in self._known.items() if wish[0] != fact.at}
            case _:
                pass

    def _is_wanted(self, client: NodeId, event: Event) -> bool:
        return any(
            self._known.get(wish, event.time_us) < event.time_us
            and filter_.is_bound
            and filter_.matches(event.attributes)
            for wish, filter_ in self._wishes.items()
            if wish[0] == client
        )


class Checked(Simulation):
    """Looks at the tables each time the network has settled."""

    def __init__(self, script: Script) -> None:
        self.once = Once()
        super().__init__(script, [self.once])

    def settle(self) -> None:
        super().settle()
        assert not self.once.problems, self.once.problems
        self.once.settled(self.network.kernel.now)
        brokers: dict[NodeId, Broker] = {
            id_: host.node
            for id_, host in self.network.hosts.items()
            if isinstance(host.node, Broker)
        }
        for client in self.script.clients:
            self._check_place(client, brokers)
        for a, b in self.script.topology.links:
            for teller, listener in ((a, b), (b, a)):
                told = brokers[teller].router.told_filters(listener)
                heard = brokers[listener].router.subscriptions.routes(teller)
                assert told == {id_: route.filter for id_, route in heard.items()}, (
                    f"{listener} knows something else than {teller} has told it"
                )

    def _check_place(self, client: NodeId, brokers: dict[NodeId, Broker]) -> None:
        """What is kept for a roaming client is at one broker only, and all trails lead there."""
        node = self.network.hosts[client].node
        assert isinstance(node, Client)
        hosts = {
            id_: component
            for id_, broker in brokers.items()
            for component in broker.components
            if isinstance(component, Hosting)
        }
        if not hosts:
            return
        homes = [id_ for id_, host in hosts.items() if client in host.guests]
        if node.link is None:  # It has left for good.
            assert not homes, f"{homes} have not forgotten {client}"
        is_connected = node.link in node.up
        if any(isinstance(host, Home) for host in hosts.values()):
            self._check_home(client, node, homes, hosts, brokers)
            return
        expected = [
            id_ for id_ in homes if isinstance(h := hosts[id_], Prefetching) and client in h.copies
        ]
        if not is_connected and expected:  # It was there, and may go to any of these.
            assert homes == expected
            return
        assert homes == [node.link] if is_connected else len(homes) <= 1, f"{client} is at {homes}"
        for id_, broker in brokers.items():
            if id_ not in homes:
                assert client not in broker.peers, f"{id_} keeps a link to {client}"
                assert client not in broker.router.subscriptions.links()
                assert not broker.router.subscriptions.entered(client)
                assert _offered(broker, client) == {}
            host = hosts[id_]
            assert not host.returning, f"{id_} keeps who comes back waiting"
            if isinstance(host, Fetching):
                assert not host.promises, f"{id_} owes a replay"
            if isinstance(host, Relocation):
                assert not host.strangers, f"{id_} keeps requests"
                if homes:
                    assert _end_of_trail(client, id_, hosts) == homes[0]
            if isinstance(host, Prefetching) and is_connected:
                assert client not in host.predicted, f"{id_} still predicts where {client} goes"
                assert client not in host.copies
            if not homes:
                assert client not in host.trails, f"{id_} keeps a trail of {client}"
        if is_connected:
            home = brokers[homes[0]]
            assert len(hosts[homes[0]].guests[client].cache) == 0
            wanted = {
                f"{client}/{name}": filter_
                for name, filter_ in node.subscriptions.items()
                if filter_.is_bound
            }
            known = home.router.subscriptions.routes(client)
            assert {id_: route.filter for id_, route in known.items()} == wanted
            offered = {f"{client}/{name}": filter_ for name, filter_ in node.advertisements.items()}
            assert _offered(home, client) == offered
            guest = hosts[homes[0]].guests[client]
            assert not guest.lost
            assert not guest.missed

    def _check_home(
        self, client: NodeId, node: Client, homes: list[NodeId], hosts: dict[NodeId, Hosting],
        brokers: dict[NodeId, Broker],
    ) -> None:  # fmt: skip
        """A client's subscriptions are at one broker, which knows where the client is."""
        guests = {id_: hosts[id_].guests[client] for id_ in homes}
        own = [id_ for id_, guest in guests.items() if not guest.home]
        visited = [id_ for id_, guest in guests.items() if guest.home]
        assert len(own) <= 1, f"{client} has homes at {own}"
        assert len(visited) <= 1, f"{client} is a visitor at {visited}"
        for id_, broker in brokers.items():
            host = hosts[id_]
            assert isinstance(host, Home)
            assert not host.promises
            assert not host.returning
            if id_ not in homes:
                assert client not in broker.peers, f"{id_} keeps a link to {client}"
                assert _offered(broker, client) == {}
                assert client not in host.visiting
            if id_ not in own:
                assert client not in broker.router.subscriptions.links(), f"{id_} subscribes"
        if node.link is None:
            assert not homes, f"{homes} have not forgotten {client}"
        if node.link not in node.up:
            return
        host = hosts[own[0]]
        assert isinstance(host, Home)
        assert node.link in homes, f"{client} is at {homes}"
        if visited:
            assert visited == [node.link]
            assert host.visiting[client].broker == node.link
            assert host.visiting[client].is_connected
        else:
            assert client not in host.visiting
        for guest in guests.values():
            assert len(guest.cache) == 0
            assert not guest.lost
            assert not guest.missed
        subscribed, advertised = brokers[own[0]].router.announced_by(client)
        assert {r.id: r.filter for r in subscribed} == {
            f"{client}/{name}": filter_
            for name, filter_ in node.subscriptions.items()
            if filter_.is_bound
        }
        for id_, broker in brokers.items():
            moving = broker.part("moving")
            if isinstance(moving, Moving) and id_ not in own:
                assert client not in moving.table, f"{id_} routes for {client} as it moves"
        offered = {f"{client}/{name}": filter_ for name, filter_ in node.advertisements.items()}
        assert {r.id: r.filter for r in advertised} == offered
        _, advertised = brokers[node.link].router.announced_by(client)
        assert {r.id: r.filter for r in advertised} == offered


def _offered(broker: Broker, client: NodeId) -> dict[RouteId, Filter]:
    """What a broker has entered as a client's advertisements; those of an earlier life end soon."""
    routes = broker.router.advertisements.get(client, {})
    earlier = [id_ for id_ in routes if id_.startswith(EARLIER)]
    if earlier:
        assert broker.router.deadline <= broker.router._offers.keep_earlier()[client]
    return {id_: route.filter for id_, route in routes.items() if id_ not in earlier}


def _end_of_trail(client: NodeId, start: NodeId, hosts: dict[NodeId, Hosting]) -> NodeId | None:
    at = start
    for _ in hosts:
        link = hosts[at].trails[client].link
        if link is None:
            return at
        at = link
    return None


def _replay(script: Script) -> str:
    text = to_json(script)
    path = Path(tempfile.gettempdir()) / f"sterna-{hashlib.sha256(text).hexdigest()[:12]}.json"
    path.write_bytes(text)
    return f"replay: sterna sim replay {path}"
