"""`Filter`: what a subscriber wants, as text, as a test for events, and as a set of events."""

import math
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sterna.extras import require
from sterna.model.event import Scalar, plain_scalar
from sterna.model.filters import algebra, tree, widening
from sterna.model.filters.compiler import CompiledTest, compile_condition
from sterna.model.filters.effort import Effort
from sterna.model.filters.errors import FilterError, UnboundError
from sterna.model.filters.logic import Verdict, evaluate
from sterna.model.filters.normal_form import (
    ANYTHING,
    NormalForm,
    TooComplex,
    normal_form,
    usual_form,
)
from sterna.model.filters.parser import DEPTH_MAX, LENGTH_MAX, MEMBERS_MAX, parse
from sterna.model.filters.wording import in_words
from sterna.model.location import LocationSpace
from sterna.model.once import once

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


class Filter:
    """A condition on the attributes of events.

    >>> parking = Filter("service = 'parking' AND price <= 3")
    >>> parking.matches({"service": "parking", "price": 2.5})
    True

    Filters are immutable; two are equal if they have the same words, whatever the spacing, the case
    of keywords and needless parentheses. `str()` gives text that parses back to an equal filter,
    unless merging or binding has made more of it than the parser accepts: see `is_readable`.
    """

    def __init__(self, text: str) -> None:
        self._condition = parse(text)

    @classmethod
    def from_condition(cls, condition: tree.Condition) -> "Filter":
        """A filter from a tree built in Python."""
        made = cls.__new__(cls)
        made._condition = condition
        return made

    @classmethod
    def from_normal_form(cls, terms: NormalForm) -> "Filter":
        """A filter that matches where one of these terms does."""
        made = cls.from_condition(in_words(terms))
        made.normal_form = terms  # However many there are, they are known already.
        return made

    @classmethod
    def stored(cls, text: str) -> "Filter":
        """A filter from the text that `str()` gave for it, however long merging has made it."""
        return cls.from_condition(parse(text, length_max=sys.maxsize))

    @property
    def condition(self) -> tree.Condition:
        """The filter as a tree."""
        return self._condition

    def __str__(self) -> str:
        return self._text

    @once
    def _text(self) -> str:
        return tree.write(self._condition)

    @once
    def is_readable(self) -> bool:
        """Whether its text can be parsed again, by every node that gets it.

        Filters that were parsed are. One that was made from others may be too long or too deep.
        """
        return len(self._text) <= LENGTH_MAX and tree.depth(self._condition) <= DEPTH_MAX

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Filter) and self._condition == other._condition)

    def __hash__(self) -> int:
        return self._hash

    @once
    def _hash(self) -> int:
        return hash(self._condition)

    def __reduce__(self) -> tuple[object, tuple[tree.Condition]]:
        return Filter.from_condition, (self._condition,)

    def __and__(self, other: "Filter") -> "Filter":
        return _composed(tree.conjunction([self._condition, other._condition]))

    def __or__(self, other: "Filter") -> "Filter":
        return _composed(tree.disjunction([self._condition, other._condition]))

    def __invert__(self) -> "Filter":
        return _composed(tree.negation(self._condition))

    def prepare(self) -> None:
        """Find out now all that takes long and is kept, so that nobody waits for it later."""
        hash(self)
        if self.is_readable and self.is_bound and self.normal_form != (ANYTHING,):
            _ = self.matches

    # ---- Events

    @once
    def attributes(self) -> tuple[str, ...]:
        """The attributes it refers to, in order of appearance."""
        return tree.attributes(self._condition)

    @once
    def effort(self) -> Effort:
        """What it may take to test an event."""
        return Effort.of(self._condition)

    @once
    def matches(self) -> CompiledTest:
        """`matches(attributes)`: whether the filter is TRUE for an event's attributes.

        Compiled on first use. A missing attribute (or None) is NULL; a value that is neither bool,
        int, float nor str raises TypeError.
        """
        self.require_bound()
        return compile_condition(self._condition)

    def verdict(self, attributes: Mapping[str, Scalar | None]) -> Verdict:
        """TRUE, FALSE or None for UNKNOWN. Slower than `matches`."""
        self.require_bound()
        plain = {name: plain_scalar(name, attributes.get(name)) for name in self.attributes}
        return evaluate(self._condition, plain)

    def to_spark(self, schema: "StructType") -> "Column":
        """The filter as a Spark column over rows of this schema: true, false or null (UNKNOWN).

        Each attribute is looked up as a column; see `sterna.model.filters.spark` for the types.
        """
        require("pipeline", "a filter for Spark", "pyspark")
        from sterna.model.filters.spark import to_column  # noqa: PLC0415 - Spark is optional.

        self.require_bound()
        return to_column(self._condition, schema)

    # ---- Sets of events

    @once
    def normal_form(self) -> NormalForm | None:
        """The alternatives the algebra works on; None beyond its limits."""
        usual = usual_form(self._condition)
        if usual is not None:
            return usual
        self.require_bound()
        try:
            return normal_form(self._condition)
        except TooComplex:
            return None

    def covers(self, other: "Filter", work: algebra.Work | None = None) -> bool:
        """Whether every event that matches the other matches this one; False when not sure.

        With `work`, several questions have a limit together.
        """
        return self.covers_verdict(other, work) is True

    def overlaps(self, other: "Filter", work: algebra.Work | None = None) -> bool:
        """Whether some event matches both; True when not sure.

        With `work`, several questions have a limit together.
        """
        return self.overlaps_verdict(other, work) is not False

    def covers_verdict(self, other: "Filter", work: algebra.Work | None = None) -> Verdict:
        """Like `covers`, with None when not sure."""
        mine, theirs = self.normal_form, other.normal_form
        if self._condition == other._condition or mine == (ANYTHING,) or theirs == ():
            return True
        return None if mine is None or theirs is None else algebra.covers(mine, theirs, work)

    def overlaps_verdict(self, other: "Filter", work: algebra.Work | None = None) -> Verdict:
        """Like `overlaps`, with None when not sure."""
        mine, theirs = self.normal_form, other.normal_form
        if mine == () or theirs == ():
            return False
        return None if mine is None or theirs is None else algebra.overlaps(mine, theirs, work)

    # ---- Context: what depends on the client

    @once
    def variables(self) -> tuple[str, ...]:
        """The context variables it refers to (`$budget`), in order of appearance."""
        found = (
            node.name for node in tree.walk(self._condition) if isinstance(node, tree.Variable)
        )
        return tuple(dict.fromkeys(found))

    @once
    def uses_myloc(self) -> bool:
        """Whether it depends on the client's location."""
        return any(isinstance(node, tree.InMyloc) for node in tree.walk(self._condition))

    @once
    def is_bound(self) -> bool:
        """Whether nothing in it depends on a client any more."""
        return not any(
            isinstance(node, tree.Variable | tree.InMyloc) for node in tree.walk(self._condition)
        )

    def bind(
        self,
        variables: Mapping[str, Scalar] | None = None,
        *,
        location: str | None = None,
        space: LocationSpace | None = None,
        steps: int = 0,
    ) -> "Filter":
        """The filter for a client in a given context.

        `$name` is replaced by its value and `myloc(n)` by the locations at most `n + steps` steps
        from `location`; a broker far from the client adds steps (Fiege et al. 2003, section 5).
        What is not given stays as it is.
        """
        bound = self._bind_variables(variables or {})
        if location is None:
            return bound
        if space is None:
            raise UnboundError("a location has a meaning only in a space: give space=… as well")
        places: LocationSpace = space

        def here(node: tree.Node) -> tree.Node:
            if not isinstance(node, tree.InMyloc):
                return node
            reach = sorted(places.ploc(location, node.steps + steps))
            if len(reach) > MEMBERS_MAX:
                raise UnboundError(
                    f"{len(reach):,} locations lie within {node.steps + steps} steps of "
                    f"{location!r}; {MEMBERS_MAX:,} are the limit"
                )
            return tree.In(node.value, tuple(tree.Literal(place) for place in reach))

        return Filter.from_condition(tree.transform(bound._condition, here))  # type: ignore[arg-type]

    def widen(self, ranges: Mapping[str, widening.Range]) -> "Filter":
        """A filter without variables that matches whatever this one may match.

        Each variable may take any value from the lowest to the highest of its range, and any value
        at all if none is given. `myloc` stays as it is.
        """
        fixed = {name: low for name, (low, high) in ranges.items() if low == high}
        bound = self._bind_variables(fixed)
        return Filter.from_condition(widening.over_ranges(bound._condition, ranges))

    def around(self, location: str, space: LocationSpace, steps: int) -> "Filter":
        """A filter without `myloc` that matches whatever this one may match.

        The client is at most so many steps from the location. LocationError or UnboundError if that
        is more than a filter can hold. Unlike in `bind`, steps also widen what is negated.
        """

        def reach(within: int) -> tuple[str, ...]:
            found = space.ploc(location, within + steps)
            if len(found) > MEMBERS_MAX:
                raise UnboundError(
                    f"{len(found):,} locations lie within {within + steps} steps of "
                    f"{location!r}; {MEMBERS_MAX:,} are the limit"
                )
            return tuple(sorted(found))

        return Filter.from_condition(widening.over_places(self._condition, reach))

    @once
    def anywhere(self) -> "Filter":
        """A filter without `myloc` that matches whatever this one may, wherever the client is."""
        return Filter.from_condition(widening.over_places(self._condition, None))

    def _bind_variables(self, variables: Mapping[str, Scalar]) -> "Filter":
        if not set(variables) & set(self.variables):
            return self
        literals = {}
        for name in self.variables:
            if name in variables:
                value = plain_scalar(f"${name}", variables[name])
                if value is None or (isinstance(value, float) and not math.isfinite(value)):
                    raise UnboundError(f"${name} cannot be {value}: a filter needs a finite value")
                literals[name] = tree.Literal(value)

        def filled(node: tree.Node) -> tree.Node:
            return literals.get(node.name, node) if isinstance(node, tree.Variable) else node

        text = tree.write(tree.transform(self._condition, filled))
        try:
            return Filter(text)  # The parser knows what is allowed where.
        except FilterError as error:
            given = ", ".join(f"${name} = {tree.write(value)}" for name, value in literals.items())
            problem = f"with {given}: {error.problem}"
            raise FilterError(problem, text, error.position, error.width) from None

    def require_bound(self) -> None:
        """Raise UnboundError if something in it still depends on a client."""
        if not self.is_bound:
            open_names = [f"${name}" for name in self.variables] + ["myloc"] * self.uses_myloc
            raise UnboundError(
                f"the filter depends on {', '.join(open_names)}: bind() it to a context first"
            )


def merge(filters: Iterable[Filter], *, exact: bool = True) -> Filter:
    """One filter that covers all of them.

    With `exact` it matches what at least one of them matches, nothing else, in as few alternatives
    as perfect merging gives. Without, it may match more: filters that constrain the same attributes
    become one conjunction in which each attribute takes any value that some input accepts. A merge
    of very many or very long filters may be more than the parser accepts: ask `is_readable`.
    """
    distinct = list(dict.fromkeys(filters))
    forms = [filter_.normal_form for filter_ in distinct]
    simple = [form for form in forms if form is not None]
    terms = algebra.merge_exactly(simple) if exact else algebra.merge_widely(simple)
    intact = [f.condition for f, form in zip(distinct, forms, strict=True) if form is None]
    if intact:
        return Filter.from_condition(
            tree.disjunction([*([in_words(terms)] if terms else []), *intact])
        )
    return Filter.from_normal_form(terms)


def _composed(condition: tree.Condition) -> Filter:
    if tree.depth(condition) > DEPTH_MAX:
        raise ValueError(f"conditions nested more than {DEPTH_MAX} deep; combine fewer filters")
    return Filter.from_condition(condition)
