"""Broker processes that start sooner: copies of one process that has loaded everything.

The tests start some hundred brokers, and each would load the same modules again, for half a second.
Here they are forked from a process that has done so once. They are processes like all others, with
their own memory, files, signals and end. Those that `sterna up`, the demo and the benchmarks start
are not made in this way.

`python -m tests.forking FD` is that process. A request is what a program is called with, and its
standard streams; the answers are the id of its process, and later its exit status.
"""

import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from sterna.net.local import start_broker

ROOT = Path(__file__).parents[1]
_REQUEST_BYTES_MAX = 1 << 20
_NUMBER_BYTES = 8


def _bytes(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big", signed=True)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


class ForkedProcess:
    """A broker's process, with what `LocalNetwork` needs of `subprocess.Popen`."""

    def __init__(
        self, connection: socket.socket, pid: int, stdin: IO[bytes], stdout: IO[bytes]
    ) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None
        self._connection = connection

    def poll(self) -> int | None:
        """The exit status; None as long as it runs."""
        return self._status(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status."""
        status = self._status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"broker {self.pid}", timeout or 0.0)
        return status

    def _status(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                told = self._connection.recv(_NUMBER_BYTES)
            except (BlockingIOError, TimeoutError):
                return None
            self._connection.close()
            self.returncode = _number(told) if told else -signal.SIGKILL
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forking:
    """The process that is copied, from the outside."""

    def __init__(self) -> None:
        self._own, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forking", str(other.fileno())],
                cwd=ROOT,
                pass_fds=[other.fileno()],
            )
        self._lock = threading.Lock()
        self._pythons_own = _pythons_own()

    def start(self, file: Path, messages: IO[bytes]) -> "ForkedProcess | subprocess.Popen[bytes]":
        """Start the broker of a configuration file; see `sterna.net.local.start_broker`.

        Where Python itself is to be another one, with other modules, it is no copy.
        """
        if _pythons_own() != self._pythons_own:
            return start_broker(file, messages)
        stdin, its_stdin = os.pipe()[::-1]
        its_stdout_read, its_stdout = os.pipe()
        own, answers = socket.socketpair()
        request = json.dumps([str(file), str(Path.cwd()), dict(os.environ)]).encode()
        streams = [its_stdin, its_stdout, messages.fileno(), answers.fileno()]
        with self._lock, answers:
            socket.send_fds(self._own, [len(request).to_bytes(4, "big")], streams)
            self._own.sendall(request)
            pid = _number(own.recv(_NUMBER_BYTES))
        os.close(its_stdin)
        os.close(its_stdout)
        return ForkedProcess(own, pid, os.fdopen(stdin, "wb", 0), os.fdopen(its_stdout_read, "rb"))

    def close(self) -> None:
        """End it; brokers end when their standard input does."""
        self._own.close()
        self._process.wait()


def _pythons_own() -> dict[str, str]:
    """The variables by which Python decides what it loads, and from where."""
    return {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}


# ---- The process that is copied


class _Serving:
    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._waiting: dict[int, socket.socket] = {}
        """Who is told how each process ends."""
        self._ended, self._ends = socket.socketpair()
        self._ended.setblocking(False)
        self._ends.setblocking(False)
        signal.set_wakeup_fd(self._ends.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> Path | None:
        """Make copies until nobody can ask for more. In a copy, the result is its configuration."""
        selector = selectors.DefaultSelector()
        selector.register(self._requests, selectors.EVENT_READ)
        selector.register(self._ended, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is self._ended:
                    self._ended.recv(4096)
                    self._tell()
                    continue
                size, streams, _, _ = socket.recv_fds(self._requests, 4, 4)
                if not size:
                    return None
                request = b""
                while len(request) < int.from_bytes(size, "big"):
                    request += self._requests.recv(_REQUEST_BYTES_MAX)
                if (pid := os.fork()) == 0:
                    return self._become(request, streams)
                self._made(pid, streams)

    def _made(self, pid: int, streams: Sequence[int]) -> None:
        answers = self._waiting[pid] = socket.socket(fileno=streams[3])
        for stream in streams[:3]:
            os.close(stream)
        answers.sendall(_bytes(pid))

    def _tell(self) -> None:
        while self._waiting:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._waiting.pop(pid) as answers, suppress(OSError):  # Who wants to know it?
                answers.sendall(_bytes(os.waitstatus_to_exitcode(status)))

    def _become(self, request: bytes, streams: Sequence[int]) -> Path:
        """Be another process, with nothing left of this one but what is loaded."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self._requests, self._ended, self._ends, *self._waiting.values()):
            each.close()
        for number, stream in enumerate(streams[:3]):
            os.dup2(stream, number)
        for stream in streams:
            os.close(stream)
        os.setpgid(0, 0)
        file, directory, environment = json.loads(request)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        return Path(file)


def serve(number: int) -> None:
    """Load everything, and make copies."""
    from sterna.net import daemon

    sys.meta_path.insert(0, daemon._WithoutPandas())  # As each broker does.
    from sterna.journal.rows import rows_of
    from sterna.journal.segments import batch_message

    batch_message(rows_of([]), 0)  # Arrow loads much at its first use.
    sys.meta_path.pop(0)
    gc.collect()
    gc.freeze()
    file = _Serving(socket.socket(fileno=number)).run()
    if file is not None:
        sys.exit(daemon.main([str(file)]))


if __name__ == "__main__":
    serve(int(sys.argv[1]))
