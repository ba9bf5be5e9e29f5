"""The overlay: which brokers there are, and how they are connected."""
