"""Filter text to tree, or one `FilterError` that says what is wrong and where."""

import math
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple, NoReturn

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from sterna.model.event import INT_MAX, INT_MIN
from sterna.model.filters import patterns
from sterna.model.filters.errors import FilterError
from sterna.model.filters.plain_tests import plain_conjunction
from sterna.model.filters.syntax_errors import (
    shown,
    single_quotes_hint,
    unexpected_character,
    unexpected_token,
    unquoted,
)
from sterna.model.filters.tree import (
    KEYWORDS,
    Always,
    Arithmetic,
    Attribute,
    Between,
    Condition,
    Holds,
    In,
    InMyloc,
    IsNull,
    Like,
    Literal,
    Matches,
    Near,
    Negative,
    Node,
    Value,
    Variable,
    Within,
    attributes,
    comparison,
    conjunction,
    disjunction,
    negation,
    walk,
    write,
)

LENGTH_MAX = 262_144
"""How many characters a filter may have."""
DEPTH_MAX = 64
"""How deeply conditions or arithmetic operations may be nested."""
MEMBERS_MAX = 10_000
"""How many members an IN list may have."""
CORNERS_MAX = 256
"""How many corners a polygon may have."""
STEPS_MAX = 1_000
"""How many movement steps `myloc(n)` may have."""
SHORT_MAX = 256
"""Trees of filters that are no longer are kept for a while: many clients ask for the same."""


def parse(text: str, *, length_max: int = LENGTH_MAX) -> Condition:
    """The tree of a filter."""
    if not isinstance(text, str):
        raise TypeError(f"a filter is written as a str, not as {type(text).__name__}")
    if len(text) > length_max:
        raise FilterError(
            f"the filter has {len(text):,} characters; {length_max:,} are the limit",
            text,
            length_max,
        )
    if not text.strip():
        raise FilterError("the filter is empty; write TRUE to match every event", text)
    return _parse_short(text) if len(text) <= SHORT_MAX else _parse(text, length_max)


def parse_value(text: str) -> Value:
    """The tree of a value that events have: the name of an attribute, or arithmetic with such."""
    if not text.strip():
        raise FilterError("the name of an attribute is missing", text)
    try:
        part = _parsed(text)
        value = _value(part)
        if any(isinstance(node, Variable) for node in walk(value)):
            _reject("there are no $variables here", part)
        if not attributes(value):
            _reject("this is the same for all events; name an attribute", part)
    except _Misfit as misfit:
        raise misfit.located(text) from None
    return value


@lru_cache(maxsize=4_096)
def _parse_short(text: str) -> Condition:
    return _parse(text, SHORT_MAX * 8)


def _parse(text: str, length_max: int) -> Condition:
    condition = plain_conjunction(text) or _parse_by_grammar(text)
    # Written out with spaces and full numbers, dense text grows, and it must parse back.
    if len(text) > length_max // 8 and len(write(condition)) > length_max:
        raise FilterError(f"written out, the filter is longer than {length_max:,} characters", text)
    return condition


def _parse_by_grammar(text: str) -> Condition:
    try:
        return _condition(_parsed(text))
    except _Misfit as misfit:
        raise misfit.located(text) from None


def _parsed(text: str) -> "_Part":
    try:
        return _grammar().parse(text)  # type: ignore[return-value] # The transformer makes parts.
    except UnexpectedToken as error:
        raise unexpected_token(text, error) from None
    except UnexpectedCharacters as error:
        raise unexpected_character(text, error) from None


class _Part(NamedTuple):
    """A piece of the tree and the text it came from."""

    node: Node
    start: int
    end: int
    depth: int = 1


class _Misfit(Exception):  # noqa: N818 - it never leaves this module.
    """Something well-formed in a place where it is not allowed."""

    def __init__(self, problem: str, part: "_Part | Token") -> None:
        super().__init__(problem)
        start, end = _span(part)
        self.problem, self.start, self.width = problem, start, end - start

    def located(self, text: str) -> FilterError:
        return FilterError(self.problem, text, self.start, self.width)


def _span(part: "_Part | Token") -> tuple[int, int]:
    if isinstance(part, _Part):
        return part.start, part.end
    start = part.start_pos or 0
    return start, start + len(part)


@cache
def _grammar() -> Lark:
    return Lark(
        files(__package__).joinpath("grammar.lark").read_text(encoding="utf-8"),
        parser="lalr",
        lexer="basic",
        maybe_placeholders=True,
        transformer=_Builder(),
        lexer_callbacks={"NAME": _keyword_or_name},
    )


def _keyword_or_name(token: Token) -> Token:
    word = token.upper() if token.isascii() else token
    return Token.new_borrow_pos(word, token, token) if word in KEYWORDS else token


@v_args(inline=True)
class _Builder(Transformer[Token, _Part]):
    """Builds the tree bottom up while parsing, one method per grammar rule."""

    # ---- Conditions

    def any_of(self, *parts: Any) -> _Part:
        return _join(disjunction([_condition(part) for part in parts[::2]]), *parts)

    def all_of(self, *parts: Any) -> _Part:
        return _join(conjunction([_condition(part) for part in parts[::2]]), *parts)

    def not_(self, word: Token, part: _Part) -> _Part:
        return _join(negation(_condition(part)), word, part)

    def compare(self, left: _Part, operator: Token, right: _Part) -> _Part:
        a, b = _value(left), _value(right)
        kinds = {kind for kind in (_kind(a), _kind(b)) if kind}
        if len(kinds) > 1:
            _reject(f"a {_kind(a)} never compares with a {_kind(b)}", _join(a, left, right))
        if kinds == {"boolean"} and operator not in ("=", "<>"):
            _reject(f"booleans have no order: use = or <>, not {operator}", operator)
        return _join(comparison(str(operator), a, b), left, right)

    def between(
        self, part: _Part, word: Token | None, _b: Token, low: _Part, _and: Token, high: _Part
    ) -> _Part:
        values = _value(part), _value(low), _value(high)
        kinds = {kind for kind in map(_kind, values) if kind}
        if "boolean" in kinds:
            _reject(
                "booleans have no order, so nothing is BETWEEN them", _join(values[0], low, high)
            )
        if len(kinds) > 1:
            _reject("BETWEEN mixes numbers and strings", _join(values[0], part, low, high))
        return _negated(Between(*values), word, part, low, high)

    def in_(
        self,
        part: _Part,
        word: Token | None,
        _in: Token,
        _l: Token,
        listed: list[_Part],
        end: Token,
    ) -> _Part:
        value = _value(part)
        if len(listed) > MEMBERS_MAX:
            _reject(f"the list has {len(listed):,} members; {MEMBERS_MAX:,} are the limit", end)
        kinds: dict[str, None] = dict.fromkeys(filter(None, [_kind(value)]))
        members = []
        for member in listed:
            constant = _value(member)
            if not isinstance(constant, Literal | Variable):
                _reject(
                    "an IN list holds constants: strings, numbers, booleans or $variables"
                    + single_quotes_hint(constant),
                    member,
                )
            kinds |= dict.fromkeys(filter(None, [_kind(constant)]))
            if len(kinds) > 1:
                first, second = kinds
                _reject(f"one IN list cannot mix {first}s and {second}s; join two with OR", member)
            members.append(constant)
        return _negated(In(value, tuple(members)), word, part, end)

    def in_myloc(
        self,
        part: _Part,
        word: Token | None,
        _in: Token,
        myloc: Token,
        _l: Token | None,
        steps: Token | None,
        end: Token | None,
    ) -> _Part:
        count = 0 if steps is None else _integer(steps)
        if count > STEPS_MAX:
            _reject(f"myloc(n) takes at most {STEPS_MAX} steps", steps or myloc)
        test = InMyloc(_attribute(part, "IN myloc"), count)
        return _negated(test, word, part, end or myloc)

    def like(
        self,
        part: _Part,
        word: Token | None,
        _like: Token,
        pattern: Token,
        _escape: Token | None,
        escape: Token | None,
    ) -> _Part:
        escaping = None if escape is None else _unquoted(escape)
        test = Like(_attribute(part, "LIKE"), _unquoted(pattern), escaping)
        problem = patterns.like_problem(test.pattern, escaping)
        if problem:
            _reject(problem, escape if escape is not None and len(escaping or "") != 1 else pattern)
        return _negated(test, word, part, escape or pattern)

    def matches(self, part: _Part, word: Token | None, _m: Token, topic: Token) -> _Part:
        test = Matches(_attribute(part, "MATCHES"), _unquoted(topic))
        problem = patterns.topic_problem(test.topic)
        if problem:
            _reject(problem, topic)
        return _negated(test, word, part, topic)

    def is_null(self, part: _Part, _is: Token, word: Token | None, null: Token) -> _Part:
        return _negated(IsNull(_attribute(part, "IS NULL")), word, part, null)

    def near(self, word: Token, _l: Token, listed: list[_Part], end: Token) -> _Part:
        if len(listed) != 5:
            _reject(
                "near() takes the names of two attributes, then latitude, longitude and metres: "
                "near(lat, lon, 52.5, 13.4, 500)",
                _join(Always(verdict=True), word, end),
            )
        lat, lon = (_attribute(part, "near()") for part in listed[:2])
        values = [
            _constant(part, "near() takes a number or a $variable here") for part in listed[2:]
        ]
        return _placed(Near(lat, lon, *values), word, end)

    def within(self, word: Token, _l: Token, listed: list[_Part], end: Token) -> _Part:
        if len(listed) < 6 or len(listed) % 2:
            _reject(
                "within() takes the names of two attributes and then latitude, longitude pairs: "
                "within(lat, lon, 52.3, 13.0, 52.7, 13.8)",
                _join(Always(verdict=True), word, end),
            )
        if len(listed) > 2 * CORNERS_MAX + 2:
            _reject(f"a polygon has at most {CORNERS_MAX} corners", end)
        numbers = []
        for part in listed[2:]:
            constant = _value(part)
            if not isinstance(constant, Literal) or _kind(constant) != "number":
                _reject("within() takes its corners as numbers", part)
            numbers.append(float(constant.value))
        lat, lon = (_attribute(part, "within()") for part in listed[:2])
        corners = tuple(zip(numbers[::2], numbers[1::2], strict=True))
        return _placed(Within(lat, lon, corners), word, end)

    # ---- Values

    def arithmetic(self, left: _Part, operator: Token, right: _Part) -> _Part:
        problem = f"{operator} works on numbers"
        node = Arithmetic(str(operator), _number(left, problem), _number(right, problem))
        return _join(node, left, right)

    def negative(self, sign: Token, part: _Part) -> _Part:
        match part.node:
            case Literal(value) if not isinstance(value, bool | str) and value != INT_MIN:
                return _join(Literal(-value), sign, part)
        return _join(Negative(_number(part, "a sign goes with numbers")), sign, part)

    def positive(self, sign: Token, part: _Part) -> _Part:
        return _join(_number(part, "a sign goes with numbers"), sign, part)

    def attribute(self, name: Token) -> _Part:
        return _join(Attribute(str(name)), name)

    def quoted_attribute(self, name: Token) -> _Part:
        plain = _unquoted(name)
        if not plain:
            _reject("an attribute has a name", name)
        return _join(Attribute(plain, is_quoted=True), name)

    def variable(self, name: Token) -> _Part:
        return _join(Variable(str(name)[1:]), name)

    def string(self, text: Token) -> _Part:
        return _join(Literal(_unquoted(text)), text)

    def integer(self, digits: Token) -> _Part:
        return _join(Literal(_integer(digits)), digits)

    def float_(self, digits: Token) -> _Part:
        value = float(digits)
        if not math.isfinite(value):
            _reject(f"{shown(digits)} is outside the range of 64-bit floats", digits)
        return _join(Literal(value), digits)

    def boolean(self, word: Token) -> _Part:
        return _join(Literal(word.type == "TRUE"), word)

    def parentheses(self, left: Token, part: _Part, right: Token) -> _Part:
        return _join(part.node, left, part, right)._replace(depth=part.depth)

    def members(self, *parts: Any) -> list[_Part]:
        return list(parts[::2])


# ---- What is allowed where


def _condition(part: _Part) -> Condition:
    match part.node:
        case Literal(bool() as verdict):
            return Always(verdict)
        case Attribute() | Variable() as value:
            return Holds(value)
        case Literal() | Negative() | Arithmetic():
            _reject(f"expected a condition, found a {_kind(part.node)}", part)
    return part.node


def _value(part: _Part) -> Value:
    if not isinstance(part.node, Value):
        _reject("expected a value to compare, found a condition", part)
    match part.node:
        case Literal(int() as number) if not INT_MIN <= number <= INT_MAX:
            _reject(f"{number} does not fit in 64 bits; write it with a decimal point", part)
    return part.node


def _number(part: _Part, problem: str) -> Value:
    value = _value(part)
    if _kind(value) not in (None, "number"):
        _reject(problem, part)
    return value


def _attribute(part: _Part, word: str) -> Attribute:
    if not isinstance(part.node, Attribute):
        _reject(f"{word} takes the name of an attribute", part)
    return part.node


def _constant(part: _Part, problem: str) -> Literal | Variable:
    value = _number(part, problem)
    if not isinstance(value, Literal | Variable):
        _reject(problem, part)
    return value


def _placed(node: Near | Within, word: Token, end: Token) -> _Part:
    problem = _place_problem(node)
    if problem:
        _reject(problem, _join(node, word, end))
    return _join(node, word, end)


def _place_problem(node: Near | Within) -> str | None:
    """Why the constants of a geographic test make no sense, if they do not."""
    if isinstance(node, Within):
        points = list(node.corners)
    else:
        latitude, longitude, metres = (
            c.value if isinstance(c, Literal) else 0
            for c in (node.latitude, node.longitude, node.metres)
        )
        for value in (latitude, longitude, metres):
            if isinstance(value, bool | str):
                return f"near() takes a position and a distance in numbers, not {value!r}"
        points = [(float(latitude), float(longitude))]
        if float(metres) < 0:
            return f"a distance in metres is not negative: {metres}"
    for latitude, longitude in points:
        if not -90 <= latitude <= 90:
            return f"latitudes go from -90 to 90, not {latitude}"
        if not -180 <= longitude <= 180:
            return f"longitudes go from -180 to 180, not {longitude}"
    if isinstance(node, Within) and len(points) == 2 and points[0][0] > points[1][0]:
        return "a box is given by its south-west and its north-east corner, in this order"
    return None


def _negated(test: Condition, word: Token | None, *parts: "_Part | Token") -> _Part:
    return _join(test if word is None else negation(test), *parts)


def _join(node: Node, *parts: "_Part | Token") -> _Part:
    depth = 1 + max((part.depth for part in parts if isinstance(part, _Part)), default=0)
    joined = _Part(node, _span(parts[0])[0], _span(parts[-1])[1], depth)
    if depth > DEPTH_MAX:
        _reject(f"conditions or arithmetic nested more than {DEPTH_MAX} deep", joined)
    return joined


def _reject(problem: str, part: "_Part | Token") -> NoReturn:
    raise _Misfit(problem, part)


def _kind(node: Node) -> str | None:
    """The kind of a value that is known before any event is seen."""
    match node:
        case Literal(bool()):
            return "boolean"
        case Literal(str()):
            return "string"
        case Literal() | Negative() | Arithmetic():
            return "number"
    return None


def _integer(digits: Token) -> int:
    plain = digits.rstrip("lL")
    if len(plain) > 20:
        _reject(f"an integer of {len(plain):,} digits does not fit in 64 bits", digits)
    if plain[:2] in ("0x", "0X"):
        return int(plain, 16)
    if len(plain) > 1 and plain[0] == "0":
        _reject(f"{shown(digits)} could be octal or decimal; leave out the leading zeros", digits)
    return int(plain)


def _unquoted(token: Token) -> str:
    text = unquoted(token)
    if any("\ud800" <= character <= "\udfff" for character in text):
        _reject("half a surrogate pair is not text", token)
    return text
