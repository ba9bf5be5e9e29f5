"""What commands of the pipeline show of Spark when they fail or are interrupted: one sentence."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sterna.bench.audit_journals import write_journals
from sterna.pipeline.session import first_line
from tests.net.live import SETTLE_S


def processes_of(group: int) -> list[str]:
    """The command lines of the processes in a group."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) == group:
                found.append((process / "cmdline").read_text())
        except (OSError, UnicodeDecodeError):
            continue
    return found


@pytest.mark.spec("PL-5")
@pytest.mark.skipif(sys.platform != "linux", reason="it looks at processes in /proc")
def test_ctrl_c_ends_an_audit_with_one_line(tmp_path: Path) -> None:
    """While Spark's workers are busy: nothing of Java or py4j, nor of its start, and no process
    stays behind.
    """
    write_journals(tmp_path, 20_000, batch=7, clients=10, publishers=4)
    command = [sys.executable, "-c", "from sterna.cli.main import run; run()"]
    with subprocess.Popen(
        [*command, "pipeline", "audit", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as audit:
        while audit.poll() is None and not any(
            "pyspark.daemon" in p for p in processes_of(audit.pid)
        ):
            pass
        os.killpg(audit.pid, signal.SIGINT)
        printed, told = audit.communicate(timeout=SETTLE_S)

    assert audit.returncode == 130
    assert printed == ""
    assert told == "interrupted; tables that were finished are kept, nothing is half written\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "Exception"),
        ("no such table", "no such table"),
        (
            """An error occurred while calling o1.load.
: org.apache.spark.SparkException: [FAILED] reading x
\tat org.apache.A.b(A.scala:1)
Caused by: java.lang.RuntimeException: x is not a Parquet file
\t... 9 more""",
            "x is not a Parquet file",
        ),
        (
            "An error occurred.\n: java.io.IOException: No space left on device",
            "No space left on device",
        ),
    ],
)
def test_the_cause_of_an_error_without_java(text: str, line: str) -> None:
    assert first_line(Exception(text)) == line
