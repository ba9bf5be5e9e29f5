"""Nobody waits for ever for a client that no broker knows."""

import pytest

from sterna.core import facts
from sterna.core.client import Client
from sterna.core.handover import trails
from sterna.core.handover.messages import Arrival, Departed, Located, Replay, Resubscribe
from sterna.core.handover.roaming import NEWS_US
from sterna.core.inputs import LinkUp, Received
from sterna.core.link import Data, Resume
from sterna.core.names import Peer
from sterna.sim.script import Crash
from sterna.sim.topology import line
from tests.sim.overlay import RELOCATION, Overlay
from tests.sim.test_leaving import kept, leave, three


@pytest.mark.spec("LV-6")
def test_a_client_that_nobody_knows_does_not_wait_for_ever() -> None:
    """Its broker has lost its memory, and the others only know that it was there."""
    run = three().detach("ann").wait(5_000)
    run.fault(Crash(broker="B1", us=10_000, forgets=True)).settle()
    run.attach("ann", "B1").wait(NEWS_US // 2)
    assert run.facts_of(facts.Forgotten) == []
    run.settle()

    assert len(run.facts_of(facts.Forgotten)) == 1
    run.publish("pat", kind="x").settle()
    assert run.received("ann") == ["pat#1"]


@pytest.mark.spec("LV-6")
def test_who_went_on_while_nobody_knew_it_is_not_kept() -> None:
    run = three().detach("ann").wait(5_000)
    run.fault(Crash(broker="B1", us=10_000, forgets=True)).settle()
    run.attach("ann", "B1").wait(10_000).detach("ann").settle()
    assert "guest at B1" not in kept(run)
    assert run.facts_of(facts.Forgotten) == []


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("us", [0, 3_500], ids=["before", "during"])
def test_who_is_behind_a_link_that_was_taken_away_does_not_wait_for_ever(us: int) -> None:
    run = three().attach("ann", "B3").wait(us)
    run.simulation.network.end("B1", "B2")
    run.settle()

    assert len(run.facts_of(facts.Forgotten)) == 1
    run.publish("pat", kind="x").settle()
    assert run.received("ann") == ["pat#1"]


@pytest.mark.spec("LV-6")
def test_a_broker_without_a_memory_hears_who_has_left() -> None:
    """What it had not handed on before goes on now: nobody keeps a trail."""
    run = three()
    leave(run).wait(1_500)  # B1 knows, and B2 does not hear of it.
    run.fault(Crash(broker="B2", us=10_000, forgets=True)).settle()
    assert kept(run) == []


@pytest.mark.spec("LV-6")
def test_who_comes_back_does_not_wait_for_ever_for_its_departure() -> None:
    run = leave(three()).settle()
    for broker in ("B1", "B2", "B3"):
        run.relocation(broker).trails.departures.clear()
    run.attach("ann", "B1").wait(NEWS_US // 2)
    assert "return at B1" in kept(run)
    run.settle()
    assert "guest at B1" in kept(run)


@pytest.mark.spec("LV-6")
def test_who_comes_back_much_later_does_not_wait() -> None:
    run = leave(three()).settle().wait(NEWS_US)
    for broker in ("B1", "B2", "B3"):
        run.relocation(broker).trails.departures.clear()
    run.attach("ann", "B1").wait(10_000)
    assert "guest at B1" in kept(run)


@pytest.mark.spec("LV-6")
def test_only_so_many_requests_for_unknown_clients_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trails, "STRANGERS_MAX", 3)
    clients = {f"c{number}": "B2" for number in range(6)}
    run = Overlay(line(3), clients, handover=RELOCATION, crashing=["B2"]).settle()
    for client in clients:
        run.detach(client)
    run.wait(5_000).fault(Crash(broker="B2", us=10_000, forgets=True)).settle()
    for client in clients:
        run.attach(client, "B2")
    run.wait(50_000)

    waiting = run.relocation("B2").strangers
    assert waiting.clients() == ["c3", "c4", "c5"]
    assert [fact.at for fact in run.facts_of(facts.Forgotten)] == ["c0", "c1", "c2"]
    run.settle()
    assert len(run.facts_of(facts.Forgotten)) == 6


@pytest.mark.spec("LV-6")
def test_only_so_many_departures_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trails, "DEPARTED_MAX", 2)
    clients = {f"c{number}": "B1" for number in range(4)}
    run = Overlay(line(2), clients, handover=RELOCATION).settle()
    for client in ("c2", "c0", "c3"):
        leave(run, client).settle()
    for broker in ("B1", "B2"):
        assert list(run.relocation(broker).trails.departures) == ["c0", "c3"]


@pytest.mark.spec("LV-6")
def test_what_belongs_to_an_earlier_visit_changes_nothing() -> None:
    """News that come late do not bring back who has left, nor send away who is back."""
    run = leave(three()).settle()
    part, born = run.relocation("B2"), 1
    part.on_located(Located(client="ann", born=born), "B1", 0)
    assert "ann" not in part.trails

    run.attach("ann", "B3").settle()
    before = part.trails["ann"]
    part.on_departed(Departed(client="ann", visit=born, published=0), "B1", 0)
    assert part.trails["ann"] == before


@pytest.mark.spec("LV-6")
def test_a_request_that_waits_for_news_is_answered_by_a_departure() -> None:
    run = Overlay(line(3), {}, handover=RELOCATION).settle()
    part = run.relocation("B2")
    request = Resubscribe(
        client="zoe", number=4, born=2, stay=2, received=0, filters=(), path=("B1",)
    )
    part.on_resubscribe(request, "B1", 0)
    part.on_departed(Departed(client="zoe", visit=1, published=0), "B3", 0)
    assert len(part.strangers) == 1

    part.on_departed(Departed(client="zoe", visit=2, published=7), "B3", 0)
    (*_, answer) = run.broker("B2").unconfirmed("B1")
    assert isinstance(answer, Replay)
    assert (answer.number, answer.forgotten, answer.published) == (4, True, 7)
    assert not part.strangers


@pytest.mark.spec("LV-6")
def test_a_first_arrival_that_is_read_late_is_sent_away() -> None:
    """The client has turned to another broker since, which has announced it."""
    run = Overlay(line(2), {"ann": "B1"}, handover=RELOCATION).settle()
    broker, client = run.broker("B2"), Client("ann")
    client.handle(LinkUp(link="B2", peer=Peer.BROKER), 0)
    broker.handle(LinkUp(link="ann", peer=Peer.CLIENT), 0)
    late = Data(1, 0, Arrival(visit=1, born=0, stay=0, received=0))
    broker.handle(Received(link="ann", frames=(Resume(0, None, 0, answers=True), late)), 0)

    assert "ann" not in broker.peers
    assert run.relocation("B2").trails["ann"].link == "B1"
