"""Run one script, and show the outcome: trace, picture, journal, and the oracle's verdict."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer
from rich.table import Table

from sterna.cli.output import NO, console, errors, fail, print_json, warn
from sterna.core.facts import Fact
from sterna.core.names import LocalProtocolError, NodeId, Time
from sterna.errors import JournalFailedError
from sterna.model.duration import parse_duration
from sterna.model.spelling import hint
from sterna.sim.network import NeverSettlesError, Observer
from sterna.sim.picture import Picture
from sterna.sim.run import Outcome, Simulation
from sterna.sim.script import Script
from sterna.sim.trace import Trace
from sterna.wire.codec import to_json

if TYPE_CHECKING:
    from sterna.journal import Journal


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a run, to be drawn."""

    since_us: Time = 0
    until_us: Time | None = None
    nodes: tuple[NodeId, ...] = ()

    @classmethod
    def parse(cls, since: str | None, until: str | None, nodes: str | None) -> "Part | None":
        """Parse the options of `--picture`; ValueError if they make no sense."""
        if since is None and until is None and nodes is None:
            return None
        part = cls(
            since_us=0 if since is None else _microseconds("--from", since),
            until_us=None if until is None else _microseconds("--to", until),
            nodes=tuple(node.strip() for node in (nodes or "").split(",") if node.strip()),
        )
        if part.until_us is not None and part.until_us < part.since_us:
            raise ValueError(f"--to {until} is before --from {since}")
        return part


def _microseconds(option: str, text: str) -> Time:
    try:
        return round(parse_duration(text, may_be_zero=True) * 1e6)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants to see of a run."""

    trace: Path | None
    frames: bool
    picture: Path | None
    part: "Part | None" = None
    """What of the run is drawn; None: all of it."""
    keep: Path | None
    journal: Path | None
    as_json: bool

    def check(self) -> None:
        """Fail before a long run rather than after it."""
        if self.part is not None and self.picture is None:
            fail("--from, --to and --nodes go with --picture FILE", as_json=self.as_json)
        if self.as_json and self.trace == Path("-"):
            fail("--json prints one document only; write the trace to a file", as_json=True)
        if self.picture is not None and self.picture.suffix not in {".svg", ".mmd"}:
            name = self.picture.name
            fail(f"--picture draws .svg and .mmd, not {name}", as_json=self.as_json)
        for path in (self.trace, self.picture, self.keep):
            if path is not None and not path.parent.is_dir():
                fail(f"there is no folder {path.parent} for {path.name}", as_json=self.as_json)


def run_one(
    script: Script, output: Output, again: str, *, quiet: bool = False, runs: int = 1
) -> None:
    """Run a script and show the outcome; quietly, only if something is wrong."""
    _check_nodes(script, output)
    trace, picture = Trace(frames=output.frames), Picture()
    observers: list[Observer] = []
    if output.trace is not None and not quiet:
        observers.append(trace)
    if output.picture is not None and not quiet:
        observers.append(picture)
    try:
        with _kept(script, output) as kept:
            outcome = Simulation(script, [*observers, *kept]).run()
    except NeverSettlesError as error:
        errors.print(f"{error}\nreplay: {again}", markup=False, soft_wrap=True)
        raise typer.Exit(NO) from None
    except LocalProtocolError as error:
        fail(f"the script asks for what cannot be: {error}", as_json=output.as_json)
    if quiet and not outcome.findings:
        return
    _write(script, output, trace, picture)
    if output.as_json:
        print_json({"seed": script.seed, "replay": again, **_as_json(outcome)})
    else:
        _show(script, outcome, runs)
    if outcome.findings:
        if not output.as_json:
            errors.print(f"[bold red]{len(outcome.findings)} deliveries are wrong[/bold red]")
            for finding in outcome.findings[:20]:
                errors.print(str(finding), markup=False, soft_wrap=True)
            errors.print(f"replay: {again}", markup=False, soft_wrap=True)
        raise typer.Exit(NO)


@contextmanager
def _kept(script: Script, output: Output) -> Iterator[list[Observer]]:
    """The observers that write down the facts of a run, if that was asked for."""
    if output.journal is None:
        yield []
        return
    from sterna.journal import Journal  # noqa: PLC0415 - it needs an extra.

    name = f"simulation-{script.seed}"
    try:
        journal = Journal(output.journal, name)
        if journal.last_position.position >= 0:
            fail(
                f"{output.journal} has a journal of {name} already: give another folder",
                as_json=output.as_json,
            )
        yield [_Journalist(journal)]
        journal.close()
    except JournalFailedError as error:
        fail(str(error), as_json=output.as_json)


class _Journalist(Observer):
    """Writes the facts of all nodes into one journal; their places there give the order."""

    def __init__(self, journal: "Journal") -> None:
        self._journal = journal
        self._facts = 0

    def fact(self, fact: Fact) -> None:
        self._journal.record(self._facts, [fact])
        self._facts += 1


def _write(script: Script, output: Output, trace: Trace, picture: Picture) -> None:
    if output.keep is not None:
        output.keep.write_bytes(to_json(script))
    if output.trace == Path("-"):
        sys.stdout.write(trace.text())
    elif output.trace is not None:
        output.trace.write_text(trace.text(), encoding="utf-8")
    if output.picture is not None:
        _draw(picture, output, output.picture)


def _draw(whole: Picture, output: Output, path: Path) -> None:
    part = output.part or Part()
    chosen = whole.part(since=part.since_us, until=part.until_us, nodes=part.nodes)
    picture = chosen.beginning()
    drawn = picture.svg() if path.suffix == ".svg" else picture.mermaid()
    path.write_text(drawn, encoding="utf-8")
    if picture is not chosen:
        end_ms = chosen.rows[len(picture.rows)].time / 1000
        warn(
            f"{path} has the first {len(picture.rows):,} of {len(chosen.rows):,} rows, up to "
            f"{end_ms:g}ms: more is too large to look at. Choose a part, such as "
            f"--from {end_ms:g}ms, --to {2 * end_ms:g}ms or --nodes {chosen.nodes()[0]}"
        )
    elif not picture.rows:
        warn(f"{path} is empty: nothing happens in this part of the run")


def _check_nodes(script: Script, output: Output) -> None:
    known = [*script.topology.brokers, *script.clients]
    for node in output.part.nodes if output.part is not None else ():
        if node not in known:
            fail(f"--nodes: there is no node {node!r}{hint(node, known)}", as_json=output.as_json)


def _as_json(outcome: Outcome) -> dict[str, object]:
    return {
        "published": outcome.published,
        "owed": outcome.owed,
        "delivered": outcome.delivered,
        "missed": outcome.missed,
        "findings": [
            {
                "fault": finding.fault.value,
                "publisher": finding.event.publisher,
                "seq": finding.event.seq,
                "client": finding.client,
                "path": list(finding.path),
            }
            for finding in outcome.findings
        ],
        "simulated_us": outcome.ended_us,
        "messages": dict(outcome.messages),
        "messages_by_link": {link: dict(sent) for link, sent in outcome.by_link.items()},
        "messages_by_broker": {broker: dict(sent) for broker, sent in outcome.by_broker.items()},
        "frames": outcome.frames,
        "tables": [
            {"time_us": sizes.time, "entries": sizes.total, "largest": sizes.largest}
            for sizes in outcome.tables
        ],
    }


def _show(script: Script, outcome: Outcome, runs: int) -> None:
    about = f"{len(script.topology.brokers)} brokers, {len(script.clients)} clients"
    title = f"[bold]seed {script.seed}[/bold]: {about}, {script.routing.strategy} routing"
    if runs > 1:
        title += f"  [dim](the last of {runs} runs)[/dim]"
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("published", f"{outcome.published:,}")
    table.add_row("delivered", f"{outcome.delivered:,}")
    table.add_row("of those, owed (the subscription had settled)", f"{outcome.owed:,}")
    table.add_row("wrong", f"{len(outcome.findings):,}")
    if outcome.missed:
        table.add_row("discarded for clients that were away, and missed", f"{outcome.missed:,}")
    for kind, number in sorted(outcome.messages.items()):
        table.add_row(f"{kind} messages", f"{number:,}")
    table.add_row("frames, with acknowledgements and repetitions", f"{outcome.frames:,}")
    if outcome.tables:
        table.add_row("routing entries at the end", f"{outcome.tables[-1].total:,}")
        largest = max(sizes.total for sizes in outcome.tables)
        table.add_row("at most, whenever settled", f"{largest:,}")
    table.add_row("simulated time", f"{outcome.ended_us / 1e6:.3f} s")
    console.print(table)
