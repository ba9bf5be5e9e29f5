"""Answers about the past go out in parts."""

from collections.abc import Sequence

from sterna.core.sizes import weight
from sterna.model.event import Event


def part_of(answer: Sequence[Event], first: int, bytes_max: int) -> tuple[tuple[Event, ...], int]:
    """The next part of an answer, at least one event if there is one, and about its bytes."""
    size, end = 0, first
    while end < len(answer):
        more = size + weight(answer[end])
        if end > first and more > bytes_max:
            break
        size, end = more, end + 1
    return tuple(answer[first:end]), size
