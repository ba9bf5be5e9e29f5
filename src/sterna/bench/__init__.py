"""What `sterna bench` runs: workloads, contenders and how they are timed."""
