"""A streaming job that publishes numbers from files, to be killed: see test_kills.py.

Run as `python publishing_job.py INPUT CHECKPOINT BROKERS`; it ends when all files are published.
"""

import sys

from sterna.pipeline.session import spark_session


def main(numbers: str, checkpoint: str, brokers: str) -> None:
    """Two files are a micro-batch, each of them a partition."""
    spark = spark_session("publishing", master="local[2]")
    spark.sparkContext.setLogLevel("OFF")
    rows = (
        spark.readStream.schema("file INT, line INT, text STRING")
        .option("maxFilesPerTrigger", 2)
        .json(numbers)
    )
    query = (
        rows.writeStream.format("sterna")
        .option("brokers", brokers)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
