"""The options of `sterna sim run`: their types, limits and help."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sterna.core.routing.options import ARCHITECTURES, Strategy


class FaultsName(StrEnum):
    NONE = "none"
    LIGHT = "light"
    HEAVY = "heavy"
    CLOCKS = "clocks"


BROKERS_MAX = 10_000

Topology = Annotated[
    str,
    typer.Option(
        help="`tree`, `line`, `star`, `random`, or a file with two broker names on each line."
    ),
]
Brokers = Annotated[int, typer.Option(min=1, max=BROKERS_MAX, help="How many brokers.")]
Degree = Annotated[int, typer.Option(min=1, max=1_000, help="Children of a broker in a tree.")]
Height = Annotated[
    int | None,
    typer.Option(
        min=1, max=20, help="Levels of a complete tree, instead of --brokers.", show_default=False
    ),
]
StrategyName = Annotated[Strategy, typer.Option(help="How brokers route.")]
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
Quenching = Annotated[
    bool, typer.Option("--quenching", help="Publishers discard what nobody wants.")
]
Clients = Annotated[int, typer.Option(min=1, max=100_000, help="How many clients.")]
Subscriptions = Annotated[
    int, typer.Option(min=0, max=1_000_000, help="How many subscriptions they make.")
]
Events = Annotated[int, typer.Option(min=0, max=1_000_000, help="How many events they publish.")]
Moves = Annotated[
    int,
    typer.Option(min=0, max=1_000_000, help="How many times a client goes to another broker."),
]
Naps = Annotated[
    int, typer.Option(min=0, max=1_000_000, help="How many times a client is offline for a while.")
]
HandoverName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|MODULE:ATTRIBUTE",
        help="How clients are handed over: none, naive, relocation, standard, logging, "
        "prefetching, home, or a protocol of another package. [default: relocation if they move]",
        show_default=False,
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
JitterMs = Annotated[float, typer.Option(min=0, help="A random extra delay of up to so much.")]
BytesPerS = Annotated[
    int | None,
    typer.Option(min=1, help="What a link carries. [default: no limit]", show_default=False),
]
Faults = Annotated[FaultsName, typer.Option(help="What goes wrong, as a usual combination.")]
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
Frames = Annotated[
    bool, typer.Option("--frames", help="In the trace, also what keeps links going.")
]
PictureFile = Annotated[
    Path | None,
    typer.Option("--picture", metavar="FILE", help="Draw the messages: .svg, or .mmd for Mermaid."),
]
PictureFrom = Annotated[
    str | None,
    typer.Option("--from", metavar="20ms", help="The picture begins at this time of the run."),
]
PictureTo = Annotated[
    str | None, typer.Option("--to", metavar="1.5s", help="The picture ends at this time.")
]
PictureNodes = Annotated[
    str | None,
    typer.Option(
        "--nodes", metavar="A,B", help="The picture has only what these brokers and clients do."
    ),
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
