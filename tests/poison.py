"""Filters that are legal each by itself, and whose join would be more than a neighbour can read."""

from functools import cache

from sterna.model.filters import Filter


def long_texts(count: int = 16, characters: int = 25_000) -> list[str]:
    """Filters that differ in one attribute, each of about so many characters."""
    lists = [
        ", ".join(f"'{number:02}-{i:07}'" for i in range(characters // 14))
        for number in range(count)
    ]
    return [f"a = 1 AND b IN ({members})" for members in lists]


@cache
def long_filters() -> list[Filter]:
    """16 filters of 25 KB: together they are longer than a filter may be."""
    return [Filter(text) for text in long_texts()]


@cache
def rather_long_filters() -> list[Filter]:
    """9 filters of 10 KB: some of them can be joined."""
    return [Filter(text) for text in long_texts(9, 10_000)]


@cache
def unreadable_together() -> list[Filter]:
    """Short filters whose join is long: each pair of neighbouring values becomes a range.

    A range repeats the name of its attribute, which is long; a list has it once.
    """
    name = "x" * 6_000
    values = ", ".join(f"'{i}'" for i in range(60)), ", ".join(f"'{i}\0'" for i in range(60))
    return [Filter(f"a = 1 AND {name} IN ({each})") for each in values]
