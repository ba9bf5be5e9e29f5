"""Runs commands of the pipeline in one Spark application on a cluster, and prints what they say.

python -m tests.pipeline.on_cluster MASTER '[["match", …], …]'
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from typer.testing import CliRunner

from sterna.cli.main import app
from sterna.pipeline.session import spark_session


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where a worker has this package from."""
    import sterna

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"where": [str(Path(sterna.__file__).absolute())]})


def main(master: str, commands: list[list[str]]) -> None:
    spark = spark_session("sterna-tests", master, {"spark.sql.shuffle.partitions": "2"})
    rows = spark.range(2, numPartitions=2).mapInArrow(where, "where string").collect()
    said = []
    for command in commands:
        result = CliRunner().invoke(
            app, ["pipeline", *command, "--master", master, "--json"], catch_exceptions=False
        )
        said.append({"exit_code": result.exit_code, "output": json.loads(result.stdout)})
    print(json.dumps({"where": [row["where"] for row in rows], "said": said}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
