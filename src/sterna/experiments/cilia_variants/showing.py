"""The tables and the figure of the experiment on the variants of the search."""

from collections.abc import Callable
from pathlib import Path

from sterna.core.history.options import Search
from sterna.experiments.cilia_variants.claims import (
    answer_bytes_saved,
    bytes_saved,
    cheapest,
    in_short,
)
from sterna.experiments.cilia_variants.settings import (
    BUFFER,
    DISTANCE,
    EVENTS_MAX,
    PAYLOAD_BYTES,
    PUBLISHERS,
    Measures,
    Points,
    Setting,
    by_variant,
)
from sterna.experiments.experiment import MEDIANS, PrintedTable
from sterna.experiments.plot import Axes, error_bars, panels, plain_ticks

COLOURS = {
    Search.NONE: "#8a8a8a",
    Search.NEAREST: "#c2571a",
    Search.LARGEST: "#9b3a8f",
    Search.MERGED: "#222222",
    Search.SEQUENCES: "#0b6e99",
    Search.COMPLETE: "#3a8f3a",
}
DRAWN = tuple(COLOURS)
"""The variants that are drawn; junctions lie on merged."""


class Axis:
    """What varies in a row of tables and a column of panels."""

    def __init__(self, name: str, of: Callable[[Setting], int], usual: int) -> None:
        self.name, self.of, self.usual = name, of, usual

    def points(self, points: Points) -> Points:
        """The points where nothing else varies, in order."""
        others = [axis for axis in AXES if axis is not self]
        chosen = [point for point in points if all(a.of(point.setting) == a.usual for a in others)]
        return sorted(chosen, key=lambda point: self.of(point.setting))


AXES = (
    Axis("buffer", lambda setting: setting.buffer, BUFFER),
    Axis("distance", lambda setting: setting.distance, DISTANCE),
    Axis("publishers", lambda setting: setting.publishers, PUBLISHERS),
    Axis("payload", lambda setting: setting.payload_bytes, PAYLOAD_BYTES),
)

FOUND = "found of what is wanted, %"
PANELS: dict[str, Callable[[Measures], float]] = {
    "messages for each search": lambda m: m.messages / m.searches,
    "kB for each search": lambda m: m.bytes / m.searches / 1000,
    FOUND: lambda m: 100 * m.found / m.wanted,
}
HEADS = ("messages", "kB", "found %")
"""The same as columns."""
TITLES = {
    "buffer": "events that a broker keeps",
    "distance": "brokers between subscriber's and publisher's",
    "publishers": "publishers",
    "payload": "bytes of payload",
}


def tables(points: Points) -> list[PrintedTable]:
    """All tables, in the order in which they are shown."""
    varied = [_over(axis, points) for axis in AXES if len({*map(axis.of, _settings(points))}) > 1]
    return [*varied, _lists(points), _cheapest(points)]


def _settings(points: Points) -> list[Setting]:
    return [point.setting for point in points]


def _over(axis: Axis, points: Points) -> PrintedTable:
    chosen = axis.points(points)
    prepared = {
        (axis.of(point.setting), point.setting.search): point
        for point in chosen
        if point.setting.prepares
    }
    if len({*map(axis.of, _settings(chosen))}) > len({value for value, _ in prepared}):
        prepared = {}  # It was not tried everywhere.
    forms = dict(zip(PANELS.values(), (",.1f", ",.2f", ",.0f"), strict=True))
    rows = []
    for point in chosen:
        if not point.setting.prepares:
            key = axis.of(point.setting), point.setting.search
            row: tuple[str, ...] = (
                f"{key[0]}",
                str(key[1]),
                *(point.text(m, form) for m, form in forms.items()),
            )
            with_ = prepared.get(key)
            if with_ is not None:
                row += tuple(with_.text(m, form) for m, form in forms.items())
            rows.append(row)
    head: tuple[str, ...] = (axis.name, "variant", *HEADS)
    if prepared:
        head += tuple(f"{name} *" for name in HEADS)
    note = (
        f"All are {MEDIANS}. Messages and bytes are of searches, between brokers, for each "
        f"subscriber that asks for {EVENTS_MAX} past events."
        + " *: brokers prepare, also for who asks for no past."
        * bool(prepared)
    )
    return PrintedTable(f"Over {TITLES[axis.name]}", head, rows, note)


def _lists(points: Points) -> PrintedTable:
    rows = []
    for place, variants in by_variant(points).items():
        if place.prepares:
            continue
        without, with_ = variants[Search.JUNCTIONS].median, variants[Search.SEQUENCES].median
        rows.append(
            (
                in_short(place) or "usual",
                f"{with_.list_bytes / 1000:,.1f}",
                f"{without.answer_bytes / 1000:,.1f}",
                f"{answer_bytes_saved(variants) / 1000:,.1f}",
                f"{bytes_saved(variants) / 1000:,.1f}",
                f"{bytes_saved(variants) / without.bytes:.0%}",
            )
        )
    head = ("place", "list", "answers without", "answers saved", "net", "net of all")
    note = "kB in a run, medians: sequences against junctions. Negative: the list costs more."
    return PrintedTable("What the list of known events costs and saves", head, rows, note)


def _cheapest(points: Points) -> PrintedTable:
    rows = []
    for place, variants in by_variant(points).items():
        best = cheapest(variants)
        complete = variants[Search.COMPLETE].median
        fewest = variants[best].median.bytes
        rows.append(
            (
                in_short(place) or "usual",
                "yes" if place.prepares else "no",
                str(best),
                f"{fewest / complete.searches / 1000:,.2f}",
                f"{complete.bytes / complete.searches / 1000:,.2f}",
                f"{complete.bytes / complete.regular_bytes:.0%}",
            )
        )
    head = ("place", "prepares", "cheapest", "kB", "complete, kB", "of regular")
    note = (
        "The variant with the fewest bytes of those that find as much as the complete algorithm, "
        "for each search. of regular: bytes of all searches of the complete algorithm against all "
        "other bytes between brokers."
    )
    return PrintedTable("The cheapest variant", head, rows, note)


def draw(points: Points, path: Path) -> None:
    """Draw messages, bytes and what is found, over each setting."""
    shown = AXES[:3]
    with panels(path, len(PANELS), len(shown), (13, 10)) as axes:
        for row, (name, measure) in enumerate(PANELS.items()):
            for column, axis in enumerate(shown):
                each = axes[len(shown) * row + column]
                chosen = axis.points(points)
                is_share = name == FOUND
                for search in DRAWN if is_share else DRAWN[1:]:  # Without a search it costs 0.
                    _lines(each, axis, [p for p in chosen if p.setting.search is search], measure)
                ticks = sorted({axis.of(point.setting) for point in chosen})
                each.set(xscale="log", title=name, xlabel=TITLES[axis.name])
                each.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
                each.set_xticks([], minor=True)
                if is_share:
                    each.set_ylim(0, 105)
                else:
                    each.set_yscale("log")
                    plain_ticks(each)
        axes[-1].legend(frameon=False, fontsize=8, title="dotted: brokers prepare",
                        title_fontsize=8, loc="lower right")  # fmt: skip


def _lines(axes: Axes, axis: Axis, points: Points, measure: Callable[[Measures], float]) -> None:
    """Draw what one variant costs or finds, without preparing and with."""
    for prepares, style in ((False, "o-"), (True, "o:")):
        line = [point for point in points if point.setting.prepares is prepares]
        where = [axis.of(point.setting) for point in line]
        search = line[0].setting.search
        label = "merged, junctions" if search is Search.MERGED else str(search)
        axes.plot(where, [measure(point.median) for point in line], style, color=COLOURS[search],
                  markersize=3, linewidth=1.3, label=None if prepares else label)  # fmt: skip
        if not prepares:
            error_bars(axes, where, line, measure, COLOURS[search])
