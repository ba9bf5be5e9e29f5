"""Which subscriptions an event matches: the index and its compiled kernels."""

from sterna.matching.index import MatchIndex

__all__ = ["MatchIndex"]
