"""The same filter as a Spark column, with the same verdict on every row.

How an attribute is found in the schema:

* a column of that name; a dotted name also reaches into struct columns;
* otherwise an entry of the column `attributes`, if that is a map from names to values.

What it may hold: booleans, integers (up to 64 bits), floats and doubles, strings, or a *value
struct* `struct<bool: boolean, int: bigint, float: double, string: string>` of which at most one
field is set, for attributes whose type differs from event to event (`VALUE_TYPE`). An attribute
that the schema does not have is missing in every row, so it is NULL.

Spark's own rules differ from the filter language in places: it compares integers with doubles
inexactly, treats NaN as the largest number, and raises errors on overflow. Every value is therefore
taken apart by type first, and each comparison is made between two columns of known types.

A long IN list is written as SQL text and parsed by Spark at once, because handing thousands of
constants to the JVM one by one takes seconds. The rest is not: Spark's parser needs exponential
time for deeply nested parentheses.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the usual name.
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from sterna.model import geo
from sterna.model.event import INT_MAX, INT_MIN, Scalar
from sterna.model.filters import logic, patterns
from sterna.model.filters.errors import UnboundError
from sterna.model.filters.long_texts import Segment
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
    InMyloc,
    IsNull,
    Like,
    Literal,
    Matches,
    Near,
    Negative,
    Not,
    Or,
    Value,
    Variable,
    Within,
)

VALUE_TYPE = StructType(
    [
        StructField("bool", BooleanType()),
        StructField("int", LongType()),
        StructField("float", DoubleType()),
        StructField("string", StringType()),
    ]
)
"""One attribute value of any type."""

ATTRIBUTES_TYPE = MapType(StringType(), VALUE_TYPE)
"""All attributes of an event: the type of the column `attributes` in tables of events."""

_TWO_63 = 2.0**63
_EXACT = 2**53
_SHORT = 50  # Members up to which an IN list is cheaper as objects than as text.


@dataclass(frozen=True)
class Operand:
    """A value as Spark sees it: one column for each type it may have, null where it has another.

    `missing` is the test for NULL, `constant` is set for literals, and `texts` has the SQL of the
    columns of an attribute.
    """

    bool: Column | None = None
    int: Column | None = None
    float: Column | None = None
    string: Column | None = None
    missing: Column | None = None
    constant: Scalar | None = None
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def comparable(self) -> Column | None:
        """The float, with null for NaN, which compares with nothing."""
        if self.float is None or self.constant is not None:
            return self.float
        return F.nanvl(self.float, F.lit(None).cast("double"))

    @property
    def double(self) -> Column:
        """The number as a double, whatever its type; null if it is none."""
        whole = None if self.int is None else self.int.cast("double")
        return _first([self.float, whole], "double")


def to_column(condition: Condition, schema: StructType) -> Column:
    """The condition over rows of this schema: true, false, or null for UNKNOWN."""
    return _Translation(schema).condition(condition)


class _Translation:
    def __init__(self, schema: StructType) -> None:
        self.schema = schema
        self.operands: dict[str, Operand] = {}

    # ---- Conditions

    def condition(self, node: Condition) -> Column:
        match node:
            case And(operands):
                return _fold(operator.and_, map(self.condition, operands))
            case Or(operands):
                return _fold(operator.or_, map(self.condition, operands))
            case Not(operand):
                return ~self.condition(operand)
            case Always(verdict):
                return F.lit(verdict)
            case Holds(value):
                return _first([self.value(value).bool], "boolean")
            case Compare(sign, left, right):
                return _compare(sign, self.value(left), self.value(right))
            case Between():
                return self.condition(node.bounds())
            case In(value):
                return _in(self.value(value), node.constants())
            case Like(value, pattern, escape):
                text = self.value(value).string
                segments = patterns.like_segments(pattern, escape)
                return _first([None if text is None else _like(text, segments)], "boolean")
            case Matches(value, topic):
                text = self.value(value).string
                return _first([None if text is None else _matches(text, topic)], "boolean")
            case IsNull(value):
                missing = self.value(value).missing
                return F.lit(True) if missing is None else missing
            case Near(lat, lon):
                return _near(node, self.value(lat).double, self.value(lon).double)
            case Within(lat, lon, corners):
                if len(corners) == 2:
                    return self.condition(node.box())
                return _polygon(corners, self.value(lat).double, self.value(lon).double)
            case InMyloc():
                raise UnboundError("the filter refers to myloc: bind it to a location first")

    # ---- Values

    def value(self, value: Value) -> Operand:
        match value:
            case Literal(constant):
                return _literal(constant)
            case Attribute(name):
                if name not in self.operands:
                    self.operands[name] = self._attribute(name)
                return self.operands[name]
            case Negative(operand):
                number = self.value(operand)
                return Operand(
                    int=None if number.int is None else F.try_subtract(F.lit(0), number.int),
                    float=None if number.float is None else -number.float,
                )
            case Arithmetic(sign, left, right):
                return _arithmetic(sign, self.value(left), self.value(right))
            case Variable(name):
                raise UnboundError(f"the filter refers to ${name}: bind it to a value first")

    def _attribute(self, name: str) -> Operand:
        found = attribute_column(self.schema, name)
        if found is None:
            return Operand()
        sql, kind = found
        match kind:
            case BooleanType():
                return _typed(sql, bool=sql)
            case ByteType() | ShortType() | IntegerType() | LongType():
                return _typed(sql, int=f"CAST({sql} AS BIGINT)")
            case FloatType() | DoubleType():
                return _typed(sql, float=f"CAST({sql} AS DOUBLE)")
            case StringType() | CharType() | VarcharType():
                return _typed(sql, string=_by_code_point(sql, kind))
            case NullType():
                return Operand()
            case StructType() if _is_value_type(kind):
                parts = {part: f"{sql}.`{part}`" for part in VALUE_TYPE.names}
                absent = (F.expr(part).isNull() for part in parts.values())
                return replace(_typed(sql, **parts), missing=_fold(operator.and_, absent))
        raise TypeError(
            f"attribute {name!r} has the Spark type {kind.simpleString()}, which filters cannot "
            "compare; cast it to boolean, bigint, double or string first"
        )


# ---- Columns


def attribute_column(schema: StructType, name: str) -> tuple[str, DataType] | None:
    """The SQL of an attribute's column and its type."""
    kinds = {part.name: part.dataType for part in schema.fields}
    entries = kinds.get("attributes")
    if isinstance(entries, MapType):
        del kinds["attributes"]
    if name in kinds:
        return _quoted(name), kinds[name]
    nested = _nested(kinds, name)
    if nested is not None:
        return nested
    if isinstance(entries, MapType) and isinstance(entries.keyType, StringType):
        return f"TRY_ELEMENT_AT(`attributes`, {_text(name)})", entries.valueType
    return None


def _nested(kinds: Mapping[str, DataType], name: str) -> tuple[str, DataType] | None:
    head, *parts = name.split(".")
    kind = kinds.get(head)
    path = [_quoted(head)]
    for part in parts:
        if not isinstance(kind, StructType) or part not in kind.names:
            return None
        kind = kind[part].dataType
        path.append(_quoted(part))
    return None if kind is None else (".".join(path), kind)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _typed(sql: str, **texts: str) -> Operand:
    """An attribute with the SQL of each type it may have."""
    columns: dict[str, Any] = {kind: F.expr(text) for kind, text in texts.items()}
    return Operand(missing=F.expr(sql).isNull(), texts=texts, **columns)


def _by_code_point(sql: str, kind: DataType) -> str:
    """The order of strings is ours, whatever collation the column has."""
    plain = getattr(kind, "collation", "UTF8_BINARY") == "UTF8_BINARY"
    return sql if plain else f"COLLATE({sql}, 'UTF8_BINARY')"


def _text(value: str) -> str:
    """A string literal; anything unusual as bytes, so that no setting of the parser matters."""
    if re.fullmatch(r"[A-Za-z0-9_./ -]*", value):
        return f"'{value}'"
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


def _is_value_type(kind: StructType) -> bool:
    return [(f.name, f.dataType) for f in kind.fields] == [
        (f.name, f.dataType) for f in VALUE_TYPE.fields
    ]


def _literal(constant: Scalar) -> Operand:
    if isinstance(constant, bool):
        return Operand(bool=F.lit(constant), constant=constant)
    if isinstance(constant, str):
        return Operand(string=F.lit(constant), constant=constant)
    if isinstance(constant, int):
        return Operand(int=F.lit(constant).cast("bigint"), constant=constant)
    return Operand(float=F.lit(constant), constant=constant)


def _first(choices: Iterable[Column | None], kind: str) -> Column:
    """The first that is not null; a null of the given type if there is nothing to choose from."""
    columns = [column for column in choices if column is not None]
    if not columns:
        return F.lit(None).cast(kind)
    return columns[0] if len(columns) == 1 else F.coalesce(*columns)


def _fold(join: Callable[[Column, Column], Column], columns: Iterable[Column]) -> Column:
    """Join pairwise, so that the expression stays shallow however many there are."""
    level = list(columns)
    while len(level) > 1:
        level = [reduce(join, level[i : i + 2]) for i in range(0, len(level), 2)]
    return level[0]


# ---- Comparisons


def _compare(sign: str, a: Operand, b: Operand) -> Column:
    """At most one of the pairings is not null: the one of the types that both really have."""
    apply = logic.COMPARISONS[sign]
    real_a, real_b = a.comparable, b.comparable
    same = [(a.int, b.int), (real_a, real_b), (a.string, b.string)]
    if sign in ("=", "<>"):
        same.append((a.bool, b.bool))
    pairings = [apply(x, y) for x, y in same if x is not None and y is not None]
    if a.int is not None and real_b is not None:
        pairings.append(_compare_mixed(sign, a.int, real_b, b.constant))
    if real_a is not None and b.int is not None:
        if isinstance(b.constant, int) and abs(b.constant) <= _EXACT:
            pairings.append(apply(real_a, F.lit(float(b.constant))))
        else:
            pairings.append(_compare_mixed(MIRRORED[sign], b.int, real_a, a.constant))
    return _first(pairings, "boolean")


def _compare_mixed(sign: str, whole: Column, real: Column, constant: Scalar | None) -> Column:
    """An integer with a double, exactly: the double is rounded to the integers next to it."""
    if sign in ("<>", ">", ">="):
        return ~_compare_mixed(OPPOSITE[sign], whole, real, constant)
    if isinstance(constant, float):
        return _compare_constant(sign, whole, constant)
    above, below = real >= F.lit(_TWO_63), real < F.lit(-_TWO_63)
    match sign:
        case "=":
            inside = (real == F.floor(real)) & (whole == F.floor(real))
            verdict = F.when(above | below, F.lit(False)).otherwise(inside)
        case "<=":
            verdict = F.when(above, F.lit(True)).when(below, F.lit(False))
            verdict = verdict.otherwise(whole <= F.floor(real))
        case _:
            verdict = F.when(above, F.lit(True)).when(below, F.lit(False))
            verdict = verdict.otherwise(whole < F.ceil(real))
    return F.when(whole.isNotNull() & real.isNotNull(), verdict)


def _compare_constant(sign: str, whole: Column, constant: float) -> Column:
    """An integer column with a float constant: an integer comparison that Spark can push down."""
    present = F.when(whole.isNotNull(), F.lit(True))
    if sign == "=":
        if constant == math.floor(constant) and INT_MIN <= constant <= INT_MAX:
            return whole == F.lit(int(constant))
        return ~present
    bound = math.floor(constant) if sign == "<=" else math.ceil(constant) - 1
    if bound >= INT_MAX:
        return present
    return ~present if bound < INT_MIN else whole <= F.lit(bound)


def _in(value: Operand, constants: Sequence[Scalar]) -> Column:
    """One look-up in a list for each type that can be found there."""
    numbers = [c for c in constants if isinstance(c, int | float) and not isinstance(c, bool)]
    whole = sorted({int(n) for n in numbers if n == math.floor(n) and INT_MIN <= n <= INT_MAX})
    real = sorted({float(n) for n in numbers if float(n) == n})
    strings = sorted({c for c in constants if isinstance(c, str)})
    booleans = sorted({c for c in constants if isinstance(c, bool)})
    chosen: list[Column] = []
    if numbers and value.int is not None:
        chosen.append(_member(value.int, whole, value.texts.get("int"), _whole))
    if numbers and value.comparable is not None:
        sql = value.texts.get("float")
        guarded = sql and f"NANVL({sql}, CAST(NULL AS DOUBLE))"
        chosen.append(_member(value.comparable, real, guarded, "{!r}D".format))
    if strings and value.string is not None:
        chosen.append(_member(value.string, strings, value.texts.get("string"), _text))
    if booleans and value.bool is not None:
        chosen.append(value.bool.isin(booleans))
    return _first(chosen, "boolean")


def _member(
    column: Column, constants: list[Any], sql: str | None, write: Callable[[Any], str]
) -> Column:
    if not constants:
        return F.when(column.isNotNull(), F.lit(False))
    if sql is None or len(constants) <= _SHORT:
        return column.isin(constants)
    return F.expr(f"{sql} IN ({', '.join(map(write, constants))})")


def _whole(value: int) -> str:
    """An integer literal; the smallest has no literal of its own."""
    return f"{value}L" if value != INT_MIN else f"({INT_MIN + 1}L - 1L)"


# ---- Arithmetic

_ON_FLOATS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _arithmetic(sign: str, a: Operand, b: Operand) -> Operand:
    """Exact on integers (null on overflow), in doubles otherwise; division always in doubles."""
    if not _has_number(a) or not _has_number(b):
        return Operand()
    if sign == "/":
        return Operand(float=F.try_divide(a.double, b.double))
    real = _ON_FLOATS[sign](a.double, b.double)
    if a.int is None or b.int is None:
        return Operand(float=real)
    whole = {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}[sign](a.int, b.int)
    if a.float is None and b.float is None:
        return Operand(int=whole)
    # Two integers have an integer result, also if it overflows; everything else is a float.
    return Operand(int=whole, float=F.when(a.int.isNull() | b.int.isNull(), real))


def _has_number(operand: Operand) -> bool:
    return operand.int is not None or operand.float is not None


# ---- Strings


def _like(text: Column, segments: list[Segment]) -> Column:
    """Simple patterns by the functions made for them; others by a regex that cannot backtrack."""
    literals = [patterns.literal(segment) for segment in segments]
    match literals:
        case [str(whole)]:
            return text == F.lit(whole)
        case [str(prefix), ""]:
            return F.startswith(text, F.lit(prefix))
        case ["", str(suffix)]:
            return F.endswith(text, F.lit(suffix))
        case ["", str(part), ""]:
            return F.contains(text, F.lit(part))
    first, *middle, last = segments if len(segments) > 1 else [segments[0], ()]
    regex = _segment_regex(first)
    for segment in filter(None, middle):
        # The earliest place is as good as any later one, so the group may be atomic.
        regex += f"(?>.*?{_segment_regex(segment)})"
    tail = "" if len(segments) == 1 else ".*" + _segment_regex(last)
    return F.rlike(text, F.lit(rf"(?s)\A{regex}{tail}\z"))


def _segment_regex(segment: Segment) -> str:
    return "".join("." if character is None else _escaped(character) for character in segment)


def _matches(text: Column, topic: str) -> Column:
    levels = topic.split("/")
    if not {"+", "#"} & set(levels):
        return text == F.lit(topic)
    open_end = levels[-1] == "#"
    fixed = levels[:-1] if open_end else levels
    regex = "/".join("[^/]*" if level == "+" else "".join(map(_escaped, level)) for level in fixed)
    if open_end:
        regex += "(?:/.*)?" if fixed else ".*"
    guard = r"(?!\$)" if levels[0] in ("+", "#") else ""
    return F.rlike(text, F.lit(rf"(?s)\A{guard}{regex}\z"))


def _escaped(character: str) -> str:
    return character if re.fullmatch(r"[A-Za-z0-9]", character) else f"\\x{{{ord(character):x}}}"


# ---- Places


def _is_position(lat: Column, lon: Column) -> Column:
    # NaN lies above every number in Spark, so it is no position either.
    return lat.between(F.lit(-90.0), F.lit(90.0)) & lon.between(F.lit(-180.0), F.lit(180.0))


def _near(node: Near, lat: Column, lon: Column) -> Column:
    centre, metres = node.circle()
    close = F.abs(lat - F.lit(centre[0])) <= F.lit(geo.latitude_reach(metres))
    close &= geo.haversine(lat, lon, centre) <= F.lit(geo.haversine_limit(metres))
    return F.when(_is_position(lat, lon), close)


def _polygon(corners: tuple[geo.Point, ...], lat: Column, lon: Column) -> Column:
    crossings = [
        (
            ((F.lit(a[0]) > lat) != (F.lit(b[0]) > lat))
            & (lon < F.lit(slope) * (lat - F.lit(a[0])) + F.lit(a[1]))
        )
        for a, b, slope in geo.edges(corners)
    ]
    if not crossings:
        return F.when(_is_position(lat, lon), F.lit(False))
    odd = _fold(operator.ne, crossings)
    return F.when(_is_position(lat, lon), odd)
