"""`sterna pipeline match`: which subscriptions match which events."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from sterna.cli.output import Json, console, print_json
from sterna.cli.pipeline.options import LOCAL, Master, Ui, reporting_errors, spark_for
from sterna.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from sterna.pipeline.matching import Matching
    from sterna.pipeline.matching.figures import WorkerFigures

MOST_SHOWN = 10


class LayoutName(StrEnum):
    AUTO = "auto"
    SUBSCRIPTIONS = "subscriptions"
    EVENTS = "events"


def match(
    events: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="Events: a folder of journals or of `sterna pipeline run`, or Parquet, CSV or "
            "JSON with attributes as columns.",
        ),
    ],
    subscriptions: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="Subscriptions: Parquet, CSV or JSON lines with `id` and `filter`, or a text file "
            "with a filter a line.",
        ),
    ],
    layout: Annotated[
        LayoutName,
        typer.Option(
            help="What is divided among workers: the subscriptions (every event goes to each "
            "worker), or the events (each worker has all subscriptions); `auto` goes by size."
        ),
    ] = LayoutName.AUTO,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write Parquet to this folder, which must not be there yet."
        ),
    ] = None,
    count: Annotated[
        bool,
        typer.Option("--count", help="Only count: matches of each event and each subscription."),
    ] = False,
    identity: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="The columns that identify an event, with commas. [default: publisher,seq, or "
            "event, or id]",
            show_default=False,
        ),
    ] = None,
    worker_memory: Annotated[
        int,
        typer.Option(
            metavar="MB", min=1, help="What subscriptions may take in each worker, in megabytes."
        ),
    ] = 1024,
    cache: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            envvar="STERNA_CACHE",
            help="The folder of compiled subscriptions, which are not compiled again; `off`: none. "
            "[default: ~/.cache/sterna]",
            show_default=False,
        ),
    ] = None,
    master: Master = LOCAL,
    ui: Ui = False,
    as_json: Json = False,
) -> None:
    """Find out which subscriptions match which events, with the brokers' own index.

    With `--out`, the pairs are written to DIR/pairs, or with `--count` their numbers to DIR/events
    and DIR/subscriptions. Without it they are counted and shown.
    """
    with reporting_errors(as_json=as_json):
        for path in (events, subscriptions):
            if not path.exists():
                raise PipelineError(f"there is no file or folder {path}: give another path")
    with spark_for("match", master, ui=ui, as_json=as_json) as spark:
        from sterna.pipeline.matching import Layout, Matching  # noqa: PLC0415 - Spark is large.
        from sterna.pipeline.matching.figures import listener  # noqa: PLC0415
        from sterna.pipeline.matching.reading import (  # noqa: PLC0415
            read_events,
            read_subscriptions,
        )
        from sterna.pipeline.matching.writing import folder_for  # noqa: PLC0415
        from sterna.pipeline.progress import step  # noqa: PLC0415

        with folder_for(out) as folder:
            step("reading subscriptions")
            work = listener(spark.sparkContext)
            matching = Matching.plan(
                read_events(spark, events),
                read_subscriptions(spark, subscriptions),
                layout=Layout(layout),
                identity=None if identity is None else identity.split(","),
                worker_memory_bytes=worker_memory * 1_000_000,
                cache=cache,
                listener=work,
            )
            found = _found(matching, folder, pairs=out is not None and not count)
    document = _document(matching, found, work.value, out)
    if as_json:
        print_json(document)
    else:
        _show(document)


@dataclass
class MatchCounts:
    """The results in numbers."""

    pairs: int
    events: int | None
    """How many events have a match; None if only pairs were written."""
    subscriptions: int
    most: list[tuple[Any, int]]


def _found(matching: "Matching", folder: Path, *, pairs: bool) -> MatchCounts:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from sterna.pipeline.matching.writing import write_counts, write_pairs  # noqa: PLC0415
    from sterna.pipeline.progress import step  # noqa: PLC0415

    if pairs:
        written = write_pairs(matching, folder)
        per_subscription = written.groupBy("subscription").agg(F.count("*").alias("matches"))
        matched = None
    else:
        per_event, per_subscription = write_counts(matching, folder)
        matched = per_event.where("matches > 0").count()
    step("counting matches")
    per_subscription = per_subscription.cache()
    total = per_subscription.agg(F.count("*"), F.sum("matches")).collect()[0]
    most = per_subscription.orderBy(F.desc("matches"), "subscription").limit(MOST_SHOWN).collect()
    return MatchCounts(
        pairs=total[1] or 0,
        events=matched,
        subscriptions=total[0],
        most=[(row.subscription, row.matches) for row in most],
    )


def _document(
    matching: "Matching", found: MatchCounts, work: "WorkerFigures", out: Path | None
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "pairs": found.pairs,
        "subscriptions": matching.subscriptions,
        "subscriptions_matched": found.subscriptions,
        "most": [{"subscription": id_, "matches": matches} for id_, matches in found.most],
        "layout": str(matching.layout),
        "why": matching.why,
        "shares": matching.shares,
        "index_bytes": matching.index_bytes,
        "workers": len(work),
        "worker_memory_bytes": max((each["memory_bytes"] for each in work.values()), default=0),
    }
    if found.events is not None:
        document["events"] = sum(each["events"] for each in work.values()) // _visits(matching)
        document["events_matched"] = found.events
    if out is not None:
        document["out"] = str(out)
    return document


def _visits(matching: "Matching") -> int:
    """How many workers see each event."""
    return matching.shares if matching.orders.split else 1


def _show(document: dict[str, Any]) -> None:
    matched = document["subscriptions_matched"]
    console.print(
        f"[bold]{document['pairs']:,} matches[/bold] of {matched:,} of "
        f"{document['subscriptions']:,} subscriptions"
        + (
            f" with {document['events_matched']:,} of {document['events']:,} events"
            if "events" in document
            else ""
        )
    )
    if document["most"]:
        table = Table(title="most matched", title_justify="left")
        table.add_column("subscription")
        table.add_column("matches", justify="right")
        for row in document["most"]:
            table.add_row(Text(str(row["subscription"])), f"{row['matches']:,}")
        console.print(table)
    console.print(f"  divided: {document['layout']} ({document['why']})")
    console.print(
        f"  {document['workers']} worker processes, at most "
        f"{document['worker_memory_bytes'] / 1e6:,.0f} MB each"
    )
    if "out" in document:
        console.print(f"  written to {document['out']}", soft_wrap=True)
