"""Fixtures for all tests, the campaign size, and the table of proven requirements."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from sterna.pipeline.session import spark_session
from tests.spec import conformance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# `make test` tries the same examples on every machine; `make test-long` tries new ones.
settings.register_profile(
    "test",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("long", settings.get_profile("test"), derandomize=False, print_blob=True)
settings.load_profile("long" if os.environ.get("STERNA_CAMPAIGN") else "test")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--spec", action="store_true", help="print which tests prove which requirement"
    )
    parser.addoption("--spec-page", type=Path, help="with --spec: also write the table as a page")
    parser.addoption("--spec-check", action="store_true", help="fail if that page is out of date")


def pytest_collection_finish(session: pytest.Session) -> None:
    conformance.check_ids(session.items)
    if session.config.getoption("--spec"):
        conformance.report(
            session.items,
            page=session.config.getoption("--spec-page"),
            check=session.config.getoption("--spec-check"),
        )


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    session = spark_session("sterna-tests", master="local[2]")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
