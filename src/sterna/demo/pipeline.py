"""The data pipeline beside the demo: after each round it audits and mines what was written down."""

import asyncio
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.pipeline.errors import PipelineError, SparkUnavailable
from sterna.pipeline.session import running_session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Steps = Counter[tuple[str, str]]
"""How often vehicles went from one place to another."""


@dataclass(frozen=True)
class Review:
    """What the pipeline found in the journals of a round."""

    seconds: float = 0.0
    published: int = 0
    owed: int = 0
    delivered: int = 0
    findings: list[str] = field(default_factory=list)
    walked: Steps = field(default_factory=Counter)
    """The steps that vehicles made."""
    mined: Steps = field(default_factory=Counter)
    """The steps that the pipeline has mined."""
    problem: str | None = None
    """Why there is no Spark, if there is none."""

    @property
    def is_clean(self) -> bool:
        """Whether every delivery was right, and the graph is the one that was walked."""
        return self.problem is not None or (not self.findings and self.walked == self.mined)


class Pipeline:
    """One Spark session for all rounds, which starts while the first is played."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "spark")
        self._spark: Future[SparkSession] | None = None
        self._is_ours = True

    def start(self) -> None:
        """Begin to start Spark, unless it runs in this process."""
        self._is_ours = running_session() is None
        self._spark = self._thread.submit(spark_session, "sterna demo")

    async def review(self, directory: Path, walked: Steps) -> Review:
        """Audit and mine the journals below a directory."""
        return await asyncio.wrap_future(self._thread.submit(self._review, directory, walked))

    def stop(self) -> None:
        if (
            self._is_ours
            and self._spark is not None
            and self._spark.done()
            and self._spark.exception() is None
        ):
            self._thread.submit(self._spark.result().stop)
        self._thread.shutdown(cancel_futures=True)

    def _review(self, directory: Path, walked: Steps) -> Review:
        if self._spark is None:
            return Review(problem="Spark was not started")
        try:
            spark = self._spark.result()
            began = time.perf_counter()
            return _review(spark, directory, walked, began)
        except SparkUnavailable as error:
            return Review(problem=str(error))
        except PipelineError as error:
            return Review(findings=[str(error)])


def _review(spark: "SparkSession", directory: Path, walked: Steps, began: float) -> Review:
    from sterna.pipeline.audit import audit_journals  # noqa: PLC0415 - Spark is optional.
    from sterna.pipeline.mining.graph import transitions  # noqa: PLC0415
    from sterna.pipeline.mining.visits import passed  # noqa: PLC0415

    verdict = audit_journals(spark, directory)
    moved = (
        spark.read.format("sterna")
        .option("table", "movements")
        .load(str(directory))
        .where("kind = 'moved'")
        .selectExpr("client", "time", "location AS place")
    )
    graph = transitions(passed(moved)).collect()
    return Review(
        seconds=time.perf_counter() - began,
        published=verdict.published,
        owed=verdict.owed,
        delivered=verdict.delivered,
        findings=[str(finding) for finding in verdict.findings],
        walked=walked,
        mined=Counter({(row["origin"], row["destination"]): row["count"] for row in graph}),
    )
