"""The experiment on replication: one broker or two, four filters, and what goes wrong."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sterna.core.replication.options import Filtering
from sterna.experiments.experiment import MEDIANS, Claim, Experiment, Point, PrintedTable
from sterna.experiments.huang_table_1.experiment import NAMES
from sterna.experiments.papers import HUANG
from sterna.experiments.plot import error_bars, panels
from sterna.experiments.replication_faults.settings import (
    HOLD_MS,
    HOLDS_MS,
    Measures,
    Points,
    Setting,
    Trouble,
)
from sterna.experiments.replication_faults.simulation import measure

COLOURS = ("#8a8a8a", "#0b6e99", "#c2571a", "#3a8f3a")
VARIED = (Trouble.LOSSES, Trouble.CUTS)
"""With these, the time for which events are held back varies."""


class ReplicationFaults(Experiment[Setting, Measures]):
    name = "replication-faults"
    about = "What one or two watching brokers lose, and what each filter costs, when things fail."
    takes = "about two minutes"
    paper = HUANG
    seeds = 10

    def settings(self, *, quick: bool) -> list[Setting]:
        seconds = 20 if quick else 60
        plain = [
            Setting(trouble=trouble, brokers=brokers, filtering=filtering, seconds=seconds)
            for trouble in Trouble
            for brokers in (1, 2)
            for filtering in Filtering
        ]
        holds = (0, 200) if quick else HOLDS_MS
        varied = [
            Setting(
                trouble=trouble,
                brokers=2,
                filtering=Filtering.HOLDING,
                hold_ms=hold_ms,
                seconds=seconds,
            )
            for trouble in VARIED
            for hold_ms in holds
            if hold_ms != HOLD_MS
        ]
        return [*plain, *varied]

    def measure(self, setting: Setting, seed: int) -> Measures:
        return measure(setting, seed)

    def claims(self, points: Points) -> list[Claim]:
        one, two = (_sum(points, brokers, lambda m: m.lost) for brokers in (1, 2))
        complete = _sum(points, 2, lambda m: m.lost, Filtering.HOLDING)
        dropped = _sum(points, 2, lambda m: m.late, Filtering.ORDER)
        deaths = [p for p in _plain(points, 2) if p.setting.trouble is Trouble.DEATHS]
        lost = sum(p.mean.lost for p in deaths if p.setting.filtering in _COMPLETE)
        return [
            Claim(
                "With replication, a user is less likely to miss events (section 5)",
                f"{one:.1f} events missed with one broker, {two:.1f} with two, over all troubles "
                "and filters",
                two < one / 5,
            ),
            Claim(
                "A broker that dies for good loses nothing for a subscription that another "
                "broker watches",
                f"{lost:.1f} events missed with two brokers, one of which dies every 6 s, unless "
                "the order dropped them",
                lost == 0,
            ),
            Claim(
                "Dropping what comes out of order is not complete (Table 1)",
                f"{dropped:.1f} events that a broker had brought were dropped; "
                f"{complete:.1f} missed with holding back, in all",
                dropped > 0,
            ),
        ]

    def tables(self, points: Points) -> list[PrintedTable]:
        rows = [
            (str(p.setting.trouble), str(p.setting.brokers), NAMES[p.setting.filtering], *_cells(p))
            for p in points
            if p.setting.hold_ms == HOLD_MS
        ]
        varied = [
            (str(point.setting.trouble), f"{point.setting.hold_ms:,}", *_cells(point))
            for trouble in VARIED
            for point in _by_hold(points, trouble)
        ]
        head = ("owed", "lost", "late", "doubled", "disordered", "held", "gave up", "median, ms",
                "99 %, ms", "messages")  # fmt: skip
        note = f"All are {MEDIANS}. Messages: for each event that is owed."
        return [
            PrintedTable(
                f"What the application got; held back for at most {HOLD_MS:,} ms",
                ("trouble", "brokers", "filter", *head), rows, note,
            ),
            PrintedTable(
                "Two brokers, events held back for at most so many ms",
                ("trouble", "hold", *head), varied, note,
            ),
        ]  # fmt: skip

    def summary(self, points: Points) -> dict[str, Any]:
        return {
            "lost_mean": {
                f"{p.setting.trouble}, {p.setting.brokers}, {p.setting.filtering}": p.mean.lost
                for p in points
                if p.setting.hold_ms == HOLD_MS
            }
        }

    def draw(self, points: Points, path: Path) -> None:
        with panels(path, 1, 3, (13, 4)) as (lost, wait, hold):
            _bars(lost, points, lambda m: 100 * m.lost / m.owed, "events missed, %")
            _bars(wait, points, lambda m: m.p99_ms, "99 % of events are there after, ms")
            wait.set_yscale("log")
            lost.legend(frameon=False, fontsize=8)
            for trouble, colour in zip(VARIED, COLOURS[1:3], strict=True):
                curve = _by_hold(points, trouble)
                at = [point.setting.hold_ms for point in curve]
                hold.plot(at, [point.mean.late for point in curve], "o-", color=colour,
                          markersize=4, label=f"{trouble}: dropped, too late")  # fmt: skip
                error_bars(hold, at, curve, lambda m: m.late, colour)
                hold.plot(at, [point.mean.gave_up for point in curve], "s--", color=colour,
                          markersize=4, label=f"{trouble}: waited in vain")  # fmt: skip
            hold.set_xscale("symlog", linthresh=20)
            holds = [point.setting.hold_ms for point in _by_hold(points, VARIED[0])]
            hold.set_xticks(holds, [f"{ms:,}" for ms in holds], fontsize=8)
            hold.set_xticks([], minor=True)
            hold.set_yscale("symlog", linthresh=1)
            hold.set(xlabel="events are held back for at most, ms", ylabel="events",
                     ylim=(0, None))  # fmt: skip
            hold.set_title("Two brokers, holding back")
            hold.legend(frameon=False, fontsize=8)


_COMPLETE = (Filtering.NONE, Filtering.DUPLICATES, Filtering.HOLDING)


def _bars(axes: Any, points: Points, value: Callable[[Measures], float], label: str) -> None:
    """One bar for each filter, with one broker and with two, by trouble."""
    groups = [(Filtering.DUPLICATES, 1), *((filtering, 2) for filtering in Filtering)]
    colours = ("#222222", *COLOURS)
    for place, ((filtering, brokers), colour) in enumerate(zip(groups, colours, strict=True)):
        found = [p for p in _plain(points, brokers) if p.setting.filtering is filtering]
        at = [number + (place - 2) * 0.17 for number in range(len(found))]
        name = "one broker" if brokers == 1 else f"two: {NAMES[filtering]}"
        axes.bar(at, [value(p.mean) for p in found], width=0.16, color=colour, label=name)
        error_bars(axes, at, found, value, "#222222")
    axes.set_xticks(range(len(Trouble)), [str(trouble) for trouble in Trouble])
    axes.set(ylabel=label)


def _cells(point: Point[Setting, Measures]) -> tuple[str, ...]:
    return (
        point.text(lambda m: m.owed, ".0f"),
        point.text(lambda m: m.lost, ".0f"),
        point.text(lambda m: m.late, ".0f"),
        point.text(lambda m: m.doubled, ".0f"),
        point.text(lambda m: m.disordered, ".0f"),
        point.text(lambda m: m.held, ".0f"),
        point.text(lambda m: m.gave_up, ".0f"),
        point.text(lambda m: m.median_ms, ".0f"),
        point.text(lambda m: m.p99_ms, ".0f"),
        point.text(lambda m: m.messages_per_event, ".1f"),
    )


def _plain(points: Points, brokers: int) -> list[Point[Setting, Measures]]:
    return [p for p in points if p.setting.hold_ms == HOLD_MS and p.setting.brokers == brokers]


def _by_hold(points: Points, trouble: Trouble) -> Sequence[Point[Setting, Measures]]:
    """The runs with two brokers and holding back, by how long events are held."""
    found = [
        p
        for p in points
        if p.setting.trouble is trouble
        and p.setting.brokers == 2
        and p.setting.filtering is Filtering.HOLDING
    ]
    return sorted(found, key=lambda point: point.setting.hold_ms)


def _sum(
    points: Points,
    brokers: int,
    value: Callable[[Measures], float],
    filtering: Filtering | None = None,
) -> float:
    """A measure, in the mean over the seeds, summed over all troubles."""
    return sum(
        value(p.mean) for p in _plain(points, brokers) if filtering in (None, p.setting.filtering)
    )
