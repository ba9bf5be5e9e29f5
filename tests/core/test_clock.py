"""The time of a node passes evenly, whatever the wall clock does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.clock import SLEW, Clock
from sterna.core.names import Time
from tests.scale import examples

SECOND: Time = 1_000_000
HOUR: Time = 3_600 * SECOND
YEAR: Time = 8_766 * HOUR


class Machine:
    """A wall clock that can be set, and a count of what has elapsed."""

    def __init__(self) -> None:
        self.wall = 56 * YEAR
        self.elapsed = 7 * HOUR

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.elapsed)

    def wait(self, us: Time) -> None:
        self.wall += us
        self.elapsed += us


@pytest.mark.parametrize("jump", [-YEAR, -HOUR, HOUR, YEAR])
def test_a_wall_clock_that_jumps_does_not_change_what_has_elapsed(jump: Time) -> None:
    machine = Machine()
    clock = machine.clock()
    began = clock.now()

    machine.wall += jump
    for _ in range(60):
        machine.wait(SECOND)
        clock.now()

    assert clock.now() - began == pytest.approx(60 * SECOND, rel=1 / SLEW)


@pytest.mark.parametrize("off", [-HOUR, HOUR])
def test_a_difference_is_made_up_for_slowly(off: Time) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall += off

    for _ in range(3_600 * (SLEW + 1)):
        machine.wait(SECOND)
        clock.now()

    assert clock.now() == machine.wall


def test_after_a_restart_it_goes_on_where_it_was() -> None:
    """The wall clock was set back by an hour while the node did not run."""
    machine = Machine()
    before = machine.clock().now()
    machine.wall -= HOUR

    clock = machine.clock()
    clock.not_before(before)
    assert clock.now() == before
    machine.wait(10 * SECOND)

    assert clock.now() - before == pytest.approx(10 * SECOND, rel=1 / SLEW)


def test_a_time_that_has_passed_already_changes_nothing() -> None:
    machine = Machine()
    clock = machine.clock()

    clock.not_before(machine.wall - HOUR)

    assert clock.now() == machine.wall


@examples(200)
@given(
    st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(-2 * HOUR, 2 * HOUR)), max_size=30)
)
def test_it_never_goes_back_nor_jumps(steps: list[tuple[Time, Time]]) -> None:
    machine = Machine()
    clock = machine.clock()
    last = clock.now()
    for passed, jump in steps:
        machine.wait(passed)
        machine.wall += jump
        now = clock.now()
        assert abs(now - last - passed) <= SECOND // SLEW + 1
        assert now >= last
        last = now
