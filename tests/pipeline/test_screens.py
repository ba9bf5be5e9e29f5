"""What commands of the pipeline show of Spark when they fail or are interrupted: one sentence."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener
from weakref import finalize

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sterna.bench.audit_journals import write_journals
from sterna.pipeline.declared import narration
from sterna.pipeline.progress import Progress, Tasks, in_words
from sterna.pipeline.quiet import interruptible, was_interrupted
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


ANNOUNCED = "Spark tells of its work at "


def applications(address: str) -> list[str]:
    """The names of the applications of which Spark's pages tell."""
    directly = build_opener(ProxyHandler({}))
    with directly.open(f"{address}/api/v1/applications", timeout=SETTLE_S) as answer:
        return [each["name"] for each in json.load(answer)]


def test_spark_has_no_pages_unless_asked_for(spark: SparkSession) -> None:
    assert spark.sparkContext.uiWebUrl is None


@pytest.mark.spec("PL-5")
@pytest.mark.skipif(sys.platform != "linux", reason="it looks at processes in /proc")
def test_ctrl_c_ends_an_audit_with_one_line(tmp_path: Path) -> None:
    """While Spark's workers are busy: nothing of Java or py4j, nor of its start, and no process
    stays behind. With `--ui`, Spark serves its pages until then, to this machine only.
    """
    write_journals(tmp_path, 20_000, batch=7, clients=10, publishers=4)
    command = [sys.executable, "-c", "from sterna.cli.start import run; run()"]
    with subprocess.Popen(
        [*command, "pipeline", "audit", str(tmp_path), "--ui"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as audit:
        assert audit.stderr is not None
        announced = audit.stderr.readline()
        address = announced.removeprefix(ANNOUNCED).strip()
        assert address.startswith("http://127.0.0.1:"), announced
        assert applications(address) == ["sterna pipeline audit"]
        with pytest.raises(URLError, match="refused"):  # As it would not be on all addresses.
            applications(address.replace("127.0.0.1", "127.0.0.2"))
        while audit.poll() is None and not any(
            "pyspark.daemon" in p for p in processes_of(audit.pid)
        ):
            time.sleep(0.01)
        os.killpg(audit.pid, signal.SIGINT)
        printed, told = audit.communicate(timeout=SETTLE_S)

    assert told == "interrupted; tables that were finished are kept, nothing is half written\n"
    assert printed == ""
    assert audit.returncode == 130
    with pytest.raises(URLError, match="refused"):
        applications(address)


def test_what_fails_after_ctrl_c_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops an exception that is raised in a finalizer; Spark's workers are gone anyway."""
    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    monkeypatch.setattr(logging, "disable", lambda _level: None)

    def fail() -> None:
        raise PySparkException("a worker has gone")

    def fail_when_interrupted() -> None:
        class JavaObject: ...

        finalize(JavaObject(), signal.raise_signal, signal.SIGINT)  # It is finalized at once.
        fail()

    with pytest.raises(PySparkException), interruptible():
        fail()
    assert not was_interrupted()

    with pytest.raises(KeyboardInterrupt), interruptible():
        fail_when_interrupted()
    assert was_interrupted()
    assert len(dropped) == 1


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


# ---- Progress


class Clock:
    """A clock that shows what it is set to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_time_that_is_left_is_told_once_it_can_be_known() -> None:
    """By the tasks that ended while somebody looked, and not by those before."""
    clock = Clock()
    progress = Progress(clock)
    progress.step("archiving events", "table 4 of 14")
    stage = frozenset({7})

    assert progress.line(Tasks()) == "archiving events (table 4 of 14) …"
    clock.now += 1
    assert (
        progress.line(Tasks(stage, 10, 40))
        == "archiving events (table 4 of 14): 10 of 40 tasks, 1 s"
    )
    clock.now += 3
    assert (
        progress.line(Tasks(stage, 11, 40))
        == "archiving events (table 4 of 14): 11 of 40 tasks, 4 s"
    )
    assert progress.line(Tasks(stage, 16, 40)).endswith("16 of 40 tasks, 4 s, about 10 s left")
    assert progress.line(Tasks(frozenset({8}), 16, 40)).endswith("16 of 40 tasks, 4 s")
    progress.step("archiving events", "table 5 of 14")
    assert progress.line(Tasks()) == "archiving events (table 5 of 14): 4 s"
    progress.step("judging deliveries")
    assert progress.line(Tasks()) == "judging deliveries …"


def test_what_spark_reports_of_tables_is_told_in_our_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(narration, "step", lambda words, part: told.append((words, part)))
    narrator = narration.Narrator(["events", "movements", "visits"])
    for name, state in (
        ("events", "is RUNNING"),
        ("movements", "is RUNNING"),
        ("events", "has COMPLETED"),
        ("movements", "has COMPLETED"),
    ):
        narrator.hear(f"Flow spark_catalog.sterna.{name} {state}.")
    narrator.hear("Flow spark_catalog.sterna.movements is PLANNING.")
    narrator.hear("Run is COMPLETED.")
    narrator.begin("visits")

    assert told == [
        ("archiving events", "table 1 of 3"),
        ("archiving events", "table 1 of 3"),
        ("archiving movements", "table 2 of 3"),
        ("making visits", "table 3 of 3"),
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "1 s"),
        (99, "99 s"),
        (100, "2 min"),
        (3_600, "60 min"),
        (10_000, "3 h"),
        (900_000, "10 days"),
    ],
)
def test_lengths_of_time_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
