"""`sterna experiment`: what the papers measured, simulated anew."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column, Table

from sterna.cli.output import ERROR, NO, Json, console, errors, fail, print_json
from sterna.experiments.results import FOLDER

if TYPE_CHECKING:
    from sterna.experiments.experiment import Experiment
    from sterna.experiments.sweep import Progress, Sweep, WrongRun

app = typer.Typer(
    help="Run what the papers measured, on the simulator.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

ALL = "all"
SEEDS_QUICK = 1
INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""

Quick = Annotated[
    bool, typer.Option("--quick", help="Small settings and one seed, for a first look.")
]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1000,
        help="How many seeds to take the median of; settings that no figure of a paper has take 3 "
        "at most. [default: what the experiment says, mostly 3; "
        f"{SEEDS_QUICK} with --quick]",
        show_default=False,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where to simulate: `local[*]` is Spark on this machine; `spark://HOST:7077`, `yarn` "
        "and `k8s://…` are clusters; `processes` is this machine without Spark. [default: "
        "`processes` for up to 50 runs, and where Spark is not installed; else `local[*]`]",
        show_default=False,
    ),
]


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
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="Experiments; `list` names them. `all`: all of them."),
    ],
    quick: Quick = False,
    seeds: Seeds = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="The folder to write to; made if it is not there. Runs that are there already are "
            "not simulated again.",
        ),
    ] = FOLDER,
    master: Master = None,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse",
            help="Use runs of other versions of the code that are there; the results say so.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run experiments; show what was expected and what came out.

    Each run is kept in NAME.runs.jsonl when it is done. If the command is stopped, the same command
    goes on where it was. A run that delivers something wrong, or fails, stops no other; it is named
    at the end, and there are no results of its experiment.

    Writes the results as NAME.json, NAME.parquet (one row for each setting) and NAME.txt (what is
    shown, and all rows), and a figure as NAME.svg and NAME.png.
    """
    chosen = _chosen(names, as_json=as_json)
    _make_folder(out, as_json=as_json)
    with _errors_told(as_json=as_json):
        sweeps = _sweeps(chosen, out, quick=quick, seeds=seeds, reuse=reuse)
        wrong = _simulate(sweeps, master, as_json=as_json)
        _report(sweeps, out, wrong, as_json=as_json)


@app.command()
def report(
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="The folder with the results of `run`; the page goes there."
        ),
    ] = FOLDER,
    quick: Annotated[
        bool, typer.Option("--quick", help="The results of small settings, not of full ones.")
    ] = False,
    run_missing: Annotated[
        bool, typer.Option("--run", help="Run the experiments first whose results are missing.")
    ] = False,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page on all experiments: claims, results, pictures, tables and commands.

    The page is DIR/report.html. It needs no other file and no network, and says of what results are
    missing. Where there are only those of `run --quick`, it shows them and says so.
    """
    _make_folder(out, as_json=as_json)
    with _errors_told(as_json=as_json):
        from sterna.experiments.page import gather, write_page  # noqa: PLC0415 - only needed here.
        from sterna.experiments.sweep import found_sweep  # noqa: PLC0415

        experiments = list(_experiments().values())
        wrong: list[WrongRun] = []
        if run_missing:
            missing = [e for e in experiments if found_sweep(e, out, quick=quick) is None]
            sweeps = _sweeps(missing, out, quick=quick, seeds=None)
            wrong = _simulate(sweeps, master, as_json=as_json)
        written = write_page([gather(each, out, quick=quick) for each in experiments], out)
    for note in written.notes:
        errors.print(note, markup=False, soft_wrap=True)
    if as_json:
        print_json(
            {
                "path": str(written.path),
                "bytes": written.path.stat().st_size,
                "claims": written.claims,
                "hold": written.holding,
                "experiments": written.shown,
                "missing": written.missing,
                **({"wrong": [each.as_json() for each in wrong]} if wrong else {}),
            }
        )
    else:
        console.print(f"The report is {written.path}.", soft_wrap=True)
        if written.missing:
            console.print(
                f"No results of: {', '.join(written.missing)}. With --run, they are made first.",
                soft_wrap=True,
            )
        _name(wrong)
    if wrong:
        raise typer.Exit(_status(wrong))


# ---- What to run


def _experiments() -> "dict[str, Experiment[Any, Any]]":
    from sterna.experiments.registry import EXPERIMENTS  # noqa: PLC0415 - only needed here.

    return EXPERIMENTS


def _chosen(names: Sequence[str], *, as_json: bool) -> "list[Experiment[Any, Any]]":
    experiments = _experiments()
    wanted = dict.fromkeys(experiments if ALL in names else names)
    for name in dict.fromkeys(names):
        if name not in experiments and name != ALL:
            known = ", ".join(experiments)
            fail(f"there is no experiment {name!r}; there are {known}", as_json=as_json)
    return [experiments[name] for name in wanted]


def _make_folder(out: Path, *, as_json: bool) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot make the folder {out} ({error.strerror}); name another with --out"
        fail(problem, as_json=as_json)


def _sweeps(
    experiments: "Sequence[Experiment[Any, Any]]",
    out: Path,
    *,
    quick: bool,
    seeds: int | None,
    reuse: bool = False,
) -> "list[Sweep[Any, Any]]":
    from sterna.experiments.sweep import Sweep  # noqa: PLC0415 - only needed here.

    return [
        Sweep(
            each,
            out,
            quick=quick,
            seeds=seeds or (SEEDS_QUICK if quick else each.seeds),
            reuse=reuse,
        )
        for each in experiments
    ]


# ---- Running it


def _simulate(
    sweeps: "Sequence[Sweep[Any, Any]]", master: str | None, *, as_json: bool
) -> "list[WrongRun]":
    """Simulate what is left of all sweeps; the wrong runs are returned."""
    left = sum(sweep.left for sweep in sweeps)
    if not left:
        return []
    from sterna.experiments.runners import choose_master, runner_at  # noqa: PLC0415
    from sterna.experiments.sweep import in_versions  # noqa: PLC0415

    for sweep in sweeps:
        if sweep.of_other_code and not sweep.reuse:
            errors.print(
                f"{sweep.of_other_code} runs in {sweep.path} are of "
                f"{in_versions(sweep.other_versions)}; they are simulated again (--reuse uses "
                "them)",
                markup=False,
                soft_wrap=True,
            )
    place = choose_master(master, left)
    wrong: list[WrongRun] = []
    total = sum(sweep.total for sweep in sweeps)
    try:
        with _progress() as progress:
            progress(f"starting ({place}) …", total - left, total)
            with runner_at(place, left) as runner:
                before = 0
                for sweep in sweeps:
                    wrong += sweep.run(runner, _part(progress, sweep, before, total))
                    before += sweep.total
    except KeyboardInterrupt:
        kept = sum(sweep.load().done for sweep in sweeps)
        told = f"interrupted; {kept:,} of {total:,} runs are kept, and the same command goes on"
        fail(told, as_json=as_json, status=INTERRUPTED)
    return wrong


def _part(progress: "Progress", sweep: "Sweep[Any, Any]", before: int, total: int) -> "Progress":
    """The progress of one sweep of several."""

    def update(what: str, done: int, _total: int) -> None:
        progress(f"{sweep.experiment.name}: {what}", before + done, total)

    return update


@contextmanager
def _errors_told(*, as_json: bool) -> Iterator[None]:
    """Print errors that the user can do something about, in one line each."""
    from sterna.experiments.results import ResultsError  # noqa: PLC0415 - only needed here.
    from sterna.pipeline.errors import PipelineError  # noqa: PLC0415

    try:
        yield
    except (ResultsError, PipelineError) as error:
        fail(str(error), as_json=as_json)


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
def _progress() -> "Iterator[Progress]":
    """Show progress on standard error, if that is a terminal."""
    with make_bar(errors) as bar:
        task = bar.add_task("")

        def update(what: str, done: int, total: int) -> None:
            bar.update(
                task, description=f"{done:,} of {total:,}: {what}", completed=done, total=total
            )

        yield update


# ---- Reporting it


def _report(
    sweeps: "Sequence[Sweep[Any, Any]]", out: Path, wrong: "Sequence[WrongRun]", *, as_json: bool
) -> None:
    """Write and show the results of each experiment without wrong runs, and name those runs."""
    from sterna.experiments.report import Report  # noqa: PLC0415 - only needed here.

    documents: list[dict[str, Any]] = []
    for sweep in sweeps:
        if sweep.left:
            continue
        report = Report(
            sweep.experiment,
            sweep.points(),
            sweep.recipe,
            of_other_code=sweep.of_other_code,
            other_versions=sweep.other_versions,
        )
        files, notes = report.write(out)
        for note in notes:
            errors.print(note, markup=False, soft_wrap=True)
        names = [str(file) for file in files]
        documents.append({**report.document(), "files": names})
        if not as_json:
            report.show(console)
            console.print(f"written: {', '.join(names)}", soft_wrap=True)
    if as_json:
        _print_documents(sweeps, documents, wrong)
    else:
        _name(wrong)
    if wrong:
        raise typer.Exit(_status(wrong))


def _print_documents(
    sweeps: "Sequence[Sweep[Any, Any]]",
    documents: list[dict[str, Any]],
    wrong: "Sequence[WrongRun]",
) -> None:
    """One document: that of the experiment or, of several, all of them; and what was wrong."""
    (document,) = documents if len(sweeps) == len(documents) == 1 else [{}]
    if len(sweeps) > 1:
        document = {"experiments": documents}
    if wrong:
        findings = [finding for each in wrong for finding in each.findings]
        document |= {
            "error": f"{len(wrong)} runs were wrong",
            "wrong": [each.as_json() for each in wrong],
            "findings": findings,
        }
    print_json(document)


def _name(wrong: "Sequence[WrongRun]") -> None:
    """Name the wrong runs, one line each."""
    for each in wrong:
        errors.print(f"wrong: {each}", markup=False, soft_wrap=True, style="red")


def _status(wrong: "Sequence[WrongRun]") -> int:
    """The exit status: whether the simulations found something wrong, or failed."""
    return NO if all(each.findings for each in wrong) else ERROR
