"""Runs a declared pipeline with Spark's own program for that, `spark-pipelines`.

It is a client of Spark Connect; its server is a plugin of the session that commands start
(`with_connect`), on loopback and for holders of a secret.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.pipeline.errors import PipelineError
from sterna.pipeline.session import CONNECT_PORT, CONNECT_SECRET, first_line
from sterna.pipeline.source.errors import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG, DATABASE = "spark_catalog", "sterna"
EVERYBODYS = "default"
"""The database that is always there."""

SPEC, PROGRAM = "spark-pipeline.yml", "tables.py"

_DONE = "Run is COMPLETED."
_ERROR = re.compile(r"(\w+\.)+\w*(Error|Exception): ")
_DETAILS = re.compile(r'details = "(.*)"')
"""What a server says that does not answer a call."""
_SAID = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: (.*)")


@dataclass(frozen=True)
class Spec:
    """A pipeline as `spark-pipelines` wants to have it described."""

    definitions: str
    """A program that declares its tables."""
    storage: Path
    """Where Spark keeps what it has read."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    database: str = DATABASE

    def write(self, folder: Path) -> Path:
        """Write it to a folder; the path of the file to run."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PROGRAM).write_text(self.definitions, encoding="utf-8")
        path = folder / SPEC
        path.write_text("\n".join(self._lines()) + "\n", encoding="utf-8")
        return path

    def _lines(self) -> Iterator[str]:
        # What JSON quotes, YAML reads.
        yield "name: sterna"
        yield f"storage: {json.dumps(f'file://{self.storage}')}"
        yield f"catalog: {CATALOG}"
        yield f"database: {self.database}"
        yield "libraries:"
        yield f"  - glob: {{include: {PROGRAM}}}"
        yield "configuration:"
        for key, value in self.configuration.items():
            yield f"  {key}: {json.dumps(value)}"


def execute(spark: "SparkSession", spec: Path, say: Callable[[str], None]) -> None:
    """Bring all tables of a spec up to date; `say` hears what Spark tells."""
    environment = os.environ | _address(spark)
    command = [sys.executable, "-m", "sterna.pipeline.declared.child", str(spec)]
    with _quiet(spark), _child(command, environment) as child:
        said = list(_heard(child, say))
        # When all is done, the server reports what Python workers counted, which the client does
        # not understand.
        if child.wait() != 0 and not any(line.endswith(_DONE) for line in said):
            raise _failure(said)


def _address(spark: "SparkSession") -> dict[str, str]:
    port = spark.sparkContext.getConf().get(CONNECT_PORT)
    if port is None or CONNECT_SECRET not in os.environ:
        raise PipelineError(
            "this Spark session does not serve Spark Connect, which runs pipelines: start it with "
            "spark_session(config=with_connect())"
        )
    # Connect asks for encryption unless the host has this name, which is no business of a proxy.
    return {"SPARK_REMOTE": f"sc://localhost:{port}", "no_grpc_proxy": "localhost"}


@contextmanager
def _child(
    command: Sequence[str], environment: Mapping[str, str]
) -> "Iterator[subprocess.Popen[str]]":
    child = subprocess.Popen(  # noqa: S603 - our own program.
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()


def _heard(child: "subprocess.Popen[str]", say: Callable[[str], None]) -> Iterator[str]:
    for line in child.stdout or ():
        told = _SAID.match(line)
        if told is not None:
            say(told[1])
        yield line.rstrip("\n")


def _failure(said: Sequence[str]) -> PipelineError:
    """The error with which Spark's program ended: our own sentence, or what Spark says first."""
    begins = [number for number, line in enumerate(said) if _ERROR.match(line)]
    error = RuntimeError("\n".join(said[begins[-1] if begins else -1 :]) or "it said nothing")
    details = _DETAILS.search(str(error))
    return PipelineError(
        reason(error) or f"Spark failed: {details[1] if details else first_line(error)}"
    )


@contextmanager
def _quiet(spark: "SparkSession") -> Iterator[None]:
    """Silence Spark's log: errors are told by the program, and Spark would log them, repeatedly."""
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield
    finally:
        spark.sparkContext.setLogLevel("ERROR")
