"""Mobility models by hand, as mining would make them of a few moves."""

from collections import Counter
from collections.abc import Mapping

from sterna.model.mobility import (
    WHOLE,
    Chain,
    Contexts,
    Document,
    Dwell,
    MobilityModel,
    Sizes,
)


def model_of(moves: Mapping[tuple[str, str], int], least_s: float | None = None) -> MobilityModel:
    """A model of so many moves from each place to another, whose shortest stay is as given."""
    places = sorted({place for move in moves for place in move})
    number = {place: position for position, place in enumerate(places)}
    rows: list[list[tuple[int, int]]] = [[] for _ in places]
    for (start, end), count in sorted(moves.items()):
        rows[number[start]].append((number[end], count))
    table = Contexts(
        features=("place",),
        keys=[position for position, row in enumerate(rows) if row],
        sizes=[len(row) for row in rows if row],
        destinations=[end for row in rows for end, _ in row],
        counts=[count * WHOLE for row in rows for _, count in row],
    )
    came = Counter(dict.fromkeys(places, 0))
    for (_, end), count in moves.items():
        came[end] += count
    return MobilityModel(
        Document(
            sizes=Sizes(places=len(places), clients=0, moves=len(moves), counts=len(table.counts)),
            until_us=0,
            grid="",
            near=0.0,
            places=places,
            clients=[],
            popularity=[came[place] * WHOLE for place in places],
            contexts=[table],
            predictors=[Chain(name="order 1", levels=(0,), strengths=(1.0,), weight=1.0)],
            moves=[(number[a], number[b], count) for (a, b), count in sorted(moves.items())],
            dwell={} if least_s is None else {0: _stayed(least_s)},
        )
    )


def _stayed(least_s: float) -> Dwell:
    return Dwell(count=9, mean_s=9e9, p10_s=9e9, p50_s=9e9, p90_s=9e9, min_s=least_s)
