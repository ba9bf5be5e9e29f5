"""A Spark session on any machine or cluster, or one sentence that says what is missing."""

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from sterna.errors import MissingExtraError
from sterna.extras import require
from sterna.pipeline.errors import SparkUnavailable
from sterna.pipeline.quiet import java_filtered, own_interrupts
from sterna.pipeline.shipping import LOCATORS, package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17

LOCAL = "local[*]"

MASTER_S = 5.0
"""How many seconds the master of a cluster may take to answer."""
WORKERS_S = 60.0
"""How many seconds it may take until a first worker is there."""

PAGE = "4m"
"""How much memory each step of a job takes at least. Spark's default is up to 64 MB; with that, a
job of many steps and little data spends a fifth of its time on memory that it does not use."""

CONNECT_PORT = "spark.connect.grpc.binding.port"
CONNECT_SECRET = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of a variable.

_MASTERS = re.compile(r"local(\[.+\])?|spark://.+|yarn|k8s://.+|mesos://.+")
_JAVA_CLASS = re.compile(r"^[:\s]*(?:[a-z]\w*\.)+[\w$.]*(?:Exception|Error|Throwable):\s*")
CAUSED_BY = "Caused by: "
_LOGS = Path(__file__).with_name("log4j2.properties")


def spark_session(
    name: str = "sterna", master: str = LOCAL, config: Mapping[str, str] | None = None
) -> "SparkSession":
    """The running session, or a new one with the settings that Sterna's data needs.

    It knows `format("sterna")`, and the workers of a cluster are sent this package.
    """
    try:
        require("pipeline", "Spark")
    except MissingExtraError as missing:
        raise SparkUnavailable(str(missing)) from None
    from pyspark.sql import SparkSession  # noqa: PLC0415 - Spark is optional.

    check_master(master)
    require_java()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**settings(master), **(config or {})}.items():
        builder = builder.config(key, value)
    try:
        with java_filtered(), own_interrupts():
            spark = builder.getOrCreate()
    except Exception as error:
        raise SparkUnavailable(
            f"Spark cannot start with --master {master}: {first_line(error)}"
        ) from error
    if not is_local(master):
        _prepare_workers(spark, master)
    from sterna.pipeline.source import register  # noqa: PLC0415 - it needs Spark.

    register(spark)
    return spark


def running_session() -> "SparkSession | None":
    """The session of this process, if there is one."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - Spark is optional.
    except ImportError:
        return None
    return SparkSession.getActiveSession()


def settings(master: str = LOCAL) -> dict[str, str]:
    """The settings of Spark that Sterna's data needs."""
    found = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.streaming.metricsEnabled": "false",
    }
    if "SPARK_CONF_DIR" not in os.environ:  # Such a directory configures what to log.
        found["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_LOGS.as_uri()}"
    if is_local(master):
        cores = os.cpu_count() or 1
        found |= {
            "spark.driver.memory": f"{_driver_memory_mb()}m",
            "spark.buffer.pageSize": PAGE,
            "spark.sql.shuffle.partitions": str(max(4, 2 * cores)),
        }
    else:
        found["spark.executorEnv.NUMBA_CACHE_LOCATOR_CLASSES"] = LOCATORS
    if is_here(master):  # No other machine needs to reach this process.
        found |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return found


def with_connect() -> dict[str, str]:
    """The settings of a session that serves Spark Connect, by which pipelines are run.

    It does so on loopback, and for this process and those that it starts: they have the secret in
    their environment, which others cannot see, unlike the arguments of Java.
    """
    os.environ.setdefault(CONNECT_SECRET, secrets.token_hex(16))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        CONNECT_PORT: str(port),
    }


def is_local(master: str) -> bool:
    """Whether Spark's workers are in the process that it starts."""
    return master.startswith("local")


def is_here(master: str) -> bool:
    """Whether Spark's workers are on this machine."""
    return is_local(master) or all(
        host in {"127.0.0.1", "localhost"} for host, _ in _addresses(master)
    )


def check_master(master: str) -> None:
    """Make sure that a cluster can be reached, which Spark would try for a minute."""
    if not _MASTERS.fullmatch(master):
        raise SparkUnavailable(
            f"--master {master!r} is none that Spark knows; use local[*], spark://HOST:7077, yarn "
            "or k8s://https://HOST:PORT"
        )
    if master == "yarn" and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & set(os.environ):
        raise SparkUnavailable("--master yarn needs HADOOP_CONF_DIR: set it to Hadoop's settings")
    if not master.startswith("spark://"):
        return
    problems = []
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), MASTER_S).close()
        except OSError as error:
            problems.append(f"{host}:{port} ({error.strerror or error})")
        else:
            return
    raise SparkUnavailable(
        f"no Spark master answers at {' or '.join(problems)}; start it, or give another --master"
    )


def first_line(error: BaseException) -> str:
    """The message of a Spark exception, without the traces and class names of the JVM."""
    text = str(error).strip() or type(error).__name__
    lines = [line for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(CAUSED_BY)]
    said = [line for line in lines if ": " in line and not line.startswith("\t")]
    line = [lines[0], *said[:1], *causes[-1:]][-1].strip().removeprefix(CAUSED_BY)
    return _JAVA_CLASS.sub("", line).rstrip(":") or line


def require_java() -> None:
    """Make sure that Spark's Java is new enough; the error says what to do."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else shutil.which("java")
    version = _java_version(java) if java else None
    if version is None or version < JAVA_MIN:
        place = "JAVA_HOME" if home else "the PATH"
        found = f"{place} has Java {version}" if version else f"none was found in {place}"
        raise SparkUnavailable(
            f"Spark needs Java {JAVA_MIN} or newer, and {found}. Install one "
            "(Debian, Ubuntu: apt-get install openjdk-17-jre-headless, or 21; macOS: brew install "
            "openjdk@17) and, if it is not on the PATH, set JAVA_HOME"
        )


def _prepare_workers(spark: "SparkSession", master: str) -> None:
    """Send this package to the workers, and wait until one of them works."""
    spark.sparkContext.addPyFile(str(package()))
    found: list[int] = []
    job = Thread(target=_work_a_little, args=(spark, found), daemon=True)
    job.start()
    job.join(WORKERS_S)
    if not found:
        spark.stop()  # This ends the job, too.
        raise SparkUnavailable(
            f"{master} has no worker with free cores and memory; start one, or end another "
            "application there"
        )


def _work_a_little(spark: "SparkSession", found: list[int]) -> None:
    """Run the smallest job; it waits as long as there is no worker."""
    with suppress(Exception):  # The session was stopped meanwhile.
        found.append(spark.range(1).count())


def _addresses(master: str) -> list[tuple[str, int]]:
    """The hosts and ports of a standalone cluster's masters."""
    if not master.startswith("spark://"):
        return [(master, 0)]
    found = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise SparkUnavailable(f"--master {master!r}: write spark://HOST:PORT, usually 7077")
        found.append((host, int(port)))
    return found


def _driver_memory_mb() -> int:
    """A quarter of the machine's memory, but not less than 1 GiB and not more than 4."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 1024
    return min(4096, max(1024, total // 4 // 2**20))


def _java_version(java: Path | str) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java.
            [java, "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(version[1]) if version else None
