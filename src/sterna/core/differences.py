"""What somebody has to be told who knows something already."""

from collections.abc import Mapping
from typing import Any, TypeVar

K = TypeVar("K")


def difference(
    known: Mapping[K, Any], wanted: Mapping[K, Any]
) -> tuple[tuple[K, ...], tuple[K, ...]]:
    """The names of what is new or has another value, and of what is there no more."""
    missing = object()
    added = tuple([name for name, value in wanted.items() if known.get(name, missing) != value])
    return added, tuple([name for name in known if name not in wanted])
