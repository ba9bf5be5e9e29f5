"""`sterna tour`: filters and a broker network in two screenfuls, computed while you watch."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sterna.cli.output import console
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.delivery import Fault
from sterna.model.event import Scalar
from sterna.model.filters import Filter, FilterError, merge
from sterna.model.filters.explain import explain
from sterna.model.location import HexGrid, MovementGraph
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.run import run
from sterna.sim.topology import tree

STREETS = MovementGraph(
    [("1st St", "2nd St"), ("2nd St", "3rd St"), ("3rd St", "4th St"), ("2nd St", "Rebeca Drive")]
)
BERLIN = HexGrid(9)


class Sample(NamedTuple):
    name: str
    attributes: dict[str, Scalar]


EVENTS = (
    Sample(
        "free space", {"service": "parking", "location": "2nd St", "price": 2, "size": "compact"}
    ),
    Sample("far", {"service": "parking", "location": "4th St", "price": 1.5, "size": "van"}),
    Sample("no price", {"service": "parking", "location": "Rebeca Drive", "size": "van"}),
    Sample("ice", {"topic": "road/a100/ice", "speed": 80, "lat": 52.5163, "lon": 13.3777}),
)


def tour() -> None:
    """Take a short tour of filters and broker networks."""
    console.print()
    console.print(
        Panel.fit(
            "[bold]Sterna[/]: publish/subscribe for things that move.\n"
            "Subscribers say what they want as a filter.\n"
            "[dim]Everything below is computed while you watch.[/]",
            border_style="cyan",
        )
    )
    for chapter in (_matching, _places, _algebra, _errors, _network, _roaming):
        chapter()
    _next()


def _matching() -> None:
    _heading(
        "1",
        "Events and filters",
        "SQL conditions on attributes. ? is UNKNOWN: what is missing cannot be judged.",
    )
    filters = (
        "service = 'parking' AND price <= 2",
        "price > 1 OR size IN ('van', 'bus')",
        "NOT price > 1",
        "topic MATCHES 'road/+/ice' AND speed > 50",
        "near(lat, lon, 52.5200, 13.4050, 2500)",
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("filter", style="cyan", no_wrap=True)
    for sample in EVENTS:
        table.add_column(sample.name, justify="center")
    for text in filters:
        parsed = Filter(text)
        table.add_row(text, *(_verdict(parsed.verdict(sample.attributes)) for sample in EVENTS))
    console.print(table)
    explained = explain(
        Filter("service = 'parking' AND price <= 2").condition, EVENTS[2].attributes
    )
    for part in explained.parts:
        if part.verdict is not True:
            console.print(
                Text.assemble(
                    "Why not “no price”?  ", (part.text, "cyan"), f"  is UNKNOWN: {part.reason}."
                )
            )


def _places() -> None:
    _heading(
        "2", "Places", "myloc follows the client; brokers far away ask for what may come next."
    )
    wish = Filter("service = 'parking' AND location IN myloc(1)")
    console.print(Text.assemble("A car subscribes to  ", (str(wish), "cyan")))
    for location in ("1st St", "3rd St"):
        bound = wish.bind(location=location, space=STREETS)
        found = ", ".join(s.name for s in EVENTS if bound.matches(s.attributes)) or "nothing"
        reach = ", ".join(sorted(STREETS.ploc(location, 1)))
        console.print(f"  in [bold]{location:7}[/] it covers {reach}  →  {found}")
    cell = BERLIN.locate(52.5163, 13.3777)
    disks = [str(len(BERLIN.ploc(cell, steps))) for steps in range(4)]
    console.print(f"On GPS, places are H3 cells: {cell} and, in 0 to 3 steps,")
    console.print(f"  {' → '.join(disks)} cells.")


def _algebra() -> None:
    _heading("3", "Filters as sets", "Brokers forward only what no other filter covers already.")
    questions: tuple[tuple[str, str, str, Callable[[Filter, Filter], bool]], ...] = (
        ("price <= 1600", "covers", "price <= 1500 AND brand = 'IBM'", Filter.covers),
        ("x < 5 OR x > 3", "covers", "x BETWEEN 0 AND 9", Filter.covers),
        ("topic MATCHES 'a/#'", "covers", "topic MATCHES 'a/+/c'", Filter.covers),
        ("x > 9007199254740992", "overlaps", "x < 9007199254740993", Filter.overlaps),
    )
    table = Table(box=None, padding=(0, 2), show_header=False)
    for one, verb, other, ask in questions:
        table.add_row(
            Text(one, "cyan"), verb, Text(other, "cyan"), _verdict(ask(Filter(one), Filter(other)))
        )
    console.print(table)
    merged = merge(
        [
            Filter("x = 1 AND y < 3"),
            Filter("x = 2 AND y < 3"),
            Filter("x BETWEEN 2 AND 9 AND y < 3"),
        ]
    )
    console.print(Text.assemble("Three filters merged into one, exactly:  ", (str(merged), "cyan")))


def _errors() -> None:
    _heading("4", "Mistakes", "One clear message, and the place.")
    try:
        Filter("speed > 50 AND lane == 2")
    except FilterError as error:
        console.print(Text(str(error), "yellow"))


def _network() -> None:
    _heading(
        "5",
        "A network of brokers",
        "Simulated: connections break, frames get lost, brokers crash. Nothing may get lost or "
        "come twice.",
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("routing", style="cyan", no_wrap=True)
    for heading in ("delivered", "wrong", "events sent", "control sent", "entries"):
        table.add_column(heading, justify="right")
    for strategy in Strategy:
        plan = Plan(
            topology=tree(3, 3),
            clients=30,
            subscriptions=30,
            events=100,
            routing=RoutingOptions(strategy=strategy),
            faults=FAULTS["heavy"],
        )
        outcome = run(generate(plan, seed=1))
        table.add_row(
            strategy,
            f"{outcome.delivered:,}",
            _count(len(outcome.findings)),
            f"{outcome.messages['Events']:,}",
            f"{outcome.control_messages:,}",
            f"{outcome.tables[-1].total:,}",
        )
    console.print(table)
    console.print("13 brokers, 30 clients; each line is the same story, told by another strategy.")


def _roaming() -> None:
    _heading(
        "6",
        "Clients that roam",
        "They go from broker to broker, are offline in between, and publish and subscribe all the "
        "while.",
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("handover", style="cyan", no_wrap=True)
    for heading in ("moves", "delivered", "lost", "twice", "out of order"):
        table.add_column(heading, justify="right")
    for protocol in (Handover.NAIVE, Handover.RELOCATION):
        plan = Plan(
            topology=tree(3, 3),
            clients=30,
            subscriptions=30,
            events=200,
            moves=100,
            naps=20,
            handover=HandoverOptions(protocol=protocol),
        )
        outcome = run(generate(plan, seed=1))
        faults = Counter(finding.fault for finding in outcome.findings)
        table.add_row(
            protocol,
            str(plan.moves),
            f"{outcome.delivered:,}",
            *(_count(faults[f]) for f in (Fault.LOST, Fault.DUPLICATED, Fault.REORDERED)),
        )
    console.print(table)
    console.print("Naive: subscribe again at each broker. Relocation: docs/concepts/roaming.md.")


def _count(wrong: int) -> Text:
    return Text(str(wrong), "bold green" if wrong == 0 else "bold red")


def _next() -> None:
    console.print()
    console.rule("[bold]What to try next", align="left", style="dim")
    for what, command in (
        (
            "Why does an event fail?",
            """sterna filter explain "speed > 50 AND lane = 2" speed=60 lane=3""",
        ),
        (
            "Ask your own question:",
            """sterna filter covers "price < 10" "price BETWEEN 1 AND 5\"""",
        ),
        ("Watch brokers at work:", "sterna sim run line --brokers 3 --clients 3 --trace -"),
        ("Let clients roam, and everything fail:", "sterna sim run --moves 40 --faults heavy"),
        ("All about filters:", "sterna filter --help"),
        ("The same from Python, with Spark:", ".venv/bin/python examples/filters.py"),
        ("The whole language:", "docs/reference/filter-language.md"),
    ):
        console.print(Text.assemble((f"{what}\n", "dim"), (f"  {command}", "bold cyan")))
    console.print("[dim]`source .venv/bin/activate` puts the sterna command on your PATH.[/]")


def _heading(number: str, title: str, lead: str) -> None:
    console.print()
    console.rule(f"[bold]{number}  {title}[/]", align="left", style="dim")
    console.print(f"[dim]{lead}[/]")


def _verdict(verdict: bool | None) -> Text:
    word, style = {True: ("yes", "bold green"), False: ("no", "red"), None: ("?", "yellow")}[
        verdict
    ]
    return Text(word, style)
