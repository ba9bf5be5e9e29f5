"""What it takes to test events, so that nobody waits too long for it."""

from typing import NamedTuple, get_args

from sterna.model.filters.tree import Arithmetic, Condition, Like, Matches, Negative, Test, walk


class Effort(NamedTuple):
    """What testing an event may take."""

    tests: int
    """How many comparisons, calculations and the like."""
    readings: int
    """How many of them may read a text to its end, so that they take the longer, the longer it is.
    """

    @classmethod
    def of(cls, condition: Condition) -> "Effort":
        """What a condition takes."""
        kinds = [type(node) for node in walk(condition)]
        return cls(sum(kind in _TESTS for kind in kinds), sum(kind in _READINGS for kind in kinds))

    def plus(self, other: "Effort") -> "Effort":
        """What both take together."""
        return Effort(self.tests + other.tests, self.readings + other.readings)

    def minus(self, other: "Effort") -> "Effort":
        """What is left without the other."""
        return Effort(self.tests - other.tests, self.readings - other.readings)


_TESTS = frozenset((*get_args(Test), Arithmetic, Negative))
_READINGS = frozenset((Like, Matches))

NO_EFFORT = Effort(0, 0)
