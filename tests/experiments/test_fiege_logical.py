"""Location-dependent subscriptions: the paper's tables, blackouts, and Figure 9."""

from collections.abc import Sequence

import pytest

from sterna.core.location.steps import StepRule
from sterna.core.routing.options import Strategy
from sterna.experiments import fiege_figure_3, fiege_tables
from sterna.experiments.experiment import Point, summarize
from sterna.experiments.fiege_figure_3 import GAP_MS, FiegeFigure3
from sterna.experiments.fiege_figure_9 import settings as figure_9
from sterna.experiments.fiege_figure_9.experiment import FiegeFigure9
from sterna.experiments.fiege_figure_9.formula import formula_messages
from sterna.experiments.fiege_figure_9.network import Ring, place
from sterna.experiments.fiege_figure_9.settings import EXPECTED, Skew
from sterna.experiments.fiege_tables import FiegeTables, figure_8_steps

Rows = Sequence[Point[fiege_tables.Setting, fiege_tables.Measures]]
Moves = Sequence[Point[fiege_figure_3.Setting, fiege_figure_3.Measures]]
Traffic = Sequence[Point[figure_9.Setting, figure_9.Measures]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    experiment = FiegeTables()
    return [
        summarize(setting, [experiment.measure(setting, seed=1)])
        for setting in experiment.settings(quick=True)
    ]


@pytest.fixture(scope="module")
def moves() -> Moves:
    experiment = FiegeFigure3()
    return [
        summarize(setting, [experiment.measure(setting, seed=1)])
        for setting in experiment.settings(quick=True)
    ]


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    experiment = FiegeFigure9()
    return [
        summarize(setting, [experiment.measure(setting, seed=1)])
        for setting in experiment.settings(quick=True)
    ]


# ---- Tables 1 to 4


@pytest.mark.spec("LM-2")
@pytest.mark.parametrize("table", ["1", "2", "3, sub/unsub", "3, flooding", "4"])
def test_tables_come_out_as_printed(rows: Rows, table: str) -> None:
    rule = fiege_tables.RULES[table][0]
    chosen = [p for p in rows if (p.setting.table, p.setting.rule) == (table, rule)]

    assert len(chosen) == len(fiege_tables.PRINTED[table].rows)
    for point in chosen:
        assert point.median.simulated == point.setting.printed
        assert point.median.verdict == "equal"


@pytest.mark.spec("LM-2")
def test_figure_13_does_not_give_table_4(rows: Rows) -> None:
    """The erratum: section 5.3 counts the multiples exceeded, Fig. 13 the begun ones."""
    ceil = [p for p in rows if (p.setting.table, p.setting.rule) == ("4", StepRule.CEIL)]

    assert [p.median.verdict for p in ceil] == ["equal", "differs", "differs", "equal"]
    assert figure_8_steps(StepRule.FLOOR) == [1, 1, 2, 2]
    assert figure_8_steps(StepRule.CEIL) == [2, 2, 3, 3]
    assert figure_8_steps(StepRule.SAFE) == [3, 4, 5, 5]
    differing = [claim for claim in FiegeTables().claims(rows) if not claim.holds]
    assert ["contradicts itself" in claim.seen for claim in differing] == [True]


# ---- Figure 3


def by_rule(moves: Moves, ratio: float) -> dict[StepRule, fiege_figure_3.Measures]:
    return {p.setting.rule: p.median for p in moves if p.setting.stay_per_delay == ratio}


@pytest.mark.spec("LM-3")
def test_after_sub_and_unsub_there_is_a_blackout_of_two_delays(moves: Moves) -> None:
    long = by_rule(moves, 4.0)[StepRule.SUB_UNSUB]
    gap = GAP_MS / (fiege_figure_3.HOPS * fiege_figure_3.LINK_MS)

    assert 2 <= long.blackout_per_delay <= 2 + gap
    assert long.missed_share == pytest.approx(2 / 4, abs=0.05)
    assert long.starved == 0


@pytest.mark.spec("LM-3")
def test_who_stays_shorter_than_that_starves(moves: Moves) -> None:
    for ratio in (0.5, 1.5):
        short = by_rule(moves, ratio)[StepRule.SUB_UNSUB]
        assert (short.missed_share, short.starved) == (1, 1)


@pytest.mark.spec("LM-3")
def test_there_is_no_blackout_with_the_safe_rule_nor_with_flooding(moves: Moves) -> None:
    for ratio in (0.5, 1.5, 4.0):
        rules = by_rule(moves, ratio)
        for rule in (StepRule.SAFE, StepRule.EVERYWHERE):
            assert rules[rule].missed == 0
            assert rules[rule].blackout_ms <= GAP_MS
        assert rules[StepRule.SAFE].owed > 0
        assert rules[StepRule.SAFE].event_messages < rules[StepRule.EVERYWHERE].event_messages


@pytest.mark.spec("LM-3")
def test_the_rules_of_the_paper_miss_events(moves: Moves) -> None:
    fast = by_rule(moves, 1.5)

    assert fast[StepRule.FLOOR].missed > fast[StepRule.CEIL].missed > 0
    assert by_rule(moves, 4.0)[StepRule.CEIL].missed == 0


# ---- Figure 9


@pytest.mark.spec("LM-6")
def test_the_formula_gives_the_expected_ratios() -> None:
    """App. B.2 with h = 5: 0.0400 and 0.1207 of flooding."""
    for dwell_s, ratio in EXPECTED.items():
        setting = figure_9.Setting(rule=StepRule.CEIL, dwell_s=dwell_s, seconds=100, run_s=100)
        assert formula_messages(setting) / (2430 * 363 * 100) == pytest.approx(ratio, abs=5e-5)


@pytest.mark.spec("LM-6")
@pytest.mark.parametrize("dwell_s", EXPECTED)
def test_the_simulation_is_within_a_tenth_of_them(traffic: Traffic, dwell_s: int) -> None:
    last = [
        point
        for point in traffic
        if point.setting.consumers == 1
        and point.setting.strategy is Strategy.SIMPLE
        and point.setting.dwell_s == dwell_s
    ][-1]

    assert last.median.flooding == 2430 * 363 * last.setting.seconds
    assert last.median.charged_ratio == pytest.approx(EXPECTED[dwell_s], rel=0.1)
    assert last.median.charged_ratio == pytest.approx(last.median.formula_ratio, rel=0.1)
    assert 0 < last.median.real_ratio < last.median.charged_ratio / 10


@pytest.mark.spec("LM-6")
def test_flooding_is_each_event_on_each_link(traffic: Traffic) -> None:
    (flooded,) = (p for p in traffic if p.setting.strategy is Strategy.FLOODING)

    assert flooded.median.events == flooded.median.flooding == formula_messages(flooded.setting)


@pytest.mark.spec("LM-4", "LM-6")
def test_many_consumers_share_what_is_told(traffic: Traffic) -> None:
    crowds = {
        (p.setting.skew, p.setting.strategy): p.median for p in traffic if p.setting.consumers == 40
    }

    for skew in (Skew.NONE, Skew.BOTH):
        simple, covering = (crowds[skew, each] for each in (Strategy.SIMPLE, Strategy.COVERING))
        assert simple.control_per_move == 39  # Each link of a tree of 40 brokers.
        assert covering.control_per_move < 0.9 * simple.control_per_move
        assert covering.events == simple.events


def test_each_step_in_the_ring_makes_four_times_as_many_places_possible() -> None:
    ring = Ring()

    for start in ("p0", "p57", "p99"):
        reach = [ring.ploc(start, steps) for steps in range(6)]
        assert [len(places) for places in reach] == [1, 4, 16, 64, 100, 100]
        number = int(start[1:])
        for steps, places in enumerate(reach):
            walked = {place(number + n) for n in range(-steps, steps + 1)}
            assert walked <= places
            assert steps == 0 or reach[steps - 1] <= places
    assert "p99" in ring
    assert "p100" not in ring


def test_the_tables_and_claims_show_it_all(rows: Rows, moves: Moves, traffic: Traffic) -> None:
    for claims, tables in (
        (FiegeTables().claims(rows), FiegeTables().tables(rows)),
        (FiegeFigure3().claims(moves), FiegeFigure3().tables(moves)),
        (FiegeFigure9().claims(traffic), FiegeFigure9().tables(traffic)),
    ):
        assert len(claims) > 3
        assert all(len(row) == len(table.head) for table in tables for row in table.rows)
