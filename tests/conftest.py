"""Fixtures for all tests, the size of campaigns, and a check of the requirements they name."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

import sterna
from sterna.net import local
from sterna.pipeline.session import spark_session, with_connect
from tests import java
from tests.forking import Forking
from tests.light import LightPython
from tests.spec import conformance
from tests.workers import quick_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.setdefault("JDK_JAVA_OPTIONS", java.options())
os.environ["STERNA_CACHE"] = "off"  # What is compiled is compiled by the code that is tested.
gc.disable()  # Until all tests are collected: what is imported and collected stays.
if not os.environ.get("STERNA_MUTANT"):
    # Some hundred processes are started: each would compile the whole package again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# `make test` tries the same examples on every machine; `make test-long` tries new ones.
settings.register_profile(
    "test",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("long", settings.get_profile("test"), derandomize=False, print_blob=True)
settings.register_profile(
    "mutant", settings.get_profile("test"), phases=(Phase.explicit, Phase.generate)
)
if os.environ.get("STERNA_MUTANT"):  # A copy of the source with a bug in it; see tests/mutants.
    settings.load_profile("mutant")
    assert Path(sterna.__file__).is_relative_to(Path.cwd()), "the copy is not what is tested"
else:
    settings.load_profile("long" if os.environ.get("STERNA_CAMPAIGN") else "test")


LONG = (
    "tests/newcomer/test_newcomer.py",
    "tests/test_docs.py",
    "tests/wire/test_snapshots.py",
)
"""Modules with single tests that take long: those begin first, so that in the end no worker waits
for the last test of another.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have one worker begin with what takes long, and the next one with all that needs Spark.

    Each worker gets as many tests, in order, and those that are done take over from the ends of the
    others. So the tests that need Spark have one Java process, which becomes fast only in time.
    """
    first = [item for item in items if item.nodeid.startswith(LONG)]
    rest = [item for item in items if not item.nodeid.startswith(LONG)]
    spark = [item for item in rest if needs_spark(item)]
    others = [item for item in rest if not needs_spark(item)]
    share = len(items) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    before = max(0, share - len(first))
    items[:] = [*first, *others[:before], *spark, *others[before:]]


def needs_spark(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "spark" in item.fixturenames


def pytest_collection_finish(session: pytest.Session) -> None:
    conformance.check_ids(session.items)
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which commands of the docs were not run, and why."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "not run":
                terminalreporter.section("commands on pages that were not run")
                for command, reason in value.items():
                    terminalreporter.line(f"{command.splitlines()[0]}: {reason}")


@pytest.fixture(scope="session")
def pyspark_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The program that Spark is to start as Python."""
    with quick_python(tmp_path_factory.mktemp("workers")) as program:
        yield str(program)


@pytest.fixture(scope="session")
def spark(pyspark_python: str) -> "Iterator[SparkSession]":
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", pyspark_python)
        session = spark_session("sterna-tests", "local[2]", java.SETTINGS | with_connect())
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def _forking() -> Iterator[None]:
    """Have the brokers of `LocalNetwork` start sooner."""
    forking = Forking()
    started, local.start_broker = local.start_broker, forking.start  # type: ignore[assignment]
    yield
    local.start_broker = started
    forking.close()


@pytest.fixture(scope="session")
def light(tmp_path_factory: pytest.TempPathFactory) -> LightPython:
    return LightPython(tmp_path_factory.mktemp("light"))
