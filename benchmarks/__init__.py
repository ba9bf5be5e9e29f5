"""What `make bench` measures: ratios against baselines of the same run."""
