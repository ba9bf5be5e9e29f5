"""A standalone Spark cluster on loopback: a master and two workers, from the installed PySpark."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from typing import IO

import pyspark

WAIT_S = 120.0


@contextmanager
def cluster(directory: Path, *, workers: int = 2) -> Iterator[str]:
    """The address of a master that has all its workers."""
    with ExitStack() as stack:
        lines: Queue[str] = Queue()
        stack.enter_context(
            _started(directory, lines, "master.Master", "--host", "127.0.0.1", "--port", "0")
        )
        url = _heard(lines, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            folder = directory / f"worker-{number}"
            options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g")
            stack.enter_context(
                _started(folder, Queue(), "worker.Worker", *options, "--work-dir", str(folder), url)
            )
        for _ in range(workers):
            _heard(lines, r"Registering worker")
        yield url


@contextmanager
def _started(directory: Path, lines: "Queue[str]", name: str, *options: str) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("SPARK_")},
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    process = subprocess.Popen(
        [script, f"org.apache.spark.deploy.{name}", "--webui-port", "0", *options],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    reader = threading.Thread(target=_listen, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=WAIT_S)
        reader.join()
        process.stdout.close()


def _listen(said: IO[str], lines: "Queue[str]") -> None:
    for line in said:
        lines.put(line)


def _heard(lines: "Queue[str]", pattern: str) -> str:
    """Wait until a process prints something; return the first group, if there is one."""
    while True:
        found = re.search(pattern, lines.get(timeout=WAIT_S))
        if found is not None:
            return found[found.re.groups]
