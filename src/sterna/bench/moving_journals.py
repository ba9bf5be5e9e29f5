"""Journals of clients that move about for hours and want what is published where they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sterna.bench.audit_journals import START_US, Numbers, Sheet, WrittenJournals

PLACES = 100
BROKERS = ("B1", "B2", "B3")
"""Each has a third of the places; who goes to one of another broker attaches there."""
STAY_S = 600
"""How long a client is in one place, on average."""
EVENT_EVERY_S = 60
"""How often something is published in each place."""
AWAY_US = 200_000
"""How long a client has no broker when it changes to another one."""
SECOND = 1_000_000
CALM_US = 60 * SECOND


@dataclass(frozen=True)
class Moves:
    """Where a client is: from each of these times on, in that place."""

    times_us: Numbers
    places: Numbers


class MovingCity:
    """What is published: in each place, by a publisher of its own, something every minute."""

    def __init__(self, hours: float) -> None:
        self.end_us = START_US + round(hours * 3600) * SECOND
        self.names = [f"place-{place}" for place in range(PLACES)]
        self.rounds = (self.end_us - START_US) // (EVENT_EVERY_S * SECOND)
        number = np.arange(self.rounds * PLACES)
        self.publisher = number % PLACES
        self.seq = number // PLACES + 1
        shift = self.publisher * (EVENT_EVERY_S * SECOND // PLACES)
        self.time_us = START_US + (self.seq - 1) * EVENT_EVERY_S * SECOND + shift

    def content(self, numbers: Numbers) -> bytes:
        rows = zip(
            self.publisher[numbers].tolist(),
            self.seq[numbers].tolist(),
            self.time_us[numbers].tolist(),
            strict=True,
        )
        return msgspec.msgpack.encode(
            [(self.names[place], seq, time_us, _where(place), b"") for place, seq, time_us in rows]
        )

    def heard(self, moves: Moves) -> Numbers:
        """The events of the places in which a client was, while it was there."""
        ends = np.append(moves.times_us[1:], self.end_us)
        shift = START_US + moves.places * (EVENT_EVERY_S * SECOND // PLACES)
        first = -(-(moves.times_us - shift) // (EVENT_EVERY_S * SECOND))
        beyond = -(-(ends - shift) // (EVENT_EVERY_S * SECOND))
        first = np.clip(first, 0, self.rounds)
        counts = np.clip(beyond, 0, self.rounds) - first
        places = np.repeat(moves.places, counts)
        rounds = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)
        numbers: Numbers = rounds * PLACES + places
        return numbers


def write_moving(directory: Path, hours: float, *, clients: int = 1_000) -> WrittenJournals:
    """Write what clients, publishers and brokers would. Nothing is wrong in it."""
    directory.mkdir(parents=True, exist_ok=True)
    written = WrittenJournals()
    city = MovingCity(hours)
    for place, name in enumerate(city.names):
        mine = np.flatnonzero(city.publisher == place)
        sheet = Sheet(directory, name, city, 1, written)
        sheet.begin()
        sheet.events("Published", mine, content=True)
        sheet.end()
    for broker in range(len(BROKERS)):
        sheet = Sheet(directory, BROKERS[broker], city, 1_000, written)
        mine = np.flatnonzero(city.publisher % len(BROKERS) == broker)
        sheet.events("Accepted", mine, content=True, link="place-0")
        sheet.finish()
    for client in range(clients):
        sheet = Sheet(directory, f"car-{client}", city, 1, written)
        _client(sheet, client, city)
        written.deliveries += sheet.delivered
    return written


def _moves(client: int, city: MovingCity) -> Moves:
    rng = np.random.default_rng(client)
    count = 2 * (city.end_us - START_US) // (STAY_S * SECOND) + 10
    stays = (rng.exponential(STAY_S, count) * SECOND).astype(np.int64) + 2 * SECOND
    times = START_US - CALM_US // 2 + np.cumsum(stays) - stays[0]
    times = times[times < city.end_us]
    steps = rng.integers(1, PLACES, len(times))
    return Moves(times, np.cumsum(steps) % PLACES)


def _client(sheet: Sheet, client: int, city: MovingCity) -> None:
    """A client's journal: it attaches elsewhere when it has to, and asks for what is there."""
    moves = _moves(client, city)
    follows = "near(lat, lon, $lat, $lon, 900)" if client % 2 else "place IN myloc"
    homes = moves.places % len(BROKERS)
    changes = np.flatnonzero(homes[1:] != homes[:-1]) + 1
    heard = city.heard(moves)
    start = moves.times_us[0]
    parts: list[tuple[str, Numbers, dict[str, Any]]] = [
        ("Attached", np.array([start - CALM_US]), _link([BROKERS[homes[0]]])),
        ("Subscribed", np.array([start - CALM_US + 1]), {"name": ["s"], "filter": [follows]}),
        ("Detached", moves.times_us[changes] - AWAY_US, _link(_named(homes[changes - 1]))),
        ("Attached", moves.times_us[changes] - 1, _link(_named(homes[changes]))),
        (
            "Adapted",
            moves.times_us,
            {
                "name": ["s"] * len(moves.places),
                "filter": _wishes(client, moves),
            },
        ),
        (
            "Delivered",
            city.time_us[heard],
            {
                "publishers": [[city.names[p]] for p in city.publisher[heard].tolist()],
                "seqs": [[seq] for seq in city.seq[heard].tolist()],
            },
        ),
        ("Detached", np.array([city.end_us + CALM_US]), _link([BROKERS[homes[-1]]])),
    ]
    sheet.delivered = len(heard)
    _write_in_order(sheet, parts)
    sheet.finish()


def _write_in_order(sheet: Sheet, parts: list[tuple[str, Numbers, dict[str, Any]]]) -> None:
    names = sorted({name for _, _, columns in parts for name in columns})
    lists = {"publishers", "seqs"}
    times = np.concatenate([times for _, times, _ in parts])
    order = np.argsort(times, kind="stable")
    kinds = [kind for kind, times, _ in parts for _ in times]
    columns = {
        name: [
            value
            for _, times, columns in parts
            for value in columns.get(name, [[] if name in lists else None] * len(times))
        ]
        for name in names
    }
    sheet.rows(
        [kinds[place] for place in order],
        times[order],
        **{name: [values[place] for place in order] for name, values in columns.items()},
    )


def _wishes(client: int, moves: Moves) -> list[str]:
    """What a client wants in each place: half of them say it in another way each time."""
    if client % 2 == 0:
        return [f"place IN ('{place}')" for place in moves.places.tolist()]
    drift = np.random.default_rng(client).random(len(moves.places)) / 1_000
    return [
        f"near(lat, lon, {_latitude(place) + off:.7f}, 13.4, 900)"
        for place, off in zip(moves.places.tolist(), drift.tolist(), strict=True)
    ]


def _where(place: int) -> dict[str, Any]:
    return {"place": str(place), "lat": _latitude(place), "lon": 13.4}


def _latitude(place: int) -> float:
    """Places are eleven kilometres apart."""
    return 40 + place / 10


def _named(brokers: Numbers) -> list[str]:
    return [BROKERS[each] for each in brokers.tolist()]


def _link(links: list[str]) -> dict[str, Any]:
    return {"link": links, "peer": ["broker"] * len(links)}
