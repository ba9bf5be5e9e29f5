"""`sterna pipeline audit`: was anything lost, repeated or out of order?"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sterna.cli.output import NO, Json, console, errors, print_json
from sterna.cli.pipeline.options import LOCAL, Master, reporting_errors, seconds, spark_for
from sterna.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from sterna.pipeline.audit import Verdict

SHOWN_MAX = 20


def audit(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Journals of brokers and clients, also in directories below."
        ),
    ],
    grace: Annotated[
        float,
        typer.Option(
            metavar="TIME",
            parser=seconds,
            help="Longer than any message is on its way while its sender and receiver are "
            "connected, and than clocks differ.",
        ),
    ] = "5s",  # type: ignore[assignment]  # The parser reads it.
    advertisements: Annotated[
        bool | None,
        typer.Option(
            "--advertisements/--no-advertisements",
            help="Whether the network delivers only what was advertised. [default: yes if there are"
            " any]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the result as JSON, with the findings (100,000 at most)."
        ),
    ] = None,
    master: Master = LOCAL,
    as_json: Json = False,
) -> None:
    """Compare what was published with what arrived: exit 0 if no delivery was wrong, 1 if one was.

    Reads the journals of clients (`connect(…, journal=DIR)`) and brokers. Each wrong delivery is
    named: what is wrong, the event, the client, and the brokers that the event came by.
    """
    with reporting_errors(as_json=as_json):
        _check(directory, out)
    with spark_for("audit", master, as_json=as_json) as spark:
        from sterna.pipeline.audit import audit_journals  # noqa: PLC0415 - Spark is large.

        verdict = audit_journals(
            spark, directory, grace_us=round(grace * 1e6), advertisements=advertisements
        )
    document = _document(verdict)
    if out is not None:
        with reporting_errors(as_json=as_json):
            _write(out, document)
    if as_json:
        print_json(document)
    else:
        _show(verdict)
    if not verdict.is_clean:
        raise typer.Exit(NO)


def _check(directory: Path, out: Path | None) -> None:
    """Fail before a long run rather than after it."""
    if not directory.is_dir():
        raise PipelineError(f"there is no directory {directory}: give one with journals")
    if out is not None and not out.parent.is_dir():
        raise PipelineError(f"there is no folder {out.parent} for {out.name}: make it first")
    from sterna.pipeline.audit.before import (  # noqa: PLC0415 - it needs an extra.
        require_something_to_judge,
    )

    require_something_to_judge(directory)


def _document(verdict: "Verdict") -> dict[str, Any]:
    return {
        "clean": verdict.is_clean,
        "published": verdict.published,
        "owed": verdict.owed,
        "delivered": verdict.delivered,
        "unjudged": {
            "open": verdict.unjudged.open,
            "unknown": verdict.unjudged.unknown,
            "ends": list(verdict.unjudged.ends),
            "unattached": list(verdict.unjudged.unattached),
            "lacks_beginning": verdict.unjudged.lacks_beginning,
        },
        "faults": {str(fault): count for fault, count in sorted(verdict.faults.items())},
        "findings": [
            {
                "fault": str(finding.fault),
                "client": finding.client,
                "publisher": finding.publisher,
                "seq": finding.seq,
                "path": list(finding.path),
                **({"simulation": finding.world} if finding.world else {}),
            }
            for finding in verdict.findings
        ],
    }


def _write(path: Path, document: dict[str, Any]) -> None:
    """Write the whole document, or nothing."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise PipelineError(f"cannot write {path}: {error.strerror}; give another --out") from None


def _show(verdict: "Verdict") -> None:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("published", f"{verdict.published:,}")
    table.add_row("delivered", f"{verdict.delivered:,}")
    table.add_row("owed for sure", f"{verdict.owed:,}")
    for fault, count in sorted(verdict.faults.items()):
        table.add_row(str(fault), f"[bold red]{count:,}[/bold red]")
    console.print(table)
    for line in _unjudged(verdict):
        console.print(line, markup=False)
    if verdict.is_clean:
        console.print(_in_words(verdict))
        return
    errors.print(f"[bold red]{verdict.faults.total():,} deliveries are wrong[/bold red]")
    for finding in verdict.findings[:SHOWN_MAX]:
        errors.print(str(finding), markup=False, soft_wrap=True)
    if verdict.faults.total() > SHOWN_MAX:
        errors.print("… --json or --out FILE shows more", markup=False)


def _unjudged(verdict: "Verdict") -> Iterator[str]:
    """What could not be judged, and why."""
    left = verdict.unjudged
    if left.open:
        yield (
            f"not judged: {left.open:,} events that did not come to a client that had subscribed; "
            "they were published soon after it began, or before the end of what is recorded"
        )
    if left.unknown:
        why = []
        if left.ends:
            why.append(f"the journals of {', '.join(left.ends)} end before that, or are missing")
        if left.unattached:
            why.append(f"no journal says which broker {', '.join(left.unattached)} had")
        if left.lacks_beginning:
            why.append("the beginning of some journals is missing")
        what = f"{left.unknown:,} deliveries of events that no journal has"
        yield f"not judged: {what}; {', and '.join(why)}"


def _in_words(verdict: "Verdict") -> str:
    """What an audit without findings means."""
    right, not_wrong = "every delivery was right", "no delivery was wrong"
    if verdict.unjudged.unknown:
        right = not_wrong = "no delivery that could be judged was wrong"
    if verdict.owed:
        return f"{right}, and nothing that was owed for sure is missing"
    return (
        f"{not_wrong}; but nothing was owed for sure, so nothing is known of losses: "
        "no subscription was settled while something was published (see --grace)"
    )
