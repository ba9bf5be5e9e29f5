"""Java that starts sooner: the tests start Spark some dozen times, each for a few small jobs.

`python -m tests.java`, which `make test` runs, keeps the classes of Spark in an archive beside the
installed packages; Java maps it into memory instead of loading and checking each class anew. That
takes half a minute once, and spares a third of each start. Without the archive all works as well.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

ARCHIVE = Path(sys.prefix) / f"spark-{pyspark.__version__}.jsa"

QUICKLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""Short jobs are done sooner if Java compiles quickly rather than well. It would then have room for
48 MB of code, which is not enough: it would drop methods and compile them again, all the time."""

QUIETLY = "-Xlog:disable -Xlog:all=error:stderr"
"""Java would say on standard output when it cannot use an archive."""

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""Settings of Spark with which small jobs take less time.

Two tasks after each shuffle are enough to mix rows up; more cost more than the work itself. An
audit compiles more classes than Spark keeps by default, so the next one would do it again. Where in
the source each part of an expression stands takes longer to find out than the part.
"""


def options() -> str:
    """The value of JDK_JAVA_OPTIONS for tests."""
    if not ARCHIVE.exists() or " " in str(ARCHIVE):
        return QUICKLY
    return f"{QUICKLY} {QUIETLY} -XX:SharedArchiveFile={ARCHIVE}"


def exercise(directory: Path) -> None:
    """Use what most tests use of Spark, so that its classes are loaded."""
    from sterna.pipeline.session import spark_session

    spark = spark_session("sterna-classes", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    numbers = spark.createDataFrame(
        [(n, n % 3, str(n)) for n in range(20)], "n long, k int, s string"
    )
    counted = numbers.groupBy("k").count().join(numbers, "k").orderBy("n")
    counted.mapInArrow(lambda batches: batches, counted.schema).write.parquet(str(directory / "t"))
    stream = spark.readStream.schema(counted.schema).parquet(str(directory / "t"))
    writer = stream.writeStream.option("checkpointLocation", str(directory / "c"))
    writer.trigger(availableNow=True).start(str(directory / "u"), "parquet").awaitTermination()
    spark.read.parquet(str(directory / "u")).createOrReplaceTempView("u")
    spark.sql(
        "SELECT k, max(n) OVER (PARTITION BY k ORDER BY n) FROM u WHERE s LIKE '1%'"
    ).collect()
    spark.stop()


def main() -> None:
    if ARCHIVE.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.jsa"
        environment = {
            **os.environ,
            "JDK_JAVA_OPTIONS": f"{QUICKLY} {QUIETLY} -XX:ArchiveClassesAtExit={made}",
        }
        program = (
            f"from pathlib import Path; from tests.java import exercise; exercise(Path({folder!r}))"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            if ended.returncode == 0:
                beside = ARCHIVE.with_suffix(f".{os.getpid()}")
                beside.write_bytes(made.read_bytes())
                beside.replace(ARCHIVE)
                return
            problem = ended.stderr.strip()
        except OSError as error:
            problem = str(error)
    print(f"Java starts as slowly as ever, without an archive of classes: {problem[-300:]}")


if __name__ == "__main__":
    main()
