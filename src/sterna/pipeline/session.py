"""A Spark session that starts on any machine, or one sentence that says what is missing."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17


class SparkUnavailable(RuntimeError):  # noqa: N818 - a state of the machine, not a fault of the code.
    """Spark cannot start here; the message says what to install."""


def spark_session(name: str = "sterna", master: str = "local[*]") -> "SparkSession":
    """The running session, or a new one with the settings Sterna's data needs."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - Spark is optional.
    except ImportError:
        raise SparkUnavailable("Spark is not installed: pip install 'sterna[spark]'") from None
    require_java()
    if master.startswith("local"):  # Workers on this machine run the Python that runs this.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.appName(name)
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def require_java() -> None:
    """Make sure that the Java that Spark will start is new enough, or say what to do."""
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


def _java_version(java: Path | str) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java.
            [java, "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(version[1]) if version else None
