"""The filter language: text, tree, meaning, algebra, and the same filter for Spark."""

from sterna.model.filters.errors import FilterError, UnboundError
from sterna.model.filters.filter import Filter, merge

__all__ = ["Filter", "FilterError", "UnboundError", "merge"]
