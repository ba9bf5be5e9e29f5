"""Subscriptions and events to measure matching with, made from a seed."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sterna.matching import MatchIndex
from sterna.model.event import Scalar
from sterna.model.filters import Filter, tree
from sterna.model.filters.tree import Attribute, Between, Compare, Condition, In, Like, Literal

Event = dict[str, Scalar]
Floats = npt.NDArray[np.float64]

ATTRIBUTES = 20
EVENT_ATTRIBUTES = 15
NUMBERS_MAX = 1000.0
VEHICLES = 100_000
"""How many identifiers the events of `ids` have."""


@dataclass(frozen=True)
class Workload:
    """Filters and events of one sort."""

    name: str
    about: str
    filters: Callable[[int, int], Iterator[Filter]]
    """Makes so many filters, from a seed."""
    events: Callable[[int, int], list[Event]]
    """Makes so many events, from a seed."""


def standard(match_rate: float) -> Workload:
    """The workload of the literature: conjunctions over twenty attributes.

    Attributes are popular by Zipf's law; every other one is a number, evenly distributed, or a
    category, of 20 to 110 by Zipf's law. A filter has 3 to 5 tests (`=`, `IN`, `<`, `>`,
    `BETWEEN`), an event 15 attributes. How wide ranges are follows from the match rate.
    """
    return Workload(
        "standard",
        f"3 to 5 tests on 20 attributes, {match_rate:.2%} match",
        lambda count, seed: _standard_filters(count, seed, _width_for(match_rate)),
        _standard_events,
    )


def standard_columns(count: int, seed: int) -> dict[str, pa.Array]:
    """The events that `standard` makes of this seed, in columns, which is faster."""
    rng = np.random.default_rng(seed + 1)
    order = np.argsort(rng.exponential(size=(count, ATTRIBUTES)) / _zipf(ATTRIBUTES), axis=1)
    numbers = rng.random((count, ATTRIBUTES))
    missing = np.ones((count, ATTRIBUTES), bool)
    np.put_along_axis(missing, order[:, :EVENT_ATTRIBUTES], values=False, axis=1)
    columns = {}
    for a in range(ATTRIBUTES):
        mine, absent = numbers[:, a], missing[:, a]
        if a % 2 == 0:
            columns[f"a{a}"] = pa.array(mine * NUMBERS_MAX, mask=absent)
        else:
            bounds = _CATEGORIES[a // 2]
            names = pa.array([f"v{number}" for number in range(len(bounds) + 1)])
            columns[f"a{a}"] = names.take(pa.array(np.searchsorted(bounds, mine), mask=absent))
    return columns


def ids() -> Workload:
    """Each subscriber follows a few things by their identifiers."""
    return Workload(
        "ids",
        "an identifier of as many as there are filters, and a range",
        _id_filters,
        _id_events,
    )


def id_columns(count: int, seed: int) -> dict[str, pa.Array]:
    """Events like those of `ids`, in columns."""
    rng = np.random.default_rng(seed + 1)
    vehicles = pa.array([f"vehicle-{number}" for number in range(VEHICLES)])
    return {
        "vehicle": vehicles.take(pa.array(rng.integers(0, VEHICLES, count))),
        "speed": pa.array(rng.random(count) * 200),
    }


def topics() -> Workload:
    """MQTT-style topics, with wildcards, and a range on the value."""
    return Workload(
        "topics", "topic filters with + and #, and a range", _topic_filters, _topic_events
    )


def text() -> Workload:
    """LIKE, OR and NOT in every filter."""
    return Workload("text", "LIKE, OR and NOT in every filter", _text_filters, _text_events)


# ---- Standard


def _zipf(count: int) -> Floats:
    weights: Floats = 1 / np.arange(1, count + 1)
    return np.asarray(weights / weights.sum())


_CATEGORIES = [np.cumsum(_zipf(20 + 10 * k)) for k in range(ATTRIBUTES // 2)]


def _standard_filters(count: int, seed: int, width: float) -> Iterator[Filter]:
    rng = np.random.default_rng(seed)
    popularity = _zipf(ATTRIBUTES)
    made = 0
    while made < count:
        portion = min(10_000, count - made)
        made += portion
        order = np.argsort(rng.exponential(size=(portion, ATTRIBUTES)) / popularity, axis=1)
        tests = rng.integers(3, 6, portion)
        draws = rng.random((portion, 5, 8))
        for i in range(portion):
            chosen = order[i, : tests[i]].tolist()
            yield _conjunction(
                _number_test(a, draws[i, j].tolist(), width)
                if a % 2 == 0
                else _category_test(a, draws[i, j])
                for j, a in enumerate(chosen)
            )


def _conjunction(tests: Iterator[Condition]) -> Filter:
    return Filter.from_condition(tree.And(tuple(tests)))


def _number_test(attribute: int, draws: list[float], width: float) -> Condition:
    name = Attribute(f"a{attribute}")
    wide = width * (0.5 + draws[0])
    if draws[1] < 0.25:
        return Compare("<", name, Literal(NUMBERS_MAX * wide))
    if draws[1] < 0.5:
        return Compare(">", name, Literal(NUMBERS_MAX * (1 - wide)))
    low = draws[2] * max(0, 1 - wide)
    return Between(name, Literal(NUMBERS_MAX * low), Literal(NUMBERS_MAX * (low + wide)))


def _category_test(attribute: int, draws: Floats) -> Condition:
    name = Attribute(f"a{attribute}")
    values = np.searchsorted(_CATEGORIES[attribute // 2], draws[2:]).tolist()
    if draws[0] < 0.5:
        return Compare("=", name, Literal(f"v{values[0]}"))
    several = dict.fromkeys(values[: 2 + int(draws[1] * 4)])
    return In(name, tuple(Literal(f"v{value}") for value in several))


def _standard_events(count: int, seed: int) -> list[Event]:
    rng = np.random.default_rng(seed + 1)
    order = np.argsort(rng.exponential(size=(count, ATTRIBUTES)) / _zipf(ATTRIBUTES), axis=1)
    numbers = rng.random((count, ATTRIBUTES))
    return [
        {
            f"a{a}": number * NUMBERS_MAX
            if a % 2 == 0
            else f"v{np.searchsorted(_CATEGORIES[a // 2], number)}"
            for a, number in (
                (a, float(numbers[i, a])) for a in order[i, :EVENT_ATTRIBUTES].tolist()
            )
        }
        for i in range(count)
    ]


@lru_cache
def _width_for(match_rate: float) -> float:
    """The width of ranges for which about so many filters match an event; it takes a second."""
    events = _standard_events(300, 90)
    low, high = 0.01, 2.0
    for _ in range(8):
        width = math.sqrt(low * high)
        index: MatchIndex[int] = MatchIndex()
        for key, filter_ in enumerate(_standard_filters(1500, 80, width)):
            index.add(key, filter_)
        rate = sum(len(index.match(event)) for event in events) / len(events) / len(index)
        low, high = (width, high) if rate < match_rate else (low, width)
    return math.sqrt(low * high)


# ---- Identifiers


def _id_filters(count: int, seed: int) -> Iterator[Filter]:
    rng = np.random.default_rng(seed)
    for number in rng.integers(0, count, count).tolist():
        vehicle = Compare("=", Attribute("vehicle"), Literal(f"vehicle-{number}"))
        speed = Compare(">", Attribute("speed"), Literal(float(number % 100)))
        yield Filter.from_condition(tree.And((vehicle, speed)))


def _id_events(count: int, seed: int) -> list[Event]:
    rng = np.random.default_rng(seed + 1)
    return [
        {
            "vehicle": f"vehicle-{rng.integers(0, VEHICLES)}",
            "speed": float(rng.random() * 200),
            "lat": float(rng.random()),
            "lon": float(rng.random()),
            "line": f"line-{rng.integers(0, 30)}",
        }
        for _ in range(count)
    ]


# ---- Topics

_KINDS = ("temperature", "humidity", "parking", "speed", "noise", "charging")


def _topic(city: int, district: int, street: int, kind: str) -> list[str]:
    return [f"city-{city}", f"district-{district}", f"street-{street}", kind]


def _topic_filters(count: int, seed: int) -> Iterator[Filter]:
    rng = np.random.default_rng(seed)
    draws = rng.random((count, 6))
    for draw in draws.tolist():
        levels = _topic(*_place(draw), _KINDS[int(draw[3] * len(_KINDS))])
        if draw[4] < 0.3:
            levels[2] = "+"
        elif draw[4] < 0.5:
            levels[3:] = ["#"]
        topic: Condition = tree.Matches(Attribute("topic"), "/".join(levels))
        yield Filter.from_condition(
            tree.And((topic, Compare(">", Attribute("value"), Literal(100 * draw[5]))))
        )


def _place(draw: list[float]) -> tuple[int, int, int]:
    return int(draw[0] * 50), int(draw[1] * 20), int(draw[2] * 100)


def _topic_events(count: int, seed: int) -> list[Event]:
    rng = np.random.default_rng(seed + 1)
    return [
        {
            "topic": "/".join(_topic(*_place(draw), _KINDS[int(draw[3] * len(_KINDS))])),
            "value": 100 * draw[4],
            "unit": "x",
        }
        for draw in rng.random((count, 5)).tolist()
    ]


# ---- Text

_SYLLABLES = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"]


def _word(draws: list[float]) -> str:
    return "".join(_SYLLABLES[int(draw * len(_SYLLABLES))] for draw in draws)


def _text_filters(count: int, seed: int) -> Iterator[Filter]:
    rng = np.random.default_rng(seed)
    for draws in rng.random((count, 10)).tolist():
        part = _word(draws[:2])
        title = Like(Attribute("title"), (f"%{part}%", f"{part}%", f"%{part}")[int(draws[2] * 3)])
        author = Compare("=", Attribute("author"), Literal(f"author-{int(draws[3] * 5000)}"))
        price = Compare("<", Attribute("price"), Literal(100 * draws[4]))
        place = In(Attribute("place"), tuple(Literal(f"place-{int(d * 300)}") for d in draws[5:7]))
        old = tree.Not(Compare("=", Attribute("state"), Literal("used")))
        unnamed = tree.Not(tree.IsNull(Attribute("author")))
        match int(draws[8] * 4):
            case 0:
                condition: Condition = tree.And((tree.Or((title, author)), price))
            case 1:
                condition = tree.And((title, old, tree.Not(place)))
            case 2:
                condition = tree.Or((tree.And((author, price)), tree.And((place, title, unnamed))))
            case _:
                condition = tree.And((tree.Or((author, tree.And((place, price)))), tree.Not(title)))
        yield Filter.from_condition(condition)


def _text_events(count: int, seed: int) -> list[Event]:
    rng = np.random.default_rng(seed + 1)
    return [
        {
            "title": " ".join(_word(draws[k : k + 2]) for k in range(0, 8, 2)),
            "author": f"author-{int(draws[8] * 5000)}",
            "price": 100 * draws[9],
            "place": f"place-{int(draws[10] * 300)}",
            "state": ("new", "used")[int(draws[11] * 2)],
        }
        for draws in rng.random((count, 12)).tolist()
    ]
