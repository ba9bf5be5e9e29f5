"""The typed tree of a filter, and how it is written as text."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, get_args

from sterna.model.event import Scalar
from sterna.model.filters.errors import UnboundError

KEYWORDS: Final = frozenset(
    {
        *("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"),
        *("MATCHES", "MYLOC"),
    }
)

OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""The comparison that is TRUE exactly where the other is FALSE."""

MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""The comparison with its two sides exchanged."""


# ---- Values: what a comparison compares.


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant. `1`, `1.0` and TRUE are three different literals."""

    value: Scalar

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal)
            and type(self.value) is type(other.value)
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of the event; NULL when the event lacks it."""

    name: str
    is_quoted: bool = field(default=False, compare=False, repr=False, kw_only=True)
    """Whether its name was in double quotes, which other languages take for a string."""


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name`: a context variable of the client, replaced by `bind` before evaluation."""

    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """`-value`."""

    operand: "Value"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left + right`, and `-`, `*`, `/`."""

    operator: str
    left: "Value"
    right: "Value"


Value = Literal | Attribute | Variable | Negative | Arithmetic
Constant = Literal | Variable
"""A value that is fixed once the filter is bound."""


# ---- Conditions: TRUE, FALSE or UNKNOWN for an event.


@dataclass(frozen=True, slots=True)
class Always:
    """`TRUE` or `FALSE`."""

    verdict: bool


@dataclass(frozen=True, slots=True)
class Holds:
    """A boolean attribute that is a condition of its own."""

    value: Attribute | Variable


@dataclass(frozen=True, slots=True)
class Compare:
    """`left = right`, and `<>`, `<`, `<=`, `>`, `>=`."""

    operator: str
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Between:
    """`value BETWEEN low AND high`, both ends included."""

    value: Value
    low: Value
    high: Value

    def bounds(self) -> "And":
        """The equivalent pair of comparisons."""
        return And(
            (comparison(">=", self.value, self.low), comparison("<=", self.value, self.high))
        )


@dataclass(frozen=True, slots=True)
class In:
    """`value IN (member, …)`; the members are all strings, all numbers or all booleans."""

    value: Value
    members: tuple[Constant, ...]

    def constants(self) -> list[Scalar]:
        """The members, once they are bound."""
        return [_bound(member) for member in self.members]


@dataclass(frozen=True, slots=True)
class InMyloc:
    """`value IN myloc(steps)`: the places at most so many steps from where the client is."""

    value: Attribute
    steps: int


@dataclass(frozen=True, slots=True)
class Like:
    """`value LIKE 'pattern'`: `%` is any text, `_` any one character."""

    value: Attribute
    pattern: str
    escape: str | None = None


@dataclass(frozen=True, slots=True)
class Matches:
    """`value MATCHES 'topic/+/filter/#'`, by the rules of MQTT."""

    value: Attribute
    topic: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """`value IS NULL`: never UNKNOWN."""

    value: Attribute


@dataclass(frozen=True, slots=True)
class Near:
    """`near(lat, lon, latitude, longitude, metres)`: within a great-circle distance."""

    lat: Attribute
    lon: Attribute
    latitude: Constant
    longitude: Constant
    metres: Constant

    def circle(self) -> tuple[tuple[float, float], float]:
        """The centre and the radius, once they are bound."""
        parts = (self.latitude, self.longitude, self.metres)
        latitude, longitude, metres = (float(_bound(part)) for part in parts)
        return (latitude, longitude), metres


@dataclass(frozen=True, slots=True)
class Within:
    """`within(lat, lon, lat1, lon1, lat2, lon2, …)`.

    Two corners (south-west, north-east) span a box; three or more are the corners of a polygon.
    """

    lat: Attribute
    lon: Attribute
    corners: tuple[tuple[float, float], ...]

    def box(self) -> "Condition":
        """The box written with comparisons; west > east crosses the antimeridian."""
        (south, west), (north, east) = self.corners
        bounds = Literal(west), Literal(east)
        inside: Condition = Between(self.lon, *bounds)
        if west > east:
            inside = Or((Compare(">=", self.lon, bounds[0]), Compare("<=", self.lon, bounds[1])))
        return And((Between(self.lat, Literal(south), Literal(north)), inside))


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple["Condition", ...]


Test = Always | Holds | Compare | Between | In | InMyloc | Like | Matches | IsNull | Near | Within
"""A condition without conditions inside."""
Condition = Test | Not | And | Or
Node = Value | Condition


def _bound(constant: Constant) -> Scalar:
    if isinstance(constant, Variable):
        raise UnboundError(f"the filter refers to ${constant.name}: bind it to a value first")
    return constant.value


# ---- Building


def comparison(sign: str, left: Value, right: Value) -> Compare:
    """`left sign right`, with a constant on the right."""
    if isinstance(left, Literal) and not isinstance(right, Literal):
        return Compare(MIRRORED[sign], right, left)
    return Compare(sign, left, right)


def conjunction(conditions: list[Condition]) -> Condition:
    return _flat(And, conditions, Always(verdict=True))


def disjunction(conditions: list[Condition]) -> Condition:
    return _flat(Or, conditions, Always(verdict=False))


def negation(condition: Condition) -> Condition:
    """NOT condition; a double negation is none (also in three-valued logic)."""
    return condition.operand if isinstance(condition, Not) else Not(condition)


def _flat(kind: type[And] | type[Or], conditions: list[Condition], empty: Condition) -> Condition:
    operands: list[Condition] = []
    for condition in conditions:
        if isinstance(condition, kind):
            operands += condition.operands
        else:
            operands.append(condition)
    if not operands:
        return empty
    return operands[0] if len(operands) == 1 else kind(tuple(operands))


# ---- Walking


_NODES: Final = frozenset(get_args(Node))


def children(node: Node) -> list[Node]:
    """The nodes directly below, from left to right."""
    below: list[Node] = []
    for name in node.__match_args__:
        part = getattr(node, name)
        if type(part) in _NODES:
            below.append(part)
        elif type(part) is tuple and part and type(part[0]) in _NODES:
            below += part
    return below


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def depth(node: Node) -> int:
    """The depth of the nesting, as the parser finds it in the text of the node."""
    match node:
        case And(operands) | Or(operands):
            return 1 + max(map(depth, operands))
        case Not(Between() | In() | InMyloc() | Like() | Matches() | IsNull() as test):
            return depth(test)  # The NOT is a part of the test.
        case Literal(value):
            return 2 if _is_negative(value) else 1
        case In(value):
            return 1 + depth(value)  # However many members there are, they are constants.
        case Always() | Holds() | Near() | Within():
            return 1
    return 1 + max(map(depth, children(node)), default=0)


def transform(node: Node, change: Callable[[Node], Node]) -> Node:
    """The tree with `change` applied to every node, bottom up."""
    new: dict[str, object] = {}
    for name in node.__match_args__:
        part = getattr(node, name)
        if type(part) in _NODES:
            new[name] = transform(part, change)
        elif type(part) is tuple and part and type(part[0]) in _NODES:
            new[name] = tuple(transform(member, change) for member in part)
    return change(replace(node, **new) if new else node)  # type: ignore[arg-type]


def attributes(node: Node) -> tuple[str, ...]:
    """The names of the attributes it refers to, in order of appearance."""
    return tuple(dict.fromkeys(n.name for n in walk(node) if isinstance(n, Attribute)))


# ---- Writing

_LOOSEST, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _TIGHTEST = range(7)


def write(node: Node, around: int = _LOOSEST) -> str:
    """The node as text, in parentheses where its context binds tighter."""
    text, binding = _written(node)
    return f"({text})" if binding < around else text


def _written(node: Node) -> tuple[str, int]:
    match node:
        case Literal(value):
            return write_scalar(value), _PRODUCT if _is_negative(value) else _TIGHTEST
        case Attribute(name):
            return write_name(name), _TIGHTEST
        case Variable(name):
            return f"${name}", _TIGHTEST
        case Negative(operand):
            return f"-{write(operand, _TIGHTEST)}", _PRODUCT
        case Arithmetic(operator, left, right):
            binding = _SUM if operator in "+-" else _PRODUCT
            return f"{write(left, binding)} {operator} {write(right, binding + 1)}", binding
        case Always(verdict):
            return ("TRUE" if verdict else "FALSE"), _TIGHTEST
        case Holds(value):
            return write(value), _TIGHTEST
        case Or(operands):
            return " OR ".join(write(operand, _AND) for operand in operands), _LOOSEST
        case And(operands):
            return " AND ".join(write(operand, _NOT) for operand in operands), _AND
        case Not(operand):
            if isinstance(operand, Between | In | InMyloc | Like | Matches | IsNull):
                return _write_test(operand, "NOT "), _COMPARISON
            return f"NOT {write(operand, _COMPARISON)}", _NOT
        case Near(lat, lon, latitude, longitude, metres):
            parts = ", ".join(write(part) for part in (lat, lon, latitude, longitude, metres))
            return f"near({parts})", _TIGHTEST
        case Within(lat, lon, corners):
            points = ", ".join(f"{write_scalar(a)}, {write_scalar(b)}" for a, b in corners)
            return f"within({write(lat)}, {write(lon)}, {points})", _TIGHTEST
        case _:
            return _write_test(node, ""), _COMPARISON


def _write_test(
    node: Compare | Between | In | InMyloc | Like | Matches | IsNull, negated: str
) -> str:
    match node:
        case Compare(operator, left, right):
            return f"{write(left, _SUM)} {operator} {write(right, _SUM)}"
        case Between(value, low, high):
            bounds = f"{write(low, _SUM)} AND {write(high, _SUM)}"
            return f"{write(value, _SUM)} {negated}BETWEEN {bounds}"
        case In(value, members):
            listed = ", ".join(write(member) for member in members)
            return f"{write(value, _SUM)} {negated}IN ({listed})"
        case InMyloc(value, steps):
            return f"{write(value)} {negated}IN myloc" + (f"({steps})" if steps else "")
        case Like(value, pattern, escape):
            tail = f" ESCAPE {write_scalar(escape)}" if escape is not None else ""
            return f"{write(value)} {negated}LIKE {write_scalar(pattern)}{tail}"
        case Matches(value, topic):
            return f"{write(value)} {negated}MATCHES {write_scalar(topic)}"
        case IsNull(value):
            return f"{write(value)} IS {negated}NULL"


def _is_negative(value: Scalar) -> bool:
    """Whether a constant is written with a sign."""
    return not isinstance(value, bool | str) and str(value).startswith("-")


def write_scalar(value: Scalar) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def write_name(name: str) -> str:
    plain = all(part.isidentifier() for part in name.split("."))
    if plain and name.isascii() and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'
