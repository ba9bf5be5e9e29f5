"""What a run starts: Spark's program for pipelines, which ends with the process that started it."""

import os
import runpy
import sys
import threading


def main() -> None:
    """Run the pipeline of a spec."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.argv = ["spark-pipelines", "run", "--spec", sys.argv[1]]
    runpy.run_module("pyspark.pipelines.cli", run_name="__main__")


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # Nobody writes: it returns when the other end is gone.
    os._exit(1)


if __name__ == "__main__":
    main()
