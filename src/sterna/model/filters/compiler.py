"""Compiles a filter to a Python function, once, so that an event costs well below a microsecond.

Three-valued logic disappears on the way: by De Morgan every NOT is pushed down to the single tests,
where "is TRUE" and "is FALSE" are two ordinary yes/no questions and UNKNOWN is "no" to both.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from types import CodeType
from typing import Protocol

from sterna.model.event import PLAIN_TYPES, Scalar, plain_scalar
from sterna.model.filters import logic, patterns
from sterna.model.filters.errors import UnboundError
from sterna.model.filters.long_texts import LONG, LongTexts
from sterna.model.filters.tree import (
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
)


class CompiledTest(Protocol):
    """Whether a condition is TRUE for an event's attributes.

    Given what is known of long texts, it may be quicker, and may be `Interrupted`.
    """

    def __call__(
        self, attributes: Mapping[str, Scalar | None], known: LongTexts | None = None, /
    ) -> bool: ...


_PYTHON_OPERATORS = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


SOURCE_MAX = 8_192
"""How many characters of source are compiled in one go. Python's compiler stops all threads, and it
takes about a millisecond for so many."""

_VARIABLE = re.compile(r"\bv[0-9]+\b")


def compile_condition(condition: Condition) -> CompiledTest:
    """A function from an event's attributes to whether the condition is TRUE for them."""
    conjuncts = condition.operands if isinstance(condition, And) else (condition,)
    tests: list[CompiledTest] = []
    compilation = _Compilation()
    for conjunct in conjuncts:
        if compilation.size > SOURCE_MAX:
            tests.append(compilation.function())
            compilation = _Compilation()
        compilation.require(conjunct)
    tests.append(compilation.function())
    return tests[0] if len(tests) == 1 else _all_of(tests)


def _all_of(tests: list[CompiledTest]) -> CompiledTest:
    def test(attributes: Mapping[str, Scalar | None], known: LongTexts | None = None, /) -> bool:
        return all(each(attributes, known) for each in tests)

    return test


class _Compilation:
    """The function's source, written one conjunct at a time, and the constants it refers to."""

    def __init__(self) -> None:
        self.constants: dict[str, object] = {"plain_types": PLAIN_TYPES, "plain": plain_scalar}
        self.variables: dict[str, str] = {}
        self.lines = list(_HEAD)
        self.size = 0
        """How many characters of source there are, about."""

    def require(self, condition: Condition) -> None:
        """Test one more condition, if all before it are TRUE."""
        self._fetch(condition)
        self.lines.append(f" if not ({self.true(condition)}): return False")
        self.size += len(self.lines[-1])

    def function(self) -> CompiledTest:
        """The function that tests all conditions so far."""
        return _compiled([*self.lines, " return True"], self.constants)

    def _fetch(self, condition: Condition) -> None:
        """Read attributes just before they are first needed; most events fail an early conjunct."""
        for name in attributes(condition):
            if name not in self.variables:
                self.variables[name] = v = f"v{len(self.variables)}"
                self.lines += _reading(v, name)

    # ---- Conditions: the question whether they are TRUE, and whether they are FALSE

    def true(self, node: Condition) -> str:
        match node:
            case And(operands):
                return self._joined(" and ", operands, self.true)
            case Or(operands):
                return self._joined(" or ", operands, self.true)
            case Not(operand):
                return self.false(operand)
        return self._test(node, wanted=True)

    def false(self, node: Condition) -> str:
        match node:
            case And(operands):
                return self._joined(" or ", operands, self.false)
            case Or(operands):
                return self._joined(" and ", operands, self.false)
            case Not(operand):
                return self.true(operand)
        return self._test(node, wanted=False)

    def _joined(
        self, word: str, operands: tuple[Condition, ...], question: Callable[[Condition], str]
    ) -> str:
        texts = [question(operand) for operand in operands]
        if sum(map(len, texts)) > SOURCE_MAX:
            texts = [self._call(word.join(some)) for some in _portions(texts)]
        return "(" + word.join(texts) + ")"

    def _call(self, text: str) -> str:
        """A call of a function with this text."""
        used = set(_VARIABLE.findall(text))
        reads = [_reading(v, name) for name, v in self.variables.items() if v in used]
        lines = [*_HEAD, *chain.from_iterable(reads), f" return {text}"]
        # With constants of its own, lest the two are a cycle.
        return f"{self._constant(_compiled(lines, dict(self.constants)))}(event, known)"

    def _test(self, node: Test, *, wanted: bool) -> str:
        match node:
            case Always(verdict):
                return str(verdict is wanted)
            case Holds(value):
                return f"{self.value(value)} is {wanted}"
            case Compare(sign, Attribute(name), Literal(constant)):
                return self._compare(
                    self.variables[name], sign if wanted else OPPOSITE[sign], constant
                )
            case Compare(sign, left, right):
                compare = self._constant(logic.compare)
                return f"{compare}({sign!r}, {self.value(left)}, {self.value(right)}) is {wanted}"
            case Between():
                return self.true(node.bounds()) if wanted else self.false(node.bounds())
            case In(Attribute(name)):
                return self._in(self.variables[name], node, wanted=wanted)
            case In() if not attributes(node):
                return str(logic.evaluate(node, {}) is wanted)
            case In(value):
                members = self._constant(frozenset(node.constants()))
                member = self._constant(logic.number_in)
                return f"{member}({self.value(value)}, {members}) is {wanted}"
            case Like(value, pattern, escape):
                return self._like(self.value(value), pattern, escape, wanted=wanted)
            case Matches(value, topic):
                return self._string(self.value(value), patterns.topic_test(topic), wanted=wanted)
            case IsNull(value):
                return f"{self.value(value)} {'is' if wanted else 'is not'} None"
            case Near(lat, lon):
                near = self._constant(logic.near_test(*node.circle()))
                return f"{near}({self.value(lat)}, {self.value(lon)}) is {wanted}"
            case Within(lat, lon, corners) if len(corners) > 2:
                within = self._constant(logic.polygon_test(corners))
                return f"{within}({self.value(lat)}, {self.value(lon)}) is {wanted}"
            case Within():
                return self.true(node.box()) if wanted else self.false(node.box())
        raise UnboundError("the filter refers to myloc: bind it to a location first")

    @staticmethod
    def _compare(v: str, sign: str, constant: Scalar) -> str:
        """A comparison with a constant, with only the type checks that Python needs."""
        question = f"{v} {_PYTHON_OPERATORS[sign]} {constant!r}"
        if isinstance(constant, bool):
            return f"{v} is {constant if sign == '=' else not constant}"
        if isinstance(constant, str):
            return question if sign == "=" else f"type({v}) is str and {question}"
        if sign == "=":  # In Python True equals 1.
            return f"{question} and type({v}) is not bool" if constant in (0, 1) else question
        if sign == "<>":  # NaN differs from everything, itself included.
            return f"(type({v}) is float or type({v}) is int) and {question} and {v} == {v}"
        return f"(type({v}) is float or type({v}) is int) and {question}"

    def _in(self, v: str, node: In, *, wanted: bool) -> str:
        values = frozenset(node.constants())
        sample = next(iter(values))
        word = f"{v} {'in' if wanted else 'not in'} {self._constant(values)}"
        if isinstance(sample, bool):
            return f"type({v}) is bool and {word}"
        if isinstance(sample, str):
            return word if wanted else f"type({v}) is str and {word}"
        return f"(type({v}) is float or type({v}) is int) and {v} == {v} and {word}"

    def _like(self, v: str, pattern: str, escape: str | None, *, wanted: bool) -> str:
        segments = patterns.like_segments(pattern, escape)
        test = patterns.like_test(segments)
        part = patterns.like_part(segments)
        if part is None:
            return self._string(v, test, wanted=wanted)
        # By far most texts are short, and need no call.
        call = f"({part!r} in {v} if len({v}) < {LONG} else {self._constant(test)}({v}, known))"
        return f"type({v}) is str and {'' if wanted else 'not '}{call}"

    def _string(self, v: str, test: patterns.StringTest, *, wanted: bool) -> str:
        call = f"{self._constant(test)}({v}, known)"
        return f"type({v}) is str and {'' if wanted else 'not '}{call}"

    # ---- Values

    def value(self, value: Value) -> str:
        match value:
            case Literal(constant):
                return repr(constant)
            case Attribute(name):
                return self.variables[name]
            case Negative(operand):
                return f"{self._constant(logic.negative)}({self.value(operand)})"
            case Arithmetic(sign, left, right):
                apply = self._constant(logic.ARITHMETIC[sign])
                return f"{apply}({self.value(left)}, {self.value(right)})"
        raise UnboundError(f"the filter refers to ${value.name}: bind it to a value first")

    def _constant(self, value: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name


_HEAD = ("def test(event, known=None):", " get = event.get")


def _reading(variable: str, name: str) -> tuple[str, str]:
    return (
        f" {variable} = get({name!r})",
        f" if type({variable}) not in plain_types: {variable} = plain({name!r}, {variable})",
    )


def _portions(texts: list[str]) -> Iterator[list[str]]:
    """The same texts in portions that are compiled in one go."""
    portion: list[str] = []
    size = 0
    for text in texts:
        if size > SOURCE_MAX:
            yield portion
            portion, size = [], 0
        portion.append(text)
        size += len(text)
    yield portion


def _compiled(lines: list[str], constants: dict[str, object]) -> CompiledTest:
    exec(_code("\n".join(lines)), constants)  # noqa: S102 - only text made here.
    # Taken out, lest function and constants are a cycle, which only a search would free.
    test: CompiledTest = constants.pop("test")  # type: ignore[assignment]
    return test


@lru_cache(maxsize=1_024)
def _code(source: str) -> CodeType:
    """Python's code for a source: filters that differ only in their constants share it."""
    return compile(source, "<filter>", "exec")
