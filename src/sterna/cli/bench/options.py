"""What all benchmarks have in common: options, progress, errors, and figures for programs."""

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.output import errors, fail, print_json

if TYPE_CHECKING:
    from sterna.bench.measure import Progress

Rounds = Annotated[
    int, typer.Option(min=1, max=100, help="How many rounds, of which the median counts.")
]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where brokers write; not in memory. [default: where temporary files are]",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the figures to this file, as JSON, as well."),
]


def check_folders(data: Path | None, out: Path | None, *, as_json: bool) -> None:
    """Fail before a long measurement rather than after it."""
    if data is not None and not data.is_dir():
        fail(f"there is no folder {data} for the brokers to write in", as_json=as_json)
    if out is not None and not out.parent.is_dir():
        fail(f"there is no folder {out.parent} to write {out.name} in", as_json=as_json)


@contextmanager
def progress() -> "Iterator[Progress]":
    """Say what is going on, on standard error, if that is a terminal."""
    if not errors.is_terminal:
        yield lambda _: None
        return
    with errors.status("") as status:
        yield status.update


@contextmanager
def measuring(*, as_json: bool) -> "Iterator[Progress]":
    """The same for brokers under load; a measurement that cannot be counted ends the command."""
    from sterna.bench.load import LoadError  # noqa: PLC0415 - only some benchmarks need it.

    try:
        with progress() as tell:
            yield tell
    except LoadError as error:
        fail(f"the measurement failed: {error}", as_json=as_json)


def give_out(
    figures: Mapping[str, object],
    show: Callable[[], None],
    *,
    as_json: bool,
    out: Path | None = None,
) -> None:
    """Write the figures to a file if there is one, and show them to a person or a program."""
    document = {"machine": _machine(), **figures}
    if out is not None:
        out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if as_json:
        print_json(document)
    else:
        show()


def _machine() -> dict[str, object]:
    return {"cores": os.cpu_count(), "python": platform.python_version()}
