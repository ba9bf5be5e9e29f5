"""A notebook: read a live broker network from Spark, and publish back what it finds.

Run it cell by cell, or as a program. Give it the addresses of your brokers, or it starts its own.
"""

# %% A session that knows format("sterna").
import sys
import tempfile
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 - the usual name.

import sterna
from sterna.net.local import LocalNetwork
from sterna.pipeline.session import spark_session

spark = spark_session("live", master="local[2]")
directory = tempfile.TemporaryDirectory()

# %% The network: brokers that are there, or two on this machine.
brokers = [url for url in sys.argv[1:] if url.startswith("sterna://")]
network = None
if not brokers:
    network = LocalNetwork(2, directory=Path(directory.name) / "brokers").start()
    brokers = list(network.urls.values())
BROKERS = ",".join(brokers)

# %% Cars say how fast they are.
cars = sterna.blocking.connect(brokers[0], client="cars")


def drive(street: str, *speeds: float) -> None:
    for number, speed in enumerate(speeds):
        cars.publish(kind="speed", street=street, car=number, speed=speed)
    cars.drain()


drive("Elm", 48.0, 51.0, 47.0)
drive("Oak", 33.0, 29.0, 9.0)

# %% What was published so far is a table. Brokers keep it in their journals; workers of Spark ask
# each broker for its part. Only events that match the filter become rows, and `columns` names the
# attributes that become columns.
speeds = {
    "brokers": BROKERS,
    "filter": "kind = 'speed'",
    "columns": "street STRING, car BIGINT, speed DOUBLE",
}
so_far = spark.read.format("sterna").options(**speeds).load()
means = so_far.groupBy("street").agg(F.avg("speed").alias("mean")).orderBy("street")
print("mean speeds so far:", {row["street"]: row["mean"] for row in means.collect()})

# %% The same as a stream, from the beginning, joined with what is known of the streets. Cars that
# creep are published back: each once, however often this query is stopped or killed and started
# again.
limits = spark.createDataFrame([("Elm", 50.0), ("Oak", 30.0)], "street STRING, limit DOUBLE")
creeping = (
    spark.readStream.format("sterna")
    .options(**speeds)
    .option("startingOffsets", "earliest")
    .load()
    .join(limits, "street")
    .where("speed < 0.4 * limit")
    .select(
        F.lit("creeping").alias("kind"),
        "street",
        "car",
        (F.col("speed") / F.col("limit")).alias("share"),
    )
)
watcher = sterna.blocking.connect(brokers[-1], client="watcher")
slow = watcher.subscribe("kind = 'creeping'")
query = (
    creeping.writeStream.format("sterna")
    .option("brokers", BROKERS)
    .option("client", "jam watch")
    .option("checkpointLocation", f"{directory.name}/checkpoint")
    .start()
)

# %% Any client can subscribe to them: first to those from before.
print("creeping:", slow.get(timeout=120).attributes)

# %% Then to the next ones.
drive("Elm", 50.0, 5.0, 52.0)
print("creeping:", slow.get(timeout=120).attributes)

# %% The end: when all is processed, nothing is cut short.
query.processAllAvailable()
query.stop()
watcher.close()
cars.close()
spark.stop()
if network is not None:
    network.stop()
directory.cleanup()
