"""Clients that come back, connections that flap, and messages that are lost at a bad moment.

These are stories of what the strategies of Burcea et al. must not forget or wait for in vain.
"""

from typing import Any

import msgspec
import pytest

from sterna.core.facts import Forgotten
from sterna.core.handover.hosting import Hosting
from sterna.core.handover.messages import BEFORE_MAX, Arrival
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.handover.prefetching import Predicted, Prefetching
from sterna.core.handover.promises import KeptPromise, Promises
from sterna.core.handover.standard import Standard
from sterna.core.handover.transfer_messages import Prefetch, UnsubscribeAsked
from sterna.core.inputs import Configured, Input, LinkGone, TimePassed
from sterna.core.keeping import Reader, Writer
from sterna.core.mobility import MobilityOptions
from sterna.core.settings import Settings
from sterna.sim.script import Crash, Drop, Reconfigure
from sterna.sim.topology import Topology, line
from tests.mobility import model_of
from tests.sim.overlay import Overlay
from tests.sim.test_leaving import leave

PLACES = pytest.mark.parametrize("subscriptions", ["device", "broker"])


def network(
    brokers: int, clients: dict[str, str], protocol: Handover, *, to: str = "", **options: Any
) -> Overlay:
    """A line of brokers; if they predict, clients go from B1 `to` another one."""
    run = Overlay(
        line(brokers),
        clients,
        handover=HandoverOptions(protocol=protocol),
        mobility=MobilityOptions(model=model_of({("B1", to): 1}).to_bytes()) if to else None,
        options={protocol: options} if options else {},
        crashing=["B1", "B2"],
    )
    return run.subscribe("C", "x > 0").settle()


def hosting(run: Overlay, broker: str) -> Hosting:
    """The broker's part of the handover protocol in force."""
    found = [each for each in run.broker(broker).components if isinstance(each, Hosting)]
    return found[-1]


def part(run: Overlay, broker: str) -> Standard:
    found = hosting(run, broker)
    assert isinstance(found, Standard)
    return found


def prefetching(run: Overlay, broker: str) -> Prefetching:
    found = hosting(run, broker)
    assert isinstance(found, Prefetching)
    return found


def give(run: Overlay, broker: str, given: Input) -> None:
    """Have something happen to a broker."""
    network = run.simulation.network
    network._turn(network.hosts[broker], given)


# ---- Prefetching


@pytest.mark.spec("PM-4", "DO-2")
@PLACES
def test_a_client_that_is_forgotten_during_the_handshake_leaves_nothing_in_the_table(
    subscriptions: str,
) -> None:
    """C is expected at B2, goes back to B1, and connects to B2 just when B1 has the copy sent."""
    for wait_us in range(1_000, 5_000, 250):
        run = network(
            2, {"C": "B1", "P": "B2"}, Handover.PREFETCHING, to="B2", subscriptions=subscriptions
        )
        run.detach("C").settle()

        run.attach("C", "B1").wait(wait_us).attach("C", "B2").publish("P", x=1).settle()

        assert run.publish("P", x=1).settle().received("C") == ["P#1", "P#2"]
        assert "C" not in run.table("B1")


@pytest.mark.spec("PM-4", "DO-2")
def test_a_flapping_connection_does_not_discard_the_copy_that_the_client_waits_for() -> None:
    """C is back at B1, which fetches the copy from B2, when its connection is lost for a moment."""
    run = network(2, {"C": "B1", "P": "B1"}, Handover.PREFETCHING, to="B2")
    run.detach("C").settle()
    run.publish("P", x=1).publish("P", x=1).settle()

    run.attach("C", "B1").wait(2_500).fault(Drop(a="C", b="B1", us=100)).settle()
    run.publish("P", x=1).settle()

    assert run.received("C") == ["P#1", "P#2", "P#3"]
    assert run.outcome().findings == []
    assert "C" not in run.table("B2")


@pytest.mark.spec("PM-4", "DO-2")
@PLACES
def test_a_predicted_broker_that_asks_again_does_not_get_a_client_that_is_back(
    subscriptions: str,
) -> None:
    """B2 has asked B1 twice for a copy: the link between them was down. C is at B1 again."""
    for wait_us in range(0, 4_000, 500):
        run = network(
            2, {"C": "B1", "P": "B1"}, Handover.PREFETCHING, to="B2", subscriptions=subscriptions
        )
        run.detach("C").wait(10).publish("P", x=1).wait(wait_us)

        run.fault(Drop(a="B1", b="B2", us=15_000_000)).wait(12_000_000).publish("P", x=1)
        run.attach("C", "B1").wait(5_000_000).settle()
        run.publish("P", x=1).settle()

        assert run.received("C") == ["P#1", "P#2", "P#3"], wait_us
        assert run.outcome().findings == []


@pytest.mark.spec("PM-4", "DO-2")
def test_nothing_is_copied_for_a_prediction_that_a_later_one_has_overtaken() -> None:
    """B1 has predicted that C goes to B2. C was at B3 since, and B3 predicts that it goes to B1."""
    run = network(3, {"C": "B1", "P": "B1"}, Handover.PREFETCHING, to="B2")
    run.fault(Drop(a="B1", b="B2", us=1_000_000)).wait(10_000).detach("C").wait(10_000)
    broker, now = run.broker("B1"), run.simulation.network.kernel.now
    part_of_b1 = prefetching(run, "B1")
    number, visit = part_of_b1.predicted["C"].number, part_of_b1.guests["C"].visit
    later = Prefetch(to="B1", sender="B3", client="C", number=9, visit=visit + 1, born=visit)
    asked = UnsubscribeAsked(
        to="B1",
        sender="B2",
        client="C",
        number=1,
        visit=visit,
        stay=visit,
        received=0,
        prefetch=number,
    )

    broker.message_arrived(later, "B2", now)
    broker.message_arrived(asked, "B2", now)

    assert part_of_b1.guests["C"].visit == visit + 1
    assert asked.nothing() in broker.post._courier.take("B2")


@pytest.mark.spec("PM-4", "DO-2")
@PLACES
def test_a_client_that_comes_with_no_copy_for_it_is_fetched_from_where_it_was(
    subscriptions: str,
) -> None:
    """B2 expects C and has asked B1 for a copy. C is back at B1 for a moment: none is sent."""
    run = network(
        2, {"C": "B1", "P": "B1"}, Handover.PREFETCHING, to="B2", subscriptions=subscriptions
    )
    run.detach("C")
    while "C" not in hosting(run, "B2").guests:
        run.wait(100)
    run.fault(Drop(a="B1", b="B2", us=1_000_000)).publish("P", x=1)

    run.attach("C", "B1").wait(10_000).detach("C").publish("P", x=1)
    run.attach("C", "B2").settle()

    assert run.publish("P", x=1).settle().received("C") == ["P#1", "P#2", "P#3"]
    assert run.outcome().findings == []


@pytest.mark.spec("PM-4", "DO-2")
def test_a_copy_is_not_discarded_for_a_promise_that_may_come_to_nothing() -> None:
    """C has a copy at B2, passes by B4, and is back at B1, which asks B4 first. B3 asks B1."""
    run = network(4, {"C": "B1", "P": "B1"}, Handover.PREFETCHING, to="B2", subscriptions="device")
    run.detach("C").settle().publish("P", x=1).settle()
    run.fault(Drop(a="B3", b="B4", us=1_000_000)).wait(10_000)

    run.attach("C", "B4").wait(1_500).attach("C", "B1").wait(10_000)
    run.attach("C", "B3").wait(10_000)
    assert part(run, "B1").promises
    assert "C" not in hosting(run, "B4").guests
    run.settle()

    assert run.publish("P", x=1).settle().received("C") == ["P#1", "P#2"]
    assert run.outcome().findings == []
    assert "C" not in run.table("B2")


def promised_copy() -> Overlay:
    """C comes to B2, which waits for its copy, and moves on to B4. B3 has its copy already."""
    run = Overlay(
        Topology(("B1", "B2", "B3", "B4"), (("B1", "B2"), ("B1", "B3"), ("B2", "B4"))),
        {"C": "B1", "P": "B1"},
        handover=HandoverOptions(protocol=Handover.PREFETCHING),
        mobility=MobilityOptions(model=model_of({("B1", "B2"): 1, ("B1", "B3"): 1}).to_bytes()),
        options={Handover.PREFETCHING: {"brokers_max": 2, "subscriptions": "device"}},
    )
    run.subscribe("C", "x > 0").settle().detach("C").publish("P", x=1)
    while "C" not in hosting(run, "B2").guests:
        run.wait(100)
    run.fault(Drop(a="B1", b="B2", us=1_000_000)).wait(10_000)
    assert "C" in run.table("B3")
    run.attach("C", "B2").wait(10_000).attach("C", "B4").wait(10_000)
    assert part(run, "B2").promises
    return run


@pytest.mark.spec("PM-4", "DO-2")
def test_copies_are_discarded_when_a_promise_is_kept() -> None:
    run = promised_copy().settle()

    assert run.publish("P", x=1).settle().received("C") == ["P#1", "P#2"]
    assert run.outcome().findings == []
    assert "C" not in run.table("B3")
    assert "C" not in prefetching(run, "B1").predicted


@pytest.mark.spec("PM-4", "DO-2")
def test_a_promise_that_is_kept_does_not_end_a_later_prediction() -> None:
    """C has begun anew at B2 meanwhile, and left."""
    run, later = promised_copy(), Predicted(number=1, visit=99, brokers=("B3",), waiting=())

    prefetching(run, "B2").predicted["C"] = later
    run.settle()

    assert prefetching(run, "B2").predicted == {"C": later}


# ---- Questions that are lost


def promised(*, down_us: int = 2_000_000) -> Overlay:
    """C has left B1, has been at B3 without being welcomed, and is at B4, which asks B3.

    B3 promises B4 what it has asked of B1. Its question is at B2, which cannot reach B1.
    """
    run = network(4, {"C": "B1", "P": "B1"}, Handover.STANDARD, subscriptions="device")
    run.detach("C").settle().publish("P", x=1).settle()
    run.fault(Drop(a="B1", b="B2", us=down_us)).wait(10_000)
    run.attach("C", "B3").wait(100_000).attach("C", "B4").wait(100_000)
    assert list(part(run, "B3").promises) == [("C", 1)]
    return run


@pytest.mark.spec("PM-4", "DO-1")
def test_who_has_promised_something_asks_again_for_what_it_waits_for() -> None:
    """B2 forgets the question; else B3 and B4 would wait for ever."""
    run = promised()

    run.fault(Crash(broker="B2", us=10_000, forgets=True)).wait(30_000_000).settle()

    assert run.publish("P", x=1).settle().received("C") == ["P#1", "P#2"]
    assert run.outcome().findings == []
    assert not part(run, "B3").promises


@pytest.mark.spec("PM-4", "DO-1")
def test_what_is_promised_already_is_not_denied_to_who_asks_again() -> None:
    """The link to B1 is down for so long that B4 asks B3 a second time."""
    run = promised(down_us=25_000_000).wait(60_000_000).settle()

    assert run.publish("P", x=1).settle().received("C") == ["P#1", "P#2"]
    assert run.outcome().findings == []


@pytest.mark.spec("PM-4", "DO-1")
def test_a_promise_is_repeated_after_a_restart() -> None:
    """The question and its time are in the snapshot."""
    promises = part(promised(), "B3").promises

    restored = restored_from_snapshot(promises)

    assert dict(restored) == dict(promises)
    assert all(each.question is not None and each.since for each in restored.values())


@pytest.mark.spec("PM-4", "DO-2")
def test_copies_are_discarded_for_a_promise_after_a_restart() -> None:
    """Who has them is in the snapshot."""
    promises = part(promised_copy(), "B2").promises

    restored = restored_from_snapshot(promises)

    assert dict(restored) == dict(promises)
    assert all("B3" in each.copies for each in restored.values())


def restored_from_snapshot(promises: Promises) -> Promises:
    writer, restored = Writer(), Promises()
    kept = promises.keep(writer)
    restored.restore(kept, Reader(writer.events, writer.messages), UnsubscribeAsked)
    return restored


@pytest.mark.spec("PM-4", "DO-1")
def test_a_snapshot_without_the_questions_and_copies_of_promises_is_read() -> None:
    kept = part(promised(), "B3").promises.keep(Writer())[0]
    older = msgspec.structs.asdict(kept)
    del older["question"], older["since"], older["copies"]

    read = msgspec.convert(older, KeptPromise)

    assert (read.question, read.since, read.copies) == (None, 0, ())


@pytest.mark.spec("PM-4", "DO-1")
def test_nothing_is_promised_any_more_if_who_has_it_leaves_the_overlay() -> None:
    """B4 goes on without it: C has a new life, and gets what is published from then on."""
    run = promised().fault(Crash(broker="B2", us=10_000, forgets=True)).wait(100_000)
    give(run, "B2", LinkGone(link="B1"))
    run.fault(Drop(a="B1", b="B2", us=10**11)).wait(60_000_000)

    assert not part(run, "B3").promises
    assert not part(run, "B4").guests["C"].waits
    assert run.facts_of(Forgotten)


# ---- Brokers that leave, and brokers that change


@pytest.mark.spec("PM-4", "DO-1", "LV-9")
@pytest.mark.parametrize("protocol", [Handover.STANDARD, Handover.HOME, Handover.RELOCATION])
def test_news_for_a_neighbour_that_has_left_for_good_is_not_kept(protocol: Handover) -> None:
    """It would be kept for ever, and a strategy that is replaced would never come to its end."""
    run = network(2, {"C": "B1", "P": "B1"}, protocol)
    run.fault(Drop(a="B1", b="B2", us=10**11)).wait(10_000)
    leave(run, "C").wait(100_000)
    broker, now = run.broker("B1"), run.simulation.network.kernel.now
    assert hosting(run, "B1").courier

    broker.handle(LinkGone(link="B2"), now)

    assert not hosting(run, "B1").courier
    broker.handle(Configured(settings=Settings()), now)
    for second in range(3):
        broker.handle(TimePassed(), now + second * 1_000_000)
    stays = [] if protocol is Handover.RELOCATION else ["overlay", "post"]  # For other brokers.
    assert [each.name for each in broker.arrangement.ending] == stays


@pytest.mark.spec("PM-4", "DO-1", "LV-9")
def test_a_strategy_that_takes_over_repeats_a_question_that_was_lost() -> None:
    """B3 waits for what B1 has kept when it changes its strategy; B2 loses the question."""
    run = network(3, {"C": "B1", "P": "B3"}, Handover.STANDARD, subscriptions="device")
    run.detach("C").settle()
    run.fault(Drop(a="B1", b="B2", us=3_000_000)).attach("C", "B3").wait(100_000)
    logging = Settings(
        handover=HandoverOptions(protocol=Handover.LOGGING),
        options={"logging": {"subscriptions": "device"}},
    )

    run.simulation.do(Reconfigure(broker="B3", settings=logging, tells=True))
    run.fault(Crash(broker="B2", us=10_000, forgets=True)).wait(60_000_000)

    assert not hosting(run, "B3").guests["C"].waits
    assert run.publish("P", x=1).settle().received("C") == ["P#1"]


@pytest.mark.spec("PM-4", "DO-1")
def test_messages_that_a_removed_link_has_not_confirmed_look_for_another_way() -> None:
    """B1 has answered B3 over B2 when that link ends, and B1 has one to B3 instead."""
    run = network(3, {"C": "B1", "P": "B1"}, Handover.STANDARD, subscriptions="device")
    run.detach("C").settle().publish("P", x=1).settle()
    run.attach("C", "B3")
    while not run.sent("EventsFound"):
        run.wait(100)

    run.simulation.network.end("B1", "B2")
    run.simulation.network.connect("B1", "B3")
    run.settle()

    assert run.received("C") == ["P#1"]
    assert not run.facts_of(Forgotten)


# ---- Clients that name any number of brokers


@pytest.mark.spec("PM-4", "DO-2")
def test_brokers_that_a_client_has_made_up_are_not_told_to_discard_anything() -> None:
    """Messages to brokers that nobody knows would push out what others wait for."""
    run = network(2, {"C": "B1", "P": "B1"}, Handover.PREFETCHING)
    arrival = Arrival(visit=2, born=1, stay=1, received=0, before=made_up(20_000))

    run.broker("B1").message_arrived(arrival, "C", run.simulation.network.kernel.now)

    assert not run.broker("B1").post.unsent


@pytest.mark.spec("PM-4", "DO-1")
@pytest.mark.parametrize(
    "protocol", [Handover.STANDARD, Handover.LOGGING, Handover.PREFETCHING, Handover.HOME]
)
def test_a_broker_asks_no_more_brokers_than_the_first_that_a_client_names(
    protocol: Handover,
) -> None:
    run = network(2, {"C": "B1", "P": "B1"}, protocol)
    arrival = Arrival(visit=2, born=1, stay=1, received=0, before=made_up(20_000))

    run.broker("B2").message_arrived(arrival, "C", run.simulation.network.kernel.now)

    transfer = part(run, "B2").guests["C"].transfer
    assert transfer is not None
    assert [*transfer.asked, *transfer.to_ask] == list(made_up(BEFORE_MAX))


def made_up(count: int) -> tuple[str, ...]:
    return tuple(f"none{number}" for number in range(count))
