"""The scenarios of `sterna bench broker`."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sterna.bench.speaker import Content
from sterna.bench.worker import Protocol

CONTENTS = 1000
"""How many different contents the events have; they are published over and over."""
SYMBOLS = 10
PRICE_MAX = 1000.0
FILTERS = 1000
SHARE = 0.01
"""The share of the content filters that an event matches, on average."""

EVERYTHING = "price >= 0"

BATCH = 100
"""How many events a frame of a single publisher has."""
WINDOW = 5_000
"""How many events of a single publisher may be unacknowledged, unless one subscriber is all."""


class ScenarioName(StrEnum):
    """Publishers and subscribers; in the last one, a thousand different filters."""

    ONE_TO_ONE = "1-1"
    FAN_OUT = "1-100"
    FAN_IN = "100-1"
    CONTENT = "1-1000"


@dataclass(frozen=True)
class Range:
    """A content filter: one symbol, and prices between two."""

    symbol: str
    low: float
    high: float

    def __str__(self) -> str:
        return f"sym = '{self.symbol}' AND price BETWEEN {self.low} AND {self.high}"

    def matches(self, content: Content) -> bool:
        return content[0] == self.symbol and self.low <= content[1] <= self.high


@dataclass(frozen=True)
class Scenario:
    """How much each client publishes, and what each receives of it."""

    name: ScenarioName
    about: str
    publishers: int
    batch: int
    """How many events a frame has."""
    window: int
    """How many events of one publisher may be unacknowledged."""
    events: Mapping[Protocol, int]
    """How many events all publishers send in a round: each takes about a second."""
    contents: list[Content]
    filters: Mapping[str, list[str]]
    """The filters of each subscriber."""
    wanted: Sequence[int]
    """How many of the contents each subscriber gets."""

    def events_of(self, protocol: Protocol, scale: float) -> int:
        """Events in a round: whole rounds of the contents, from each publisher the same."""
        whole = CONTENTS * self.publishers if self.publishers < CONTENTS else CONTENTS
        return max(1, round(self.events[protocol] * scale / whole)) * whole

    def deliveries(self, events: int) -> list[int]:
        """How many of so many events each subscriber gets."""
        return [events * wanted // CONTENTS for wanted in self.wanted]


def scenario(name: ScenarioName, connections: int = 20) -> Scenario:
    """A scenario; content filters are spread over so many connections."""
    match name:
        case ScenarioName.ONE_TO_ONE:
            return _plain(
                name, "one publisher, one subscriber", 1, 1, (400_000, 100_000, 40_000, 20_000)
            )
        case ScenarioName.FAN_OUT:
            about = "one publisher, 100 subscribers"
            return _plain(name, about, 1, 100, (40_000, 2_000, 1_000, 1_000))
        case ScenarioName.FAN_IN:
            about = "100 publishers, one subscriber"
            return _plain(name, about, 100, 1, (200_000, 100_000, 100_000, 100_000))
        case ScenarioName.CONTENT:
            return _content(connections)


def contents() -> list[Content]:
    """The contents of events, the same each time."""
    rng = random.Random("contents")  # noqa: S311 - reproducible, not secret.
    return [
        (f"s{rng.randrange(SYMBOLS)}", round(rng.uniform(0, PRICE_MAX), 1)) for _ in range(CONTENTS)
    ]


def ranges(count: int, symbol: str = "s") -> list[Range]:
    """Content filters, of which an event matches about one in a hundred."""
    rng = random.Random("ranges")  # noqa: S311
    width = PRICE_MAX * SYMBOLS * SHARE
    made = []
    for _ in range(count):
        low = rng.uniform(-width / 2, PRICE_MAX - width / 2)
        drawn = f"{symbol}{rng.randrange(SYMBOLS)}"
        made.append(Range(drawn, round(low, 1), round(low + width, 1)))
    return made


def _plain(
    name: ScenarioName, about: str, publishers: int, subscribers: int, events: tuple[int, ...]
) -> Scenario:
    many = publishers > 1
    return Scenario(
        name=name,
        about=about,
        publishers=publishers,
        batch=10 if many else BATCH,
        window=100 if many else WINDOW if subscribers > 1 else 20_000,
        events=dict(zip(Protocol, events, strict=True)),
        contents=contents(),
        filters={f"subscriber-{number}": [EVERYTHING] for number in range(subscribers)},
        wanted=[CONTENTS] * subscribers,
    )


def _content(connections: int) -> Scenario:
    known = contents()
    made = ranges(FILTERS)
    parts = [made[number::connections] for number in range(connections)]
    matching = sum(each.matches(content) for each in made for content in known) / CONTENTS
    return Scenario(
        name=ScenarioName.CONTENT,
        about=f"one publisher, {FILTERS:,} content filters over {connections:,} connections, "
        f"of which an event matches {matching:.1f}",
        publishers=1,
        batch=BATCH,
        window=WINDOW,
        events={Protocol.NATIVE: 100_000},
        contents=known,
        filters={
            f"subscriber-{number}": [str(each) for each in part]
            for number, part in enumerate(parts)
        },
        wanted=[
            sum(any(each.matches(content) for each in part) for content in known) for part in parts
        ],
    )
