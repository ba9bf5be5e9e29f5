"""The ranges of the integers in messages.

A message declares them with the types of its fields, and its decoder holds what comes over a
connection to them (`sterna.wire.ranges`). What is read from a log or a snapshot is not: an earlier
release may have taken more.
"""

from typing import Annotated, NamedTuple

INT_MIN, INT_MAX = -(2**63), 2**63 - 1


class Range(NamedTuple):
    """The least and the greatest integer that a field may hold."""

    low: int
    high: int


DURATION_MAX_US = 2**53
"""The longest time that a message may state, in microseconds: 285 years. Sums of a few such times
are far from what can be encoded."""

Number = Annotated[int, Range(0, INT_MAX)]
"""A count, or a number that counts up."""

VISIT_MAX = 2**64 - 2**32
"""Visits and sessions have smaller numbers, so that one more always fits into 64 bits."""

Visit = Annotated[int, Range(0, VISIT_MAX)]
"""The number of a visit, or of a session: the upper half of its 64 bits comes from a clock."""

Instant = Annotated[int, Range(INT_MIN, INT_MAX)]
"""A point in time, in microseconds."""

Duration = Annotated[int, Range(0, DURATION_MAX_US)]
"""A length of time, in microseconds."""

Digest = Annotated[int, Range(0, 2**64 - 1)]
"""64 bits that stand for something larger."""
