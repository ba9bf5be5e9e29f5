"""What brokers and clients of release 0.1 kept, as records: a function for each of its classes.

They are in the order of a node's parts. Routing has a module of its own.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from sterna.core.absence import Absence
from sterna.core.client import CLIENT, KeptClient, Leaving
from sterna.core.handover.cache import KeptCache
from sterna.core.handover.guests import KeptGuest, Presence
from sterna.core.handover.promises import KeptPromise
from sterna.core.handover.relocation import KeptRelocation
from sterna.core.handover.roaming import KeptRoaming
from sterna.core.handover.trails import Departure, KeptTrails, Trail
from sterna.core.history.recall import KeptHeld, KeptRecall
from sterna.core.history.recent import KeptQuestion, KeptRecent
from sterna.core.keeping import Part, Writer
from sterna.core.link import KeptSession
from sterna.core.location.context import Variable
from sterna.core.location.measuring import KeptMeasuring
from sterna.core.location.moving import KeptAway, KeptMoving
from sterna.core.location.telling import KeptShare, KeptTelling, Likeness
from sterna.core.location.whereabouts import KeptWhereabouts
from sterna.core.messages import Route
from sterna.core.names import NEVER, LinkId, NodeId, RouteId, Time
from sterna.core.node import KEPT_NODE, NODE, KeptLink, KeptNode
from sterna.core.overlay.members import KeptMembers
from sterna.core.publishing import KeptPublishing
from sterna.core.quenching import KeptInterest, KeptOutbox, Quenching
from sterna.core.routing.stages import EVERYTHING
from sterna.model.event import Event, EventId
from sterna.net.release_0_1.reading import Old
from sterna.net.release_0_1.routing import router
from sterna.wire.snapshots import encode_parts

VERSION = 1
"""The version of every record that is made here, but for that of the node."""


def broker(old: Old) -> bytes:
    """All that a broker kept, as `restore_node` reads it."""
    writer = Writer()
    return encode_parts(_parts(old, writer), writer)


def client(old: Old) -> bytes:
    """All that a client kept, as `restore_node` reads it."""
    writer = Writer()
    mine = Part(CLIENT, VERSION, _client(old, writer))
    return encode_parts([*_parts(old, writer), mine], writer)


def _parts(old: Old, writer: Writer) -> list[Part]:
    parts = [Part(NODE, KEPT_NODE.version, _node(old, writer))]
    for component in old.components:
        name, convert = COMPONENTS[type(component).__name__]
        if convert is not None:
            parts.append(Part(name, VERSION, convert(component, writer)))
    return parts


# ---- Every node


def _node(old: Old, writer: Writer) -> KeptNode:
    return KeptNode(
        incarnation=old.incarnation,
        next_session=old._incarnation,
        deadline=old.deadline,
        links=[
            KeptLink(link, old.peers[link], link_session(session, writer))
            for link, session in old._sessions.items()
        ],
        known=list(old._known),
        up=list(old.up),
        deadlines=_deadlines(old),
        ending=[],
    )


def _deadlines(old: Old) -> dict[str, Time]:
    found: dict[str, Time] = {}
    for each in old.components:
        name, _ = COMPONENTS[type(each).__name__]
        found[name] = vars(each).get("deadline", NEVER)
        if name == Quenching.name:
            found[Absence.name] = NEVER  # Today's brokers have it behind this one.
    return found


def link_session(old: Old, writer: Writer) -> KeptSession:
    """One end of a link; between turns, nothing waits in its outbox."""
    return KeptSession(
        incarnation=old.incarnation,
        partner=old.partner,
        state=old.state,
        next_seq=old._next_seq,
        unacknowledged=[
            (data.seq, data.acknowledged, writer.message(data.message))
            for data in old._unacknowledged
        ],
        expected=old._expected,
        early={seq: writer.message(message) for seq, message in old._early.items()},
        ack_due=old._ack_due,
        ack_at=old._ack_at,
        resend_at=old._resend_at,
        resend_wait=old._resend_wait,
        wake_at=old.wake_at,
        transmitted=old._next_seq - 1,
    )


# ---- The overlay


def members(old: Old, _writer: Writer) -> KeptMembers:
    """A broker's view of the overlay."""
    return KeptMembers(_lists(old._heard), _lists(old._told))


# ---- The past


def recent(old: Old, writer: Writer) -> KeptRecent:
    """The events that passed a broker."""
    return KeptRecent(
        batches=[_events(events, writer) for events, _ in old._batches],
        has_archive=old.has_archive,
        questions=[question(each, writer) for each in old._questions.values()],
        number=old._number,
        sizes=[size for _, size in old._batches],
    )


def question(old: Old, writer: Writer) -> KeptQuestion:
    """A lookup in the archive that a client waits for."""
    asked = writer.message(old.asked)
    return KeptQuestion(asked, old.link, _events(old.found, writer), old.look_up)


def recall(old: Old, writer: Writer) -> KeptRecall:
    """The client's requests for the past."""
    return KeptRecall(
        asked=list(old._asked.values()),
        sent=list(old._said),
        held=[held(each, writer) for each in old._held],
        recalled=old._recalled,
        number=old._number,
    )


def held(old: Old, writer: Writer) -> KeptHeld:
    """An event that waits for earlier ones."""
    return KeptHeld(writer.event(old.event), old.subscriptions, old.anywhere, old.is_past)


# ---- Moving subscriptions


def moving(old: Old, _writer: Writer) -> KeptMoving:
    """The broker's part in moving subscriptions. What it caches of filters is computed again."""
    return KeptMoving(
        measured=measuring(old),
        table={link: list(routes.values()) for link, routes in old.table.items()},
        told={link: telling(each) for link, each in old._told.items()},
        away={
            link: KeptAway(away.since, list(away.told.values()), away.due)
            for link, away in old._away.items()
        },
        names=old._names - 1,
    )


def measuring(old: Old) -> KeptMeasuring:
    """How long messages take over links."""
    return KeptMeasuring(old._number, old._sent, old._due, _lists(old._trips), old._delays)


def telling(old: Old) -> KeptTelling:
    """What is announced to one neighbour of moving routes."""
    numbers = {like: number for number, like in enumerate(old.shares)}
    return KeptTelling(
        shares=[share(like, each) for like, each in old.shares.items()],
        places=[(source, numbers[like], at) for source, (like, at) in old.places.items()],
        changed=[numbers[like] for like in old._changed],
    )


def share(like: tuple[Any, ...], old: Old) -> KeptShare:
    """Routes that are alike but for the location; with simple routing, each had its own."""
    match like:
        case (str(link), id_, (filter_, dwell_us, delay_us)):
            likeness = Likeness(filter_, dwell_us, delay_us, (link, id_))
        case (filter_, dwell_us, delay_us):
            likeness = Likeness(filter_, dwell_us, delay_us)
        case _:
            raise ValueError("routes are not alike in what they should be")
    return KeptShare(likeness, old.routes, dict(old.clients), old.told_as)


def whereabouts(old: Old, _writer: Writer) -> KeptWhereabouts:
    """The client's part in moving subscriptions: its location and its variables."""
    variables = old.context.variables
    return KeptWhereabouts(
        measured=measuring(old),
        location=old.context.location,
        variables={name: Variable(v.value, v.low, v.high) for name, v in variables.items()},
        stays=list(old._stays._last_us),
        since=old._since,
        told=list(old._told.values()),
        has_told=old._has_told,
        was_away=old._was_away,
    )


# ---- Relocation


def relocation(old: Old, writer: Writer) -> KeptRelocation:
    """The brokers' part in relocation."""
    return KeptRelocation(
        guests=[guest(name, each, writer) for name, each in old.guests.items()],
        trails=KeptTrails(
            {name: Trail(each.link, each.born) for name, each in old.trails.items()},
            {name: Departure(each.visit, each.published) for name, each in old.departed.items()},
        ),
        promises=[
            promise(name, number, each, writer) for (name, number), each in old.promises.items()
        ],
        strangers=[
            (writer.message(each.request), each.source, each.since)
            for each in chain.from_iterable(old.strangers.values())
        ],
        returning={
            name: (writer.message(arrival), since)
            for name, (arrival, since) in old.returning.items()
        },
        held={
            link: [writer.message(message) for message in waiting]
            for link, waiting in old._held.items()
        },
        number=old._number,
    )


def guest(name: NodeId, old: Old, writer: Writer) -> KeptGuest:
    """A client of a border broker. Three flags said whether it can be sent something."""
    presence = Presence.HERE if old.is_here else Presence.AWAY
    if old.has_forgotten:
        presence = Presence.FORGETFUL
    return KeptGuest(
        client=name,
        visit=old.visit,
        born=old.born,
        presence=presence,
        awaits=old.awaits,
        stay=old.stay,
        sent=old.sent,
        cache=cache(old.cache, writer),
        lost=_events(old.lost, writer),
        missed=old.missed,
        moving=_moving(old),
        published=old.published,
        departing=old.departing,
        away_since=old.away_since,
    )


def cache(old: Old, writer: Writer) -> KeptCache:
    """What is kept for a guest that is away."""
    return KeptCache(
        [(number, writer.event(kept.event), kept.since) for number, kept in old._kept.items()],
        _lists(old._rings),
        old._count,
    )


def promise(name: NodeId, awaits: int, old: Old, writer: Writer) -> KeptPromise:
    """The replay that another broker waits for."""
    return KeptPromise(
        client=name,
        awaits=awaits,
        request=writer.message(old.request),
        lost=_events(old.lost, writer),
        held=_events(old.held, writer),
        missed=old.missed,
        moving=_moving(old),
        published=old.published,
        departing=old.departing,
    )


def roaming(old: Old, _writer: Writer) -> KeptRoaming:
    """The client's part in relocation."""
    return KeptRoaming(
        seen=old.seen,
        visit=old._visit,
        born=old._born,
        stay=old._stay,
        received=old._received,
        is_welcome=old._is_welcome,
        left_at=old._left_at,
    )


# ---- Every client


def _client(old: Old, writer: Writer) -> KeptClient:
    return KeptClient(
        subscriptions=old.subscriptions,
        publishing=KeptPublishing(
            advertisements=old.advertisements,
            seq=old._seq,
            first_seq=old._first_seq,
            announced=list(old._announced.values()),
            undo=_undo(old),
            interest=interest(old._interest),
            has_asked=old._has_asked,
            outbox=outgoing(old._outgoing, writer),
        ),
        link=old._link,
        is_introduced=old._is_introduced,
        leaving=_leaving(old),
        comes_back=old._comes_back,
    )


def _leaving(old: Old) -> Leaving:
    if old._has_said_farewell:
        return Leaving.FAREWELL_SENT
    return Leaving.LEAVING if old._is_leaving else Leaving.STAYING


def _undo(old: Old) -> list[tuple[int, tuple[Route, ...]]]:
    """Changes of advertisements that are not confirmed: the very messages that a session keeps."""
    session = old._sessions.get(old._link)
    sent = () if session is None else session._unacknowledged
    return [
        (place, ended)
        for place, data in enumerate(sent)
        for change, ended in old._undo
        if change is data.message
    ]


def interest(old: Old | None) -> KeptInterest:
    """What is wanted, as far as a client knows; None where the network does not quench.

    More than a few filters were kept in compiled form only. Then all events are wanted until the
    broker withdraws each of these filters, or another broker announces them anew: a client that
    asked again would be sent only what has changed.
    """
    if old is None:
        return KeptInterest(asked=0, is_current=False, version=0, known=[])
    few, table = old._filters._few, old._filters._table
    known = few if table is None else dict.fromkeys(table._rows, EVERYTHING)
    routes = [Route(id_, filter_) for id_, filter_ in known.items()]
    return KeptInterest(old.asked, old.current, old.version, routes)


def outgoing(old: Old, writer: Writer) -> KeptOutbox:
    """What waits for a connection."""
    waiting = [
        (True, writer.event(each)) if isinstance(each, Event) else (False, writer.message(each))
        for each in old._waiting
    ]
    return KeptOutbox(waiting, old._wanted, old._version)


# ---- What several of them have


def _events(events: Iterable[Event], writer: Writer) -> list[int]:
    return [writer.event(event) for event in events]


def _moving(old: Old) -> list[tuple[EventId, tuple[RouteId, ...]]]:
    """For which moving subscriptions events are kept."""
    return list(old.moving.items())


def _lists(groups: Mapping[LinkId, Iterable[Any]]) -> dict[str, list[Any]]:
    return {name: list(group) for name, group in groups.items()}


Convert = Callable[[Old, Writer], object]

COMPONENTS: dict[str, tuple[str, Convert | None]] = {
    "Router": ("routing", router),
    "Quenching": ("quenching", None),
    "Members": ("overlay", members),
    "Recent": ("past", recent),
    "Recall": ("past", recall),
    "Moving": ("moving", moving),
    "Whereabouts": ("moving", whereabouts),
    "Naive": ("naive", None),
    "Relocation": ("relocation", relocation),
    "Roaming": ("relocation", roaming),
}
"""By class: the name of the component today, and what it keeps, if it keeps anything."""
