"""Table 1, beside what all small runs show, with the shortest run for each cross."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from sterna.core.replication.options import Filtering
from sterna.experiments.experiment import Claim, Experiment, Point, PrintedTable
from sterna.experiments.huang_table_1.exploring import Explored, explore, tell
from sterna.experiments.papers import HUANG
from sterna.experiments.plot import panels
from sterna.model.replicas import Verdict

PRINTED = {
    Filtering.NONE: Verdict(ordered=False, consistent=False, complete=True),
    Filtering.DUPLICATES: Verdict(ordered=False, consistent=True, complete=True),
    Filtering.ORDER: Verdict(ordered=True, consistent=True, complete=False),
}
"""Table 1 as the paper has it."""

PROPERTIES = Verdict._fields
SIZES = ((1, 6), (2, 3))
"""How many sources there are, and how many events each has at most."""
QUICK_SIZES = ((1, 5), (2, 2))


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A filter, and the runs that it is tried on."""

    filtering: Filtering
    sources: int
    events: int
    """How many events each source publishes at most."""
    patient: bool = True
    """Whether the time for which events are held back ends only after the last arrival; else it may
    end at any moment."""


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs there are, and how many have each property."""

    runs: float
    ordered: float
    consistent: float
    complete: float
    gave_up: float
    """Runs in which something was displayed because it had waited for as long as it may."""
    gave_up_early: float
    """Those in which something could still arrive then."""
    counterexamples: str
    """For each property that some run does not have, the shortest such run."""


Points = Sequence[Point[Setting, Measures]]


class HuangTable1(Experiment[Setting, Measures]):
    name = "huang-table-1"
    about = "Which filter keeps which property of a replicated system, in all small runs."
    takes = "about ten seconds"
    paper = HUANG
    seeds = 1

    def settings(self, *, quick: bool) -> list[Setting]:
        sizes = QUICK_SIZES if quick else SIZES
        plain = [
            Setting(filtering=filtering, sources=sources, events=events)
            for sources, events in sizes
            for filtering in Filtering
        ]
        hurried = [
            Setting(filtering=Filtering.HOLDING, sources=sources, events=events, patient=False)
            for sources, events in sizes
        ]
        return [*plain, *hurried]

    def measure(self, setting: Setting, seed: int) -> Measures:
        del seed  # Nothing is random.
        explored = explore(
            setting.filtering, setting.sources, setting.events, patient=setting.patient
        )
        return Measures(
            runs=explored.runs,
            ordered=explored.holds("ordered"),
            consistent=explored.holds("consistent"),
            complete=explored.holds("complete"),
            gave_up=sum(n for end, n in explored.ends.items() if end.gave_up),
            gave_up_early=sum(n for end, n in explored.ends.items() if end.gave_up_early),
            counterexamples=counterexamples(setting.filtering, explored),
        )

    def work(self, setting: Setting) -> float:
        return setting.sources * 100 + setting.events + (not setting.patient)

    def claims(self, points: Points) -> list[Claim]:
        claims = []
        for filtering, printed in PRINTED.items():
            seen = [_verdict(point) for point in _of(points, filtering)]
            runs = sum(point.median.runs for point in _of(points, filtering))
            text = f"{_words(_all(seen))} in {runs:,.0f} runs"
            claims.append(
                Claim(
                    f"Table 1, {NAMES[filtering]}: {_words(printed)}", text, _all(seen) == printed
                )
            )
        patient = [p for p in _of(points, Filtering.HOLDING) if p.setting.patient]
        hurried = [p for p in _of(points, Filtering.HOLDING) if not p.setting.patient]
        lost = sum(p.median.runs - p.median.complete for p in hurried)
        early = sum(p.median.gave_up_early for p in hurried)
        runs = sum(p.median.runs for p in hurried)
        return [
            *claims,
            Claim(
                "Beyond the table: holding back keeps all three while its time lasts",
                f"{_words(_all([_verdict(point) for point in patient]))} in "
                f"{sum(p.median.runs for p in patient):,.0f} runs; where time may run out at any "
                f"moment, it did so early in {early:,.0f} of {runs:,.0f}, and in {lost:,.0f} of "
                "these something was missing",
                holds=all(all(_verdict(point)) for point in patient) and lost <= early,
            ),
        ]

    def tables(self, points: Points) -> list[PrintedTable]:
        rows, counts = [], []
        for filtering in Filtering:
            found = [p for p in _of(points, filtering) if p.setting.patient]
            marks = ["✓" if each else "✗" for each in _all([_verdict(point) for point in found])]
            printed = PRINTED.get(filtering)
            paper = "-" if printed is None else " ".join("✓" if each else "✗" for each in printed)
            rows.append((NAMES[filtering], paper, *marks))
        for point in points:
            setting, median = point.setting, point.median
            counts.append(
                (
                    NAMES[setting.filtering] + ", may run out" * (not setting.patient),
                    f"{setting.sources} × {setting.events}",
                    *(f"{getattr(median, name):,.0f}" for name in ("runs", *PROPERTIES)),
                    f"{median.gave_up:,.0f}",
                    f"{median.gave_up_early:,.0f}",
                )
            )
        shown = [point for point in points if point.setting.sources == 1]
        runs = [(NAMES[p.setting.filtering], p.median.counterexamples) for p in shown]
        return [
            PrintedTable("Table 1", ("filter", "printed", *PROPERTIES), rows,
                         "✓: in all runs; ✗: there is a run that shows the contrary."),
            PrintedTable("In how many runs", ("filter", "sources × events", "runs", *PROPERTIES,
                                              "gave up", "early"), counts,
                         "Early: before the last arrival, so that something could be missed."),
            PrintedTable("The shortest runs", ("filter", "run"),
                         [row for row in runs if row[1]]),
        ]  # fmt: skip

    def summary(self, points: Points) -> dict[str, Any]:
        return {
            "table_1": {
                str(filtering): _all(
                    [_verdict(p) for p in _of(points, filtering) if p.setting.patient]
                )._asdict()
                for filtering in Filtering
            }
        }

    def draw(self, points: Points, path: Path) -> None:
        with panels(path, 1, 1, (8, 4)) as (axes,):
            one = [p for p in points if p.setting.sources == 1]
            for place, (name, colour) in enumerate(zip(PROPERTIES, COLOURS, strict=True)):
                shares = [100 * getattr(p.median, name) / p.median.runs for p in one]
                at = [number + (place - 1) * 0.27 for number in range(len(one))]
                bars = axes.bar(at, shares, width=0.25, color=colour, label=name)
                axes.bar_label(bars, [f"{share:.0f}" for share in shares], fontsize=8)
            labels = [
                NAMES[p.setting.filtering].replace(" and ", "\nand ")
                + "\n(time may run out)" * (not p.setting.patient)
                for p in one
            ]
            axes.set_xticks(range(len(one)), labels)
            axes.set(ylabel="runs that have the property, %", ylim=(0, 112))
            events = one[0].setting.events
            axes.set_title(f"All runs of one source with up to {events} events and two brokers")
            axes.legend(frameon=False, ncols=3, loc="upper center", fontsize=8)


NAMES = {
    Filtering.NONE: "none",
    Filtering.DUPLICATES: "duplicates",
    Filtering.ORDER: "order and duplicates",
    Filtering.HOLDING: "holding back",
}
"""The filters in the words of the paper, and ours."""

COLOURS = ("#0b6e99", "#3a8f3a", "#c2571a")


def counterexamples(filtering: Filtering, explored: Explored) -> str:
    """The shortest run for each property that does not hold, as text."""
    return "\n\n".join(
        f"not {name}:\n{tell(filtering, explored.shortest[name])}"
        for name in PROPERTIES
        if name in explored.shortest
    )


def _of(points: Points, filtering: Filtering) -> list[Point[Setting, Measures]]:
    return [point for point in points if point.setting.filtering is filtering]


def _verdict(point: Point[Setting, Measures]) -> Verdict:
    """Which properties all runs have."""
    median = point.median
    return Verdict(*(getattr(median, name) == median.runs for name in PROPERTIES))


def _all(verdicts: Sequence[Verdict]) -> Verdict:
    return Verdict(*(all(each) for each in zip(*verdicts, strict=True)))


def _words(verdict: Verdict) -> str:
    held = [name for name, holds in zip(PROPERTIES, verdict, strict=True) if holds]
    return " and ".join(held) + " only" * (len(held) < len(PROPERTIES))
