"""The disjunctive normal form: a filter as alternatives, each a set of values per attribute.

A `Term` is a conjunction: for each attribute it constrains, the `ValueSet` it accepts, and a list
of *residual* conditions that value sets cannot express (arithmetic, two attributes compared,
patterns with wildcards inside, circles and polygons). What a residual implies for single attributes
is among the constraints, so a term is never narrower than what it represents, and exact without
residuals.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from sterna.model import geo
from sterna.model.filters import logic, patterns, values
from sterna.model.filters.errors import UnboundError
from sterna.model.filters.tree import (
    MIRRORED,
    OPPOSITE,
    Always,
    And,
    Arithmetic,
    Attribute,
    Between,
    Compare,
    Condition,
    Holds,
    In,
    IsNull,
    Like,
    Literal,
    Matches,
    Near,
    Negative,
    Not,
    Or,
    Test,
    Value,
    Within,
    attributes,
    comparison,
    negation,
    walk,
    write,
)
from sterna.model.filters.values import ALL, ValueSet

TERMS_MAX = 64
"""How many alternatives a normal form may have. A filter with more gets none, and the algebra then
gives its safe answers. IN lists and ORs over one attribute count as a single alternative."""

RESIDUALS_MAX = 32
"""How many residual conditions a term may have."""

WORK_MAX = 1_000_000
"""How many cuts and residuals may be handled for one normal form; this bounds the time."""

CONTAINMENT_MAX = 200_000
"""Up to this product of the number and total size of terms, contained ones are searched for."""


class TooComplex(Exception):  # noqa: N818 - a limit, not a fault.
    """The normal form would exceed its limits."""


class Term:
    """One alternative: accepted values per attribute, and residual conditions."""

    __slots__ = ("_key", "constraints", "residuals", "size")

    def __init__(
        self, constraints: Mapping[str, ValueSet], residuals: tuple[Condition, ...] = ()
    ) -> None:
        self.constraints = {
            name: accepted for name, accepted in constraints.items() if accepted.cuts != ALL.cuts
        }
        self.residuals = residuals
        self.size = 1 + len(residuals) + sum(len(v.cuts) for v in self.constraints.values())
        """The cost of handling the term: its number of cuts and residuals."""
        self._key: object = None

    @property
    def key(self) -> object:
        """A key that is equal for equal terms."""
        if self._key is None:
            self._key = (frozenset(self.constraints.items()), frozenset(self.residuals))
        return self._key

    def key_without(self, name: str) -> object:
        """A key that is equal for terms that differ in this attribute only."""
        others = frozenset(item for item in self.constraints.items() if item[0] != name)
        return others, frozenset(self.residuals)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Term) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Term({self.constraints}, {self.residuals})"

    def accepts(self, name: str) -> ValueSet:
        return self.constraints.get(name, ALL)

    def meets(self, other: "Term") -> bool:
        """Whether both can hold at once; True when not sure."""
        for name, accepted in self.constraints.items():
            if name in other.constraints and not accepted.overlaps(other.constraints[name]):
                return False
        if not self.residuals or not other.residuals:
            return True
        return not _contradictory(self.residuals + other.residuals)

    def meet(self, other: "Term") -> "Term | None":
        """The conjunction of both; None if it is impossible."""
        constraints = dict(self.constraints)
        for name, accepted in other.constraints.items():
            both = constraints[name] & accepted if name in constraints else accepted
            if not both:
                return None
            constraints[name] = both
        if not other.residuals:
            return Term(constraints, self.residuals)
        residuals = tuple(dict.fromkeys(self.residuals + other.residuals))
        return None if _contradictory(residuals) else Term(constraints, residuals)

    def contains(self, other: "Term") -> bool:
        """Whether everything the other accepts is accepted here; False when not sure."""
        theirs = other.constraints
        return (
            self.constraints.keys() <= theirs.keys()
            and all(theirs[name] <= accepted for name, accepted in self.constraints.items())
            and self.implied_by(other)
        )

    def implied_by(self, other: "Term") -> bool:
        """Whether the other's residuals guarantee all of these."""
        return all(
            any(_implies(theirs, mine) for theirs in other.residuals) for mine in self.residuals
        )

    def without(self, other: "Term") -> "Iterator[Term]":
        """What is left of this term outside the other, in disjoint pieces.

        Only valid if `other.implied_by(self)`: residuals are not cut.
        """
        rest = self.constraints
        for name, accepted in other.constraints.items():
            here = rest.get(name, ALL)
            outside = here - accepted
            if outside:
                yield Term({**rest, name: outside}, self.residuals)
            inside = here & accepted
            if not inside:
                return
            rest = {**rest, name: inside}


NormalForm = tuple[Term, ...]
ANYTHING = Term({})


def normal_form(condition: Condition) -> NormalForm:
    """The terms of a condition; no terms at all means that nothing can match.

    Raises `TooComplex` beyond `TERMS_MAX` terms.
    """
    return _Expansion().terms(condition, wanted=True)


def usual_form(condition: Condition) -> NormalForm | None:
    """A faster normal form, for tests against constants on different attributes: most filters."""
    tests = condition.operands if isinstance(condition, And) else (condition,)
    constraints: dict[str, ValueSet] = {}
    for test in tests:
        found = against_constants(test)
        if found is None:
            return None
        name, accepted = found
        if name in constraints or not accepted:
            return None
        constraints[name] = accepted
    return (Term(constraints),)


def against_constants(test: Condition) -> tuple[str, ValueSet] | None:
    """The attribute and the values for which a test is TRUE, if the test is no more than that."""
    match test:
        case Compare(sign, Attribute(name), Literal(constant)):
            return name, values.comparison(sign, constant)
        case Between(Attribute(name), Literal(low), Literal(high)):
            return name, values.between(low, high)
        case In(Attribute(name), members) if all(type(member) is Literal for member in members):
            return name, values.members(test.constants())
    return None


def implied(residual: Condition) -> Term:
    """What a residual condition implies for single attributes."""
    (term,) = normal_form(residual)
    return term


def simplify(terms: Iterable[Term]) -> NormalForm:
    """Equivalent alternatives in fewer terms.

    Terms that differ in one attribute only become one (this is exact: perfect merging), and terms
    inside another are dropped.
    """
    kept = list(dict.fromkeys(terms))
    before = 0
    while before != len(kept) > 1:
        before = len(kept)
        kept = _merged(kept)
    # Comparing all with all pays only while it is cheap.
    if len(kept) > 1 and len(kept) * _size(kept) <= CONTAINMENT_MAX:
        kept = _without_contained(kept)
    return tuple(kept)


def _merged(terms: list[Term]) -> list[Term]:
    """One pass over all attributes, uniting terms that are equal in everything else."""
    alive = dict(enumerate(terms))
    holders: dict[str, list[int]] = {}
    for place, term in alive.items():
        for name in term.constraints:
            holders.setdefault(name, []).append(place)
    for name, places in sorted(holders.items()):
        groups: dict[object, list[int]] = {}
        for place in places:
            if place in alive:
                groups.setdefault(alive[place].key_without(name), []).append(place)
        for first, *others in groups.values():
            if others:
                group = [alive[first], *(alive.pop(other) for other in others)]
                united = values.union(term.accepts(name) for term in group)
                alive[first] = Term({**group[0].constraints, name: united}, group[0].residuals)
    return list(alive.values())


def _without_contained(terms: list[Term]) -> list[Term]:
    kept: list[Term] = []
    for term in terms:
        if not any(other.contains(term) for other in kept):
            kept = [other for other in kept if not term.contains(other)]
            kept.append(term)
    return kept


def _size(terms: Iterable[Term]) -> int:
    return sum(term.size for term in terms)


class _Expansion:
    """From a tree to terms; NOT is pushed down to the single tests on the way."""

    def __init__(self) -> None:
        self.work = 0

    def terms(self, node: Condition, *, wanted: bool) -> NormalForm:
        """The terms for which the condition is TRUE (or FALSE, if that is wanted)."""
        match node:
            case Not(operand):
                return self.terms(operand, wanted=not wanted)
            case And(operands) | Or(operands):
                parts = [self.terms(operand, wanted=wanted) for operand in operands]
                if isinstance(node, And) is wanted:
                    return self._all_of(parts)
                return self._simplified(tuple(term for part in parts for term in part))
        return self._test(node, wanted=wanted)

    def _all_of(self, parts: list[NormalForm]) -> NormalForm:
        if all(len(part) == 1 for part in parts):
            return self._conjoined([term for (term,) in parts])
        while len(parts) > 1:  # Pairwise, so that long conjunctions stay cheap.
            parts = [
                self._both(*parts[i : i + 2]) if i + 1 < len(parts) else parts[i]
                for i in range(0, len(parts), 2)
            ]
        return parts[0]

    def _conjoined(self, terms: list[Term]) -> NormalForm:
        """What `_both` gives for single terms, but all at once: most filters are no more."""
        constraints: dict[str, list[ValueSet]] = {}
        residuals: dict[Condition, None] = {}
        for term in terms:
            self._count(term.size)
            for name, accepted in term.constraints.items():
                constraints.setdefault(name, []).append(accepted)
            residuals.update(dict.fromkeys(term.residuals))
        met: dict[str, ValueSet] = {}
        for name, sets in constraints.items():
            met[name] = values.intersection(sets) if len(sets) > 1 else sets[0]
            if not met[name]:
                return ()
        if len(residuals) > RESIDUALS_MAX:
            raise TooComplex
        if len(residuals) > 1 and _contradictory(tuple(residuals)):
            return ()
        return (Term(met, tuple(residuals)),)

    def _both(self, left: NormalForm, right: NormalForm) -> NormalForm:
        self._count(_size(left) * len(right) + _size(right) * len(left))
        met = [a.meet(b) for a, b in product(left, right)]
        possible = tuple(term for term in met if term is not None)
        if any(len(term.residuals) > RESIDUALS_MAX for term in possible):
            raise TooComplex
        return possible if len(possible) <= 1 else self._simplified(possible)

    def _simplified(self, terms: tuple[Term, ...]) -> NormalForm:
        self._count(_size(terms))
        simpler = simplify(terms)
        if len(simpler) > TERMS_MAX:
            raise TooComplex
        return simpler

    def _count(self, work: int) -> None:
        self.work += work
        if self.work > WORK_MAX:
            raise TooComplex

    def _test(self, node: Test, *, wanted: bool) -> NormalForm:
        match node:
            case Always(verdict):
                return _always(holds=verdict is wanted)
            case Holds(Attribute(name)):
                return _one(name, values.comparison("=", wanted))
            case IsNull(Attribute(name)):
                return _one(name, values.NULL if wanted else values.PRESENT)
            case Compare(sign, left, right):
                return self._compare(sign if wanted else OPPOSITE[sign], left, right)
            case Between():
                return self.terms(node.bounds(), wanted=wanted)
            case In(Attribute(name)):
                constants = node.constants()
                found = values.members(constants)
                return _one(name, found if wanted else values.kind(constants[0]) - found)
            case In():
                if not attributes(node):
                    return _always(holds=logic.evaluate(node, {}) is wanted)
                return _residual(node if wanted else negation(node), values.NUMBERS)
            case Like(Attribute(name)):
                return _like(name, node, wanted=wanted)
            case Matches(Attribute(name)):
                return _matches(name, node, wanted=wanted)
            case Near(lat, lon):
                latitudes = _near_latitudes(node) if wanted else _between(-90, 90)
                return _place(node, lat, lon, latitudes, _between(-180, 180), wanted=wanted)
            case Within(lat, lon, corners) if len(corners) > 2:
                bounds_lat, bounds_lon = _between(-90, 90), _between(-180, 180)
                if wanted:  # A rounded crossing may lie a hair outside the corners' longitudes.
                    bounds_lat = _between(min(c[0] for c in corners), max(c[0] for c in corners))
                return _place(node, lat, lon, bounds_lat, bounds_lon, wanted=wanted)
            case Within():
                return self.terms(node.box(), wanted=wanted)
            case _:
                raise UnboundError(f"{write(node)} must be bound first")

    def _compare(self, sign: str, left: Value, right: Value) -> NormalForm:
        test = comparison(sign, left, right)
        if not isinstance(test.right, Literal) and write(test.right) < write(test.left):
            test = Compare(MIRRORED[test.operator], test.right, test.left)  # One form for both.
        match test:
            case Compare(sign, Attribute(name), Literal(constant)):
                return _one(name, values.comparison(sign, constant))
        if not attributes(test):
            return _always(holds=logic.evaluate(test, {}) is True)
        # What arithmetic touches is a number; two attributes that compare are both there.
        numeric = any(isinstance(node, Arithmetic | Negative) for node in walk(test))
        return _residual(test, values.NUMBERS if numeric else values.COMPARABLE)


def _always(*, holds: bool) -> NormalForm:
    return (ANYTHING,) if holds else ()


def _residual(condition: Condition, possible: ValueSet) -> NormalForm:
    return (Term(dict.fromkeys(attributes(condition), possible), (condition,)),)


def _one(name: str, accepted: ValueSet) -> NormalForm:
    return (Term({name: accepted}),) if accepted else ()


def _like(name: str, node: Like, *, wanted: bool) -> NormalForm:
    segments = patterns.like_segments(node.pattern, node.escape)
    prefix, complete = patterns.like_prefix(segments)
    exact: ValueSet | None = None
    if complete:
        exact = values.starting_with(prefix)
    elif len(segments) == 1 and None not in segments[0]:
        exact = values.members([prefix])
    return _string(name, node, exact, values.starting_with(prefix), wanted=wanted)


def _matches(name: str, node: Matches, *, wanted: bool) -> NormalForm:
    levels = node.topic.split("/")
    exact: ValueSet | None = None
    if not {"+", "#"} & set(levels):
        exact = possible = values.members([node.topic])
    elif levels == ["#"]:
        exact = possible = values.STRINGS - values.starting_with("$")
    elif levels[-1] == "#" and "+" not in levels:
        parent = "/".join(levels[:-1])
        exact = possible = values.members([parent]) | values.starting_with(parent + "/")
    else:
        possible = values.starting_with(patterns.topic_prefix(node.topic))
        if levels[0] == "+":
            possible = possible - values.starting_with("$")
    return _string(name, node, exact, possible, wanted=wanted)


def _string(
    name: str, node: Like | Matches, exact: ValueSet | None, possible: ValueSet, *, wanted: bool
) -> NormalForm:
    if exact is not None:
        return _one(name, exact if wanted else values.STRINGS - exact)
    if wanted:
        return (Term({name: possible}, (node,)),)
    return (Term({name: values.STRINGS}, (negation(node),)),)


def _place(
    node: Near | Within,
    lat: Attribute,
    lon: Attribute,
    lats: ValueSet,
    lons: ValueSet,
    *,
    wanted: bool,
) -> NormalForm:
    where = Term({lat.name: lats}).meet(Term({lon.name: lons}))
    if where is None:
        return ()
    return (Term(where.constraints, (node if wanted else negation(node),)),)


def _near_latitudes(node: Near) -> ValueSet:
    (latitude, _), metres = node.circle()
    reach = geo.latitude_reach(metres) + 1e-9  # Wider than the test itself, which rounds otherwise.
    return _between(max(-90.0, latitude - reach), min(90.0, latitude + reach))


def _between(low: float, high: float) -> ValueSet:
    return values.comparison(">=", low) & values.comparison("<=", high)


# ---- Residuals


def _implies(given: Condition, wanted: Condition) -> bool:
    if given == wanted:
        return True
    match given, wanted:
        case Matches(Attribute(a), narrow), Matches(Attribute(b), wide):
            return a == b and patterns.topic_covers(wide, narrow)
        case Not(Matches(Attribute(a), wide)), Not(Matches(Attribute(b), narrow)):
            return a == b and patterns.topic_covers(wide, narrow)
    return False


def _contradictory(residuals: tuple[Condition, ...]) -> bool:
    """Whether two residuals can never hold together, as far as is easy to see."""
    present = set(residuals)
    for residual in residuals:
        if isinstance(residual, Not) and residual.operand in present:
            return True
        if (
            isinstance(residual, Compare)
            and Compare(OPPOSITE[residual.operator], residual.left, residual.right) in present
        ):
            return True
    topics: dict[str, list[str]] = {}
    for residual in residuals:
        if isinstance(residual, Matches):
            topics.setdefault(residual.value.name, []).append(residual.topic)
    return any(
        not patterns.topics_overlap(a, b)
        for group in topics.values()
        for a, b in product(group, group)
    )
