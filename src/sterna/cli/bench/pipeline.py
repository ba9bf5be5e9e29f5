"""`sterna bench pipeline`: bulk matching, reading journals and the audit, on Spark."""

from collections.abc import Iterator, Mapping
from typing import Annotated

import typer
from rich.table import Table

from sterna.cli.bench.options import Data, Out, Rounds, check_folders, give_out, progress
from sterna.cli.output import Json, console, fail


def pipeline(
    measurement: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this measurement (matching, source, audit, moving); may be repeated. "
            "[default: all]",
            show_default=False,
        ),
    ] = None,
    events: Annotated[
        int, typer.Option(min=1_000, max=1_000_000_000, help="How many events to match.")
    ] = 1_000_000,
    subscriptions: Annotated[
        int, typer.Option(min=100, max=10_000_000, help="How many subscriptions to match against.")
    ] = 100_000,
    rounds: Rounds = 3,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of events and subscriptions, one round.")
    ] = False,
    master: Annotated[str, typer.Option(metavar="URL", help="Where Spark runs.")] = "local[2]",
    data: Data = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure the data pipeline on Spark.

    Bulk matching in both layouts, in turns with two plain processes that have the same index; then
    the same question in SQL, for a sample, and as an equi-join, also with filters that all have an
    identifier. Then reading journals, an audit of ten facts an event, and audits of 1,000 clients
    that move about for 6, 12 and 24 hours. Takes more than ten minutes.
    """
    check_folders(data, out, as_json=as_json)
    from sterna.bench.pipeline import MEASUREMENTS, Options, run  # noqa: PLC0415 - needs Spark.
    from sterna.pipeline.errors import PipelineError  # noqa: PLC0415

    unknown = [name for name in measurement or [] if name not in MEASUREMENTS]
    if unknown:
        known = ", ".join(MEASUREMENTS)
        fail(f"there is no measurement {unknown[0]!r}; there are: {known}", as_json=as_json)
    options = Options(
        measurements=measurement or (),
        events=events // 10 if quick else events,
        subscriptions=subscriptions // 10 if quick else subscriptions,
        rounds=1 if quick else rounds,
        master=master,
        data=data,
    )
    try:
        with progress() as tell:
            report = run(options, tell)
    except PipelineError as error:
        fail(str(error), as_json=as_json)
    measured = {name: report[name] for name in MEASUREMENTS if name in report}
    give_out(report, lambda: _show(measured), as_json=as_json, out=out)


def _show(measured: Mapping[str, dict[str, object]]) -> None:
    for name, figures in measured.items():
        table = Table(title=f"[bold]{name}[/bold]", title_justify="left", show_header=False)
        table.add_column(no_wrap=True)
        table.add_column()
        for key, value in _flat(figures):
            table.add_row(key, f"{value:,}" if isinstance(value, int | float) else str(value))
        console.print(table)


def _flat(figures: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in figures.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}: ")
        else:
            yield prefix + key.replace("_", " "), value
