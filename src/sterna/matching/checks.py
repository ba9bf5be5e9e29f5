"""Checks: what a record cannot express, tested on an event's attributes when the record holds."""

from collections.abc import Iterator, Mapping

from sterna.model.event import Scalar, plain_scalar
from sterna.model.filters import patterns
from sterna.model.filters.compiler import CompiledTest, compile_condition
from sterna.model.filters.filter import Filter
from sterna.model.filters.long_texts import LongTexts
from sterna.model.filters.normal_form import Term
from sterna.model.filters.tree import Attribute, Condition, Like, Matches, Not
from sterna.model.filters.values import ValueSet

Attributes = Mapping[str, Scalar | None]
Check = CompiledTest


class Checks:
    """All that is left to check for a term: its residuals, and sets that its record leaves open."""

    __slots__ = ("_open", "_ready", "_term")

    def __init__(self, term: Term, left_open: tuple[str, ...]) -> None:
        self._term = term
        self._open = left_open
        self._ready: list[Check] | None = None

    def __reduce__(self) -> tuple[type["Checks"], tuple[Term, tuple[str, ...]]]:
        return Checks, (self._term, self._open)

    def open_sets(self) -> Iterator[tuple[str, ValueSet]]:
        """The attributes and sets of values that are left to check."""
        return ((name, self._term.constraints[name]) for name in self._open)

    def residuals(self) -> tuple[Condition, ...]:
        """The conditions that are left to check."""
        return self._term.residuals

    def __call__(self, attributes: Attributes, known: LongTexts | None = None, /) -> bool:
        if self._ready is None:  # Most rows are never checked.
            self._ready = [_in_set(self._term, name) for name in self._open]
            self._ready += [_residual(residual) for residual in self._term.residuals]
        for check in self._ready:  # noqa: SIM110 - all() costs twice as much.
            if not check(attributes, known):
                return False
        return True


class WholeFilter:
    """A filter without a normal form, tested as a whole."""

    __slots__ = ("_filter",)

    def __init__(self, filter_: Filter) -> None:
        self._filter = filter_

    def __call__(self, attributes: Attributes, known: LongTexts | None = None, /) -> bool:
        return self._filter.matches(attributes, known)


def _in_set(term: Term, name: str) -> Check:
    accepted = term.constraints[name]
    return lambda attributes, _=None: plain_scalar(name, attributes.get(name)) in accepted


def _residual(residual: Condition) -> Check:
    """A test for a condition; where it needs a string, the record has found one."""
    match residual:
        case Like(Attribute(name)) | Matches(Attribute(name)):
            test = _string_test(residual)
            return lambda attributes, known=None: test(_text(name, attributes), known)
        case Not(Like(Attribute(name)) | Matches(Attribute(name)) as pattern):
            test = _string_test(pattern)
            return lambda attributes, known=None: not test(_text(name, attributes), known)
    return compile_condition(residual)


def _text(name: str, attributes: Attributes) -> str:
    value = attributes[name]
    return value if type(value) is str else str(plain_scalar(name, value))


def _string_test(pattern: Like | Matches) -> patterns.StringTest:
    if isinstance(pattern, Matches):
        return patterns.topic_test(pattern.topic)
    return patterns.like_test(patterns.like_segments(pattern.pattern, pattern.escape))
