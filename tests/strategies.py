"""Hypothesis strategies for filters and events that meet at the boundaries.

Filters and events draw from the same few values, and from the neighbours of those values, so that
a random event has a good chance to lie exactly on the edge of a random filter.
"""

import math

from hypothesis import strategies as st

from sterna.model.event import INT_MAX, INT_MIN, Scalar
from sterna.model.filters.tree import write_name, write_scalar

NAMES = ("a", "b", "c", "car-type")

NUMBERS: tuple[int | float, ...] = (
    *(0, 1, 2, 3, -1, 10),
    *(
        0.0,
        -0.0,
        0.5,
        1.0,
        1.5,
        2.5,
        1e-300,
        5e-324,
        1.7976931348623157e308,
        -1.7976931348623157e308,
    ),
    *(2**53, 2**53 + 1, 2**53 - 1, float(2**53), float(2**53 + 2), -(2**53) - 1),
    *(INT_MAX, INT_MIN, INT_MAX - 1, float(2**63), -float(2**63), 1e19),
)
STRINGS = (
    *("", "a", "ab", "abc", "abd", "b", "B", "a%", "a_b", "%", "_", "\\", "'", '"', "a\0", "\0"),
    *(
        "a/b",
        "a/b/c",
        "a/",
        "/a",
        "a//c",
        "$a",
        "$SYS/x",
        "é",
        "e\u0301",
        "日本",
        "😀",
        "😀b",
        "\uffff",
    ),
    *("\U0010ffff", "\ud7ff", "\ue000", "line\nbreak", "1", "TRUE"),
)

numbers = st.sampled_from(NUMBERS) | st.integers(-5, 12) | st.floats(-5, 12, width=16)
strings = st.sampled_from(STRINGS) | st.text(alphabet="ab%_/\\é😀", max_size=4)
booleans = st.booleans()
names = st.sampled_from(NAMES)


# Strategies that others draw from are made once: making one takes longer than drawing from it.
ends = st.sampled_from([math.inf, -math.inf])
sides = st.sampled_from([-1, 1])
one_of_ten, one_of_six, one_of_five, one_of_four = (st.integers(0, n) for n in (9, 5, 4, 3))


@st.composite
def neighbours(draw: st.DrawFn) -> float:
    """A number right beside one that filters use."""
    number = draw(numbers)
    towards = draw(ends)
    whole = int(number) + draw(sides)
    if draw(booleans) and INT_MIN <= whole <= INT_MAX:
        return whole
    return math.nextafter(float(number), towards)


special = st.sampled_from([math.nan, math.inf, -math.inf])
scalars: st.SearchStrategy[Scalar] = (
    numbers | numbers | neighbours() | special | strings | strings | booleans
)

events: st.SearchStrategy[dict[str, Scalar | None]] = st.dictionaries(
    names, scalars | st.none(), max_size=len(NAMES)
)


# ---- Filters, as text

written_names = names.map(write_name)
constants = st.one_of(
    numbers.map(write_scalar), numbers.map(write_scalar), strings.map(write_scalar)
)
comparison_signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
maybe_not = st.sampled_from(["", "", "NOT "])
flags = st.sampled_from(["= TRUE", "= false", "<> true", "<> FALSE"])


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    name, sign = draw(written_names), draw(comparison_signs)
    if draw(one_of_ten) == 0:
        return f"{name} {draw(flags)}"
    parts = [name, sign, draw(constants)]
    if draw(one_of_five) == 0:
        parts.reverse()
    return " ".join(parts)


bounds = st.tuples(numbers, numbers) | st.tuples(strings, strings) | st.tuples(numbers, numbers)


@st.composite
def ranges(draw: st.DrawFn) -> str:
    low, high = (write_scalar(bound) for bound in draw(bounds))
    return f"{draw(written_names)} {draw(maybe_not)}BETWEEN {low} AND {high}"


one_kind = st.sampled_from(
    [st.lists(kind, min_size=1, max_size=4) for kind in (numbers, strings, booleans)]
).flatmap(lambda kind: kind)


@st.composite
def lists(draw: st.DrawFn) -> str:
    members = ", ".join(write_scalar(member) for member in draw(one_kind))
    return f"{draw(written_names)} {draw(maybe_not)}IN ({members})"


@st.composite
def prefixes(draw: st.DrawFn) -> str:
    prefix = draw(strings)
    escaped = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    pattern = write_scalar(escaped + "%")
    return f"{draw(written_names)} {draw(maybe_not)}LIKE {pattern} ESCAPE '\\'"


null_tests = st.builds("{} IS {}NULL".format, written_names, maybe_not)

patterns = st.text(alphabet="ab%_%_é😀/", max_size=6)
wild_beginnings = st.sampled_from(["", "%", "_"])


@st.composite
def like_tests(draw: st.DrawFn) -> str:
    pattern, escape = draw(patterns), ""
    if draw(booleans):
        pattern = draw(wild_beginnings) + pattern.replace("_", "!_")
        escape = " ESCAPE '!'"
    return f"{draw(written_names)} {draw(maybe_not)}LIKE {write_scalar(pattern)}{escape}"


levels = st.lists(st.sampled_from(["a", "b", "+", "", "$a", "+", "c"]), min_size=1, max_size=3)
rests = st.sampled_from([[], [], ["#"]])


@st.composite
def topics(draw: st.DrawFn) -> str:
    chosen = draw(levels) + draw(rests)
    return "/".join(chosen) or "a"


some_topics = topics()


@st.composite
def topic_tests(draw: st.DrawFn) -> str:
    return f"{draw(written_names)} {draw(maybe_not)}MATCHES {write_scalar(draw(some_topics))}"


operands = written_names | numbers.map(write_scalar)
operators = st.sampled_from("+-*/")


@st.composite
def arithmetic(draw: st.DrawFn, depth: int) -> str:
    if depth == 0 or draw(booleans):
        return draw(operands)
    inner = arithmetics[depth - 1]
    if draw(one_of_six) == 0:
        return f"-({draw(inner)})"
    sign = draw(operators)
    return f"({draw(inner)} {sign} {draw(inner)})"


arithmetics = [arithmetic(depth) for depth in range(3)]


@st.composite
def computed(draw: st.DrawFn) -> str:
    left = draw(arithmetics[2])
    match draw(one_of_four):
        case 0:
            return f"{left} BETWEEN {draw(arithmetics[1])} AND {draw(arithmetics[1])}"
        case 1:
            return f"{left} {draw(maybe_not)}IN ({write_scalar(draw(numbers))}, 2)"
        case _:
            return f"{left} {draw(comparison_signs)} {draw(arithmetics[2])}"


attribute_pairs = st.builds("{} {} {}".format, written_names, comparison_signs, written_names)

degrees = st.sampled_from([0, 0.0, 10, 52.5, -45.25, 89.9, -90, 90])
corners_of_places = st.lists(st.tuples(degrees, degrees), min_size=2, max_size=5)
radii = st.sampled_from([0, 1.5, 1000, 111_195, 1e6, 3e7])


@st.composite
def places(draw: st.DrawFn) -> str:
    lat, lon = draw(written_names), draw(written_names)
    points = draw(corners_of_places)
    if draw(booleans):
        metres = draw(radii)
        return f"near({lat}, {lon}, {points[0][0]}, {points[0][1]}, {metres})"
    if len(points) == 2 and points[0][0] > points[1][0]:
        points.reverse()
    corners = ", ".join(f"{p[0]}, {p[1]}" for p in points)
    return f"within({lat}, {lon}, {corners})"


exact_tests = st.one_of(comparisons(), comparisons(), ranges(), lists(), prefixes())
"""The tests for which the algebra promises an exact answer."""

all_tests = st.one_of(
    exact_tests,
    exact_tests,
    null_tests,
    like_tests(),
    topic_tests(),
    computed(),
    attribute_pairs,
    places(),
    written_names,
    st.sampled_from(["TRUE", "FALSE"]),
)


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        several.map(lambda parts: "(" + " AND ".join(parts) + ")"),
        several.map(lambda parts: "(" + " or ".join(parts) + ")"),
        inner.map(lambda part: f"NOT ({part})"),
    )


filter_texts = st.recursive(all_tests, _combined, max_leaves=6)
exact_conjunctions = st.lists(exact_tests, min_size=1, max_size=4).map(" AND ".join)
exact_texts = st.recursive(exact_tests | null_tests, _combined, max_leaves=5)
