"""Filters whose join would be unreadable, in a network whose frames all go through the codec."""

import pytest

from sterna.core.link import Frame
from sterna.core.names import Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.script import Crash
from sterna.sim.topology import line
from sterna.wire.codec import Bodies, decode, encode
from tests.poison import long_filters, unreadable_together
from tests.sim.overlay import Overlay


class Readers(Observer):
    """Every receiver, reading what was sent."""

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        del pipe, fate, now
        assert decode(b"".join(encode(frame, Bodies()))) == frame


@pytest.mark.spec("LV-6", "RT-1")
@pytest.mark.parametrize("strategy", [Strategy.MERGING, Strategy.IMPERFECT])
def test_what_brokers_and_publishers_are_told_can_be_read(strategy: Strategy) -> None:
    """And whoever wants something gets it, also after a crash; the oracle sees to that."""
    routing = RoutingOptions(strategy=strategy, interest_members_max=16)
    run = Overlay(
        line(3), {"many": "B1", "witness": "B1", "pat": "B3"}, routing,
        ClientOptions(quenching=True), crashing=["B1"], observers=[Readers()],
    )  # fmt: skip
    run.subscribe("witness", "good = TRUE").settle()
    filters = [*long_filters()[:4], *unreadable_together()]
    for number, filter_ in enumerate(filters):
        run.subscribe("many", str(filter_), name=str(number))
    run.settle().publish("pat", good=True, a=1, b="02-0000003").settle()
    run.fault(Crash(broker="B1", us=1_000)).settle().publish(
        "pat", good=True, a=1, b="03-0000003"
    ).settle()
    for number, _ in enumerate(filters):
        run.unsubscribe("many", name=str(number))
    run.settle().publish("pat", good=True, a=1, b="03-0000003").settle()

    assert run.outcome().findings == []
    assert run.received("many") == ["pat#1", "pat#2"]
    assert run.received("witness") == ["pat#1", "pat#2", "pat#3"]
