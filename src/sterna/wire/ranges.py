"""Holds the integers of messages to the ranges that their types declare.

What one node may send every node must be able to read, and to pass on: so the ranges are checked
where a message comes in, and again where it is encoded.
"""

from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from sterna.core.messages import Message
from sterna.model.event import Event
from sterna.model.ranges import Range

Check = Callable[[Any], None]
"""Raises ValueError if a value holds an integer that is out of range."""

Checks = dict[type[Message], Check]
"""The checks of the messages that have one, by type."""


def checks_of(kinds: Sequence[type[Message]]) -> Checks:
    """The checks of messages."""
    checks: Checks = {}

    def check_any(message: Any) -> None:
        check = checks.get(type(message))
        if check is not None:
            check(message)

    for kind in kinds:
        check = _fields_check(kind, check_any)
        if check is not None:
            checks[kind] = check
    return checks


def check_of(kind: type[msgspec.Struct]) -> Check | None:
    """The check of a record that holds no messages; None if it has no ranges."""
    return _fields_check(kind, lambda _: None)


def _check(hint: Any, check_any: Check) -> Check | None:
    """The check of a type; None if every value of it will do."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        ranges = [each for each in arguments[1:] if isinstance(each, Range)]
        return _range_check(*ranges[0]) if ranges else _check(arguments[0], check_any)
    if hint is Message:
        return check_any
    if origin in {Union, UnionType}:
        return _optional_check([each for each in arguments if each is not NoneType], check_any)
    if origin in {tuple, list}:
        return _sequence_check(arguments, check_any)
    if isinstance(hint, type) and not issubclass(hint, Event):  # The decoder checks events itself.
        return _fields_check(hint, check_any)
    return None


def _range_check(low: int, high: int) -> Check:
    def check(value: int) -> None:
        if not low <= value <= high:
            raise ValueError(f"{value} is not between {low} and {high}")

    return check


def _optional_check(kinds: Sequence[Any], check_any: Check) -> Check | None:
    checked = _check(kinds[0], check_any) if len(kinds) == 1 else None
    if checked is None:
        return None
    inner = checked

    def check(value: Any) -> None:
        if value is not None:
            inner(value)

    return check


def _sequence_check(kinds: Sequence[Any], check_any: Check) -> Check | None:
    if len(kinds) == 1 or kinds[1] is Ellipsis:
        checked = _check(kinds[0], check_any)
        if checked is None:
            return None
        inner = checked

        def check_all(values: Any) -> None:
            for value in values:
                inner(value)

        return check_all
    found = [(place, _check(kind, check_any)) for place, kind in enumerate(kinds)]
    checked_places = [(place, each) for place, each in found if each is not None]
    if not checked_places:
        return None

    def check(values: Any) -> None:
        for place, inner in checked_places:
            inner(values[place])

    return check


def _fields_check(kind: type, check_any: Check) -> Check | None:
    """The check of a record or a named tuple."""
    names = getattr(kind, "__struct_fields__", None) or getattr(kind, "_fields", ())
    if not names:
        return None
    hints = get_type_hints(kind, include_extras=True)
    found = [(name, _check(hints[name], check_any)) for name in names]
    checked_fields = [(name, each) for name, each in found if each is not None]
    if not checked_fields:
        return None

    def check(record: Any) -> None:
        for name, inner in checked_fields:
            try:
                inner(getattr(record, name))
            except ValueError as error:
                raise ValueError(f"{kind.__name__}.{name}: {error}") from None

    return check
