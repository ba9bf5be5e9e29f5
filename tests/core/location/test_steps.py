"""The rules for steps, and what is measured for them."""

import pytest

from sterna.core.location.stays import STAYS_MAX, Dwell, Stays
from sterna.core.location.steps import StepRule


@pytest.mark.spec("LM-2", "LM-3")
@pytest.mark.parametrize(
    ("delay_us", "floor", "ceil", "safe"),
    [(0, 0, 0, 1), (99, 0, 1, 1), (100, 0, 1, 2), (200, 1, 1, 3), (201, 1, 2, 3), (480, 2, 3, 5)],
)
def test_steps(delay_us: int, floor: int, ceil: int, safe: int) -> None:
    """For a stay of 100 and a round trip, of which the paper's delay is one half."""
    assert StepRule.FLOOR.steps(delay_us, 100) == floor
    assert StepRule.CEIL.steps(delay_us, 100) == ceil
    assert StepRule.SAFE.steps(delay_us, 100) == safe
    assert StepRule.SUB_UNSUB.steps(delay_us, 100) == 0
    assert StepRule.EVERYWHERE.steps(delay_us, 100) is None


@pytest.mark.spec("LM-3")
@pytest.mark.parametrize("rule", StepRule)
def test_where_the_delay_or_the_dwell_time_is_not_known_there_is_no_limit(rule: StepRule) -> None:
    expected = 0 if rule is StepRule.SUB_UNSUB else None

    assert rule.steps(None, 100) == expected
    assert rule.steps(100, None) == expected
    assert rule.steps(0, None) == expected
    assert rule.steps(None, None) == expected


@pytest.mark.spec("LM-3")
def test_the_safe_rule_counts_the_moves_of_a_closed_interval() -> None:
    """As many as fit, at least a stay apart, both ends included."""
    for delay_us in range(60):
        for dwell_us in range(1, 20):
            moves = len(range(0, delay_us + 1, dwell_us))
            assert StepRule.SAFE.steps(delay_us, dwell_us) == moves


@pytest.mark.spec("LM-4")
def test_stays() -> None:
    """A told dwell time is never exceeded by the least of the stays, and is part of their mean."""
    least, average = Stays(Dwell.LEAST, 10_000), Stays(Dwell.AVERAGE, 10_000)
    fixed = Stays(Dwell.FIXED, 12_345)
    for stay_us in (4_000, 2_399, 3_000):
        for stays in (least, average, fixed):
            stays.ended(stay_us)

    assert least.dwell_us == 2_300
    assert average.dwell_us == 4_800
    assert fixed.dwell_us == 12_345
    for _ in range(STAYS_MAX):
        least.ended(77_777)
        average.ended(77_777)
    assert least.dwell_us == 10_000
    assert average.dwell_us == 77_000


@pytest.mark.spec("LM-3", "LM-4")
@pytest.mark.parametrize(
    ("how", "first", "later"), [(Dwell.LEAST, 10, 20), (Dwell.AVERAGE, 17, 27)]
)
def test_stays_count_when_there_are_enough_of_them(how: Dwell, first: int, later: int) -> None:
    """Until then the dwell time is not known; and what lies farther back counts no more."""
    stays = Stays(how, None)
    for stay_us in range(10, 10 + STAYS_MAX):
        assert stays.dwell_us is None
        stays.ended(stay_us)
    assert stays.dwell_us == first

    for stay_us in range(20, 20 + STAYS_MAX):
        stays.ended(stay_us)
    assert stays.dwell_us == later


def test_what_is_fixed_and_not_told_is_never_known() -> None:
    stays = Stays(Dwell.FIXED, None)
    for _ in range(2 * STAYS_MAX):
        stays.ended(1_000)

    assert stays.dwell_us is None


def test_where_it_was_only_for_a_moment_a_client_has_not_stayed() -> None:
    stays = Stays(Dwell.LEAST, 10_000)
    stays.ended(0)

    assert stays.dwell_us == 10_000
