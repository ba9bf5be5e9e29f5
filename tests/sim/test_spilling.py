"""Networks whose brokers spill whatever they can, at any moment: every delivery is as it should be.

Frames get lost, brokers crash and recover from their logs, or come back with old memories; clients
roam. What was spilled is read from pages when it is sent, handed over or discarded.
"""

from collections import Counter
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.broker import Broker
from sterna.core.depot import MemoryDepot, PageId
from sterna.core.inputs import Input
from sterna.core.messages import Message
from sterna.core.routing.options import Strategy
from sterna.core.spilling import QueuedPart
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.host import Host
from sterna.sim.network import Network
from tests.scale import examples
from tests.sim.judging import run_rightly
from tests.sim.test_roaming_campaign import plans

RUNS = 100


@pytest.mark.spec("LV-6", "LV-1", "PM-4")
@pytest.mark.parametrize("faults", ["none", "heavy"])
def test_brokers_that_spill_deliver_everything_once_and_in_order(
    faults: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: Counter[str] = Counter()
    depot, pages, turn = Reading(seen), count(1), Network._turn
    monkeypatch.setattr("sterna.core.node.NoDepot", lambda: depot)

    def and_spill(self: Network, host: Host, given_: Input) -> None:
        turn(self, host, given_)
        node = host.node
        if not isinstance(node, Broker) or host.waiting is not None or rng.random() < 0.5:
            return
        for link in [*node.peers]:
            for part in (node.spilling.queued(link, 2_000), node.spilling.kept(link, 2_000)):
                if part is not None:
                    page = next(pages)
                    depot.pages[page] = (
                        [frame.message for frame in part.frames]
                        if isinstance(part, QueuedPart)
                        else [event for _, event in part.events]
                    )
                    spilled = node.spilling.input_for(part, page, 0)
                    assert spilled is not None
                    seen[type(part).__name__] += 1
                    turn(self, host, spilled)

    monkeypatch.setattr(Network, "_turn", and_spill)
    rng = Random(0)  # noqa: S311

    @examples(RUNS)
    @given(plans(Strategy.COVERING, FAULTS[faults], advertisements=False), st.integers(0, 2**32))
    def runs(plan: Plan, seed: int) -> None:
        rng.seed(seed)
        depot.pages.clear()
        outcome = run_rightly(generate(plan, seed))
        seen.update(runs=1, owed=outcome.owed)

    runs()
    assert seen["owed"] > RUNS
    assert min(seen["QueuedPart"], seen["KeptPart"], seen["read"]) > RUNS / 10


class Reading(MemoryDepot):
    """Counts how often something is read."""

    def __init__(self, seen: Counter[str]) -> None:
        super().__init__()
        self._seen = seen

    def message(self, page: PageId, place: int) -> Message:
        self._seen["read"] += 1
        return super().message(page, place)
