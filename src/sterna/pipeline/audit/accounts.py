"""What an audit has judged, client by client and publisher by publisher."""

from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

ACCOUNTS_MAX = 10_000
"""So many clients, and so many publishers, are reported one by one."""

BLOCK = 100_000
"""The events of a publisher are accounted for in blocks of so many numbers."""

_COUNTS = ("owed", "delivered", "missed", "open", "apart", "judged")


class Account(NamedTuple):
    """What was judged of the deliveries to a client, or of the events of a publisher."""

    world: str
    name: str
    owed: int
    """How many deliveries had to be made."""
    delivered: int
    missed: int
    """How many were declared as discarded, and did not arrive."""
    open: int
    """How many were not judged, since nobody knows whether they had to be made."""
    apart: int
    """How many were not judged, since two clocks differ."""
    judged: int
    """How many were judged: those that had to be made, and those that were."""


NOTHING = Account("", "", 0, 0, 0, 0, 0, 0)


def accounts(lines: DataFrame) -> DataFrame:
    """The lines of a ledger by client and publisher: counts, and the lines that are suspect.

    The lines of a client and a publisher are in one place already. However many they are, a worker
    has those of one block in memory.
    """
    suspect = F.when(
        (F.size("faults") > 0) | (F.size("doubts") > 0), F.struct("seq", "faults", "doubts")
    )
    is_judged = ~F.col("is_apart") & (F.col("is_owed") | (F.col("delivered") > 0))
    block = F.floor(F.col("seq") / BLOCK).alias("block")
    return lines.groupBy("world", "client", "publisher", block).agg(
        F.count_if("is_owed").alias("owed"),
        F.sum("delivered").alias("delivered"),
        F.count_if("is_missed").alias("missed"),
        F.count_if("is_open").alias("open"),
        F.count_if("is_apart").alias("apart"),
        F.count_if(is_judged).alias("judged"),
        F.collect_list(suspect).alias("suspects"),
    )


def suspects(accounts: DataFrame) -> DataFrame:
    """The lines with faults or doubts."""
    return accounts.where(F.size("suspects") > 0).select(
        "world", "client", "publisher", F.inline("suspects")
    )


class Accounts(NamedTuple):
    """All accounts of an audit, and what they come to."""

    total: Account
    clients: list[Account]
    """In the order of their names; `ACCOUNTS_MAX` at most."""
    publishers: list[Account]


def summed(accounts: DataFrame) -> Accounts:
    """The accounts of clients and of publishers, in one pass."""
    rows = (
        accounts.groupingSets(
            [["world", "client"], ["world", "publisher"], []], "world", "client", "publisher"
        )
        .agg(
            F.grouping_id().alias("which"),
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS),
        )
        .withColumn("name", F.coalesce("client", "publisher", F.lit("")))
        .withColumn("place", F.row_number().over(Window.partitionBy("which").orderBy(*_NAME)))
        .where(F.col("place") <= ACCOUNTS_MAX)
        .orderBy("which", "place")
        .collect()
    )
    found: dict[int, list[Account]] = {}
    for row in rows:
        account = Account(row["world"] or "", row["name"], *(row[name] for name in _COUNTS))
        found.setdefault(row["which"], []).append(account)
    (total,) = found.get(_ALL, [NOTHING])
    return Accounts(total, found.get(_CLIENT, []), found.get(_PUBLISHER, []))


_NAME = ("world", "name")
_CLIENT, _PUBLISHER, _ALL = 0b001, 0b010, 0b111
"""What is not told apart, as bits: the world, the client, the publisher."""
