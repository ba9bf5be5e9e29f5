"""Running a declarative pipeline inside an existing Spark session.

Spark runs declarative pipelines behind Spark Connect only, so its server is started in the process
of the session, on loopback and for holders of a secret.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG, DATABASE = "spark_catalog", "sterna"

_LOGGER = "org.apache.spark"
_DONE = "Run is COMPLETED."
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
_SECRET = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of a variable.


@contextmanager
def connected(spark: "SparkSession") -> "Iterator[SparkSession]":
    """A Spark Connect session in the same Spark; until it ends, all columns belong to it."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession  # noqa: PLC0415

    before = {name: os.environ.get(name) for name in (_CONNECT_MODE, _SECRET)}
    os.environ[_SECRET] = secrets.token_hex(16)
    try:
        with _quiet(spark), _served(spark, os.environ[_SECRET]) as port:
            # Connect asks for encryption unless the host has this name.
            session: Any = ConnectSession.builder.remote(f"sc://localhost:{port}").create()
            os.environ[_CONNECT_MODE] = "1"
            try:
                yield session
            finally:
                session.stop()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def execute(
    session: "SparkSession",
    define: Callable[[], None],
    *,
    storage: Path,
    settings: Mapping[str, str],
    say: Callable[[str], None],
) -> None:
    """Bring everything that is defined up to date; checkpoints are kept in `storage`."""
    from pyspark.errors import PySparkValueError  # noqa: PLC0415 - Spark is optional, here and below.
    from pyspark.pipelines.graph_element_registry import (  # noqa: PLC0415
        graph_element_registration_context,
    )
    from pyspark.pipelines.spark_connect_graph_element_registry import (  # noqa: PLC0415
        SparkConnectGraphElementRegistry,
    )
    from pyspark.pipelines.spark_connect_pipeline import (  # noqa: PLC0415
        create_dataflow_graph,
        start_run,
    )

    graph = create_dataflow_graph(session, CATALOG, DATABASE, settings)
    registry = SparkConnectGraphElementRegistry(session, graph)
    with graph_element_registration_context(registry):
        define()
    answers = start_run(
        session,
        graph,
        full_refresh=None,
        full_refresh_all=False,
        refresh=None,
        dry=False,
        storage=f"file://{storage}",
    )
    last = ""
    try:
        for answer in answers:
            if "pipeline_event_result" in answer:
                last = answer["pipeline_event_result"].event.message
                say(last)
    except PySparkValueError as error:
        # When all is done, the server reports what Python workers counted, and the client is lost.
        if error.getCondition() != "UNKNOWN_RESPONSE" or last != _DONE:
            raise


@contextmanager
def _quiet(spark: "SparkSession") -> Iterator[None]:
    """Silence Spark's log: errors come as exceptions, and Spark would also log them, repeatedly."""
    log4j: Any = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    level = log4j.LogManager.getLogger(_LOGGER).getLevel()
    log4j.core.config.Configurator.setLevel(_LOGGER, log4j.Level.OFF)
    try:
        yield
    finally:
        log4j.core.config.Configurator.setLevel(_LOGGER, level)


@contextmanager
def _served(spark: "SparkSession", secret: str) -> Iterator[int]:
    """The port of the Spark Connect server, while it runs."""
    jvm: Any = spark._jvm
    service = getattr(
        getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$"
    )
    context = spark.sparkContext._jsc.sc()
    conf = context.conf()
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
    conf.set("spark.connect.grpc.binding.port", "0")
    conf.set("spark.connect.authenticate.token", secret)
    service.start(context)
    try:
        yield int(service.localPort())
    finally:
        service.stop(*(getattr(service, f"stop$default${number}")() for number in (1, 2)))
