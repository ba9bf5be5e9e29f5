"""Clients roam while brokers are given long messages in parts, do a little in each turn, and go on
with snapshots: nothing is lost, and all know in the end what they have to.

Whatever is long for a broker with thousands of subscriptions is long for these with a few.
"""

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.broker import Broker
from sterna.core.inputs import Input
from sterna.core.link import Data, Frame
from sterna.core.messages import AdvertisementChange, InterestAsked, SubscriptionChange
from sterna.core.routing.options import Strategy
from sterna.net.broker.long_changes import LongChange
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.host import Host
from sterna.sim.network import Pipe
from sterna.sim.script import Script
from sterna.wire.snapshots import encode_node, restore_node
from tests.scale import examples
from tests.sim.judging import Checked, run_rightly
from tests.sim.test_roaming_campaign import plans

SNAPSHOT_EVERY = 40


@pytest.fixture(autouse=True)
def _all_is_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "offers.MANY": 0,
            "router.MANY": 0,
            "router.STEPS_MAX": 2,
            "router.PAUSE_US": 300,
            "advertisements.FEW": 0,
            "covering.FOLLOWERS_MAX": 0,
            "neighbours.FEW_TOLD": 0,
            "announcements.ROUTES_MAX": 1,
        }.items():
            patch.setattr(f"sterna.core.routing.{name}", value)
        yield


class InParts(Checked):
    """Brokers are given parts of each message as soon as it is sent. It may never arrive."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.parts: Counter[type] = Counter()
        self._turns = 0
        network = self.network
        transmit, turn = network._transmit, network._turn

        def transmit_in_parts(pipe: Pipe, frame: Frame) -> None:
            transmit(pipe, frame)
            if isinstance(pipe.target.node, Broker) and type(frame) is Data:
                network.kernel.at(network.kernel.now, give, pipe, frame, pipe.connection.epoch)

        def give(pipe: Pipe, frame: Frame, epoch: int) -> None:
            parts = LongChange(frame)
            while parts and epoch == pipe.connection.epoch and not pipe.connection.troubles:
                ahead = parts.next(pipe.source.node.id)
                self.parts[type(ahead.change)] += 1
                network._turn(pipe.target, ahead)

        def turn_and_snapshot(host: Host, given: Input) -> None:
            turn(host, given)
            self._turns += 1
            if self._turns % SNAPSHOT_EVERY == 0 and isinstance(host.node, Broker):
                kept = encode_node(host.node)
                host.node = restore_node(kept, host.make(host.life))
                assert encode_node(host.node) == kept

        network._transmit = transmit_in_parts  # type: ignore[method-assign]
        network._turn = turn_and_snapshot  # type: ignore[method-assign]


@pytest.mark.spec("PM-4", "RT-2", "RT-3", "LV-6")
@pytest.mark.parametrize("faults", ["none", "heavy"])
def test_whoever_roams_gets_everything_although_brokers_do_little_at_a_time(faults: str) -> None:
    seen: Counter[type] = Counter()

    @examples(60)
    @given(
        st.tuples(st.sampled_from(Strategy), st.booleans()).flatmap(
            lambda drawn: plans(drawn[0], FAULTS[faults], advertisements=drawn[1], leaves=(0, 2))
        ),
        st.integers(0, 2**32),
    )
    def runs(plan: Plan, seed: int) -> None:
        def make(script: Script) -> InParts:
            made.append(InParts(script))
            return made[-1]

        made: list[InParts] = []
        run_rightly(generate(plan, seed), make)
        seen.update(made[-1].parts)

    runs()
    assert all(seen[kind] for kind in (SubscriptionChange, AdvertisementChange, InterestAsked))
