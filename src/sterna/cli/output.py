"""How commands speak: text for people, one JSON document for programs, one line for errors."""

import json
import sys
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

YES, NO, ERROR = 0, 1, 2
"""Exit statuses of commands that answer a question."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
"""The option of every command that reports."""

console = Console(highlight=False, emoji=False)
errors = Console(stderr=True, highlight=False, emoji=False)


def print_json(document: object, *, indent: int | None = 2) -> None:
    """One JSON document on standard output; without an indent it is one line."""
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(document, ensure_ascii=plain, indent=indent) + "\n")


def fail(
    message: str, *, as_json: bool = False, status: int = ERROR, **details: object
) -> NoReturn:
    """End the command with an error that says what to do."""
    if as_json:
        print_json({"error": message, **details})
    else:
        errors.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    raise typer.Exit(status)
