"""Clients that roam: single stories, each about one thing that could go wrong."""

from itertools import pairwise

import pytest

from sterna.core import facts
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, Detach, Publish, Subscribe
from sterna.core.settings import ClientOptions
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Do, Drop, Script, Settle, Wait
from sterna.sim.topology import line, random_tree
from tests.sim.judging import run_rightly
from tests.sim.overlay import RELOCATION, Overlay

# ---- Bounds


@pytest.mark.spec("PM-3")
def test_the_ring_keeps_the_latest_of_each_subscription() -> None:
    small = HandoverOptions(protocol=Handover.RELOCATION, cache_events_max=2)
    run = Overlay(line(2), {"C": "B1", "P": "B2"}, handover=small)
    run.subscribe("C", "price > 0", "all").subscribe("C", "price > 90", "dear").settle()
    run.detach("C").wait(1_000)
    for price in (95, 1, 2, 3):
        run.publish("P", price=price)
    run.settle().attach("C", "B2").settle()

    assert run.received("C") == ["P#1", "P#3", "P#4"]  # The first is still in the other ring.
    assert run.facts_of(facts.Missed) == [
        facts.Missed(at="C", time=run.facts_of(facts.Missed)[0].time, events=(EventId("P", 2),))
    ]


@pytest.mark.spec("PM-3")
def test_the_news_of_what_was_missed_is_not_missed_itself() -> None:
    """It is on the air when the client leaves again."""
    small = HandoverOptions(protocol=Handover.RELOCATION, cache_events_max=1)
    run = Overlay(line(2), {"C": "B1", "P": "B2"}, handover=small)
    run.subscribe("C", "price > 0").settle().detach("C").wait(1_000)
    run.publish("P", price=1).publish("P", price=2).settle()
    run.attach("C", "B1").wait(1_500).attach("C", "B2").settle()

    assert run.received("C") == ["P#2"]
    (missed,) = run.facts_of(facts.Missed)
    assert isinstance(missed, facts.Missed)
    assert missed.events == (EventId("P", 1),)


@pytest.mark.spec("PM-3")
def test_what_one_broker_discarded_and_another_kept_is_not_missed() -> None:
    """D wants the event at B3, too, so that it is held there for C, who is just coming."""
    small = HandoverOptions(protocol=Handover.RELOCATION, cache_events_max=1)
    far = (("B1", "B2", 10_000), ("B2", "B3", 10_000))
    clients = {"C": "B1", "D": "B3", "P": "B2", "Q": "B1"}
    run = Overlay(line(3), clients, handover=small, latencies=far)
    run.subscribe("C", "price > 0").subscribe("D", "price = 1").settle()
    run.detach("C").publish("P", price=1).wait(500)
    run.attach("C", "B3").wait(11_500).publish("Q", price=2).settle()

    assert sorted(run.received("C")) == ["P#1", "Q#1"]
    assert len(run.facts_of(facts.Discarded)) == 1
    assert run.facts_of(facts.Missed) == []


@pytest.mark.spec("PM-3")
def test_what_a_broker_discarded_that_still_waits_itself_is_missed() -> None:
    """C goes on to B3 before B1 has answered B2, which could keep one of two events meanwhile."""
    small = HandoverOptions(protocol=Handover.RELOCATION, cache_events_max=1)
    far = (("B1", "B2", 100_000), ("B2", "B3", 10_000))
    run = Overlay(line(3), {"C": "B1", "P": "B2"}, handover=small, latencies=far)
    run.subscribe("C", "price > 0").settle()
    run.attach("C", "B2").wait(10_000).publish("P", price=1).publish("P", price=2).wait(10_000)
    run.attach("C", "B3").settle()

    assert run.received("C") == ["P#2"]
    (missed,) = run.facts_of(facts.Missed)
    assert isinstance(missed, facts.Missed)
    assert missed.events == (EventId("P", 1),)


@pytest.mark.parametrize("bounds", [{"cache_events_max": 0}, {"cache_ttl_us": 0}])
def test_a_cache_that_keeps_nothing_is_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        HandoverOptions(protocol=Handover.RELOCATION, **bounds)


@pytest.mark.spec("PM-3")
def test_what_is_kept_too_long_is_discarded_when_its_time_has_come() -> None:
    short = HandoverOptions(protocol=Handover.RELOCATION, cache_ttl_us=1_000_000)
    run = Overlay(line(2), {"C": "B1", "P": "B2"}, handover=short)
    run.subscribe("C", "price > 0").settle().detach("C").wait(1_000)
    run.publish("P", price=1).wait(600_000).publish("P", price=2).wait(500_000)

    assert len(run.relocation("B1").guests["C"].cache) == 1
    run.attach("C", "B2").settle()
    assert run.received("C") == ["P#2"]


# ---- Single stories


def roaming(clients: dict[str, str], brokers: int = 5) -> Overlay:
    run = Overlay(line(brokers), clients, handover=RELOCATION)
    return run.subscribe("C", "price > 0").settle()


@pytest.mark.spec("PM-3")
def test_moving_after_suspension() -> None:
    """A.1, situation 4: suspended here, resumed there."""
    run = roaming({"C": "B1", "P": "B3"})
    run.detach("C").wait(1_000).publish("P", price=1).settle()
    run.attach("C", "B5").settle().publish("P", price=2).settle()

    assert run.received("C") == ["P#1", "P#2"]


@pytest.mark.spec("PM-4")
def test_back_and_forth_before_anything_is_answered() -> None:
    run = roaming({"C": "B1", "P": "B3"})
    for broker in ("B5", "B1", "B5", "B1"):
        run.attach("C", broker).wait(2_500).publish("P", price=1)
    run.settle()

    assert run.received("C") == ["P#1", "P#2", "P#3", "P#4"]
    assert "C" in run.relocation("B1").guests
    assert "C" not in run.relocation("B5").guests


def slow_line(clients: dict[str, str], brokers: int = 6, hop_us: int = 10_000) -> Overlay:
    """Brokers far from each other, with clients close to all of them, but at 5 ms from B2."""
    names = [f"B{number}" for number in range(1, brokers + 1)]
    hops = tuple((a, b, hop_us) for a, b in pairwise(names))
    air = tuple((c, b, 5_000 if b == "B2" else 100) for c in clients for b in names)
    run = Overlay(line(brokers), clients, handover=RELOCATION, latencies=hops + air)
    subscriber = next(iter(clients))
    return run.subscribe(subscriber, "price > 0").settle()


@pytest.mark.spec("PM-4")
def test_the_request_of_a_broker_that_the_client_has_left_comes_to_where_it_is() -> None:
    """It gets what it asks for; the client is sent away, and comes back with a new request."""
    run = slow_line({"C": "B1", "P": "B6"})
    run.attach("C", "B6").wait(1_000)  # Its request is 50 ms from B1.
    run.attach("C", "B2").wait(41_000)  # It reaches B2 just after C is welcomed there.
    run.publish("P", price=1).settle()

    assert run.received("C") == ["P#1"]
    assert "C" in run.relocation("B2").guests
    assert "C" not in run.relocation("B6").guests


@pytest.mark.spec("PM-4", "RT-5")
def test_what_follows_the_request_of_an_ended_visit_is_there_when_the_client_comes_again() -> None:
    """B2 has not seen C since, but knows what B1 did when it welcomed C later than that."""
    run = Overlay(line(2), {"C": "B1", "P": "B1"}, handover=RELOCATION)
    run.subscribe("C", "price > 0").settle()
    run.fault(Drop(a="B1", b="B2", us=20_000)).attach("C", "B2").wait(5_000)
    run.attach("C", "B1").wait(5_000).publish("C", price=1).wait(2_000)
    run.detach("C").publish("P", price=2).settle()
    assert "C" in run.relocation("B2").guests

    run.attach("C", "B2").publish("C", price=3).settle()
    assert run.received("C") == ["C#1", "P#1", "C#2"]
    assert run.outcome().findings == []


@pytest.mark.spec("PM-4")
def test_an_event_on_the_air_while_two_requests_cross() -> None:
    run = slow_line({"C": "B1", "P": "B6"})
    run.publish("P", price=1).wait(2_500)
    run.attach("C", "B6").wait(1_000).attach("C", "B2").wait(39_500)
    run.attach("C", "B6").wait(1_000).publish("P", price=2).settle()

    assert run.received("C") == ["P#1", "P#2"]


@pytest.mark.spec("PM-4")
def test_an_event_on_the_air_and_a_client_that_comes_back_but_says_nothing() -> None:
    """B2 knows that C has forgotten the link; what C says is lost, for it is gone again."""
    run = slow_line({"C": "B2", "P": "B2"})
    run.publish("P", price=1).wait(6_000)
    run.attach("C", "B1").wait(50).attach("C", "B2").wait(7_000).attach("C", "B1").settle()

    assert run.received("C") == ["P#1"]


@pytest.mark.spec("PM-2")
def test_a_client_that_has_forgotten_the_link_is_welcomed_first() -> None:
    """It counts what it gets from the welcome on, so nothing may come before."""
    run = slow_line({"C": "B2", "P": "B6"})
    run.detach("C").wait(1_000).publish("P", price=1).settle()
    before = len(run.trace.lines)
    run.attach("C", "B1").wait(50).attach("C", "B2").settle()

    said = [
        line.split("  ")[-1].split(",")[0] for line in run.trace.lines[before:] if "B2 → C" in line
    ]
    assert said == ["Welcome", "Replayed P#1"]
    assert run.received("C") == ["P#1"]


@pytest.mark.spec("PM-4", "QU-1")
def test_a_publisher_that_quenches_and_comes_back_hears_everything_anew() -> None:
    """B1 has told it before what is wanted; but in between it has asked others, and forgot."""
    run = Overlay(line(5), {"S": "B5", "P": "B1"}, None, ClientOptions(quenching=True),
                  handover=RELOCATION)  # fmt: skip
    run.subscribe("S", "price > 0").settle().publish("P", price=1).settle()
    run.attach("P", "B2").wait(500).attach("P", "B1").publish("P", price=2).settle()

    assert run.received("S") == ["P#1", "P#2"]


@pytest.mark.spec("PM-4", "RT-5")
def test_a_publisher_whose_requests_cross() -> None:
    run = slow_line({"S": "B6", "P": "B1"})
    run.attach("P", "B6").wait(1_000).attach("P", "B2").wait(55_000)
    run.publish("P", price=1).wait(21_000)
    run.attach("P", "B6").publish("P", price=2).settle()

    assert run.received("S") == ["P#1", "P#2"]


@pytest.mark.spec("PM-4")
def test_a_request_that_speaks_of_an_older_stay() -> None:
    """What was confirmed since is not counted against what was not."""
    run = slow_line({"C": "B1", "P": "B2"}, hop_us=20_000)
    run.attach("C", "B6").wait(1_000)
    run.attach("C", "B2").wait(46_500)
    run.publish("P", price=1).wait(27_500)
    run.publish("P", price=2).publish("P", price=3).wait(5_500)
    run.detach("C").settle().attach("C", "B2").settle()

    assert run.received("C") == ["P#1", "P#2", "P#3"]


@pytest.mark.spec("PM-4", "RT-5")
def test_back_where_it_was_not_welcomed_before_that_broker_knows_where_it_was() -> None:
    steps = (
        Do(client="P", what=Detach()),
        Do(client="S", what=Subscribe(subscription="1", filter=Filter("price > 0"))),
        Settle(),
        Do(client="P", what=Attach(broker="B1")),
        Wait(us=250),  # B1 knows it.
        Do(client="P", what=Attach(broker="B2")),
        Wait(us=1_000),  # But B2 welcomes it first.
        Do(client="P", what=Publish(attributes={"price": 1})),
        Wait(us=25_000),
        Do(client="P", what=Attach(broker="B1")),  # It takes 50 ms until B1 hears of that.
        Do(client="P", what=Publish(attributes={"price": 2})),
    )
    script = Script(
        topology=line(2),
        clients={"P": "B1", "S": "B1"},
        steps=steps,
        handover=RELOCATION,
        latencies=(("B1", "B2", 50_000), ("P", "B1", 100), ("P", "B2", 100)),
    )
    outcome = run_rightly(script)
    assert outcome.delivered == 2
    assert outcome.messages["Arrival"] == 4  # One for each visit: it is not sent away again.


@pytest.mark.spec("PM-3", "PM-4")
def test_leaving_before_the_first_welcome() -> None:
    """B1 has announced the client, which never learned of it; only what B5 announces counts."""
    script = Script(topology=line(5), clients={"C": "B1", "P": "B3"}, steps=(), handover=RELOCATION)
    simulation = Simulation(script)
    simulation.do(Wait(us=2_500))  # The client is known at B1, but B1 not to the client.
    simulation.do(Do(client="C", what=Attach(broker="B5")))
    simulation.do(Do(client="C", what=Subscribe(subscription="1", filter=Filter("price > 0"))))
    simulation.settle()
    simulation.do(Do(client="C", what=Attach(broker="B2")))
    simulation.settle()
    simulation.do(Do(client="P", what=Publish(attributes={"price": 1})))
    simulation.settle()

    assert [id_.seq for id_ in simulation.oracle.received("C")] == [1]
    for broker in ("B1", "B3", "B4", "B5"):
        assert "C" not in simulation.network.hosts[broker].node.peers


@pytest.mark.spec("PM-4", "RT-5")
def test_a_publisher_that_moves_keeps_its_order() -> None:
    """What it publishes at the new place waits until all from the old place is on its way."""
    run = Overlay(line(5), {"C": "B1", "P": "B1"}, handover=RELOCATION)
    run.subscribe("C", "price > 0").settle()
    run.attach("P", "B5").settle()
    run.publish("P", price=1).wait(500).attach("P", "B2").publish("P", price=2).settle()

    assert run.received("C") == ["P#1", "P#2"]
    assert run.outcome().findings == []


@pytest.mark.spec("PM-4")
def test_a_client_that_does_not_say_goodbye_is_forgotten_where_it_was() -> None:
    run = roaming({"C": "B1", "P": "B3"})
    run.attach("C", "B5").settle()

    assert run.broker("B1").peers.keys() == {"B2"}
    assert run.table("B1") == {"B2": ["price > 0"]}


@pytest.mark.spec("PM-4")
def test_a_broker_that_forgets_hears_again_where_clients_are() -> None:
    run = Overlay(line(5), {"C": "B1", "P": "B1"}, handover=RELOCATION, crashing=["B3"])
    run.subscribe("C", "price > 0").settle()
    run.fault(Crash(broker="B3", us=1_000, forgets=True)).settle()
    run.detach("C").wait(1_000).publish("P", price=1).settle()

    run.attach("C", "B5").settle().publish("P", price=2).settle()

    assert run.received("C") == ["P#1", "P#2"]


@pytest.mark.spec("PM-5")
def test_a_handover_asks_only_the_brokers_on_the_way() -> None:
    """However many others there are."""
    run = Overlay(random_tree(30, 3), {"C": "B1", "P": "B3"}, handover=RELOCATION)
    run.subscribe("C", "price > 0").settle()
    near = run.simulation.script.topology.links[0]
    assert near[0] == "B1"
    run.attach("C", near[1]).settle()

    assert run.sent("Resubscribe") + run.sent("Fetch") == run.sent("Replay") == 1


def test_a_script_in_which_clients_move_needs_a_handover() -> None:
    steps = (Do(client="C", what=Attach(broker="B2")),)
    with pytest.raises(ValueError, match="step 1: there is no handover protocol"):
        Script(topology=line(2), clients={"C": "B1"}, steps=steps)
