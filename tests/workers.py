"""Python processes of Spark that start sooner: copies of one that has loaded everything.

Spark starts a Python process for each stream and for each kind of work, and another one if there
was none for a minute. Each would load pandas, Arrow and this package, which takes a second. Here
they are forked from a process that has done so once. Apart from that they are like all others.

`python -m tests.workers serve FD` is that process. `… ask SOCKET MODULE ARGUMENT…` has a module run
by a copy, with the same standard streams and environment, and ends when the copy does.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]

LOADED = (
    "pandas",
    "pyarrow.compute",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.worker",
    "sterna.pipeline.matching.workers",
    "sterna.pipeline.source.stream",
)


@contextmanager
def quick_python(folder: Path) -> Iterator[Path]:
    """A program for `PYSPARK_PYTHON`: it is Python, but has modules run by copies."""
    address, program = folder / "workers", folder / "python"
    asking = f'{sys.executable} -ISP {Path(__file__)} ask {address} "$@"'
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -m ]; then shift; exec {asking}; fi\nexec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.workers", "serve", str(listening.fileno())],
            cwd=ROOT,
            env={"PYTHONHASHSEED": "0", **os.environ},  # As Spark wants it.
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
        )
    with process:  # It ends when its standard input does.
        yield program


def ask(address: str, arguments: list[str]) -> None:
    """Have a module run by a copy, and wait for its end; run it here if nobody makes copies."""
    request = json.dumps([arguments, str(Path.cwd()), dict(os.environ)])
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"0"], [0, 1, 2])
        connection.sendall(request.encode())
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
        return
    os.execv(sys.executable, [sys.executable, "-m", *arguments])  # noqa: S606


def serve(number: int) -> None:
    """Load everything, and make copies until nobody needs them."""
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=number) as listening:
        connection = _copied(listening)
    if connection is not None:
        _become(connection)


def _copied(listening: socket.socket) -> socket.socket | None:
    """Make a copy for each connection until standard input ends. In a copy, return its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin not in select.select([sys.stdin, listening], [], [])[0]:
        connection, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return connection
        connection.close()
    return None


def _become(connection: socket.socket) -> None:
    """Be another process, with nothing left of this one but what is loaded."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as file:
        arguments, directory, environment = json.loads(file.read())
    os.register_at_fork(after_in_child=connection.close)  # Only the end of this one is of interest.
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [directory, *(path for path in paths if path and path not in sys.path)]
    sys.argv[:] = arguments
    sys.modules.pop(arguments[0], None)
    runpy.run_module(arguments[0], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        ask(sys.argv[2], sys.argv[3:])
