"""Locations, movement graphs, and `ploc`: where clients can be next."""

import csv
import io
import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Protocol

import h3

from sterna.errors import SternaError
from sterna.model.spelling import hint

REMEMBERED_MAX = 2_000_000
"""How many locations all cached results of `ploc` may have; a result counts as 16 more."""

CELLS_MAX = 100_000
"""How many cells one `ploc` in a grid may have."""


MODEL_SUFFIX = ".sterna-model"
"""The ending of files with mobility models."""


class LocationError(SternaError, ValueError):
    """A location, a grid or a movement graph that makes no sense; the message says what to do."""


class LocationSpace(Protocol):
    """A set of locations with the steps that lead from one to another."""

    def __contains__(self, location: object) -> bool: ...

    def ploc(self, location: str, steps: int) -> frozenset[str]:
        """The locations that can be reached in at most so many steps; staying is always possible.

        Monotone in `steps` (Fiege et al. 2003, section 5.1), and steps compose: what can be reached
        in q + r steps is what can be reached in r from what can be reached in q.
        """
        ...


class _Memory:
    """The latest results of `ploc`, as many as fit. Copies of a space begin without any."""

    def __init__(self) -> None:
        self._results: OrderedDict[tuple[str, int], frozenset[str]] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def __reduce__(self) -> tuple[type["_Memory"], tuple[()]]:
        return _Memory, ()

    def get(self, location: str, steps: int) -> frozenset[str] | None:
        with self._lock:
            found = self._results.get((location, steps))
            if found is not None:
                self._results.move_to_end((location, steps))
            return found

    def keep(self, location: str, steps: int, result: frozenset[str]) -> frozenset[str]:
        with self._lock:
            if (location, steps) not in self._results:
                self._results[location, steps] = result
                self._size += len(result) + 16
            while self._size > REMEMBERED_MAX:
                self._size -= len(self._results.popitem(last=False)[1]) + 16
            return result


class MovementGraph:
    """An explicit space: rooms, streets, stations, and which one leads to which.

    Edges go both ways unless `directed` (one-way streets). Locations without edges are given in
    `locations`.
    """

    def __init__(
        self,
        edges: Iterable[tuple[str, str]],
        *,
        locations: Iterable[str] = (),
        directed: bool = False,
    ) -> None:
        neighbours: dict[str, dict[str, None]] = {name: {} for name in locations}
        for edge in edges:
            if type(edge) not in (tuple, list) or len(edge) != 2:
                raise LocationError(f"an edge is a pair of locations, not {edge!r}")
            start, end = edge
            neighbours.setdefault(start, {})[end] = None
            neighbours.setdefault(end, {})
            if not directed:
                neighbours[end][start] = None
        for name in neighbours:
            if not _is_name(name):
                raise LocationError(f"a location has a non-empty name, not {name!r}")
        self._neighbours = {name: tuple(others) for name, others in neighbours.items()}
        self._memory = _Memory()

    @classmethod
    def load(cls, path: str | Path, *, directed: bool = False) -> "MovementGraph":
        """Read a graph from a file.

        `.json`: `{"edges": [["kitchen", "hall"], …], "locations": […], "directed": false}`; what
        the file has for `directed` goes before the argument. `.sterna-model`: the movement graph
        of a mobility model, where edges go as clients went. Anything else is CSV: one edge a line,
        `kitchen,hall`; a line with one name is a location; a first line `from,to` is a heading.
        """
        path = Path(path)
        if path.suffix.lower() == MODEL_SUFFIX:
            from sterna.model.mobility import MobilityModel  # noqa: PLC0415 - it has a graph in it.

            return MobilityModel.load(path).graph()
        try:
            text = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise LocationError(f"cannot read {path}: {error.strerror}") from None
        except ValueError:
            raise LocationError(f"{path} is not a text file in UTF-8") from None
        if path.suffix.lower() == ".json":
            return cls._from_json(path, text, directed=directed)
        return cls._from_csv(path, text, directed=directed)

    def __contains__(self, location: object) -> bool:
        return location in self._neighbours

    def __len__(self) -> int:
        return len(self._neighbours)

    def __repr__(self) -> str:
        return f"<MovementGraph of {len(self)} locations>"

    @property
    def locations(self) -> tuple[str, ...]:
        return tuple(self._neighbours)

    def neighbours(self, location: str) -> tuple[str, ...]:
        """The locations that one step leads to."""
        try:
            return self._neighbours[location]
        except KeyError:
            if not self._neighbours:
                problem = (
                    "the movement graph is empty: give brokers places ([places] in their files)"
                )
            else:
                count = len(self)
                problem = f"it is none of the {count:,} places" + hint(location, self.locations)
            raise LocationError(f"there is no place {location!r}: {problem}") from None

    def ploc(self, location: str, steps: int) -> frozenset[str]:
        """The locations that can be reached in at most so many steps."""
        known = self._memory.get(location, steps)
        if known is not None:
            return known
        _check_steps(steps)
        self.neighbours(location)  # The start must exist, also when no step is made.
        reached = {location}
        frontier = [location]
        for _ in range(steps):
            found = {other for place in frontier for other in self._neighbours[place]} - reached
            if not found:  # All that can be reached is; more steps would add nothing.
                break
            reached |= found
            frontier = list(found)
        return self._memory.keep(location, steps, frozenset(reached))

    @classmethod
    def _from_json(cls, path: Path, text: str, *, directed: bool) -> "MovementGraph":
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise LocationError(f"{path} is not valid JSON: {error}") from None
        known = {"edges", "locations", "directed"}
        if not isinstance(document, dict) or not set(document) <= known:
            raise LocationError(f"{path}: expected an object with {', '.join(sorted(known))}")
        edges = document.get("edges", [])
        places = document.get("locations", [])
        directed = document.get("directed", directed)
        if not isinstance(edges, list):
            raise LocationError(f"{path}: edges is a list of pairs of names")
        for position, edge in enumerate(edges):
            if not (isinstance(edge, list) and len(edge) == 2 and all(_is_name(e) for e in edge)):
                raise LocationError(f"{path}: edge {position} is {edge!r}, expected two names")
        if not isinstance(places, list) or not all(_is_name(place) for place in places):
            raise LocationError(f"{path}: locations is a list of names")
        if not isinstance(directed, bool):
            raise LocationError(f"{path}: directed is true or false, not {directed!r}")
        return cls._checked(path, [(a, b) for a, b in edges], places, directed=directed)

    @classmethod
    def _from_csv(cls, path: Path, text: str, *, directed: bool) -> "MovementGraph":
        edges: list[tuple[str, str]] = []
        places: list[str] = []
        rows = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
        try:
            for row in rows:
                names = [cell.strip() for cell in row]
                heading = not edges and not places and [n.lower() for n in names] == ["from", "to"]
                if heading or not any(names):
                    continue
                if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
                    raise LocationError(
                        f"{path}, line {rows.line_num}: a comma goes between two locations, "
                        f"found {row[0]!r}"
                    )
                if not all(_is_name(name) for name in names) or len(names) > 2:
                    raise LocationError(
                        f"{path}, line {rows.line_num}: expected two locations, "
                        f"found {','.join(row)!r}"
                    )
                if len(names) == 2:
                    edges.append((names[0], names[1]))
                else:
                    places.append(names[0])
        except csv.Error as error:
            raise LocationError(f"{path}, line {rows.line_num}: {error}") from None
        return cls._checked(path, edges, places, directed=directed)

    @classmethod
    def _checked(
        cls, path: Path, edges: list[tuple[str, str]], places: list[str], *, directed: bool
    ) -> "MovementGraph":
        if not edges and not places:
            raise LocationError(f"{path} holds no locations")
        return cls(edges, locations=places, directed=directed)


def areas(location: str) -> Iterator[str]:
    """A location, and if it is an H3 cell all coarser cells that it is in, the finest first."""
    yield location
    if h3.is_valid_cell(location):
        for resolution in range(h3.get_resolution(location) - 1, -1, -1):
            yield str(h3.cell_to_parent(location, resolution))


class HexGrid:
    """All of the Earth in hexagons: H3 cells of one resolution, from 0 (coarse) to 15 (1 m²).

    A location is the cell's id as H3 writes it; a step leads to one of its (mostly six) neighbours.
    """

    def __init__(self, resolution: int) -> None:
        if type(resolution) is not int or not 0 <= resolution <= 15:
            raise LocationError(f"H3 resolutions go from 0 to 15, not {resolution!r}")
        self.resolution = resolution
        self._memory = _Memory()

    def __contains__(self, location: object) -> bool:
        return (
            isinstance(location, str)
            and h3.is_valid_cell(location)
            and h3.get_resolution(location) == self.resolution
            and h3.int_to_str(h3.str_to_int(location)) == location  # H3 reads other spellings too.
        )

    def __repr__(self) -> str:
        return f"HexGrid({self.resolution})"

    def locate(self, latitude: float, longitude: float) -> str:
        """The cell of a GPS position in degrees."""
        if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
            raise LocationError(f"({latitude}, {longitude}) is not a latitude and a longitude")
        return str(h3.latlng_to_cell(latitude, longitude, self.resolution))

    def centre(self, location: str) -> tuple[float, float]:
        """Latitude and longitude of the middle of a cell."""
        self._check(location)
        latitude, longitude = h3.cell_to_latlng(location)
        return latitude, longitude

    def ploc(self, location: str, steps: int) -> frozenset[str]:
        """The cells at most so many steps away: the grid disk."""
        known = self._memory.get(location, steps)
        if known is not None:
            return known
        _check_steps(steps)
        self._check(location)
        cells = 3 * steps * (steps + 1) + 1
        if cells > CELLS_MAX:
            raise LocationError(
                f"{steps} steps in a grid of resolution {self.resolution} reach {cells:,} cells; "
                f"{CELLS_MAX:,} are the limit: use a coarser grid"
            )
        return self._memory.keep(location, steps, frozenset(h3.grid_disk(location, steps)))

    def _check(self, location: str) -> None:
        if location not in self:
            raise LocationError(
                f"{location!r} is not an H3 cell of resolution {self.resolution}; "
                "locate(latitude, longitude) gives one"
            )


def _check_steps(steps: int) -> None:
    if type(steps) is not int or steps < 0:
        raise LocationError(f"a number of steps is whole and not negative: {steps!r}")


def _is_name(value: object) -> bool:
    return (
        isinstance(value, str) and bool(value) and not any("\ud800" <= c <= "\udfff" for c in value)
    )
