"""`sterna experiment`: what the papers measured, simulated anew."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column, Table

from sterna.cli.output import Json, console, errors, fail, print_json

if TYPE_CHECKING:
    from sterna.experiments.experiment import Experiment, Progress

app = typer.Typer(
    help="Run what the papers measured, on the simulator.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

SEEDS_QUICK = 1


@app.callback()
def experiment() -> None:
    """Run what the papers measured, on the simulator."""


@app.command(name="list")
def list_(as_json: Json = False) -> None:
    """List the experiments."""
    experiments = _experiments().values()
    if as_json:
        print_json([{"name": e.name, "about": e.about, "takes": e.takes} for e in experiments])
        return
    table = Table("experiment", "what it measures", "takes", box=box.SIMPLE)
    for each in experiments:
        table.add_row(each.name, each.about, each.takes)
    console.print(table)


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An experiment; `list` names them.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Small settings and one seed, for a first look.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="How many seeds to take the median of. [default: what the experiment says, mostly "
            f"3; {SEEDS_QUICK} with --quick]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder to write to; made if it is not there.")
    ] = Path("results"),
    as_json: Json = False,
) -> None:
    """Run an experiment; show what was expected and what came out.

    Writes the results as NAME.json, NAME.parquet (one row for each setting) and NAME.txt (what is
    shown, and all rows), and a figure as NAME.svg and NAME.png.
    """
    experiments = _experiments()
    if name not in experiments:
        known = ", ".join(experiments)
        fail(f"there is no experiment {name!r}; there are {known}", as_json=as_json)
    from sterna.experiments.experiment import DeliveryError  # noqa: PLC0415
    from sterna.experiments.report import Report  # noqa: PLC0415

    chosen = experiments[name]
    count = seeds or (SEEDS_QUICK if quick else chosen.seeds)
    _make_folder(out, as_json=as_json)
    try:
        with _progress(name) as progress:
            points = chosen.run(progress, quick=quick, seeds=count)
    except DeliveryError as wrong:
        fail(str(wrong), as_json=as_json, findings=wrong.findings)
    command = f"sterna experiment run {name}{' --quick' * quick} --seeds {count}"
    report = Report(chosen, points, command)
    files, notes = report.write(out)
    for note in notes:
        errors.print(note, markup=False, soft_wrap=True)
    names = [str(file) for file in files]
    if as_json:
        print_json({**report.document(), "files": names})
        return
    report.show(console)
    console.print(f"written: {', '.join(names)}", soft_wrap=True)


def _experiments() -> "dict[str, Experiment[Any, Any]]":
    from sterna.experiments.registry import EXPERIMENTS  # noqa: PLC0415 - only needed here.

    return EXPERIMENTS


def _make_folder(out: Path, *, as_json: bool) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot make the folder {out} ({error.strerror}); name another with --out"
        fail(problem, as_json=as_json)


def make_bar(console: Console) -> Bar:
    """The bar first: what is going on may be long, and only that is shortened."""
    return Bar(
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn(
            "{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
        ),
        console=console,
        transient=True,
        expand=True,
        disable=not console.is_terminal,
    )


@contextmanager
def _progress(name: str) -> "Iterator[Progress]":
    """Show progress on standard error, if that is a terminal."""
    with make_bar(errors) as bar:
        task = bar.add_task(name)

        def update(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield update
