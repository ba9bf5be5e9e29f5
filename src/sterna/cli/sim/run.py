"""`sterna sim run` and `sterna sim replay`."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from sterna.cli.output import Json, errors, fail
from sterna.cli.sim import options
from sterna.cli.sim.outcome import Output, Part, run_one
from sterna.cli.sim.plan import Options, as_words, make_plan
from sterna.core.routing.options import Strategy
from sterna.sim.generate import generate
from sterna.sim.script import Script
from sterna.wire.codec import from_json

SEED_MAX = 2**63 - 1


def run(
    ctx: typer.Context,
    shape: Annotated[
        str | None,
        typer.Argument(metavar="TOPOLOGY", help="The same as --topology.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=SEED_MAX, help="The seed of all randomness.")] = 0,
    runs: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Try so many seeds, from --seed on.")
    ] = 1,
    topology: options.Topology = "tree",
    brokers: options.Brokers = 13,
    degree: options.Degree = 3,
    height: options.Height = None,
    strategy: options.StrategyName = Strategy.COVERING,
    architecture: options.Architecture = None,
    advertisements: options.Advertisements = False,
    hierarchical: options.Hierarchical = False,
    quenching: options.Quenching = False,
    clients: options.Clients = 20,
    subscriptions: options.Subscriptions = 30,
    events: options.Events = 100,
    moves: options.Moves = 0,
    naps: options.Naps = 0,
    handover: options.HandoverName = None,
    cache_events: options.CacheEvents = 10_000,
    cache_ttl_ms: options.CacheTtlMs = None,
    variety: options.Variety = 5,
    latency_ms: options.LatencyMs = 1.0,
    jitter_ms: options.JitterMs = 0.5,
    bytes_per_s: options.BytesPerS = None,
    faults: options.Faults = options.FaultsName.NONE,
    loss: options.Loss = None,
    duplication: options.Duplication = None,
    drops: options.Drops = None,
    pauses: options.Pauses = None,
    crashes: options.Crashes = None,
    partitions: options.Partitions = None,
    trace: options.TraceFile = None,
    frames: options.Frames = False,
    picture: options.PictureFile = None,
    picture_from: options.PictureFrom = None,
    picture_to: options.PictureTo = None,
    picture_nodes: options.PictureNodes = None,
    keep: options.KeepFile = None,
    journal: options.JournalDirectory = None,
    script_file: Annotated[
        Path | None,
        typer.Option("--script", metavar="FILE", help="Run a script that was kept."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a random scenario on a network of brokers and clients, and judge every delivery.

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
    try:
        part = Part.parse(picture_from, picture_to, picture_nodes)
    except ValueError as error:
        fail(str(error), as_json=as_json)
    output = Output(
        trace=trace,
        frames=frames,
        picture=picture,
        part=part,
        keep=keep,
        journal=journal,
        as_json=as_json,
    )
    output.check()
    if script_file is not None:
        script = _read_script(script_file, as_json=as_json)
        run_one(script, output, f"sterna sim replay {shlex.quote(str(script_file))}")
        return
    same = as_words(ctx, chosen)
    last = seed + runs - 1
    for number in range(seed, last):
        if errors.is_terminal:
            errors.print(f"seed {number}", end="\r")
        script = generate(make_plan(chosen, number, as_json=as_json), number)
        run_one(script, output, f"sterna sim replay {number}{same}", quiet=True)
    script = generate(make_plan(chosen, last, as_json=as_json), last)
    run_one(script, output, f"sterna sim replay {last}{same}", runs=runs)


def replay(
    ctx: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="SEED|FILE", help="A seed, or a script that was kept.")
    ],
) -> None:
    """Run a seed or a kept script again and print its trace.

    Takes all options of `sim run`; a seed needs the same ones as the run that it is to repeat.
    """
    is_seed = what.isdecimal() and int(what) <= SEED_MAX
    arguments = ["--seed" if is_seed else "--script", what, *ctx.args]
    if not any(word.split("=")[0] in {"--json", "--trace"} for word in ctx.args):
        arguments += ["--trace", "-"]
    group: Any = ctx.parent
    command = group.command.commands["run"]
    with command.make_context("run", arguments, parent=group) as again:
        command.invoke(again)


def _read_script(path: Path, *, as_json: bool) -> Script:
    try:
        return from_json(path.read_bytes(), Script)
    except OSError as error:
        fail(f"{path}: {error.strerror}; give a seed or a script file", as_json=as_json)
    except (msgspec.DecodeError, ValueError) as error:
        fail(f"{path} is no script: {error}", as_json=as_json)
