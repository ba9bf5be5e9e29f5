"""`sterna filter`: try out, compare and explain filters."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from sterna.cli.attributes import parse_assignments, parse_json
from sterna.cli.output import NO, YES, Json, advise, console, fail, print_json
from sterna.model.event import Scalar
from sterna.model.filters import Filter, FilterError, UnboundError, merge
from sterna.model.filters.advice import advice
from sterna.model.filters.explain import Explanation, explain
from sterna.model.filters.normal_form import RESIDUALS_MAX, TERMS_MAX
from sterna.model.filters.tree import write
from sterna.model.filters.wording import term_in_words
from sterna.model.location import HexGrid, LocationError, LocationSpace, MovementGraph

app = typer.Typer(
    help="Try out, compare and explain filters.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog="A filter that starts with a minus goes after `--`. "
    "The language: docs/reference/filter-language.md",
)

Answer = TypeVar("Answer")

FilterText = Annotated[str, typer.Argument(metavar="FILTER", help="A filter, in quotes.")]
OtherText = Annotated[str, typer.Argument(metavar="OTHER", help="Another filter, in quotes.")]
Assignments = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME=VALUE", help="The event's attributes.", show_default=False),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="NAME=VALUE", help="The value of a context variable $NAME."
    ),
]
Location = Annotated[
    str | None, typer.Option("--at", metavar="LOCATION", help="Where the client is, for myloc.")
]
Graph = Annotated[
    Path | None,
    typer.Option("--graph", metavar="FILE", help="Movement graph for myloc, CSV or JSON."),
]
Directed = Annotated[bool, typer.Option("--directed", help="The graph's edges go one way only.")]
Resolution = Annotated[
    int | None,
    typer.Option("--h3", metavar="RESOLUTION", help="H3 grid for myloc, instead of a graph."),
]


@app.command(
    epilog="Example: `sterna filter check \"service = 'parking' AND location IN myloc(2)\"`"
)
def check(text: FilterText, as_json: Json = False) -> None:
    """Is it a valid filter?

    Exit status: 0 yes, 2 no.
    """
    parsed = _parse(text, as_json=as_json)
    if as_json:
        print_json(
            {
                "valid": True,
                "filter": str(parsed),
                "attributes": parsed.attributes,
                "variables": parsed.variables,
                "uses_myloc": parsed.uses_myloc,
                "advice": advice(parsed),
            }
        )
        return
    _say("valid", "green", str(parsed))
    needs = [f"${name}" for name in parsed.variables] + ["a location"] * parsed.uses_myloc
    if needs:
        console.print(f"[dim]depends on the client's {', '.join(needs)}[/]")


@app.command(
    epilog='Examples: `sterna filter match "speed > 50" speed=60` · '
    '`sterna filter match "speed > 50" --events events.jsonl`'
)
def match(
    text: FilterText,
    assignments: Assignments = None,
    events: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Events as JSON lines (- is standard input); the lines that match are printed.",
        ),
    ] = None,
    as_json: Json = False,
    variables: Variables = None,
    at: Location = None,
    graph: Graph = None,
    h3: Resolution = None,
    directed: Directed = False,
) -> None:
    """Does an event match?

    Exit status: 0 yes (with --events: at least one does), 1 no, 2 error.
    """
    parsed = _parse(text, as_json=as_json)
    parsed = _bound(parsed, variables, at, graph, h3, directed=directed, as_json=as_json)
    if events is not None:
        if assignments:
            fail("give the event as NAME=VALUE or --events, not both", as_json=as_json)
        _match_lines(parsed, events, as_json=as_json)
    attributes = _attributes(assignments, as_json=as_json)
    verdict = parsed.verdict(attributes)
    if as_json:
        print_json({"matches": verdict is True, "verdict": _word(verdict)})
    elif verdict is True:
        _say("match", "green", "the filter is TRUE for this event")
    else:
        _say("no match", "yellow", f"the filter is {_word(verdict)} for this event")
    raise typer.Exit(YES if verdict else NO)


@app.command(epilog='Example: `sterna filter covers "price < 10" "price < 5 AND brand = \'x\'"`')
def covers(text: FilterText, other: OtherText, as_json: Json = False) -> None:
    """Does FILTER match everything that OTHER does?

    Exit status: 0 yes, 1 no, 2 error.
    """
    wide, narrow = _parse(text, as_json=as_json), _parse(other, as_json=as_json)
    verdict = _answered(lambda: wide.covers_verdict(narrow), as_json=as_json)
    _answer("covers", verdict is True, exact=verdict is not None, as_json=as_json)


@app.command(epilog='Example: `sterna filter overlaps "price < 10" "price BETWEEN 5 AND 20"`')
def overlaps(text: FilterText, other: OtherText, as_json: Json = False) -> None:
    """Can one event match both?

    Exit status: 0 yes, 1 no, 2 error.
    """
    one, two = _parse(text, as_json=as_json), _parse(other, as_json=as_json)
    verdict = _answered(lambda: one.overlaps_verdict(two), as_json=as_json)
    _answer("overlaps", verdict is not False, exact=verdict is not None, as_json=as_json)


@app.command(
    name="merge", epilog='Example: `sterna filter merge "x = 1" "x = 2" "x BETWEEN 2 AND 9"`'
)
def merge_(
    texts: Annotated[list[str], typer.Argument(metavar="FILTER…", help="Filters, each in quotes.")],
    wide: Annotated[
        bool,
        typer.Option(
            "--wide", help="Imperfect merging: fewer alternatives that match more events."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """One filter that covers all of them."""
    filters = [_parse(text, as_json=as_json) for text in texts]
    merged = _answered(lambda: merge(filters, exact=not wide), as_json=as_json)
    if as_json:
        print_json({"filter": str(merged), "exact": not wide})
    else:
        console.print(str(merged), markup=False, soft_wrap=True)


@app.command(
    name="explain",
    epilog='Example: `sterna filter explain "speed > 50 AND lane IN (1, 2)" speed=60 lane=3`',
)
def explain_(
    text: FilterText,
    assignments: Assignments = None,
    as_json: Json = False,
    variables: Variables = None,
    at: Location = None,
    graph: Graph = None,
    h3: Resolution = None,
    directed: Directed = False,
) -> None:
    """Show the normal form, and why an event fails.

    With an event, every predicate is shown with its verdict and the values it looked at.
    """
    parsed = _parse(text, as_json=as_json)
    parsed = _bound(parsed, variables, at, graph, h3, directed=directed, as_json=as_json)
    form = _answered(lambda: parsed.normal_form, as_json=as_json)
    terms = None if form is None else [write(term_in_words(term)) for term in form]
    explained = None
    if assignments:
        attributes = _attributes(assignments, as_json=as_json)
        explained = explain(parsed.condition, attributes)
    if as_json:
        document: dict[str, object] = {"filter": str(parsed), "normal_form": terms}
        if explained is not None:
            document |= {"verdict": _word(explained.verdict), "explanation": _as_json(explained)}
        print_json(document)
        return
    _show_normal_form(parsed, terms)
    if explained is not None:
        console.print()
        console.print(_as_tree(explained))


# ---- Input


def _parse(text: str, *, as_json: bool) -> Filter:
    try:
        parsed = Filter(text)
    except FilterError as error:
        _refuse(error, as_json=as_json)
    if not as_json:
        advise(parsed)
    return parsed


def _refuse(error: FilterError, *, as_json: bool) -> NoReturn:
    message = error.problem if as_json else str(error)
    fail(message, as_json=as_json, line=error.line, column=error.column)


def _attributes(assignments: list[str] | None, *, as_json: bool) -> dict[str, Scalar]:
    try:
        return parse_assignments(assignments or [])
    except (TypeError, ValueError) as error:
        fail(str(error), as_json=as_json)


def _bound(
    parsed: Filter,
    variables: list[str] | None,
    at: str | None,
    graph: Path | None,
    resolution: int | None,
    *,
    directed: bool,
    as_json: bool,
) -> Filter:
    if graph is not None and resolution is not None:
        fail("give --graph or --h3, not both", as_json=as_json)
    try:
        context = parse_assignments(variables or [])
        unknown = [f"${name}" for name in context if name not in parsed.variables]
        if unknown:
            fail(f"the filter does not refer to {', '.join(unknown)}", as_json=as_json)
        space: LocationSpace | None = None
        if graph is not None:
            space = MovementGraph.load(graph, directed=directed)
        elif resolution is not None:
            space = HexGrid(resolution)
        if at is not None and space is None:
            fail(
                "--at needs a --graph FILE or an --h3 RESOLUTION to be a place in", as_json=as_json
            )
        bound = parsed.bind(context, location=at, space=space)
    except FilterError as error:
        _refuse(error, as_json=as_json)
    except (UnboundError, LocationError, TypeError, ValueError) as error:
        fail(str(error), as_json=as_json)
    missing = [f"--set {name}=…" for name in bound.variables]
    if bound.uses_myloc:
        missing.append("--at LOCATION with --graph FILE or --h3 RESOLUTION")
    if missing:
        fail(f"the filter depends on the client: give {' and '.join(missing)}", as_json=as_json)
    return bound


def _match_lines(parsed: Filter, source: str, *, as_json: bool) -> None:
    found = 0
    for number, line in enumerate(_lines(source, as_json=as_json), start=1):
        if not line.strip():
            continue
        try:
            matched = parsed.matches(parse_json(line))
        except ValueError as error:
            fail(f"line {number}: {error}", as_json=as_json)
        found += matched
        if matched and not as_json:
            _write(line if line.endswith("\n") else line + "\n")
    if as_json:
        print_json({"matches": found > 0, "matched": found})
    raise typer.Exit(YES if found else NO)


def _write(line: str) -> None:
    try:
        sys.stdout.write(line)
    except BrokenPipeError:  # The reader, such as head, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(YES) from None


def _lines(source: str, *, as_json: bool) -> Iterator[str]:
    if source == "-" and sys.stdin is None:
        fail("standard input is closed", as_json=as_json)
    try:
        with sys.stdin.buffer if source == "-" else Path(source).open("rb") as file:
            for number, line in enumerate(file):
                yield line.decode("utf-8" if number else "utf-8-sig")
    except OSError as error:
        fail(f"cannot read {source}: {error.strerror}", as_json=as_json)
    except UnicodeDecodeError:
        name = "standard input" if source == "-" else source
        fail(f"{name} is not text in UTF-8", as_json=as_json)


def _answered(question: Callable[[], Answer], *, as_json: bool) -> Answer:
    try:
        return question()
    except UnboundError:
        fail("filters with $variables or myloc cannot be compared: write values", as_json=as_json)


# ---- Output


def _answer(question: str, answer: bool, *, exact: bool, as_json: bool) -> None:
    if as_json:
        print_json({question: answer, "exact": exact})
    else:
        doubt = "" if exact else "not sure, and this is the safe answer"
        _say("yes" if answer else "no", "green" if answer else "yellow", doubt)
    raise typer.Exit(YES if answer else NO)


def _say(verdict: str, colour: str, detail: str) -> None:
    console.print(
        Text.assemble((verdict, f"bold {colour}"), f"  {detail}" if detail else ""), soft_wrap=True
    )


def _word(verdict: bool | None) -> str:
    return "UNKNOWN" if verdict is None else str(verdict).upper()


def _show_normal_form(parsed: Filter, terms: list[str] | None) -> None:
    if terms is None:
        console.print(
            f"No normal form: it would have more than {TERMS_MAX} alternatives, or more than "
            f"{RESIDUALS_MAX} conditions in one that are not about a single attribute."
        )
        return
    console.print("Normal form: an event matches if one alternative is TRUE for it.")
    table = Table()
    table.add_column("", justify="right", style="dim")
    table.add_column("alternative")
    for number, term in enumerate(terms, start=1):
        table.add_row(str(number), Text(term))
    if not terms:
        table.add_row("", "nothing can match")
    console.print(table)
    if parsed.attributes:
        console.print(Text("attributes: " + ", ".join(parsed.attributes), style="dim"))


_COLOURS = {True: "green", False: "red", None: "yellow"}


def _as_tree(explained: Explanation, parent: Tree | None = None) -> Tree:
    style = f"bold {_COLOURS[explained.verdict]}" if explained.decisive else "dim"
    label = Text.assemble((f"{_word(explained.verdict):8}", style))
    if explained.parts:
        label.append(explained.reason)
    else:
        label.append(explained.text)
        if explained.reason:
            label.append(f"   ({explained.reason})", style="dim")
    tree = Tree(label) if parent is None else parent.add(label)
    for part in explained.parts:
        _as_tree(part, tree)
    return tree


def _as_json(explained: Explanation) -> dict[str, object]:
    document: dict[str, object] = {
        "condition": explained.text,
        "verdict": _word(explained.verdict),
        "decisive": explained.decisive,
    }
    if explained.parts:
        document["parts"] = [_as_json(part) for part in explained.parts]
    else:
        document["values"] = explained.reason
    return document
