"""How many clients a broker remembers that are away, and whom it forgets first."""

from collections.abc import Iterable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sterna.core import absence, facts
from sterna.core.absence import Absence
from sterna.core.assembly import make_broker
from sterna.core.broker import Broker
from sterna.core.handover.messages import Arrival
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.handover.relocation import Relocation
from sterna.core.inputs import Configured, LinkDown, LinkUp, Received, TimePassed
from sterna.core.keeping import Writer
from sterna.core.link import RELIABLE, Data, Resume
from sterna.core.messages import AdvertisementChange, Message, Route, SubscriptionChange
from sterna.core.names import NodeId, Peer
from sterna.core.node import Turn
from sterna.core.settings import Settings
from sterna.model.filters import Filter
from sterna.wire.snapshots import encode_node, encode_parts, restore_node
from tests.scale import examples

pytestmark = pytest.mark.spec("LV-6")

PROTOCOLS = pytest.mark.parametrize("protocol", [Handover.NONE, Handover.RELOCATION])

LIVES = count(1)


def settings(
    clients_max: int | None, filters_max: int | None = None, protocol: str = Handover.RELOCATION
) -> Settings:
    options = HandoverOptions(
        protocol=protocol, away_clients_max=clients_max, away_filters_max=filters_max
    )
    return Settings(handover=options)


def broker_with(given: Settings) -> Broker:
    return make_broker("B1", given, timing=RELIABLE)


def come(broker: Broker, client: NodeId, filters: int = 0, advertisements: int = 0) -> None:
    """A client without a memory attaches, and announces filters."""
    life = next(LIVES)
    broker.handle(LinkUp(link=client, peer=Peer.CLIENT), 0)
    said: list[Message] = [Arrival(visit=life, born=0, stay=0, received=0)]
    if broker.settings.handover.protocol == Handover.NONE:
        said = []
    if filters:
        said.append(SubscriptionChange(added=routes(client, "s", filters)))
    if advertisements:
        said.append(AdvertisementChange(added=routes(client, "a", advertisements)))
    frames = (Resume(life, None, 0, True), *(Data(n, 0, each) for n, each in enumerate(said, 1)))
    broker.handle(Received(link=client, frames=frames, size=0), 0)
    assert client in broker.up


def routes(client: NodeId, kind: str, count: int) -> tuple[Route, ...]:
    return tuple(Route(f"{client}/{kind}{n}", Filter(f"n = {n}")) for n in range(count))


def go(broker: Broker, client: NodeId) -> list[NodeId]:
    """A client vanishes; return who is forgotten for that."""
    return forgotten(broker.handle(LinkDown(link=client), 0))


def vanish(broker: Broker, client: NodeId, filters: int = 0, advertisements: int = 0) -> list[str]:
    come(broker, client, filters, advertisements)
    return go(broker, client)


def forgotten(turn: Turn) -> list[NodeId]:
    early = [each.client for each in turn.facts if isinstance(each, facts.ForgottenEarly)]
    assert early == [e.client for e in turn.facts if isinstance(e, facts.ClientForgotten)]
    return early


@PROTOCOLS
def test_names_that_vanish_leave_nothing_behind(protocol: str) -> None:
    """Nobody has subscribed, so whoever has been away longest is forgotten, with all of it."""
    broker = broker_with(settings(3, protocol=protocol))
    gone = [each for n in range(10) for each in vanish(broker, f"c{n}")]
    assert gone == [f"c{n}" for n in range(7)]
    assert list(broker.peers) == list(broker.known) == broker.away() == ["c7", "c8", "c9"]
    if protocol == Handover.RELOCATION:
        part = broker.part(Relocation.name)
        assert isinstance(part, Relocation)
        assert list(part.guests) == ["c7", "c8", "c9"]
        assert [f"c{n}" for n in range(10) if f"c{n}" in part.trails] == ["c7", "c8", "c9"]


@PROTOCOLS
def test_whoever_has_subscribed_is_forgotten_last(protocol: str) -> None:
    broker = broker_with(settings(3, protocol=protocol))
    assert vanish(broker, "honest", filters=1) == []
    assert vanish(broker, "friend", filters=1) == []
    for n in range(10):  # An advertisement comes back with its client, and nobody misses it.
        assert vanish(broker, f"c{n}", advertisements=n % 2) == ([f"c{n - 1}"] if n else [])
    assert vanish(broker, "third", filters=1) == ["c9"]
    assert vanish(broker, "c10") == ["c10"]
    assert vanish(broker, "fourth", filters=1) == ["honest"]
    assert broker.away() == ["friend", "third", "fourth"]
    assert len(broker.router.subscriptions) == 3


def test_whoever_comes_back_is_not_away() -> None:
    broker = broker_with(settings(2))
    vanish(broker, "a")
    vanish(broker, "b")
    come(broker, "a")
    assert vanish(broker, "c") == []
    assert go(broker, "a") == ["b"]
    assert vanish(broker, "d") == ["c"]


def test_another_connection_of_the_same_client_is_no_absence() -> None:
    broker = broker_with(settings(1))
    vanish(broker, "honest", filters=1)
    come(broker, "a")
    turn = broker.handle(LinkUp(link="a", peer=Peer.CLIENT), 0)
    assert forgotten(turn) == []
    assert "a" in broker.peers


@PROTOCOLS
def test_those_with_the_most_filters_go_if_there_are_too_many(protocol: str) -> None:
    broker = broker_with(settings(None, 10, protocol=protocol))
    assert vanish(broker, "modest", filters=2) == []
    assert vanish(broker, "greedy", filters=8) == []
    assert vanish(broker, "c0") == []
    assert vanish(broker, "c1", advertisements=3) == ["greedy"]
    assert vanish(broker, "flood", filters=30) == ["flood"]
    assert vanish(broker, "fine", filters=5) == []
    come(broker, "modest", filters=2)
    assert go(broker, "modest") == []
    assert broker.away() == ["modest", "c0", "c1", "fine"]


def test_filters_that_a_client_had_before_do_not_count() -> None:
    broker = broker_with(settings(None, 10))
    assert vanish(broker, "a", filters=9) == []
    come(broker, "a", filters=1)
    assert go(broker, "a") == []
    assert vanish(broker, "b", filters=6) == []
    assert vanish(broker, "c", filters=4) == ["b"]


def test_a_client_that_waits_for_its_replay_is_not_forgotten() -> None:
    broker = broker_with(settings(1, 1))
    come(broker, "waiting", filters=2)
    part = broker.part(Relocation.name)
    assert isinstance(part, Relocation)
    part.guests["waiting"].awaits = 1
    assert go(broker, "waiting") == []
    assert vanish(broker, "other") == ["other"]
    part.guests["waiting"].awaits = None
    assert vanish(broker, "other") == ["other", "waiting"]


def test_a_lower_limit_is_reached_in_parts() -> None:
    """Others have their turn while thousands are forgotten."""
    broker = broker_with(settings(None))
    for n in range(absence.AT_ONCE + 20):
        vanish(broker, f"c{n}")
    turn = broker.handle(Configured(settings=settings(10)), 5)
    assert forgotten(turn) == []
    assert broker.deadline == 5
    assert len(forgotten(broker.handle(TimePassed(), 5))) == absence.AT_ONCE
    assert broker.deadline == 5 + absence.PAUSE_US
    assert len(forgotten(broker.handle(TimePassed(), broker.deadline))) == 10
    assert len(broker.away()) == 10
    assert broker.deadline > 10**18


Step = tuple[int, int, bool]

steps = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.booleans()), max_size=40)
"""A client comes with so many filters, if it is not here; and vanishes, or stays."""


@examples(60)
@given(steps, st.none() | st.integers(1, 4), st.none() | st.integers(1, 6), st.integers(0, 40))
def test_the_bounds_hold_and_the_right_ones_go(
    steps: list[Step], clients_max: int | None, filters_max: int | None, cut: int
) -> None:
    """A list says who has to go; a broker that is restored from a snapshot agrees with it."""
    broker = broker_with(settings(clients_max, filters_max))
    away: list[tuple[str, int]] = []
    here: dict[str, int] = {}
    for place, (number, filters, is_away) in enumerate(steps):
        client = f"c{number}"
        if client not in here:
            away = [each for each in away if each[0] != client]
            come(broker, client, filters)
            here[client] = filters
        if place == cut:
            broker = restored(broker)
        if is_away:
            away.append((client, here.pop(client)))
            assert go(broker, client) == list(surplus(away, clients_max, filters_max))
        assert sorted(broker.away()) == sorted(name for name, _ in away)


def surplus(
    away: list[tuple[str, int]], clients_max: int | None, filters_max: int | None
) -> Iterable[str]:
    """Take those away from the list that have to go, in their order."""
    while True:
        if clients_max is not None and len(away) > clients_max:
            found = next((each for each in away if not each[1]), away[0])
        elif filters_max is not None and sum(filters for _, filters in away) > filters_max:
            found = max(away, key=lambda each: each[1])
        else:
            return
        away.remove(found)
        yield found[0]


def restored(broker: Broker) -> Broker:
    data = encode_node(broker)
    again = restore_node(data, broker_with(broker.settings))
    assert encode_node(again) == data
    return again


def test_a_snapshot_of_an_earlier_release_does_not_say_who_is_away() -> None:
    broker = broker_with(settings(None))
    for n in range(5):
        vanish(broker, f"c{n}", filters=n % 2)
    writer = Writer()
    parts = [part for part in broker.keep(writer) if part.name != Absence.name]
    again = restore_node(encode_parts(parts, writer), broker_with(broker.settings))
    limited = replace(broker.settings.handover, away_clients_max=3)
    again.handle(Configured(settings=replace(broker.settings, handover=limited)), 1)
    assert forgotten(again.handle(TimePassed(), 1)) == ["c0", "c2"]
