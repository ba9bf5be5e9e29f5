"""Where clients will go next: a model mined from where they went, in one small file."""

import math
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from struct import Struct as Layout
from typing import NamedTuple

import h3
import msgspec

from sterna.model.location import MODEL_SUFFIX, LocationError, LocationSpace, MovementGraph

MAGIC = b"STERNAMM"
VERSION = 2
OLDEST = 1
"""The oldest version that is still read; its files have no sharpness."""

SHARPNESS_MIN, SHARPNESS_MAX = 0.1, 10.0

WHOLE = 100
"""Counts are kept in hundredths: an old move may count for less than a recent one."""

_HEAD = Layout("<8sHQI")  # Magic, version, length of the body, CRC-32 of version, length and body.
_NUMBERS = Layout("<HQ")

_QUARTER_US = 15 * 60 * 1_000_000
_PARTS = (0,) * 6 + (1,) * 4 + (2,) * 5 + (3,) * 5 + (0,) * 4
"""The part of the day of each hour: night, morning, midday, evening."""

FEATURES = ("place", "previous", "client", "part", "hour", "quarter")
"""What a context may consist of. `part`, `hour` and `quarter` tell working days from weekends."""


class MobilityModelError(LocationError):
    """A file is not a mobility model, or cannot be used. The message says what to do."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How large a model is."""

    places: int
    clients: int
    moves: int
    """How many pairs of places have moves from one to the other."""
    counts: int
    """How many pairs there are of a context and a place where clients went in it."""


class Contexts(msgspec.Struct, frozen=True, kw_only=True):
    """How often clients went where, for each combination of some features' values, as columns."""

    features: tuple[str, ...]
    keys: list[int]
    """The values of the features, context by context."""
    sizes: list[int]
    """How many destinations each context has."""
    destinations: list[int]
    counts: list[int]


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A chain of contexts, from coarse to fine: one with little data relies on the one before."""

    name: str
    levels: tuple[int, ...]
    """The contexts, by their positions in the document."""
    strengths: tuple[float, ...]
    """For each level, how many moves the prediction of the level before it counts for."""
    weight: float
    """Its weight in the blend of all predictors."""


class Dwell(msgspec.Struct, frozen=True, kw_only=True):
    """How long clients stayed at a place, in seconds."""

    count: int
    mean_s: float
    p10_s: float
    p50_s: float
    p90_s: float
    min_s: float | None = None
    """The shortest stay; None in files that were mined before this was kept."""


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file."""

    sizes: Sizes
    until_us: int
    """The end of the data; later moves are not in the model."""
    grid: str
    """What the places are: `h3:9`, `square:500` (metres), or empty for names."""
    near: float
    """In a grid, the share of clients without history that goes to a neighbouring cell."""
    places: list[str]
    clients: list[str]
    popularity: list[int]
    """How often clients went to each place."""
    contexts: list[Contexts]
    predictors: list[Chain]
    moves: list[tuple[int, int, int]]
    """The movement graph: origin, destination and count of each move."""
    dwell: dict[int, Dwell]
    sharpness: float = 1.0
    """The power that the probabilities of the blend are raised to, before they are divided by their
    sum: above 1, likely places become likelier. It makes predictions as sure as they are right."""


class Prediction(NamedTuple):
    """A place and how probable it is."""

    place: str
    probability: float


class MobilityModel:
    """Answers where a client goes next, how long it stays, and what it can reach."""

    def __init__(self, document: Document) -> None:
        _check(document)
        self.document = document
        self._place_numbers = {name: number for number, name in enumerate(document.places)}
        self._client_numbers = {name: number for number, name in enumerate(document.clients)}
        self._found = [dict(_ranges(each)) for each in document.contexts]
        self._blend = [(each, each.weight) for each in document.predictors if each.weight > 0]
        self._popular = sorted(
            range(len(document.places)), key=lambda n: (-document.popularity[n], n)
        )
        # Each place counts once more than clients went there: nothing is impossible.
        self._popularity = [each + WHOLE for each in document.popularity]
        self._popularity_all = sum(self._popularity)
        self._sharp_popularity_all = sum(each**document.sharpness for each in self._popularity)

    @classmethod
    def load(cls, path: str | Path) -> "MobilityModel":
        """Read a file that `save` wrote. This runs no code from the file."""
        data = content_of(path)
        try:
            return cls.from_bytes(data)
        except MobilityModelError as error:
            raise MobilityModelError(f"{path}: {error}") from None

    @classmethod
    def from_bytes(cls, data: bytes) -> "MobilityModel":
        """Read the content of a file."""
        if len(data) < _HEAD.size or not data.startswith(MAGIC):
            raise MobilityModelError("not a mobility model; `sterna pipeline mine` makes one")
        _, version, length, checksum = _HEAD.unpack_from(data)
        if not OLDEST <= version <= VERSION:
            raise MobilityModelError(
                f"a mobility model of version {version}, but this Sterna reads versions {OLDEST} "
                f"to {VERSION}: mine it again with this version of Sterna"
            )
        body = memoryview(data)[_HEAD.size :]
        if len(body) != length or _checksum(version, body) != checksum:
            raise MobilityModelError("damaged: copy or mine it again")
        try:
            return cls(msgspec.msgpack.decode(body, type=Document))
        except msgspec.MsgspecError as error:
            raise MobilityModelError(f"not what a mobility model holds: {error}") from None

    def to_bytes(self) -> bytes:
        """The content of a file."""
        body = msgspec.msgpack.encode(self.document)
        return _HEAD.pack(MAGIC, VERSION, len(body), _checksum(VERSION, body)) + body

    def save(self, path: str | Path) -> None:
        """Write the model to a file. An existing file is replaced once the new one is complete."""
        path = Path(path)
        partial = path.with_name(f".{path.name}.partial")
        try:
            partial.write_bytes(self.to_bytes())
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise MobilityModelError(f"cannot write {path}: {error.strerror}") from None

    def __repr__(self) -> str:
        sizes = self.sizes
        return f"<MobilityModel of {sizes.places} places and {sizes.counts} counts>"

    @property
    def sizes(self) -> Sizes:
        return self.document.sizes

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(self.document.places)

    def next(
        self,
        place: str,
        client: str | None = None,
        previous: str | None = None,
        time_us: int | None = None,
        count: int = 3,
    ) -> list[Prediction]:
        """The most probable next places of a client that leaves `place`, best first.

        The prediction is better with more arguments: the client, the place before, and the time of
        leaving. Values that the model has never seen are ignored.
        """
        return self._sharpened(place, client, previous, time_us, count)

    def probabilities(
        self,
        place: str,
        client: str | None = None,
        previous: str | None = None,
        time_us: int | None = None,
    ) -> dict[str, float]:
        """How probable each place is as the next one; they sum to 1."""
        count = len(self.document.places) + len(self._neighbours(place))
        return dict(self._sharpened(place, client, previous, time_us, count))

    def ranked(
        self,
        blend: Sequence[tuple[Chain, float]],
        place: str,
        client: str | None = None,
        previous: str | None = None,
        time_us: int | None = None,
        count: int = 3,
    ) -> list[Prediction]:
        """The prediction of some predictors together, each with its weight, as they are."""
        named, popular = self._named(blend, place, client, previous, time_us)
        return _best(named | self._others(named, popular, count), count)

    def graph(self) -> MovementGraph:
        """Which place leads to which. Edges are directed: there need not be a way back."""
        return self._graph

    def ploc(self, place: str, steps: int) -> frozenset[str]:
        """The places that can be reached in at most so many steps."""
        return self._graph.ploc(place, steps)

    def dwell(self, place: str) -> Dwell | None:
        """How long clients stay at a place; None if no whole stay is in the data."""
        number = self._place_numbers.get(place)
        return None if number is None else self.document.dwell.get(number)

    @property
    def least_dwell_us(self) -> int | None:
        """The shortest stay in the data, in microseconds; None if it is not known.

        All movements in the data respect this dwell time. Future ones may not: of stays in no
        particular order, the next one is shorter than n others with a probability of 1 in n + 1. A
        quantile would be longer, and some stays in the data would already be shorter than it.
        """
        least = [each.min_s for each in self.document.dwell.values()]
        known = [seconds for seconds in least if seconds is not None]
        if not known or len(known) < len(least):
            return None
        return max(1, math.floor(min(known) * 1e6))

    def knows_all_of(self, space: LocationSpace) -> bool:
        """Whether every location of a space is a place of the model; never for a whole grid."""
        return isinstance(space, MovementGraph) and all(
            location in self._place_numbers for location in space.locations
        )

    def _sharpened(
        self,
        place: str,
        client: str | None,
        previous: str | None,
        time_us: int | None,
        count: int,
    ) -> list[Prediction]:
        """The prediction of the blend, as sure as it is right."""
        named, popular = self._named(self._blend, place, client, previous, time_us)
        power = self.document.sharpness
        everything = named | self._others(named, popular, count)
        if power == 1:
            return _best(everything, count)
        numbers = (self._place_numbers.get(name) for name in named)
        rest = self._sharp_popularity_all - sum(
            self._popularity[number] ** power for number in numbers if number is not None
        )
        whole = sum(score**power for score in named.values()) + popular**power * max(rest, 0.0)
        return _best({name: score**power / whole for name, score in everything.items()}, count)

    def _named(
        self,
        blend: Sequence[tuple[Chain, float]],
        place: str,
        client: str | None,
        previous: str | None,
        time_us: int | None,
    ) -> tuple[dict[str, float], float]:
        """The probability of places that clients went to in such contexts, and of neighbours.

        Each of the others has its popularity times the second number.
        """
        factors, rest = self._factors(blend, self._values(place, client, previous, time_us))
        scores: dict[int, float] = {}
        for level, begin, end, factor in factors:
            contexts = self.document.contexts[level]
            found = zip(contexts.destinations[begin:end], contexts.counts[begin:end], strict=True)
            for destination, times in found:
                scores[destination] = scores.get(destination, 0.0) + factor * times
        around = self._neighbours(place)
        near = rest * self.document.near if around else 0.0
        popular = (rest - near) / self._popularity_all if self._popularity_all else 0.0
        for name in around:
            number = self._place_numbers.get(name)
            if number is not None:
                scores.setdefault(number, 0.0)
        names, popularity = self.document.places, self._popularity
        named = {
            names[number]: score + popular * popularity[number] for number, score in scores.items()
        }
        for name in around:
            named[name] = named.get(name, 0.0) + near / len(around)
        return named, popular

    @cached_property
    def _graph(self) -> MovementGraph:
        names = self.document.places
        edges = ((names[a], names[b]) for a, b, _ in self.document.moves)
        return MovementGraph(edges, locations=names, directed=True)

    def _values(
        self, place: str, client: str | None, previous: str | None, time_us: int | None
    ) -> dict[str, int]:
        """The known features, as numbers."""
        found = {
            "place": self._place_numbers.get(place),
            "previous": None if previous is None else self._place_numbers.get(previous),
            "client": None if client is None else self._client_numbers.get(client),
        }
        values = {name: number for name, number in found.items() if number is not None}
        if time_us is not None:
            values["part"], values["hour"], values["quarter"] = buckets(time_us)
        return values

    def _factors(
        self, blend: Sequence[tuple[Chain, float]], values: dict[str, int]
    ) -> tuple[list[tuple[int, int, int, float]], float]:
        """The factor for each count, and what is left for popular and neighbouring places.

        A level predicts (count + strength * prediction of the level before) / (all counts +
        strength). So each level's counts are multiplied by a factor, and need no merging.
        """
        found: dict[int, tuple[int, int, int] | None] = {}
        factors: dict[int, float] = {}
        rest = 0.0
        for predictor, weight in blend:
            share = weight
            for position in range(len(predictor.levels) - 1, -1, -1):
                level = predictor.levels[position]
                if level not in found:
                    found[level] = self._find(level, values)
                context = found[level]
                if context is not None:
                    strength = predictor.strengths[position] * WHOLE
                    everything = context[2] + strength
                    factors[level] = factors.get(level, 0.0) + share / everything
                    share *= strength / everything
            rest += share
        ranges = {level: context for level, context in found.items() if context is not None}
        return [(level, *ranges[level][:2], factor) for level, factor in factors.items()], rest

    def _find(self, level: int, values: dict[str, int]) -> tuple[int, int, int] | None:
        """The range of a context's destinations, and the sum of their counts."""
        try:
            key = tuple([values[name] for name in self.document.contexts[level].features])
        except KeyError:  # Not known.
            return None
        return self._found[level].get(key)

    def _others(self, named: dict[str, float], popular: float, count: int) -> dict[str, float]:
        """The most popular other places, which may be among the best."""
        names = self.document.places
        others = (number for number in self._popular if names[number] not in named)
        return {
            names[number]: popular * self._popularity[number] for number in islice(others, count)
        }

    def _neighbours(self, place: str) -> tuple[str, ...]:
        if not self.document.near:
            return ()
        return neighbours(self.document.grid, place)


def content_of(path: str | Path) -> bytes:
    """The content of a model file, which `MobilityModel.from_bytes` reads."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MobilityModelError(
            f"cannot read {path}: {error.strerror}; name a file that `sterna pipeline mine` wrote"
        ) from None


def mined_dwell_us(path: str | Path) -> int | None:
    """The dwell time in the file of a movement graph; None if it is not a model, or has none."""
    if Path(path).suffix.lower() != MODEL_SUFFIX:
        return None
    return MobilityModel.load(path).least_dwell_us


def buckets(time_us: int) -> tuple[int, int, int]:
    """The part, hour and quarter of an hour of a time; weekends continue the numbering."""
    quarters = time_us // _QUARTER_US
    weekend = (quarters // 96 + 3) % 7 >= 5  # 1970 began on a Thursday.
    quarter = quarters % 96
    hour = quarter // 4
    return _PARTS[hour] + 4 * weekend, hour + 24 * weekend, quarter + 96 * weekend


def neighbours(grid: str, place: str) -> tuple[str, ...]:
    """The cells around a cell; none if places are not cells."""
    kind = grid.partition(":")[0]
    if kind == "h3" and h3.is_valid_cell(place):
        return tuple(sorted(set(h3.grid_disk(place, 1)) - {place}))
    if kind == "square":
        column, _, row = place.partition(",")
        try:
            x, y = int(column), int(row)
        except ValueError:
            return ()
        steps = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)]
        return tuple(f"{x + a},{y + b}" for a, b in steps)
    return ()


def _best(named: dict[str, float], count: int) -> list[Prediction]:
    ordered = sorted(named.items(), key=lambda item: (-item[1], item[0]))
    return [Prediction(*each) for each in ordered[:count]]


def _ranges(contexts: Contexts) -> Iterator[tuple[tuple[int, ...], tuple[int, int, int]]]:
    """The range of each context's destinations, and the sum of their counts."""
    width = len(contexts.features)
    begin = 0
    for number, size in enumerate(contexts.sizes):
        end = begin + size
        key = tuple(contexts.keys[number * width : (number + 1) * width])
        yield key, (begin, end, sum(contexts.counts[begin:end]))
        begin = end


def _check(document: Document) -> None:
    """Raise an error if numbers of places or contexts point nowhere, or sizes are wrong."""
    places = len(document.places)
    problems = [
        document.sizes
        != Sizes(
            places=places,
            clients=len(document.clients),
            moves=len(document.moves),
            counts=sum(len(each.counts) for each in document.contexts),
        ),
        len(document.popularity) != places or any(each < 0 for each in document.popularity),
        not 0 <= document.near < 1,
        not SHARPNESS_MIN <= document.sharpness <= SHARPNESS_MAX,
        not all(0 <= a < places and 0 <= b < places for a, b, _ in document.moves),
        not all(_is_consistent(each, places) for each in document.contexts),
        not all(
            len(each.levels) == len(each.strengths)
            and all(0 <= level < len(document.contexts) for level in each.levels)
            and all(0 < number < math.inf for number in each.strengths)
            and 0 <= each.weight <= 1
            for each in document.predictors
        ),
        not all(
            each.min_s is None or 0 < each.min_s < math.inf for each in document.dwell.values()
        ),
    ]
    if any(problems):
        raise MobilityModelError("contradicts itself: mine it again")


def _is_consistent(contexts: Contexts, places: int) -> bool:
    return (
        set(contexts.features) <= set(FEATURES)
        and len(contexts.keys) == len(contexts.features) * len(contexts.sizes)
        and sum(contexts.sizes) == len(contexts.destinations) == len(contexts.counts)
        and all(0 <= destination < places for destination in contexts.destinations)
        and all(number > 0 for number in (*contexts.sizes, *contexts.counts))
    )


def _checksum(version: int, body: bytes | memoryview) -> int:
    return zlib.crc32(body, zlib.crc32(_NUMBERS.pack(version, len(body))))
