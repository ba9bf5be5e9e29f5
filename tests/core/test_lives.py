"""The numbers that a client without a memory begins with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.lives import (
    EPOCH_US,
    NOTHING_KNOWN,
    SESSIONS_MAX,
    Earlier,
    first_seq,
    incarnation,
    last_visit,
)
from sterna.model.ranges import VISIT_MAX
from tests.scale import examples

YEAR_US = 31_557_600_000_000

pytestmark = pytest.mark.spec("LV-2")


def test_by_the_clock_alone_each_life_is_above_the_earlier_ones() -> None:
    moments = [EPOCH_US + 100_000 * tenths for tenths in range(0, 2**32, 2**22)]
    numbers = [incarnation(moment, NOTHING_KNOWN) for moment in moments]
    assert numbers == sorted(set(numbers))
    seqs = [first_seq(moment, NOTHING_KNOWN) for moment in moments]
    assert seqs == sorted(set(seqs))


@pytest.mark.parametrize("years", [-56, -1, 0, 1, 13, 14, 60, 200, 10_000])
def test_sessions_fit_into_64_bits_whatever_the_clock_shows(years: int) -> None:
    number = incarnation(EPOCH_US + years * YEAR_US, NOTHING_KNOWN)
    assert number > 0
    assert (number + 2**20) * SESSIONS_MAX < 2**64
    assert 0 <= first_seq(EPOCH_US + years * YEAR_US, NOTHING_KNOWN) < 2**63


@examples(200)
@given(
    st.integers(-60 * YEAR_US, 300 * YEAR_US), st.integers(0, VISIT_MAX - 2 * SESSIONS_MAX),
    st.integers(0, 2**62),
)  # fmt: skip
def test_each_life_is_above_what_the_broker_knows(since_2026: int, visit: int, seq: int) -> None:
    wall_us, earlier = EPOCH_US + since_2026, Earlier(visit, seq)
    assert incarnation(wall_us, earlier) * SESSIONS_MAX > visit
    assert first_seq(wall_us, earlier) >= seq


@examples(200)
@given(st.integers(1, VISIT_MAX - 1), st.integers(0, 2**20))
def test_who_continues_is_above_all_visits_of_the_other_life(visit: int, moves: int) -> None:
    """At the end of the range there is only room above those that the broker knows."""
    latest = last_visit(Earlier(visit))
    assert visit <= latest < VISIT_MAX
    if visit < VISIT_MAX - 2 * SESSIONS_MAX:
        assert visit + moves < latest or visit % SESSIONS_MAX + moves >= SESSIONS_MAX
