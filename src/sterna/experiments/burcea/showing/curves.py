"""Finding points by strategy and population, and showing them side by side."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from sterna.experiments.burcea.measuring import Measures, Points
from sterna.experiments.burcea.settings import Setting
from sterna.experiments.experiment import MEDIANS, Point, PrintedTable
from sterna.experiments.plot import Axes, error_bars, plain_ticks

COLOURS = {
    "standard": "#c2571a",
    "prefetching": "#3a8f3a",
    "logging": "#0b6e99",
    "home": "#9b3a8f",
}
STYLES = {"standard": "o-", "prefetching": "s-", "logging": "^-", "home": "D-"}

Value = Callable[[Measures], float]

Column = tuple[str, Value, str]
"""The heading of a column, its measure, and its form: a format, or % for a share."""


class Curves:
    """The points that differ from the first one in strategy and population only."""

    def __init__(self, points: Points) -> None:
        self.base = points[0].setting
        self.points = [point for point in points if not variation(self.base, point.setting)]
        self.populations = sorted({point.setting.subscribers for point in self.points})
        self.strategies = list(dict.fromkeys(point.setting.strategy for point in self.points))
        self._point = {
            (point.setting.strategy, point.setting.subscribers): point for point in self.points
        }

    @property
    def most(self) -> int:
        """The greatest population: 800, unless the run is a quick one."""
        return self.populations[-1]

    def at(self, strategy: str, subscribers: int | None = None) -> Measures:
        """What was measured for a strategy, with all subscribers unless it is said."""
        return self._point[strategy, self.most if subscribers is None else subscribers].median

    def point(self, strategy: str, subscribers: int) -> Point[Setting, Measures]:
        """The same, with the interval."""
        return self._point[strategy, subscribers]

    def beside(self, other: Point[Setting, Measures]) -> Point[Setting, Measures]:
        """What another setting is compared with: strategy, population and seeds are the same."""
        return self.point(other.setting.strategy, other.setting.subscribers).first(other.seeds)

    def curve(self, strategy: str, value: Value) -> list[float]:
        """A measure over the population."""
        return [value(self.at(strategy, subscribers)) for subscribers in self.populations]

    def plot(self, axes: Axes, value: Value, *, scale: float = 100) -> None:
        """Draw a measure over the population, in percent."""
        for strategy in self.strategies:
            line = [self.point(strategy, subscribers) for subscribers in self.populations]
            values = [scale * each for each in self.curve(strategy, value)]
            colour = COLOURS[strategy]
            axes.plot(self.populations, values, STYLES[strategy], label=strategy, color=colour,
                      markersize=5)  # fmt: skip
            error_bars(axes, self.populations, line, lambda found: scale * value(found), colour)
        axes.set_xticks(self.populations)
        axes.set(xlabel="subscribers", yscale="symlog" if scale == 100 else "linear")
        if scale == 100:
            plain_ticks(axes)
        axes.legend(frameon=False, fontsize=8)

    def table(self, title: str, columns: Sequence[Column], note: str = MEDIANS) -> PrintedTable:
        """Measures by population and strategy."""
        rows = [
            (
                f"{subscribers}",
                strategy,
                *(
                    text(self._point[strategy, subscribers], value, form)
                    for _, value, form in columns
                ),
            )
            for subscribers in self.populations
            for strategy in self.strategies
        ]
        return PrintedTable(
            title, ("subscribers", "strategy", *(name for name, *_ in columns)), rows, note
        )


def variation(base: Setting, setting: Setting) -> dict[str, object]:
    """The settings, apart from strategy and population, that differ."""
    mine, others = msgspec.to_builtins(base), msgspec.to_builtins(setting)
    return {
        name: value
        for name, value in others.items()
        if value != mine[name] and name not in ("strategy", "subscribers")
    }


def variations(points: Points, *names: str) -> list[Point[Setting, Measures]]:
    """The points in which these settings differ from the first one; without any, all others."""
    base = points[0].setting
    found = [(point, variation(base, point.setting)) for point in points]
    return [p for p, differs in found if differs and (not names or set(differs) <= set(names))]


def unpublished(points: Points, but_not: Sequence[str] = ()) -> list[PrintedTable]:
    """What the settings change that the paper does not say; nothing in a quick run."""
    curves, rows = Curves(points), []
    found = [
        point
        for point in variations(points)
        if not set(variation(curves.base, point.setting)) & set(but_not)
    ]
    seeds = min((point.seeds for point in found), default=0)
    for strategy in curves.strategies:
        chosen = [point.first(seeds) for point in found if point.setting.strategy == strategy]
        for count in sorted({point.setting.subscribers for point in chosen}):
            others = [point for point in chosen if point.setting.subscribers == count]
            rows.append((f"{strategy}, {count}", "as usual", *_overheads(curves.beside(others[0]))))
            for point in others:
                differs = variation(curves.base, point.setting)
                words = ", ".join(f"{n.replace('_', ' ')} {v}" for n, v in differs.items())
                rows.append((f"{strategy}, {count}", words, *_overheads(point)))
    note = (
        "Overhead: state transfer over the regular messages without moves. Own: over those of the "
        "run itself. Messages: without hops. Clients: with their links."
        + first_seeds(points, seeds)
    )
    head = ("strategy, subscribers", "setting", "overhead", "own", "messages", "clients")
    return [PrintedTable("What other settings change", head, rows, note)] if rows else []


def first_seeds(points: Points, seeds: int) -> str:
    """A sentence that a table has fewer seeds than others, if it has."""
    if seeds == max(point.seeds for point in points):
        return ""
    return f" All are over the first {seeds} seeds."


def _overheads(point: Point[Setting, Measures]) -> tuple[str, ...]:
    return tuple(text(point, value, form) for _, value, form in OVERHEADS[:4])


OVERHEADS: tuple[Column, ...] = (
    ("overhead", lambda m: m.overhead, "%"),
    ("own", lambda m: m.own_overhead, "%"),
    ("messages", lambda m: m.message_overhead, "%"),
    ("clients", lambda m: m.client_overhead, "%"),
    ("subscriptions", lambda m: m.subscription_share, "%"),
    ("events per move", lambda m: m.events_per_move, ".1f"),
)
OVERHEADS_NOTE = (
    "Overhead: state transfer over the regular messages without moves, hops between brokers. "
    "Own: over the regular messages of the run itself, as the paper has it. Messages: each between "
    "border brokers once. Clients: with their links. Subscriptions: their share of state transfer. "
    f"All are {MEDIANS}."
)

LATENCIES: tuple[Column, ...] = (
    ("first replayed, ms", lambda m: m.replayed_ms, ".0f"),
    ("all replayed, ms", lambda m: m.complete_ms, ".0f"),
    ("first live: delay, ms", lambda m: m.live_delay_ms, ".0f"),
    ("first live, s", lambda m: m.live_ms / 1_000, ".1f"),
    ("in transfer at once", lambda m: m.in_transfer_share, "%"),
    ("arrivals in 10 min", lambda m: m.arrivals_share, "%"),
    ("away at once", lambda m: m.away_share, "%"),
)
LATENCIES_NOTE = (
    "From the arrival at the new broker (t4), medians over the moves after which something was "
    "replayed. Delay: from the publisher to the subscriber, of the first event published since. "
    f"Over the seeds: {MEDIANS}."
)


def text(point: Point[Setting, Measures], value: Value, form: str) -> str:
    """A measure of a point with its interval."""
    if form != "%":
        return point.text(value, form)
    digits = ".0f" if abs(value(point.median)) >= 0.1 else ".1f"
    return point.text(lambda found: 100 * value(found), digits) + " %"


def percent(share: float) -> str:
    """A share as text."""
    if share and abs(share) < 0.1:
        return f"{100 * share:.1f}%"
    return f"{100 * share:.0f}%"


def percents(shares: Sequence[float]) -> str:
    """Several shares as text."""
    return ", ".join(map(percent, shares))


def falls(values: Sequence[float]) -> bool:
    """Whether each is less than the one before."""
    return all(a > b for a, b in pairwise(values))


def rises(values: Sequence[float]) -> bool:
    """Whether each is greater than the one before."""
    return all(a < b for a, b in pairwise(values))
