"""What an audit computes once and uses several times, and how Spark plans the work of an audit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
"""In how many partitions the work is divided if there is little of it."""

LITTLE_WORK = {
    # It is planned once, not again after each step of the work.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
}
"""The settings of Spark for work that takes less time than its planning."""


class Kept:
    """Tables that are used several times; in a `with` block, which releases them."""

    def __init__(self, *, is_little: bool) -> None:
        self._is_little = is_little
        self._tables: list[DataFrame] = []

    def keep(self, table: DataFrame) -> DataFrame:
        """The same table, which is computed once.

        If there is little to do, this does it at once, and Spark forgets how: it would plan all of
        that again for everything that is made of the table.
        """
        if self._is_little:
            return table.localCheckpoint()
        self._tables.append(table.persist())
        return self._tables[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._tables:
            self._tables.pop().unpersist()


@contextmanager
def planned_for_little(spark: SparkSession) -> Iterator[None]:
    """Have Spark plan quickly in the block."""
    before = {name: spark.conf.get(name, None) for name in LITTLE_WORK}
    for name, value in LITTLE_WORK.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)
