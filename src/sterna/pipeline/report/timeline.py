"""Pictures over time that have no line where nothing happened, and leave long pauses out."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from sterna.pipeline.progress import in_words
from sterna.pipeline.report.gathering import Rows

SPANS_MAX = 5
"""How many times in which something happened have a panel of their own."""
PAUSE = 0.15
"""What share of the whole time a pause is that is left out."""

Axes = Any
"""A matplotlib axes object; matplotlib has no types."""


@dataclass(frozen=True)
class Span:
    """A time in which something happened, in seconds since 1970."""

    begin_s: int
    end_s: int

    @property
    def seconds(self) -> int:
        return self.end_s - self.begin_s


class Slices:
    """Numbers by name and slice of time; a slice that is missing had nothing."""

    def __init__(self, rows: Rows, name: str) -> None:
        self._rows = rows
        self._name = name
        self.slice_s: int = rows[0]["slice_s"]

    @property
    def slice_in_words(self) -> str:
        return "a minute" if self.slice_s == 60 else in_words(self.slice_s)

    def values_of(self, column: str) -> dict[str, dict[int, float]]:
        """The values of each name, by the second in which the slice begins."""
        found: dict[str, dict[int, float]] = {}
        for row in self._rows:
            found.setdefault(row[self._name], {})[_second(row["time"])] = row[column]
        return found

    def spans(self) -> list[Span]:
        """The times in which something happened, without the long pauses between them."""
        begins = sorted({_second(row["time"]) for row in self._rows})
        pauses = [
            (later - before - self.slice_s, before + self.slice_s, later)
            for before, later in pairwise(begins)
        ]
        whole_s = begins[-1] + self.slice_s - begins[0]
        long = [pause for pause in pauses if pause[0] > max(PAUSE * whole_s, 2 * self.slice_s)]
        left_out = sorted(sorted(long, reverse=True)[: SPANS_MAX - 1], key=lambda pause: pause[1])
        edges = [begins[0]]
        for _, begin_s, end_s in left_out:
            edges += [begin_s, end_s]
        edges.append(begins[-1] + self.slice_s)
        return [Span(*pair) for pair in zip(edges[::2], edges[1::2], strict=True)]


def stairs(values: dict[int, float], span: Span, slice_s: int) -> tuple[list[float], list[int]]:
    """The values of all slices of a span, NaN where nothing happened, and the slices' edges."""
    edges = list(range(span.begin_s, span.end_s + 1, slice_s))
    return [values.get(edge, float("nan")) for edge in edges[:-1]], edges


class TimeAxis:
    """One axis of time over several panels."""

    def __init__(self, panels: list[Axes], spans: list[Span], widths: list[float]) -> None:
        self._panels = list(zip(panels, spans, widths, strict=True))
        self._whole = sum(widths)

    def line(
        self,
        slices: Slices,
        name: str,
        column: str,
        *,
        colour: str,
        label: str,
        per_second: bool = False,
    ) -> None:
        """Draw the values of a name, slice by slice."""
        every_s = slices.slice_s if per_second else 1
        values = slices.values_of(column).get(name, {})
        for axes, span, _ in self._panels:
            heights, edges = stairs(values, span, slices.slice_s)
            axes.stairs(
                [height / every_s for height in heights],
                [_moment(edge) for edge in edges],
                baseline=None,
                color=colour,
                lw=1.5,
                label=label,
            )

    def label(self, text: str) -> None:
        """Name the values."""
        self._panels[0][0].set_ylabel(text)

    def legend(self, title: str) -> None:
        """Explain the lines, to the right of the last panel."""
        last = self._panels[-1][0]
        last.legend(
            title=title or None,
            loc="upper left",
            bbox_to_anchor=(1.02, 1),
            borderaxespad=0,
            alignment="left",
        )

    def finish(self, *, grid: str, soft: str) -> None:
        """Give each panel its times, and say how long the pauses between them are."""
        from matplotlib import dates  # noqa: PLC0415 - only needed here.

        make: Any = dates  # It has no types.
        for number, (axes, span, width) in enumerate(self._panels):
            axes.set_xlim(_moment(span.begin_s), _moment(span.end_s))
            axes.set_ylim(0, None)
            ticks = max(1, round(10 * width / self._whole))
            locator = make.AutoDateLocator(minticks=min(2, ticks), maxticks=ticks + 1)
            axes.xaxis.set_major_locator(locator)
            axes.xaxis.set_major_formatter(make.ConciseDateFormatter(locator, tz=UTC))
            axes.grid(which="major", color=grid)
            axes.set_title(" " if len(self._panels) > 1 else "")  # Room for the lengths of pauses.
            if number:
                pause_s = span.begin_s - self._panels[number - 1][1].end_s
                axes.spines["left"].set(visible=True, linestyle=(0, (3, 4)), color=soft)
                axes.tick_params(axis="y", length=0)
                pause = axes.annotate(
                    f"nothing for {in_words(pause_s)}",
                    (0, 1),
                    xycoords="axes fraction",
                    xytext=(-6, 6),
                    textcoords="offset points",
                    ha="center",
                    annotation_clip=False,
                )
                pause.set_in_layout(False)  # It may reach over both panels.


def _second(time: datetime) -> int:
    return round(time.timestamp())


def _moment(second: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=second)
