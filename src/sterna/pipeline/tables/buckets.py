"""How publishers are divided into parts, of which tasks know all that was archived."""

import zlib

BUCKETS = 1024
"""So many parts there are; no more tasks than that share the work."""


def bucket(publisher: str) -> int:
    """The part of a publisher: `crc32` of Spark says the same."""
    return zlib.crc32(publisher.encode()) % BUCKETS
