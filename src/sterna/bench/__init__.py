"""What `sterna bench` runs: workloads, contenders and how they are timed."""

from sterna.extras import require

require("broker", "a benchmark")
