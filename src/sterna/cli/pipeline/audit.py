"""`sterna pipeline audit`: was anything lost, repeated or out of order?"""

import json
import os
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sterna.cli.output import NO, Json, console, errors, print_json
from sterna.cli.pipeline.options import LOCAL, Master, Ui, reporting_errors, seconds, spark_for
from sterna.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from sterna.pipeline.audit import Verdict
    from sterna.pipeline.audit.accounts import Account

SHOWN_MAX = 20
NAMES_SHOWN_MAX = 5

NOTHING_JUDGED = 2
"""The exit status if nothing could be judged."""


class By(StrEnum):
    """What an audit is broken down by."""

    CLIENT = "client"
    PUBLISHER = "publisher"


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
    by: Annotated[
        By | None,
        typer.Option(
            help="Show what was judged of each client, or of each publisher; --json has both."
        ),
    ] = None,
    master: Master = LOCAL,
    ui: Ui = False,
    as_json: Json = False,
) -> None:
    """Compare what was published with what arrived: exit 0 if no delivery was wrong, 1 if one was,
    2 if nothing could be judged.

    Reads the journals of clients (`connect(…, journal=DIR)`) and brokers. Each wrong delivery is
    named: what is wrong, the event, the client, and the brokers that the event came by.
    """
    with reporting_errors(as_json=as_json):
        _check(directory, out)
    with spark_for("audit", master, ui=ui, as_json=as_json) as spark:
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
        _show(verdict, by)
    if not verdict.is_clean:
        raise typer.Exit(NO if verdict.faults else NOTHING_JUDGED)


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
        "missed": verdict.missed,
        "unjudged": {
            "open": verdict.unjudged.open,
            "unknown": verdict.unjudged.unknown,
            "ends": list(verdict.unjudged.ends),
            "unattached": list(verdict.unjudged.unattached),
            "lacks_beginning": verdict.unjudged.lacks_beginning,
            "apart": verdict.unjudged.apart,
            "clocks_ahead_s": {
                name: ahead_us / 1e6
                for name, ahead_us in verdict.unjudged.witnesses.apart_us.items()
            },
            "clocks_went_back": list(verdict.unjudged.witnesses.went_back),
            "before_published": [list(pair) for pair in verdict.unjudged.early],
            "without_journal": {
                "clients": list(verdict.unjudged.witnesses.silent_clients),
                "brokers": list(verdict.unjudged.witnesses.silent_brokers),
            },
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
        "clients": _accounts(verdict.accounts.clients),
        "publishers": _accounts(verdict.accounts.publishers),
    }


def _accounts(accounts: Sequence["Account"]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "owed": each.owed,
            "delivered": each.delivered,
            "missed": each.missed,
            "open": each.open,
            "apart": each.apart,
            **({"simulation": each.world} if each.world else {}),
        }
        for each in accounts
    ]


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


def _table(by: By, accounts: Sequence["Account"]) -> Table:
    """What was judged of each client, or of each publisher."""
    has_apart = any(each.apart for each in accounts)
    heads = (
        "delivered",
        "owed for sure",
        "missed",
        "not judged",
        *(["clock"] if has_apart else []),
    )
    table = Table(str(by))
    for head in heads:
        table.add_column(head, justify="right")
    for each in accounts:
        counts = (each.delivered, each.owed, each.missed, each.open)
        cells = [f"{count:,}" for count in (*counts, *([each.apart] if has_apart else []))]
        table.add_row(each.name, *cells)
    return table


def _show(verdict: "Verdict", by: By | None) -> None:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("published", f"{verdict.published:,}")
    table.add_row("delivered", f"{verdict.delivered:,}")
    table.add_row("owed for sure", f"{verdict.owed:,}")
    if verdict.missed:
        table.add_row("declared missed", f"{verdict.missed:,}")
    for fault, count in sorted(verdict.faults.items()):
        table.add_row(str(fault), f"[bold red]{count:,}[/bold red]")
    console.print(table)
    if by is not None:
        clients, publishers = verdict.accounts.clients, verdict.accounts.publishers
        console.print(_table(by, clients if by is By.CLIENT else publishers))
    for line in _unjudged(verdict):
        console.print(line, markup=False)
    if not verdict.faults:
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
    if left.apart:
        clocks = [_clock(*each) for each in left.witnesses.apart_us.items()]
        clocks += [f"{client} went back" for client in left.witnesses.went_back]
        yield (
            f"not judged: {left.apart:,} deliveries between clients of which one has a clock that "
            f"differs from its brokers' by more than --grace, or went back: {_some(clocks)}"
        )
    if left.early:
        pairs = [f"{client} got events of {publisher}" for client, publisher in left.early]
        yield (
            "not judged by their clocks, of which one is wrong by more than --grace: "
            f"{_some(pairs)} before they were published"
        )
    if left.witnesses.silent_clients:
        clients = _some(left.witnesses.silent_clients)
        yield f"not judged: what came to clients without a journal: {clients}"
    if left.witnesses.silent_brokers:
        yield f"there is no journal of these brokers: {_some(left.witnesses.silent_brokers)}"


def _clock(client: str, ahead_us: int) -> str:
    seconds_ = abs(ahead_us) / 1e6
    return f"{client} is {seconds_:.1f} s {'ahead' if ahead_us > 0 else 'behind'}"


def _some(names: Sequence[str]) -> str:
    """The first of some names, and how many there are."""
    more = len(names) - NAMES_SHOWN_MAX
    return ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {more:,} more" if more > 0 else "")


def _in_words(verdict: "Verdict") -> str:
    """What an audit without findings means."""
    if not verdict.has_judged:
        return "nothing could be judged, so nothing is known of these deliveries"
    right, not_wrong = "every delivery was right", "no delivery was wrong"
    if verdict.unjudged.unknown or verdict.unjudged.apart or verdict.unjudged.early:
        right = not_wrong = "no delivery that could be judged was wrong"
    if verdict.owed:
        return f"{right}, and nothing that was owed for sure is missing"
    return (
        f"{not_wrong}; but nothing was owed for sure, so nothing is known of losses: "
        "no subscription was settled while something was published (see --grace)"
    )
