"""How the points of an experiment are reported: a screen, a document, tables and pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from sterna import __version__
from sterna.errors import MissingExtraError
from sterna.experiments.experiment import Claim, Experiment, Point, PrintedTable
from sterna.experiments.plot import FORMATS
from sterna.experiments.results import writing
from sterna.experiments.sweep import in_versions
from sterna.extras import require
from sterna.wire.codec import to_json

TEXT_WIDTH = 140
ROWS_WIDTH = 10_000
"""The width of the table of all rows, which is as wide as it needs."""


class Report:
    """The results of an experiment, for people and for programs."""

    def __init__(
        self,
        experiment: Experiment[Any, Any],
        points: Sequence[Point[Any, Any]],
        command: str,
        *,
        of_other_code: int = 0,
        other_versions: int = 1,
    ) -> None:
        self.experiment = experiment
        self.points = points
        self.command = command
        self.of_other_code = of_other_code
        """How many runs other versions of the code have simulated."""
        self.other_versions = other_versions
        """How many versions these are."""

    def document(self) -> dict[str, Any]:
        """All results, for programs."""
        claims = self.experiment.claims(self.points)
        return {
            "experiment": self.experiment.name,
            "command": self.command,
            "version": __version__,
            **self._origin(),
            **self.experiment.summary(self.points),
            "claims": [claim._asdict() for claim in claims],
            "points": [point.as_json() for point in self.points],
        }

    def _origin(self) -> dict[str, Any]:
        """Which runs are not of the present code, if any."""
        if not self.of_other_code:
            return {}
        return {"of_other_code": self.of_other_code, "other_versions": self.other_versions}

    def show(self, console: Console) -> None:
        """Show one screen: what was expected and what came out, then the numbers."""
        console.print(Text(f"{self.experiment.name}: {self.experiment.about}", style="bold"))
        console.print(_claims(self.experiment.claims(self.points)))
        for table in self.experiment.tables(self.points):
            console.print(_grid(table))
        if self.of_other_code:
            told = in_versions(self.other_versions)
            console.print(f"{self.of_other_code:,} runs are of {told}.")

    def write(self, folder: Path) -> tuple[list[Path], list[str]]:
        """Write all files; return their paths, and what could not be written and why.

        ResultsError if the folder does not take them.
        """
        path = folder / self.experiment.name
        files, notes = [path.with_suffix(".json"), path.with_suffix(".txt")], []
        with writing(files[0]):
            files[0].write_bytes(to_json(self.document()))
        with writing(files[1]):
            self._write_text(files[1])
        try:
            with writing(path.with_suffix(".parquet")):
                self._write_parquet(path.with_suffix(".parquet"))
            files.append(path.with_suffix(".parquet"))
        except MissingExtraError as missing:
            notes.append(f"no Parquet: {missing}")
        try:
            with writing(path.with_suffix(FORMATS[0])):
                self.experiment.draw(self.points, path)
            files += [path.with_suffix(suffix) for suffix in FORMATS]
        except MissingExtraError as missing:
            notes.append(f"no figure: {missing}")
        return files, notes

    def _write_text(self, path: Path) -> None:
        rows = [point.as_row() for point in self.points]
        whole = PrintedTable(
            "All rows", tuple(rows[0]), [tuple(map(_cell, r.values())) for r in rows]
        )
        with path.open("w", encoding="utf-8") as file:
            file.write(f"{self.command}\n")
            self.show(Console(file=file, width=TEXT_WIDTH, no_color=True, legacy_windows=False))
            Console(file=file, width=ROWS_WIDTH, no_color=True).print(_grid(whole, repeat=True))

    def _write_parquet(self, path: Path) -> None:
        require("broker", "Parquet", "pyarrow")
        import pyarrow as pa  # noqa: PLC0415 - only needed here, and not installed by default.
        import pyarrow.parquet as pq  # noqa: PLC0415

        table = pa.Table.from_pylist([point.as_row() for point in self.points])
        for place, name in enumerate(table.column_names):
            is_null = pa.types.is_null(table.schema.field(name).type)
            if is_null and name.endswith("_margin"):  # With one seed there is none.
                kind = table.schema.field(f"{name.removesuffix('_margin')}_mean").type
                table = table.set_column(place, name, table.column(name).cast(kind))
        pq.write_table(table, path)


def _claims(claims: Sequence[Claim]) -> Grid:
    grid = Grid("the paper", "what we see", "", box=box.SIMPLE)
    for claim in claims:
        verdict = Text("holds", style="green") if claim.holds else Text("differs", style="red")
        seen = Text(claim.seen)
        if claim.why and not claim.holds:
            seen.append(f"\n{claim.why}", style="italic")
        grid.add_row(Text(claim.paper), seen, verdict)
    return grid


def _grid(table: PrintedTable, *, repeat: bool = False) -> Grid:
    """Numbers are right-aligned; the first column omits a value that equals the one above."""
    grid = Grid(title=f"[bold]{table.title}[/bold]", title_justify="left", caption=table.note,
                caption_justify="left", box=box.SIMPLE)  # fmt: skip
    for place, column in enumerate(table.head):
        numbers = are_numbers([row[place] for row in table.rows])
        justify: Literal["left", "right"] = "right" if numbers else "left"
        grid.add_column(column, justify=justify, no_wrap=repeat, overflow="fold")
    before = None
    for row in table.rows:
        same = row[0] == before and not repeat
        grid.add_row("" if same else Text(row[0]), *map(Text, row[1:]))
        before = row[0]
    return grid


def are_numbers(column: Sequence[str]) -> bool:
    """Whether all cells of a column are numbers, or begin with one."""
    return all(cell[:1] in "-0123456789>" for cell in column)


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_cell, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
