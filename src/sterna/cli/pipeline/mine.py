"""`sterna pipeline mine`: learns from where clients were where they will be."""

from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich import box
from rich.table import Table

from sterna.cli.output import Json, console, print_json
from sterna.cli.pipeline.options import (
    LOCAL,
    Master,
    Out,
    Ui,
    either,
    reporting_errors,
    seconds,
    spark_for,
)
from sterna.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from sterna.pipeline.mining.mine import Mined

_INPUT = "Input: DIR, or one of these"
_PLACES = "Places"


class Clock(StrEnum):
    """Which clock cuts the time into training and test."""

    AUTO = "auto"
    SHARED = "shared"
    OWN = "own"


class Where(StrEnum):
    """Where clients of a journal are."""

    BROKER = "broker"
    LOCATION = "location"


def mine(
    journals: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR",
            help="Journals of brokers and clients, also in directories below.",
            show_default=False,
        ),
    ] = None,
    trips: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Trips of a bike share or the like, as CSV or Parquet: a file or a directory.",
            rich_help_panel=_INPUT,
        ),
    ] = None,
    fixes: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="GPS fixes, as CSV or Parquet: a file or a directory.",
            rich_help_panel=_INPUT,
        ),
    ] = None,
    journal: Annotated[
        str | None, typer.Option(metavar="DIR", hidden=True, help="The former word for DIR.")
    ] = None,
    columns: Annotated[
        str,
        typer.Option(
            metavar="NAME=COLUMN,…",
            help="Which column is what, where its name does not say it. Of fixes: client, time, "
            "and lat, lon or x, y. Of trips: client, start, stop, origin, destination.",
        ),
    ] = "",
    h3: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=15,
            metavar="RESOLUTION",
            help="Places are H3 hexagons of this resolution; 9 is about 0.1 km². "
            "[default for fixes with lat, lon: 9]",
            show_default=False,
            rich_help_panel=_PLACES,
        ),
    ] = None,
    grid: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="METRES",
            help="Places are squares with sides of this length, for fixes with x, y. "
            "[default: 500]",
            show_default=False,
            rich_help_panel=_PLACES,
        ),
    ] = None,
    stay: Annotated[
        float,
        typer.Option(
            parser=seconds,
            metavar="TIME",
            help="Fixes count as a visit only where a client stays for so long; 0: also places "
            "that it passes.",
            rich_help_panel=_PLACES,
        ),
    ] = "0",  # type: ignore[assignment]  # The parser reads it.
    radius: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="METRES",
            help="With --stay, how far a client may move and still stay.",
            rich_help_panel=_PLACES,
        ),
    ] = 100.0,
    gap: Annotated[
        float | None,
        typer.Option(
            parser=seconds,
            metavar="TIME",
            help="Fixes farther apart than this are of two recordings: a visit ends with the last "
            "fix before the gap, and no move leads over it. 0: there are no gaps. [default: 30m]",
            show_default=False,
            rich_help_panel=_PLACES,
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=0.5,
            metavar="PART",
            help="A client leaves a cell with the first fix that is farther outside than this part "
            "of the cell's width, so that it does not flap at borders. "
            "[default for fixes with lat, lon: 0.12; with x, y: 0]",
            show_default=False,
            rich_help_panel=_PLACES,
        ),
    ] = None,
    where: Annotated[
        Where,
        typer.Option(
            help="Of journals: whether places are the brokers that clients are at, or the "
            "locations that they announce.",
            rich_help_panel=_PLACES,
        ),
    ] = Where.BROKER,
    holdout: Annotated[
        float,
        typer.Option(
            min=0,
            max=0.9,
            help="The last part of the time, which is not learnt from but tested on. 0: learn from "
            "all, test nothing.",
        ),
    ] = 0.3,
    clock: Annotated[
        Clock,
        typer.Option(
            help="Whether all clients have one clock, or each its own, so that each one's time is "
            "cut for itself. `auto`: each its own if all begin at the same moment.",
        ),
    ] = Clock.AUTO,
    out: Out = Path("mined"),
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the model goes. [default: mobility.sterna-model in --out]",
            show_default=False,
        ),
    ] = None,
    master: Master = LOCAL,
    ui: Ui = False,
    as_json: Json = False,
) -> None:
    """Learn where clients go: visits, dwell times, a movement graph, and a tested predictor.

    Writes the tables visits, dwell, movement_graph, ploc, evaluation (and places, for trips) as
    Parquet, and the model as one file, which brokers take as their movement graph and programs load
    with `MobilityModel.load`.
    """
    with reporting_errors(as_json=as_json):
        from sterna.pipeline.mining.sources import Kind, chosen  # noqa: PLC0415 - no Spark yet.

        journals = either(journals, journal, "--journal")
        given = {Kind.TRIPS: trips, Kind.FIXES: fixes, Kind.JOURNAL: journals}
        source = chosen(
            {kind: path for kind, path in given.items() if path is not None},
            columns=columns,
            h3=h3,
            square_m=grid,
            stay_s=stay,
            radius_m=radius,
            gap_s=gap,
            margin=margin,
            at_locations=where is Where.LOCATION,
        )
        _check_free(out)
    with spark_for("mine", master, ui=ui, as_json=as_json) as spark:
        from sterna.pipeline.mining.mine import MODEL, mine_source  # noqa: PLC0415

        own_clocks = None if clock is Clock.AUTO else clock is Clock.OWN
        mined = mine_source(spark, source, holdout=holdout, own_clocks=own_clocks)
        mined.write(out)
        path = model or out / MODEL
        mined.save(path)
    document = _document(mined, out, path)
    if as_json:
        print_json(document)
    else:
        _show(mined, out, path)


def _check_free(out: Path) -> None:
    """Make sure that nothing is replaced but what this command has written."""
    if out.is_dir() and not (out / "ploc").exists() and any(out.iterdir()):
        raise PipelineError(
            f"{out} is not empty, and not from an earlier `sterna pipeline mine`: give another "
            "folder with --out"
        )


def _document(mined: "Mined", out: Path, path: Path) -> dict[str, object]:
    """The results for programs."""
    score, strangers, span = mined.score, mined.score_of_new_clients, mined.span
    cut = None if span.own_clocks else _time(mined.model.document.until_us)
    return {
        "accuracy_at_1": score.accuracy_at_1 if score else None,
        "accuracy_at_3": score.accuracy_at_3 if score else None,
        "calibration_error": score.calibration_error if score else None,
        "steps_tested": score.steps if score else 0,
        "held_out_clients": asdict(strangers) if strangers else None,
        "predictors": [asdict(each) for each in mined.scores],
        "calibration": mined.calibration,
        "holdout": mined.holdout,
        "own_clocks": span.own_clocks,
        "from": _time(span.begin_us),
        "cut": cut,
        "to": _time(span.end_us),
        "rows": mined.rows,
        "rows_left_out": mined.left_out,
        "visits": span.visits,
        "clients": span.clients,
        "places": span.places,
        "median_dwell_s": span.median_dwell_s,
        "model": {
            "path": str(path),
            "bytes": path.stat().st_size,
            "grid": mined.model.document.grid,
            **msgspec.structs.asdict(mined.model.sizes),
            "blend": {each.name: each.weight for each in mined.model.document.predictors},
        },
        "tables": str(out),
    }


def _show(mined: "Mined", out: Path, path: Path) -> None:
    """Show the results to people."""
    span = mined.span
    console.print(
        f"{span.visits:,} visits of {span.clients:,} clients to {span.places:,} places"
        + (f"; {mined.left_out:,} of {mined.rows:,} rows left out" if mined.left_out else "")
    )
    if mined.scores:
        whose = "each client's time" if span.own_clocks else "the time"
        table = Table("predictor", "first guess", "in three", "calibration error", box=box.SIMPLE)
        for column in table.columns[1:]:
            column.justify = "right"
        for each in mined.scores:
            table.add_row(
                each.predictor,
                f"{each.accuracy_at_1:.1%}",
                f"{each.accuracy_at_3:.1%}",
                f"{each.calibration_error:.1%}",
            )
        console.print(
            f"How often the next place is right, on the last {mined.holdout:.0%} of {whose}:"
        )
        console.print(table)
    console.print(f"The model is {path} ({path.stat().st_size:,} bytes), the tables are in {out}.")


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="seconds")
