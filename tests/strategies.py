"""Hypothesis strategies for filters and events that meet at the boundaries.

Filters and events draw from the same few values, and from the neighbours of those values, so that
a random event has a good chance to lie exactly on the edge of a random filter.
"""

import math
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st

from sterna.model.event import INT_MAX, INT_MIN, Scalar
from sterna.model.filters.tree import write_name, write_scalar

T = TypeVar("T")
Making = Callable[[Random], T]
"""Makes something by chance, always the same from the same state of the generator."""

seeds = st.integers(0, 2**24 - 1)
"""A seed is uniform in this range; in a larger one Hypothesis prefers small numbers."""


def seeded(make: Making[T]) -> st.SearchStrategy[T]:
    """What a function makes of a random generator, by drawing no more than the generator's seed.

    Hypothesis takes longer to draw each part of a filter than a test takes to try it out. What is
    lost is that a failing example becomes smaller: only lists of such things become shorter.
    """
    return seeds.map(lambda seed: make(Random(seed)))  # noqa: S311 - to be repeated.


BATCH = 25


def batches(*makes: Making[Any]) -> st.SearchStrategy[list[Any]]:
    """Tuples, BATCH of them in an example: what Hypothesis does around a quick check takes longer
    than the check.
    """
    return seeded(lambda random: [tuple(make(random) for make in makes) for _ in range(BATCH)])


def several(make: Making[T], low: int, high: int | None = None) -> Making[list[T]]:
    """So many of them. Now and then one comes again."""

    def made(random: Random) -> list[T]:
        found: list[T] = []
        for _ in range(low if high is None else random.randint(low, high)):
            found.append(random.choice(found) if found and random.random() < 0.07 else make(random))
        return found

    return made


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
SIGNS = ("=", "<>", "<", "<=", ">", ">=")


def text_of(random: Random, alphabet: str, length_max: int) -> str:
    return "".join(random.choices(alphabet, k=random.randint(0, length_max)))


def number(random: Random) -> float:
    """One that filters use often, or one of the range where they are."""
    match random.randrange(4):
        case 0:
            return random.randint(-5, 12)
        case 1:
            return random.randint(-5 * 256, 12 * 256) / 256
        case _:
            return random.choice(NUMBERS)


def neighbour(random: Random) -> float:
    """A number right beside one that filters use."""
    beside = number(random)
    whole = int(beside) + random.choice((-1, 1))
    if random.random() < 0.5 and INT_MIN <= whole <= INT_MAX:
        return whole
    return math.nextafter(float(beside), random.choice((math.inf, -math.inf)))


def string(random: Random) -> str:
    if random.random() < 0.5:
        return random.choice(STRINGS)
    return text_of(random, "ab%_/\\é😀", 4)


def boolean(random: Random) -> bool:
    return random.random() < 0.5


def scalar(random: Random) -> Scalar:
    match random.randrange(13):
        case 0 | 1 | 2 | 3:
            return number(random)
        case 4 | 5:
            return neighbour(random)
        case 6:
            return random.choice((math.nan, math.inf, -math.inf))
        case 7:
            return boolean(random)
        case _:
            return string(random)


def some_event(random: Random) -> dict[str, Scalar | None]:
    """Some of the attributes, a few of them without a value."""
    chosen = random.sample(NAMES, random.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, *[4] * 6)))
    return {name: None if random.random() < 0.1 else scalar(random) for name in chosen}


# ---- Filters, as text


def written_name(random: Random) -> str:
    return write_name(random.choice(NAMES))


def sign(random: Random) -> str:
    return random.choice(SIGNS)


def maybe_not(random: Random) -> str:
    return random.choice(("", "", "NOT "))


def constant(random: Random) -> str:
    return write_scalar(string(random) if random.randrange(3) == 0 else number(random))


def comparison(random: Random) -> str:
    name = written_name(random)
    if random.randrange(10) == 0:
        return f"{name} {random.choice(('= TRUE', '= false', '<> true', '<> FALSE'))}"
    parts = [name, sign(random), constant(random)]
    if random.randrange(5) == 0:
        parts.reverse()
    return " ".join(parts)


def in_range(random: Random) -> str:
    bound: Making[Scalar] = string if random.randrange(3) == 0 else number
    low, high = (write_scalar(bound(random)) for _ in range(2))
    return f"{written_name(random)} {maybe_not(random)}BETWEEN {low} AND {high}"


def in_list(random: Random) -> str:
    member: Making[Scalar] = random.choice((number, string, boolean))
    members = ", ".join(write_scalar(member(random)) for _ in range(random.randint(1, 4)))
    return f"{written_name(random)} {maybe_not(random)}IN ({members})"


def prefix(random: Random) -> str:
    escaped = string(random).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    pattern = write_scalar(escaped + "%")
    return f"{written_name(random)} {maybe_not(random)}LIKE {pattern} ESCAPE '\\'"


def null_test(random: Random) -> str:
    return f"{written_name(random)} IS {maybe_not(random)}NULL"


def like_test(random: Random) -> str:
    pattern, escape = text_of(random, "ab%_%_é😀/", 6), ""
    if boolean(random):
        pattern = random.choice(("", "%", "_")) + pattern.replace("_", "!_")
        escape = " ESCAPE '!'"
    return f"{written_name(random)} {maybe_not(random)}LIKE {write_scalar(pattern)}{escape}"


def topic(random: Random) -> str:
    levels = random.choices(("a", "b", "+", "", "$a", "+", "c"), k=random.randint(1, 3))
    if random.randrange(3) == 0:
        levels.append("#")
    return "/".join(levels) or "a"


def topic_test(random: Random) -> str:
    return f"{written_name(random)} {maybe_not(random)}MATCHES {write_scalar(topic(random))}"


def arithmetic(random: Random, depth: int) -> str:
    if depth == 0 or boolean(random):
        return written_name(random) if boolean(random) else write_scalar(number(random))
    left = arithmetic(random, depth - 1)
    if random.randrange(6) == 0:
        return f"-({left})"
    return f"({left} {random.choice('+-*/')} {arithmetic(random, depth - 1)})"


def computed(random: Random) -> str:
    left = arithmetic(random, 2)
    match random.randrange(4):
        case 0:
            return f"{left} BETWEEN {arithmetic(random, 1)} AND {arithmetic(random, 1)}"
        case 1:
            return f"{left} {maybe_not(random)}IN ({write_scalar(number(random))}, 2)"
        case _:
            return f"{left} {sign(random)} {arithmetic(random, 2)}"


def attribute_pair(random: Random) -> str:
    return f"{written_name(random)} {sign(random)} {written_name(random)}"


DEGREES = (0, 0.0, 10, 52.5, -45.25, 89.9, -90, 90)


def place(random: Random) -> str:
    lat, lon = written_name(random), written_name(random)
    points = [(random.choice(DEGREES), random.choice(DEGREES)) for _ in range(random.randint(2, 5))]
    if boolean(random):
        metres = random.choice((0, 1.5, 1000, 111_195, 1e6, 3e7))
        return f"near({lat}, {lon}, {points[0][0]}, {points[0][1]}, {metres})"
    if len(points) == 2 and points[0][0] > points[1][0]:
        points.reverse()
    corners = ", ".join(f"{p[0]}, {p[1]}" for p in points)
    return f"within({lat}, {lon}, {corners})"


EXACT_TESTS = (comparison, comparison, in_range, in_list, prefix)
"""The tests for which the algebra promises an exact answer."""

OTHER_TESTS = (
    *(null_test, like_test, topic_test, computed, attribute_pair, place, written_name),
    lambda random: random.choice(("TRUE", "FALSE")),
)


def exact_test(random: Random) -> str:
    return random.choice(EXACT_TESTS)(random)


def exact_or_null_test(random: Random) -> str:
    return null_test(random) if random.randrange(6) == 0 else exact_test(random)


def any_test(random: Random) -> str:
    return random.choice(EXACT_TESTS if random.randrange(9) < 5 else OTHER_TESTS)(random)


def combined(random: Random, test: Making[str], leaves: int) -> str:
    """So many tests, with AND, OR and NOT between them."""
    if random.randrange(5) == 0:
        return f"NOT ({combined(random, test, leaves)})"
    if leaves == 1:
        return test(random)
    count = min(leaves, random.randint(2, 3))
    sizes = [leaves // count + (part < leaves % count) for part in range(count)]
    random.shuffle(sizes)
    parts = [combined(random, test, size) for size in sizes]
    return "(" + random.choice((" AND ", " or ")).join(parts) + ")"


def filter_text(random: Random) -> str:
    return combined(random, any_test, random.choice((1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6)))


def exact_text(random: Random) -> str:
    return combined(random, exact_or_null_test, random.choice((1, 1, 1, 2, 2, 2, 3, 3, 4, 5)))


def exact_conjunction(random: Random) -> str:
    return " AND ".join(exact_test(random) for _ in range(random.randint(1, 4)))


# ---- The same for Hypothesis

numbers, neighbours, strings = seeded(number), seeded(neighbour), seeded(string)
scalars, events, topics = seeded(scalar), seeded(some_event), seeded(topic)
filter_texts, exact_texts = seeded(filter_text), seeded(exact_text)
exact_conjunctions = seeded(exact_conjunction)
