"""The n-th event is there no later than without a past, whatever moves and whatever goes wrong.

(Cilia et al., 5.4.) Each run is made twice: once as it is, and once without a past.
"""

from collections import Counter, defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.actions import Deliver
from sterna.core.history.options import Search
from sterna.core.inputs import ArchiveChanged, Subscribe
from sterna.core.names import NodeId, Time
from tests.scale import examples
from tests.sim.searched import FILTERS, SEARCHES, Searched, Wish

REST_US: Time = 100_000
END_US: Time = 20_000_000
"""Longer than any fault and any hold."""


class Timed(Searched):
    """Does the same at the same times, with a past or without, and knows when events came.

    A client has one subscription with a past at a time, and others without.
    """

    jitters_us = (0,)

    def __init__(
        self, seed: int, search: Search, *, past: bool, archive: bool, **more: Any
    ) -> None:
        super().__init__(seed, search, **more)
        self.past = past
        self.came: dict[tuple[NodeId, str], list[Time]] = defaultdict(list)
        if archive:
            for broker in self.brokers:  # It never answers.
                self.simulation.network.give(broker, ArchiveChanged(is_there=True))

    def _deliver(self, client: NodeId, action: Deliver, *, is_past: bool) -> None:
        super()._deliver(client, action, is_past=is_past)
        for names in action.subscriptions:
            for name in names:
                self.came[client, name].append(self.now)

    def rest(self) -> None:
        self.simulation.network.run(self.now + REST_US)

    def subscribe(self, *, past: bool = True) -> Wish | None:
        rng, client = self.rng, self.rng.choice(self.subscribers)
        self.names += 1
        name, filter_ = str(self.names), rng.choice(FILTERS)
        events_max = rng.choice([1, 2, 4, 10])
        since_us = rng.choice([None, max(0, self.now - 100_000)])
        wanted = Subscribe(subscription=name, filter=filter_)
        has_one = any(who == client and not wish.ended for (who, _), wish in self.wishes.items())
        if not past or has_one:
            self.do(client, wanted)
            return None
        wish = self.wishes[client, name] = Wish(filter_, events_max, since_us, self.now)
        if self.past:
            wanted = msgspec.structs.replace(
                wanted, past_events_max=events_max, past_since_us=since_us
            )
        self.do(client, wanted)
        return wish

    def go(self) -> None:
        self.start()
        self.walk(60)
        self.simulation.network.run(self.now + END_US)


@pytest.mark.spec("PA-2", "PA-5", "PM-4")
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("faults", [False, True], ids=["", "faults"])
@pytest.mark.parametrize("moves", [False, True], ids=["", "moves"])
def test_the_nth_event_is_no_later_whatever_moves_and_goes_wrong(
    search: Search, faults: bool, moves: bool
) -> None:
    seen: Counter[str] = Counter()

    @examples(21, long=6)
    @given(st.integers(0, 2**32), st.booleans())
    def runs(seed: int, archive: bool) -> None:
        plain, past = (
            Timed(seed, search, past=each, archive=archive, faults=faults, moves=moves)
            for each in (False, True)
        )
        plain.go()
        past.go()
        past.check()
        assert plain.wishes.keys() == past.wishes.keys()
        for key, wish in past.wishes.items():
            number = wish.events_max
            assert number is not None
            if len(plain.came[key]) >= number:
                came, plainly = past.came[key][number - 1 :], plain.came[key][number - 1]
                assert came[:1] <= [plainly], key
                assert came, key
                seen.update(compared=1, earlier=came[0] < plainly)
        seen.update(runs=1)

    runs()
    assert seen["compared"] > seen["runs"] / 2
    assert seen["earlier"] > 0
