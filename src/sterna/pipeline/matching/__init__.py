"""Bulk matching: which of many subscriptions match which of many events, on Spark.

The brokers' own index does it, inside the workers (docs/how-to/bulk-matching.md).
"""

from sterna.extras import require

require("pipeline", "bulk matching")

from sterna.pipeline.matching.layouts import Layout, Matching, match_events
from sterna.pipeline.matching.versions import Versions

__all__ = ["Layout", "Matching", "Versions", "match_events"]
