"""Processes that are killed at random moments, and started again until they are done."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import IO

JOB_S = 600.0
"""So long a job may take that nobody kills, on the slowest machine."""

_POLL_S = 0.001


def run_and_kill(
    command: Sequence[str | Path],
    *,
    kills: int,
    moments: Sequence[Callable[[], object]],
    rng: Random,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Run a program, kill it so often with all it has started, and let it finish.

    Each time a moment is chosen; the program is killed a little after what it returns has changed.
    One that is done before that moment comes is started again; `between` gives it more to do.
    """
    deaths = runs = 0
    while deaths < kills:
        runs += 1
        assert runs <= 5 * kills, "most runs are done before they can be killed"
        moment, more = rng.choice(moments), rng.randrange(3)
        job, messages = _start(command)
        for _ in range(1 + more):
            _wait_for_change(job, moment)
        time.sleep(rng.choice([0, 0.002, 0.02, 0.2]) * rng.random())
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            deaths += job.wait() == -signal.SIGKILL
        else:
            assert job.returncode == 0, _end(messages)
        between()
    job, messages = _start(command)
    job.wait(JOB_S)
    assert job.returncode == 0, _end(messages)


def names(directory: Path, pattern: str) -> frozenset[str]:
    """The files there are of a kind."""
    return frozenset(path.name for path in directory.glob(pattern))


def content(path: Path) -> bytes:
    """What is in a file, or nothing."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _start(command: Sequence[str | Path]) -> "tuple[subprocess.Popen[bytes], IO[bytes]]":
    """A process with a group of its own, and its messages."""
    messages = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as it is looked at.
    job = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.DEVNULL,
        stderr=messages,
        start_new_session=True,
    )
    return job, messages


def _wait_for_change(job: "subprocess.Popen[bytes]", moment: Callable[[], object]) -> None:
    before = moment()
    while job.poll() is None and moment() == before:
        time.sleep(_POLL_S)


def _end(messages: IO[bytes]) -> str:
    messages.seek(0)
    return messages.read().decode()[-4000:]
