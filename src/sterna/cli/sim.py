"""`sterna sim`: run a broker network in the simulator, with faults, and judge every delivery."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from sterna.cli.output import NO, console, errors, fail, print_json
from sterna.core.client import ClientOptions
from sterna.core.facts import Fact
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.names import LocalProtocolError
from sterna.core.routing.options import ARCHITECTURES, RoutingOptions, Strategy
from sterna.journal import Journal, JournalFailedError
from sterna.sim import topology as topologies
from sterna.sim.generate import FAULTS, Faults, Plan, generate
from sterna.sim.network import NeverSettlesError, Observer
from sterna.sim.picture import Picture
from sterna.sim.run import Outcome, Simulation
from sterna.sim.script import LinkModel, Script
from sterna.sim.trace import Trace
from sterna.wire.codec import from_json, to_json

app = typer.Typer(
    help="Run a broker network in the simulator.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


class FaultsName(StrEnum):
    NONE = "none"
    LIGHT = "light"
    HEAVY = "heavy"


TOPOLOGIES = ("tree", "line", "star", "random")

TopologyOption = Annotated[
    str,
    typer.Option(
        help="`tree`, `line`, `star`, `random`, or a file with two broker names on each line."
    ),
]
BROKERS_MAX = 10_000
Brokers = Annotated[int, typer.Option(min=1, max=BROKERS_MAX, help="How many brokers.")]
Degree = Annotated[int, typer.Option(min=1, max=1_000, help="Children of a broker in a tree.")]
Height = Annotated[
    int | None,
    typer.Option(
        min=1, max=20, help="Levels of a complete tree, instead of --brokers.", show_default=False
    ),
]
StrategyOption = Annotated[Strategy, typer.Option(help="How brokers route.")]
Architecture = Annotated[
    str | None,
    typer.Option(
        help=f"One of Huang's architectures instead: {', '.join(ARCHITECTURES)}.",
        show_default=False,
    ),
]
Advertisements = Annotated[
    bool, typer.Option("--advertisements", help="Subscriptions go only to what was advertised.")
]
Hierarchical = Annotated[
    bool, typer.Option("--hierarchical", help="Events go up to the root, down only to interest.")
]
QuenchingOption = Annotated[
    bool, typer.Option("--quenching", help="Publishers discard what nobody wants.")
]
Clients = Annotated[int, typer.Option(min=1, max=100_000, help="How many clients.")]
Subscriptions = Annotated[
    int, typer.Option(min=0, max=1_000_000, help="How many subscriptions they make.")
]
EventsOption = Annotated[
    int, typer.Option(min=0, max=1_000_000, help="How many events they publish.")
]
Moves = Annotated[
    int,
    typer.Option(min=0, max=1_000_000, help="How many times a client goes to another broker."),
]
Naps = Annotated[
    int, typer.Option(min=0, max=1_000_000, help="How many times a client is offline for a while.")
]
HandoverOption = Annotated[
    Handover | None,
    typer.Option(
        help="How clients are handed over. [default: relocation if they move]", show_default=False
    ),
]
CacheEvents = Annotated[
    int,
    typer.Option(min=1, help="Events kept for each subscription of a client that is away."),
]
CacheTtlMs = Annotated[
    float | None,
    typer.Option(min=0.001, help="How long. [default: no limit]", show_default=False),
]
Variety = Annotated[
    int, typer.Option(min=1, max=8, help="Different values of an attribute: how alike filters are.")
]
LatencyMs = Annotated[float, typer.Option(min=0, help="How long a frame takes on a link.")]
JitterMs = Annotated[float, typer.Option(min=0, help="Up to so much longer, by chance.")]
BytesPerS = Annotated[
    int | None,
    typer.Option(min=1, help="What a link carries. [default: no limit]", show_default=False),
]
FaultsOption = Annotated[FaultsName, typer.Option(help="What goes wrong, as a usual combination.")]
Loss = Annotated[
    float | None,
    typer.Option(min=0, max=0.9, help="Share of frames that get lost.", show_default=False),
]
Duplication = Annotated[
    float | None,
    typer.Option(min=0, max=0.9, help="Share of frames that arrive twice.", show_default=False),
]
Drops = Annotated[
    int | None, typer.Option(min=0, help="How many connections break.", show_default=False)
]
Pauses = Annotated[
    int | None, typer.Option(min=0, help="How many times a broker pauses.", show_default=False)
]
Crashes = Annotated[
    int | None, typer.Option(min=0, help="How many times a broker crashes.", show_default=False)
]
Partitions = Annotated[
    int | None,
    typer.Option(min=0, help="How many times brokers are cut off.", show_default=False),
]
TraceFile = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write all that happens; `-` prints it."),
]
FramesOption = Annotated[
    bool, typer.Option("--frames", help="In the trace, also what keeps links going.")
]
PictureFile = Annotated[
    Path | None,
    typer.Option("--picture", metavar="FILE", help="Draw the messages: .svg, or .mmd for Mermaid."),
]
KeepFile = Annotated[
    Path | None, typer.Option("--keep", metavar="FILE", help="Keep the script, for `sim replay`.")
]
JournalDirectory = Annotated[
    Path | None,
    typer.Option(
        "--journal", metavar="DIR", help="Keep all facts of each run, for `sterna pipeline`."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

SEED_MAX = 2**63 - 1


@app.callback()
def sim() -> None:
    """Run a broker network in the simulator."""


@app.command()
def run(
    ctx: typer.Context,
    shape: Annotated[
        str | None,
        typer.Argument(metavar="[TOPOLOGY]", help="The same as --topology.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=SEED_MAX, help="All chance comes from it.")] = 0,
    runs: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Try so many seeds, from --seed on.")
    ] = 1,
    topology: TopologyOption = "tree",
    brokers: Brokers = 13,
    degree: Degree = 3,
    height: Height = None,
    strategy: StrategyOption = Strategy.COVERING,
    architecture: Architecture = None,
    advertisements: Advertisements = False,
    hierarchical: Hierarchical = False,
    quenching: QuenchingOption = False,
    clients: Clients = 20,
    subscriptions: Subscriptions = 30,
    events: EventsOption = 100,
    moves: Moves = 0,
    naps: Naps = 0,
    handover: HandoverOption = None,
    cache_events: CacheEvents = 10_000,
    cache_ttl_ms: CacheTtlMs = None,
    variety: Variety = 5,
    latency_ms: LatencyMs = 1.0,
    jitter_ms: JitterMs = 0.5,
    bytes_per_s: BytesPerS = None,
    faults: FaultsOption = FaultsName.NONE,
    loss: Loss = None,
    duplication: Duplication = None,
    drops: Drops = None,
    pauses: Pauses = None,
    crashes: Crashes = None,
    partitions: Partitions = None,
    trace: TraceFile = None,
    frames: FramesOption = False,
    picture: PictureFile = None,
    keep: KeepFile = None,
    journal: JournalDirectory = None,
    script_file: Annotated[
        Path | None,
        typer.Option("--script", metavar="FILE", help="Run a script that was kept."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a network of brokers and clients that do things by chance, and judge every delivery.

    Each event must reach exactly the clients whose settled subscriptions match it, once, in the
    order of its publisher. The exit status is 1 if one did not, and the command that replays that
    run is printed.
    """
    chosen = Options(
        topology=shape or topology,
        brokers=brokers,
        degree=degree,
        height=height,
        strategy=strategy,
        architecture=architecture,
        advertisements=advertisements,
        hierarchical=hierarchical,
        quenching=quenching,
        clients=clients,
        subscriptions=subscriptions,
        events=events,
        moves=moves,
        naps=naps,
        handover=handover,
        cache_events=cache_events,
        cache_ttl_ms=cache_ttl_ms,
        variety=variety,
        latency_ms=latency_ms,
        jitter_ms=jitter_ms,
        bytes_per_s=bytes_per_s,
        faults=faults,
        loss=loss,
        duplication=duplication,
        drops=drops,
        pauses=pauses,
        crashes=crashes,
        partitions=partitions,
    )
    output = Output(
        trace=trace, frames=frames, picture=picture, keep=keep, journal=journal, as_json=as_json
    )
    output.check()
    if script_file is not None:
        script = _read_script(script_file, as_json=as_json)
        _run_one(script, output, f"sterna sim replay {shlex.quote(str(script_file))}")
        return
    same = _options(ctx, chosen)
    last = seed + runs - 1
    for number in range(seed, last):
        if errors.is_terminal:
            errors.print(f"seed {number}", end="\r")
        script = generate(_plan(chosen, number, as_json=as_json), number)
        _run_one(script, output, f"sterna sim replay {number}{same}", quiet=True)
    script = generate(_plan(chosen, last, as_json=as_json), last)
    _run_one(script, output, f"sterna sim replay {last}{same}", runs=runs)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def replay(
    ctx: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="SEED|FILE", help="A seed, or a script that was kept.")
    ],
) -> None:
    """Run a seed or a kept script again and print its trace.

    Takes all options of `sim run`; a seed needs the same ones as the run that it shall repeat.
    """
    is_seed = what.isdecimal() and int(what) <= SEED_MAX
    arguments = ["--seed" if is_seed else "--script", what, *ctx.args]
    if not any(word.split("=")[0] in {"--json", "--trace"} for word in ctx.args):
        arguments += ["--trace", "-"]
    group: Any = ctx.parent
    command = group.command.commands["run"]
    with command.make_context("run", arguments, parent=group) as again:
        command.invoke(again)


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants to see of a run."""

    trace: Path | None
    frames: bool
    picture: Path | None
    keep: Path | None
    journal: Path | None
    as_json: bool

    def check(self) -> None:
        """Fail before a long run rather than after it."""
        if self.as_json and self.trace == Path("-"):
            fail("--json prints one document only; write the trace to a file", as_json=True)
        if self.picture is not None and self.picture.suffix not in {".svg", ".mmd"}:
            name = self.picture.name
            fail(f"--picture draws .svg and .mmd, not {name}", as_json=self.as_json)
        for path in (self.trace, self.picture, self.keep):
            if path is not None and not path.parent.is_dir():
                fail(f"there is no folder {path.parent} for {path.name}", as_json=self.as_json)


def _run_one(
    script: Script, output: Output, again: str, *, quiet: bool = False, runs: int = 1
) -> None:
    """Run a script and show what came of it; quietly, only if something is wrong."""
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
    """Who writes down the facts of a run, if somebody does."""
    if output.journal is None:
        yield []
        return
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
    """Writes the facts of all nodes into one journal, in which their places tell the order."""

    def __init__(self, journal: Journal) -> None:
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
        drawn = picture.svg() if output.picture.suffix == ".svg" else picture.mermaid()
        output.picture.write_text(drawn, encoding="utf-8")


def _plan(chosen: "Options", seed: int, *, as_json: bool) -> Plan:
    routing = RoutingOptions(
        strategy=chosen.strategy,
        advertisements=chosen.advertisements,
        hierarchical=chosen.hierarchical,
    )
    quenching = chosen.quenching
    overlay = _topology(chosen, seed, as_json=as_json)
    if chosen.architecture is not None:
        if chosen.architecture not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            fail(f"no architecture {chosen.architecture!r}; there are {known}", as_json=as_json)
        routing, quenching = ARCHITECTURES[chosen.architecture]
        if chosen.architecture.startswith("centralized"):
            overlay = topologies.line(1)
    usual = FAULTS[chosen.faults]
    troubles = {
        name: value
        for name in Faults.__struct_fields__
        if (value := getattr(chosen, name, None)) is not None
    }
    return Plan(
        topology=overlay,
        clients=chosen.clients,
        subscriptions=chosen.subscriptions,
        events=chosen.events,
        moves=chosen.moves,
        naps=chosen.naps,
        handover=_handover(chosen, as_json=as_json),
        variety=chosen.variety,
        routing=routing,
        client=ClientOptions(advertisements=routing.advertisements, quenching=quenching),
        link=LinkModel(
            latency_us=round(chosen.latency_ms * 1000),
            jitter_us=round(chosen.jitter_ms * 1000),
            bytes_per_s=chosen.bytes_per_s,
        ),
        faults=msgspec.structs.replace(usual, **troubles),
    )


def _handover(chosen: "Options", *, as_json: bool) -> HandoverOptions:
    protocol = chosen.handover
    if protocol is None:
        protocol = Handover.RELOCATION if chosen.moves or chosen.naps else Handover.NONE
    elif protocol == Handover.NONE and chosen.moves:
        fail("clients that move need a --handover: naive or relocation", as_json=as_json)
    return HandoverOptions(
        protocol=protocol,
        cache_events_max=chosen.cache_events,
        cache_ttl_us=None if chosen.cache_ttl_ms is None else round(chosen.cache_ttl_ms * 1000),
    )


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options that make a plan, as they were given."""

    topology: str
    brokers: int
    degree: int
    height: int | None
    strategy: Strategy
    architecture: str | None
    advertisements: bool
    hierarchical: bool
    quenching: bool
    clients: int
    subscriptions: int
    events: int
    moves: int
    naps: int
    handover: Handover | None
    cache_events: int
    cache_ttl_ms: float | None
    variety: int
    latency_ms: float
    jitter_ms: float
    bytes_per_s: int | None
    faults: str
    loss: float | None
    duplication: float | None
    drops: int | None
    pauses: int | None
    crashes: int | None
    partitions: int | None


def _topology(chosen: Options, seed: int, *, as_json: bool) -> topologies.Topology:
    match chosen.topology:
        case "tree" if chosen.height is not None:
            if sum(chosen.degree**level for level in range(chosen.height)) > BROKERS_MAX:
                fail(f"such a tree has more than {BROKERS_MAX:,} brokers", as_json=as_json)
            return topologies.tree(chosen.degree, chosen.height)
        case "tree":
            return topologies.tree_of(chosen.brokers, chosen.degree)
        case "line":
            return topologies.line(chosen.brokers)
        case "star":
            return topologies.star(chosen.brokers)
        case "random":
            return topologies.random_tree(chosen.brokers, seed)
    try:
        return topologies.from_file(Path(chosen.topology))
    except topologies.TopologyError as error:
        fail(str(error), as_json=as_json)
    except (OSError, UnicodeDecodeError):
        known = ", ".join(TOPOLOGIES)
        fail(f"no topology or file {chosen.topology!r}; there are {known}", as_json=as_json)


def _read_script(path: Path, *, as_json: bool) -> Script:
    try:
        return from_json(path.read_bytes(), Script)
    except OSError as error:
        fail(f"{path}: {error.strerror}; give a seed or a script file", as_json=as_json)
    except (msgspec.DecodeError, ValueError) as error:
        fail(f"{path} is no script: {error}", as_json=as_json)


def _options(ctx: typer.Context, chosen: Options) -> str:
    """The options of this run that another must have to be the same."""
    words = []
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name in Options.__struct_fields__ and getattr(chosen, name) != parameter.default:
            value = getattr(chosen, name)
            words += [parameter.opts[0]] if value is True else [parameter.opts[0], str(value)]
    return "".join(f" {shlex.quote(word)}" for word in words)


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
