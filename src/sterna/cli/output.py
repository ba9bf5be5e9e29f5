"""How commands speak: text for people, one JSON document for programs, one line for errors."""

import json
import os
import sys
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from sterna.model.filters import Filter
from sterna.model.filters.advice import advice

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


def problem_of(error: OSError) -> str:
    """What is wrong with a file or a directory, with its path where the system names it."""
    reason = error.strerror or str(error)
    path = error.filename
    if path is None or isinstance(path, int):
        return reason
    return f"cannot use {os.fsdecode(path)}: {reason}"


def warn(message: str) -> None:
    """Tell people, on standard error, what is hardly what they mean."""
    errors.print(Text.assemble(("warning: ", "bold yellow"), message), soft_wrap=True)


def advise(filter_: Filter) -> None:
    """Warn about a filter that is hardly what its author means."""
    for sentence in advice(filter_):
        warn(sentence)


def fail(
    message: str, *, as_json: bool = False, status: int = ERROR, **details: object
) -> NoReturn:
    """End the command with an error that says what to do."""
    if as_json:
        print_json({"error": message, **details})
    else:
        errors.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    raise typer.Exit(status)
