"""From the options of `sterna sim run` to what is simulated."""

import shlex
from pathlib import Path

import msgspec
import typer

from sterna import plugins
from sterna.cli.output import fail
from sterna.cli.sim.options import BROKERS_MAX
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.protocol import Kind
from sterna.core.routing.options import ARCHITECTURES, RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.sim import topology as topologies
from sterna.sim.generate import FAULTS, Faults, Plan
from sterna.sim.script import LinkModel

TOPOLOGIES = ("tree", "line", "star", "random")


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
    handover: str | None
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


def as_words(ctx: typer.Context, chosen: Options) -> str:
    """The options that another run must have to be the same, as they are typed."""
    words = []
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name in Options.__struct_fields__ and getattr(chosen, name) != parameter.default:
            value = getattr(chosen, name)
            words += [parameter.opts[0]] if value is True else [parameter.opts[0], str(value)]
    return "".join(f" {shlex.quote(word)}" for word in words)


def make_plan(chosen: Options, seed: int, *, as_json: bool) -> Plan:
    """What happens in a run with these options; a mistake in them ends the command."""
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


def _handover(chosen: Options, *, as_json: bool) -> HandoverOptions:
    if chosen.handover is None:
        protocol: str = Handover.RELOCATION if chosen.moves or chosen.naps else Handover.NONE
    else:
        try:
            protocol = plugins.choose(chosen.handover, Kind.HANDOVER).name
        except ValueError as error:
            fail(f"--handover {error}", as_json=as_json)
        if protocol == Handover.NONE and chosen.moves:
            fail(
                "clients that move need a --handover, such as relocation or standard",
                as_json=as_json,
            )
    return HandoverOptions(
        protocol=protocol,
        cache_events_max=chosen.cache_events,
        cache_ttl_us=None if chosen.cache_ttl_ms is None else round(chosen.cache_ttl_ms * 1000),
    )


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
