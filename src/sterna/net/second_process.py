"""The second process of a broker as the broker sees it: start it, wait for it, hurry it, end it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Lock

from sterna.net.storage.errors import SnapshotFailedError
from sterna.net.storage.log import Seal

PROGRAM = "sterna.net.compaction"

PATIENT = 19
"""The niceness of a process that can wait: it gets what others leave of the processor."""


class CompactionFailedError(SnapshotFailedError):
    """The second process made no snapshot; the message says why."""


class Compaction:
    """A process that makes one snapshot. One thread runs it; others may hurry or end it."""

    def __init__(self, directory: Path, sealed: Seal, *, hurried: bool) -> None:
        self.is_hurried = hurried
        niceness = _own_niceness() if hurried else PATIENT
        place = directory.absolute(), sealed.position, sealed.path.absolute(), niceness
        self._command = [sys.executable, "-P", "-m", PROGRAM, *map(str, place)]
        self._starting = Lock()
        self._is_ended = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process, once it has started."""
        return None if self._process is None else self._process.pid

    def run(self) -> int:
        """Wait until it has made the snapshot; return the size of the state in bytes."""
        try:
            with self._start() as process:
                assert process.stdout is not None  # noqa: S101 - for the type checker.
                said = process.stdout.read().decode(errors="replace").split("\n")
                status = process.wait()
        except OSError as error:
            raise CompactionFailedError(f"it cannot be started: {error}") from error
        lines = [line.strip() for line in said if line.strip()]
        if status < 0:
            raise CompactionFailedError(f"it was ended by {_signal_name(-status)}")
        if status > 0:
            raise CompactionFailedError(lines[-1] if lines else f"it ended with status {status}")
        if not lines or not lines[-1].isdecimal():
            raise CompactionFailedError("it ended without the size of the snapshot")
        return int(lines[-1])

    def hurry(self) -> bool:
        """Have it run at this process's priority, if it has started.

        False if it had to be ended, because the system does not allow that; it can be started anew.
        """
        process = self._process
        if process is None or process.returncode is not None:
            return True
        self.is_hurried = True
        try:
            os.setpriority(os.PRIO_PROCESS, process.pid, _own_niceness())
        except ProcessLookupError:
            return True
        except PermissionError:
            self.end()
            return False
        return True

    def end(self) -> None:
        """End it at once, or keep it from starting."""
        with self._starting:
            self._is_ended = True
            if self._process is not None:
                self._process.kill()

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._starting:
            if self._is_ended:
                raise CompactionFailedError("it was ended before it began")
            # Python's files are closed in new processes anyway, so `close_fds` would only take
            # time; without it, nothing of this process is copied.
            self._process = subprocess.Popen(  # noqa: S603 - our own program.
                self._command,
                env={**os.environ, "PYTHONPATH": _python_path()},
                close_fds=False,
                stdin=subprocess.PIPE,  # It ends when this one does, and closes the pipe.
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            return self._process


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # One of those without a name.
        return f"signal {number}"


def _python_path() -> str:
    """Where this process looks for modules, such as those of protocols; "" is where it works."""
    return os.pathsep.join(str(entry or Path.cwd()) for entry in sys.path)


def _own_niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)
