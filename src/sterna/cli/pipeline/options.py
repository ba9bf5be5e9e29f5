"""What all commands of the pipeline have in common: options, a Spark session, progress, errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.text import Text

from sterna.cli.output import errors, fail
from sterna.model.duration import parse_duration
from sterna.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Where Spark runs: `local[*]` is this machine; `spark://HOST:7077`, `yarn` and "
        "`k8s://…` are clusters.",
    ),
]
Ui = Annotated[
    bool,
    typer.Option(
        "--ui",
        help="Serve Spark's own pages about its work while it lasts; the address is printed.",
    ),
]
Out = Annotated[
    Path, typer.Option(metavar="DIR", help="The folder to write to; made if it is not there.")
]


def seconds(text: str) -> float:
    """Read a duration with its unit, or a number of seconds, as earlier releases had it."""
    try:
        return float(text) if text.replace(".", "", 1).isdecimal() else parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


LOCAL = "local[*]"

SPINNER = 3
"""How many columns the spinner needs."""

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""

Given = TypeVar("Given")

ADVICE = (
    "restore the file, or make tables of all that can be read with `sterna pipeline run --lossy`"
)
"""Advice in the words of commands, which do not have the options of `format("sterna")`."""


def either(argument: Given, former: Given, spelling: str) -> Given:
    """What a command reads: its argument or, as it was spelled earlier, an option."""
    if argument and former:
        raise PipelineError(f"{spelling} is the former word for DIR: give one of them")
    return argument or former


@contextmanager
def spark_for(
    command: str, master: str, *, ui: bool = False, connect: bool = False, as_json: bool
) -> "Iterator[SparkSession]":
    """A session for one command, or the running one. Errors are printed in one line.

    With `connect`, it serves Spark Connect, by which pipelines are run.
    """
    with reporting_errors(as_json=as_json), errors.status(f"starting Spark ({master}) …") as status:
        from sterna.pipeline.progress import shown  # noqa: PLC0415 - Spark is large and optional.
        from sterna.pipeline.quiet import interruptible, was_interrupted  # noqa: PLC0415
        from sterna.pipeline.session import (  # noqa: PLC0415
            running_session,
            spark_session,
            with_connect,
        )

        running = running_session()
        with interruptible():
            config = {"spark.ui.enabled": "true"} if ui else {}
            config |= with_connect() if connect else {}
            spark = running or spark_session(f"sterna pipeline {command}", master, config)
            if ui:
                errors.print(_pages(spark), markup=False, soft_wrap=True)
            try:
                with shown(spark, lambda line: status.update(_in_one_line(line))):
                    yield spark
            finally:
                if running is None and not was_interrupted():  # Java ends with this process.
                    spark.stop()


def _pages(spark: "SparkSession") -> str:
    """Where Spark tells of its work."""
    address = spark.sparkContext.uiWebUrl
    return f"Spark tells of its work at {address}" if address else "this Spark has no pages"


def _in_one_line(line: str) -> Text:
    text = Text(line)
    text.truncate(errors.width - SPINNER, overflow="ellipsis")
    return text


@contextmanager
def reporting_errors(*, as_json: bool) -> Iterator[None]:
    """Print errors that the user can do something about, in one line each."""
    try:
        yield
    except PipelineError as error:
        fail(_advised(str(error)), as_json=as_json)
    except KeyboardInterrupt:
        errors.print("interrupted; tables that were finished are kept, nothing is half written")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        from sterna.pipeline.session import first_line  # noqa: PLC0415
        from sterna.pipeline.source.errors import reason  # noqa: PLC0415

        sentence = reason(error)
        if sentence is None:
            fail(f"Spark failed: {first_line(error)}", as_json=as_json)
        fail(_advised(sentence), as_json=as_json)


_OPTION = re.compile(r"; set (failOnDataLoss|badRecords)=.*", re.DOTALL)


def _advised(sentence: str) -> str:
    """What is wrong, with advice on commands instead of options of the data source."""
    return _OPTION.sub(f"; {ADVICE}", sentence)
