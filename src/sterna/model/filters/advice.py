"""Advice about filters that are valid, but hardly what their author means."""

from collections.abc import Iterator

from sterna.model.filters.filter import Filter
from sterna.model.filters.tree import (
    Attribute,
    Between,
    Compare,
    Condition,
    Literal,
    Node,
    Value,
    walk,
    write,
)


def advice(filter_: Filter) -> list[str]:
    """Return what its author should look at again, a sentence for each place.

    A name in double quotes on the right side of a comparison is an attribute, as in SQL; most who
    write it mean a string. A name that the filter refers to anywhere else is meant as one.
    """
    found = {id(value): (test, value) for test, value in _suspects(filter_.condition)}
    meant = {
        node.name
        for node in walk(filter_.condition)
        if isinstance(node, Attribute) and id(node) not in found
    }
    return [_sentence(test, value) for test, value in found.values() if value.name not in meant]


def _suspects(condition: Condition) -> Iterator[tuple[Compare | Between, Attribute]]:
    """Names in double quotes where a constant is usual, beside an attribute."""
    for node in walk(condition):
        match node:
            case Compare(_, Attribute(), right):
                values: tuple[Value, ...] = (right,)
            case Between(Attribute(), low, high):
                values = (low, high)
            case _:
                continue
        for value in values:
            if isinstance(value, Attribute) and value.is_quoted:
                yield node, value


def _sentence(test: Compare | Between, value: Attribute) -> str:
    name = '"' + value.name.replace('"', '""') + '"'
    return (
        f"{name} in double quotes is the name of an attribute, not a string; a string is written "
        f"in single quotes: {write(_meant(test))}"
    )


def _meant(test: Compare | Between) -> Node:
    """The test with strings instead of names in double quotes."""

    def meant(value: Value) -> Value:
        return Literal(value.name) if isinstance(value, Attribute) and value.is_quoted else value

    match test:
        case Compare(sign, left, right):
            return Compare(sign, left, meant(right))
        case Between(tested, low, high):
            return Between(tested, meant(low), meant(high))
