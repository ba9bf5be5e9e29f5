"""One Spark for all `sterna pipeline` commands of a session, as each would take seconds to start.

`python -m tests.newcomer.spark serve SOCKET` runs commands that `… ask SOCKET ARGUMENT…` sends to
it: in the directory and on the terminal of who asks, with the same code as the command itself.
"""

import contextlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REQUEST_BYTES_MAX = 65536

LOST = "lost"
"""The answer if Spark has ended under a command."""


def serve(path: str) -> None:
    """Run commands one after the other, until this process is ended."""
    from sterna.cli.main import app
    from sterna.pipeline.session import spark_session, with_connect
    from tests.java import SETTINGS

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        session = spark_session("sterna-newcomer", "local[2]", SETTINGS | with_connect())
        session.sparkContext.setLogLevel("ERROR")
        own = [os.dup(number) for number in range(3)]
        while True:
            connection, _ = listening.accept()
            with connection:
                request, streams, _, _ = socket.recv_fds(connection, _REQUEST_BYTES_MAX, 3)
                arguments, directory = json.loads(request)
                os.chdir(directory)
                _streams(streams)
                status = str(_run(app, arguments))
                if status != "0" and not _is_alive(session):
                    status = LOST
                with contextlib.suppress(OSError):  # Its terminal may be closed.
                    sys.stdout.flush()
                    sys.stderr.flush()
                _streams(own)
                for stream in streams:
                    os.close(stream)
                with contextlib.suppress(OSError):  # Nobody may wait any more.
                    connection.sendall(status.encode())
                if status == LOST:
                    return


def ask(path: str, arguments: list[str]) -> int:
    """Have a command run, and return its exit status; by itself, if the Spark of all is lost.

    A machine that is short of memory may have ended it.
    """
    answer = ""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = json.dumps([arguments, str(Path.cwd())]).encode()
        socket.send_fds(connection, [request], [0, 1, 2])
        answer = connection.recv(16).decode()
    if answer in {"", LOST}:
        program = "from sterna.cli.start import run; run()"
        os.execv(sys.executable, [sys.executable, "-c", program, *arguments])  # noqa: S606
    return int(answer)


def _is_alive(session: "SparkSession") -> bool:
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:  # noqa: BLE001 - there is nobody who could answer.
        return False


def _streams(numbers: list[int]) -> None:
    for number, stream in enumerate(numbers):
        os.dup2(stream, number)


def _run(app: object, arguments: list[str]) -> int:
    assert callable(app)
    try:
        app(arguments, prog_name="sterna")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except OSError:
        return 1  # It cannot print: its terminal is closed.
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[2], sys.argv[3:]))
