"""What large simulations use: arrivals that senders know of, and itineraries that brokers know."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.core.broker import Broker
from sterna.core.frames import Ack, Frame
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.names import Time
from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import HistoryOptions
from sterna.model.mobility import Prediction
from sterna.sim.generate import Plan, generate
from sterna.sim.itinerary import Itinerary
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.run import Outcome, Simulation
from sterna.sim.script import Crash, LinkModel, Pause, Script, Settle
from sterna.sim.topology import line, tree

SMALL = Plan(
    topology=tree(2, 3),
    clients=6,
    events=40,
    moves=6,
    naps=3,
    leaves=2,
    routing=RoutingOptions(hierarchical=True),
    handover=HandoverOptions(protocol=Handover.RELOCATION),
    link=LinkModel(latency_us=2_000),
)


class Acknowledgements(Observer):
    """Counts what is only an acknowledgement."""

    def __init__(self) -> None:
        self.count = 0

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        del pipe, fate, now
        self.count += type(frame) is Ack


def outcome(script: Script) -> tuple[Outcome, int]:
    watch = Acknowledgements()
    found = Simulation(script, [watch]).run()
    assert not found.findings
    return found, watch.count


@settings(max_examples=20)
@given(st.integers(1, 10_000))
def test_senders_that_know_what_has_arrived_need_no_acknowledgements(seed: int) -> None:
    """Even where clients move, nap and leave, all that is owed is delivered once and in order."""
    script = generate(SMALL, seed)
    knowing = msgspec.structs.replace(script, link=LinkModel(latency_us=2_000, known_arrivals=True))

    usual, acknowledged = outcome(script)
    quick, none = outcome(knowing)

    assert acknowledged > 0
    assert none <= 2 * SMALL.leaves * len(SMALL.topology.brokers)  # Somebody waited for these.
    assert quick.published == usual.published


def test_what_gets_lost_must_be_acknowledged() -> None:
    with pytest.raises(ValueError, match="must be acknowledged"):
        LinkModel(loss=0.1, known_arrivals=True)


@pytest.mark.parametrize("stop", [Crash(broker="B1", us=5), Pause(broker="B1", us=5)])
def test_brokers_that_stop_must_acknowledge(stop: Crash | Pause) -> None:
    with pytest.raises(ValueError, match="cannot know what has arrived"):
        Script(topology=line(1), clients={}, steps=(stop,), link=LinkModel(known_arrivals=True))


def test_brokers_that_predict_by_an_itinerary_do_not_crash() -> None:
    crash = Crash(broker="B1", us=5)

    with pytest.raises(ValueError, match="would predict by another time"):
        Script(topology=line(1), clients={"c": "B1"}, steps=(crash,), itinerary={"c": ()})


def test_a_script_has_the_size_of_histories() -> None:
    history = HistoryOptions(events_max=7)
    script = Script(topology=line(1), clients={}, steps=(Settle(),), history=history)

    assert script.settings("B1").history == history


@pytest.mark.spec("DO-2")
def test_an_itinerary_names_the_next_broker() -> None:
    arrivals = {"c": [(10, "B2"), (20, "B3"), (30, "B3"), (40, "B1")]}
    itinerary = Itinerary(arrivals, lambda: 15)

    def next_of(place: str, at: int) -> tuple[Prediction, ...]:
        return itinerary.next(place, at=at, client="c")

    assert next_of("B1", 5) == (Prediction("B2", 1.0),)
    assert next_of("B2", 10) == (Prediction("B3", 1.0),)  # It has just arrived here.
    assert next_of("B1", 10) == (Prediction("B2", 1.0),)  # It arrives there at this moment.
    assert next_of("B3", 25) == ()  # It comes back to the same broker.
    assert next_of("B3", 35) == (Prediction("B1", 1.0),)
    assert next_of("B1", 45) == ()
    assert itinerary.next("B2", client="c") == (Prediction("B3", 1.0),)  # It is 15 now.
    assert itinerary.next("B1", at=5, client="somebody else") == ()


@pytest.mark.spec("DO-2")
def test_brokers_predict_by_the_itinerary_of_the_script() -> None:
    script = Script(
        topology=line(2),
        clients={"c": "B1"},
        steps=(),
        handover=HandoverOptions(protocol=Handover.RELOCATION),
        itinerary={"c": ((5, "B2"),)},
    )

    assert predicted(script) == (Prediction("B2", 1.0),)
    assert predicted(msgspec.structs.replace(script, itinerary={})) == ()


def predicted(script: Script) -> tuple[Prediction, ...]:
    node = Simulation(script).network.hosts["B1"].node
    assert isinstance(node, Broker)
    return node.predictor.next("B1", at=0, client="c")
