"""`sterna experiment`: what the papers measured, simulated anew."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.progress import Progress as Bar
from rich.table import Table

from sterna import __version__
from sterna.cli.output import console, errors, fail, print_json
from sterna.wire.codec import to_json

if TYPE_CHECKING:
    from sterna.experiments.experiment import Experiment, Point, Progress

app = typer.Typer(
    help="Run what the papers measured, on the simulator.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

SEEDS = 3
SEEDS_QUICK = 1

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


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
    name: Annotated[str, typer.Argument(help="An experiment; `list` names them.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Small settings and one seed, for a first look.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help=f"How many seeds to take the median of. [default: {SEEDS}, or {SEEDS_QUICK} with "
            "--quick]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder to write to; made if it is not there.")
    ] = Path("results"),
    as_json: Json = False,
) -> None:
    """Run an experiment; write its results (NAME.json) and a figure (NAME.svg)."""
    experiments = _experiments()
    if name not in experiments:
        known = ", ".join(experiments)
        fail(f"there is no experiment {name!r}; there are {known}", as_json=as_json)
    from sterna.experiments.experiment import DeliveryError  # noqa: PLC0415

    chosen = experiments[name]
    count = seeds or (SEEDS_QUICK if quick else SEEDS)
    _make_folder(out, as_json=as_json)
    try:
        with _progress(name) as progress:
            points = chosen.run(progress, quick=quick, seeds=count)
    except DeliveryError as wrong:
        fail(str(wrong), as_json=as_json, findings=wrong.findings)
    figure = _draw(chosen, points, out / f"{name}.svg")
    document = {
        "experiment": name,
        "command": f"sterna experiment run {name}{' --quick' * quick} --seeds {count}",
        "version": __version__,
        **chosen.summary(points),
        "points": [point.as_json() for point in points],
    }
    results = out / f"{name}.json"
    results.write_bytes(to_json(document))
    files = [str(file) for file in (results, figure) if file is not None]
    if as_json:
        print_json({**document, "files": files})
        return
    _show(chosen, points)
    console.print(f"written: {', '.join(files)}", soft_wrap=True)


def _experiments() -> "dict[str, Experiment[Any, Any]]":
    from sterna.experiments.registry import EXPERIMENTS  # noqa: PLC0415 - only needed here.

    return EXPERIMENTS


def _make_folder(out: Path, *, as_json: bool) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot make the folder {out} ({error.strerror}); name another with --out"
        fail(problem, as_json=as_json)


@contextmanager
def _progress(name: str) -> "Iterator[Progress]":
    """Say what is going on, on standard error, if that is a terminal."""
    with Bar(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(name)

        def update(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield update


def _draw(
    chosen: "Experiment[Any, Any]", points: "list[Point[Any, Any]]", path: Path
) -> Path | None:
    if find_spec("matplotlib") is None:
        note = "no figure: drawing needs matplotlib (pip install 'sterna[plots]')"
        errors.print(note, markup=False, soft_wrap=True)
        return None
    chosen.draw(points, path)
    return path


def _show(chosen: "Experiment[Any, Any]", points: "list[Point[Any, Any]]") -> None:
    for each in chosen.tables(points):
        table = Table(title=f"[bold]{each.title}[/bold]", title_justify="left", caption=each.note,
                      caption_justify="left", box=box.SIMPLE)  # fmt: skip
        for place, column in enumerate(each.head):
            numbers = all(row[place][:1] in "-0123456789>" for row in each.rows)
            table.add_column(column, justify="right" if numbers else "left")
        before = None
        for row in each.rows:
            same = row[0] == before
            table.add_row("" if same else row[0], *row[1:])
            before = row[0]
        console.print(table)
