"""How much is queued, and what is given up when that is too much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.assembly import make_broker
from sterna.core.handover.messages import Located
from sterna.core.handover.missed import MISSED_BYTES, PUBLISHER_BYTES
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import LinkDown, MemoryShort
from sterna.core.link import RELIABLE, Ack, LinkSession, Resume
from sterna.core.messages import Events, InterestKnown, Message
from sterna.core.mobility import MobilityOptions
from sterna.core.sizes import MESSAGE_BYTES, Load, load
from sterna.model.event import Event
from sterna.net.broker.budget import Weighing
from sterna.sim.topology import line
from sterna.wire.snapshots import encode_node, restore_node
from tests.mobility import model_of
from tests.scale import examples
from tests.sim.overlay import RELOCATION, Overlay


def events(*sizes: int) -> Events:
    return Events(
        events=tuple(
            Event(publisher="p", seq=seq, time_us=0, attributes={"n": 1}, payload=bytes(size))
            for seq, size in enumerate(sizes, 1)
        )
    )


@pytest.mark.spec("LV-6")
@examples(100)
@given(st.lists(st.one_of(st.lists(st.integers(0, 99), max_size=3), st.integers(0, 5), st.none())))
def test_a_session_counts_what_is_not_confirmed(steps: list[list[int] | int | None]) -> None:
    """Each step sends events of some sizes, confirms so many messages, or asks."""
    session = LinkSession(1, RELIABLE)
    session.open(0)
    session.receive(Resume(2, 1, 0, False), 0)
    confirmed = sent = 0
    for step in steps:
        if step is None:
            assert session.queued(Weighing().load) == _unconfirmed(session)
        elif isinstance(step, int):
            confirmed = min(sent, confirmed + step)
            session.receive(Ack(confirmed), 0)
        else:
            sent += 1
            session.send(events(*step) if step else InterestKnown(number=1), 0)
        assert session.backlog == sent - confirmed
    session.close()
    session.begin_anew(3)
    assert session.queued() == _unconfirmed(session)


def _unconfirmed(session: LinkSession) -> Load:
    loads = [load(each) for each in session.unconfirmed() if isinstance(each, Message)]
    return Load(sum(each.events for each in loads), sum(each.bytes for each in loads))


def test_what_goes_to_many_is_weighed_once() -> None:
    weighing, same = Weighing(), events(1, 2)

    assert weighing.load(same) is weighing.load(Events(events=same.events))
    assert weighing.load(events(1, 2)) == load(same)
    assert weighing.load(InterestKnown(number=1)) == load(InterestKnown(number=1))


def test_an_event_takes_its_payload_and_more() -> None:
    assert load(events(1_000, 2_000)).events == 2
    assert 3_000 < load(events(1_000, 2_000)).bytes < 3_300
    assert load(events(1_000, 2_000)).memory_bytes > 4_000
    assert load(InterestKnown(number=1)) == Load(0, MESSAGE_BYTES)


def away(**clients: int) -> Overlay:
    """Clients that are away, each with so many events that were kept for it."""
    run = Overlay(line(1), dict.fromkeys((*clients, "P"), "B1"), handover=RELOCATION)
    for client in clients:
        run.subscribe(client, f"for = '{client}'")
    run.settle()
    for client in clients:
        run.detach(client)
    run.wait(1_000)
    for client, count in clients.items():
        for _ in range(count):
            run.publish("P", **{"for": client})
    return run.settle()


@pytest.mark.spec("LV-6", "PM-3")
def test_those_for_which_the_most_is_kept_lose_the_oldest() -> None:
    run = away(much=50, more=60, little=5)
    broker = run.broker("B1")
    room = 25 * broker.kept("little").memory_bytes // 5
    broker.handle(MemoryShort(away_bytes_max=room), 10**6)
    kept = {client: broker.kept(client).events for client in ("much", "more", "little")}
    assert kept == {"much": 10, "more": 10, "little": 5}
    for client in kept:
        run.attach(client, "B1")
    run.settle()
    assert {client: len(run.received(client)) for client in kept} == kept
    missed = {fact.at: len(fact.events) for fact in run.facts_of(facts.Missed)}  # type: ignore[attr-defined]
    assert missed == {"much": 40, "more": 50}


@pytest.mark.spec("LV-6", "PM-3")
def test_nothing_is_lost_while_there_is_room() -> None:
    run = away(much=50, little=5)
    broker = run.broker("B1")
    turn = broker.handle(MemoryShort(away_bytes_max=10**6), 10**6)
    assert turn.facts == []
    assert broker.kept("much").events == 50


@pytest.mark.spec("LV-6")
def test_a_client_with_too_much_unconfirmed_is_forgotten() -> None:
    """What was sent may have arrived, so it cannot be discarded in parts."""
    run = away(one=3, other=3)
    broker, now = run.broker("B1"), 10**6
    for _ in range(9):
        broker.send("one", events(1_000), now)
    turn = broker.handle(MemoryShort(away_bytes_max=10_000), now)
    assert [fact.client for fact in turn.facts if isinstance(fact, facts.ClientForgotten)] == [
        "one"
    ]
    assert broker.away() == ["other"]
    assert broker.kept("other").events == 3


@pytest.mark.spec("LV-6")
def test_without_handover_the_longest_queues_are_forgotten() -> None:
    run = Overlay(line(1), {"one": "B1", "other": "B1"})
    run.settle().detach("one").detach("other").wait(1_000)
    broker, now = run.broker("B1"), 10**6
    for client, count in (("one", 9), ("other", 2)):
        for _ in range(count):
            broker.send(client, events(1_000), now)
    assert broker.queued("one").events == 9
    broker.handle(MemoryShort(away_bytes_max=10_000), now)
    assert broker.away() == ["other"]


@pytest.mark.spec("LV-6")
def test_the_list_of_what_was_discarded_counts_and_is_bounded() -> None:
    """It cannot be shortened, so a client with a list that is too long is forgotten."""
    run = away(much=50, little=1)
    broker, now = run.broker("B1"), 10**6
    broker.handle(MemoryShort(away_bytes_max=broker.kept("little").memory_bytes), now)
    assert broker.kept("much") == Load(0, 50 * MISSED_BYTES + PUBLISHER_BYTES)

    turn = broker.handle(MemoryShort(away_bytes_max=2 * PUBLISHER_BYTES + 500), now)
    early = [fact.client for fact in turn.facts if isinstance(fact, facts.ForgottenEarly)]
    assert early == ["much"]
    assert broker.away() == ["little"]


@pytest.mark.spec("LV-6")
def test_what_may_be_lost_counts() -> None:
    """A client that comes back without a memory has not confirmed it, and may not get it either."""
    run = away(one=0)
    broker = run.broker("B1")
    guest = run.relocation("B1").guests["one"]
    before = broker.kept("one")
    run.relocation("B1").link_reset("one", [events(1_000), events(1_000)], 10**6)
    assert broker.kept("one") == before.plus(load(events(1_000, 1_000)))
    guest.lost = []
    assert broker.kept("one") == before


@pytest.mark.spec("LV-6")
def test_news_for_a_neighbour_that_is_down_counts() -> None:
    """Clients are born and leave meanwhile: it has to learn of all of them."""
    run = Overlay(line(2), {}, handover=RELOCATION).settle()
    broker, now = run.broker("B1"), 10**6
    broker.handle(LinkDown(link="B2"), now)
    relocation = run.relocation("B1")
    for n in range(5):
        relocation.announce(Located(client=f"c{n}", born=1), None, now)
    assert broker.kept("B2") == Load(0, 5 * MESSAGE_BYTES)
    again = restore_node(encode_node(broker), make_broker("B1", broker.settings))
    assert again.kept("B2") == broker.kept("B2")
    relocation.courier.take("B2")
    assert broker.kept("B2") == Load(0, 0)


@pytest.mark.spec("LV-6", "DO-2", "DO-4")
@pytest.mark.parametrize("protocol", [Handover.HOME, Handover.PREFETCHING])
def test_what_is_kept_for_clients_without_a_link_counts_and_is_bounded(protocol: Handover) -> None:
    """A visitor that is disconnected has its events at home; they may be at a predicted broker."""
    model = MobilityOptions(model=model_of({("B2", "B1"): 1}).to_bytes())
    run = Overlay(
        line(2),
        {"C": "B1", "P": "B2"},
        handover=HandoverOptions(protocol=protocol),
        mobility=model if protocol is Handover.PREFETCHING else None,
    )
    run.subscribe("C", "n > 0").settle().detach("C").settle().attach("C", "B2").settle()
    run.detach("C").settle()
    for number in range(1, 51):
        run.publish("P", n=number)
    run.settle()
    broker = run.broker("B1")
    assert (broker.hosted(), broker.kept("C").events) == (["C"], 50)

    broker.handle(MemoryShort(away_bytes_max=broker.kept("C").memory_bytes // 2), 10**9)

    assert 0 < broker.kept("C").events < 50
