"""PL-4: the blend of predictors guesses no worse than its parts, and is as sure as it is right."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pytest

from sterna.model.mobility import WHOLE, MobilityModel, Prediction
from sterna.pipeline.mining.contexts import LEVELS
from sterna.pipeline.mining.learning import Known, _tallies, learnt

pytestmark = pytest.mark.spec("PL-4")

CLIENTS = [f"c{number:02}" for number in range(40)]


class Move(NamedTuple):
    client: str
    destination: str


def contexts(moves: Iterable[Move]) -> Iterator[tuple[int, str | None, None, str | None, int, str]]:
    """All contexts of moves from the hub, at midnight, from nobody knows where."""
    for client, destination in moves:
        for level, features in enumerate(LEVELS):
            if "previous" not in features:
                bucket = -1 if features[-1] in {"place", "client"} else 0
                yield (
                    level,
                    "hub" if "place" in features else None,
                    None,
                    client if "client" in features else None,
                    bucket,
                    destination,
                )


def known(before: list[Move], validation: list[Move]) -> Known:
    """What Spark would have counted."""
    tallied = {
        "validation": Counter(contexts(before)),
        "cut": Counter(contexts([*before, *validation])),
    }
    rows = list(tallied["cut"])
    names = ("level", "place", "previous", "client", "bucket", "destination")
    texts = {"place", "previous", "client", "destination"}
    columns = {
        name: pa.array(values, pa.string() if name in texts else pa.int32())
        for name, values in zip(names, zip(*rows, strict=True), strict=True)
    }
    for tally in _tallies():
        columns[tally.name] = pa.array([WHOLE * tallied[tally.until][row] for row in rows])
    count = len(validation)
    steps = {
        "client": pa.array([move.client for move in validation]),
        "place": pa.array(["hub"] * count),
        "previous": pa.array([None] * count, pa.string()),
        "destination": pa.array([move.destination for move in validation]),
        "held_out": pa.array([False] * count),
        "times": pa.array([1] * count),
        **{name: pa.array([0] * count) for name in ("part", "hour", "quarter")},
    }
    edges = {"origin": pa.array([], pa.string()), "destination": pa.array([], pa.string())}
    dwell = {name: pa.array([]) for name in ("count", "mean_s", "p10_s", "p50_s", "p90_s", "min_s")}
    return Known(
        counted=pa.table(columns),
        validation=pa.table(steps),
        moves=pa.table({**edges, "count": pa.array([], pa.int64())}),
        dwell=pa.table({"place": pa.array([], pa.string()), **dwell}),
        grid="",
        until_us=0,
        clients=True,
    )


class Seen(NamedTuple):
    at_1: float
    at_3: float
    sure: float
    """The mean probability of the first guess."""


def seen_by(ask: Callable[[str], list[Prediction]], moves: list[Move]) -> Seen:
    asked = {client: ask(client) for client in CLIENTS}
    found = [([each.place for each in asked[client]], wanted) for client, wanted in moves]
    return Seen(
        sum(wanted == guesses[0] for guesses, wanted in found) / len(moves),
        sum(wanted in guesses for guesses, wanted in found) / len(moves),
        sum(asked[client][0].probability for client, _ in moves) / len(moves),
    )


def parts(model: MobilityModel, moves: list[Move]) -> list[Seen]:
    found = []
    for each in model.document.predictors:
        alone = partial(model.ranked, [(each, 1.0)], "hub", previous=None, time_us=0)
        found.append(seen_by(alone, moves))
    return found


def habits(rng: random.Random, count: int, *, kept: float) -> list[Move]:
    """Each client goes to its own shop with this probability, else to the park or the river."""
    found = []
    for _ in range(count):
        client = rng.choice(CLIENTS)
        other = "park" if rng.random() < 0.6 else "river"
        found.append(Move(client, f"shop-{client}" if rng.random() < kept else other))
    return found


def test_habits_that_have_ended_do_not_spoil_the_guesses() -> None:
    """What was likely once makes the validation time probable, but it is not the best guess."""
    rng = random.Random(1)  # noqa: S311 - the same again each time.
    before = habits(rng, 1500, kept=0.7)
    validation, later = habits(rng, 600, kept=0.25), habits(rng, 4000, kept=0.25)

    model = learnt(known(before, validation))

    found = seen_by(lambda client: model.next("hub", client, None, 0), later)
    alone = parts(model, later)
    noise = 0.01  # More than two standard errors of 4,000 moves.
    assert found.at_1 >= max(each.at_1 for each in alone) - noise
    assert found.at_3 >= max(each.at_3 for each in alone) - noise


@pytest.mark.parametrize("kept", [0.5, 0.65, 0.8, 0.9])
def test_the_blend_is_as_sure_as_it_is_right(kept: float) -> None:
    """Where a habit of all has become weaker than it was, the probabilities follow."""
    rng = random.Random(2)  # noqa: S311
    before, validation, later = (
        [move._replace(destination=move.destination[:4]) for move in habits(rng, count, kept=share)]
        for count, share in ((10_000, 0.9), (800, kept), (4000, kept))
    )

    model = learnt(known(before, validation))

    found = seen_by(lambda client: model.next("hub", client, None, 0), later)
    assert found.sure == pytest.approx(found.at_1, abs=0.05)
