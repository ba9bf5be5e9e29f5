"""How good predictions are on held-out data."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.mobility import Chain, MobilityModel, Prediction, buckets
from sterna.pipeline.mining.tables import EVALUATION
from sterna.pipeline.schemas import shaped

BINS = 10
BLENDED = "blended"
KNOWN_MAX = 100_000
"""How many answers a worker caches for each predictor."""

TIME, CLIENTS = "time", "clients"
"""What is held out: the last part of the time; in it, clients that the model has never seen."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """How often the first guess was right, how often one of three, and how honest they were."""

    predictor: str
    steps: int
    accuracy_at_1: float | None
    accuracy_at_3: float | None
    calibration_error: float | None
    """How far the probability of the first guess is from how often it is right, on average."""


def evaluated(steps: DataFrame, model: bytes, held_out: str) -> DataFrame:
    """EVALUATION of a model on the steps after the cut, by its predictors and by the blend."""

    def guess(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        whole = MobilityModel.from_bytes(model)
        yield from _guesses(whole, batches, blended_only=held_out == CLIENTS)

    guessed = (
        steps.where("time >= cut")
        .select(
            "client", "previous", "origin", "destination", F.unix_micros("time").alias("time_us")
        )
        .mapInArrow(guess, "predictor string, bin int, hit_1 int, hit_3 int, probability double")
    )
    return (
        guessed.groupBy("predictor", "bin")
        .agg(
            F.count(F.lit(1)).alias("steps"),
            F.sum("hit_1").alias("hits_at_1"),
            F.sum("hit_3").alias("hits_at_3"),
            F.mean("probability").alias("probability"),
        )
        .withColumn("held_out", F.lit(held_out))
        .transform(shaped(EVALUATION))
    )


def scores(evaluation: pa.Table, held_out: str) -> list[Score]:
    """The scores of all predictors, the best first."""
    rows = [row for row in evaluation.to_pylist() if row["held_out"] == held_out]
    names = sorted({row["predictor"] for row in rows})
    found = [_score(name, [row for row in rows if row["predictor"] == name]) for name in names]
    return sorted(found, key=lambda score: (-(score.accuracy_at_1 or 0), score.predictor))


def _score(name: str, bins: list[dict[str, float]]) -> Score:
    steps = round(sum(each["steps"] for each in bins))
    off = sum(abs(each["hits_at_1"] - each["steps"] * each["probability"]) for each in bins)
    return Score(
        predictor=name,
        steps=steps,
        accuracy_at_1=sum(each["hits_at_1"] for each in bins) / steps if steps else None,
        accuracy_at_3=sum(each["hits_at_3"] for each in bins) / steps if steps else None,
        calibration_error=off / steps if steps else None,
    )


def _guesses(
    model: MobilityModel, batches: Iterable[pa.RecordBatch], *, blended_only: bool
) -> Iterator[pa.RecordBatch]:
    predictors = model.document.predictors
    blend = [each for each in predictors if each.weight > 0]
    guessers = {BLENDED: _Guesser(model, blend, model.next)}
    if not blended_only:
        guessers |= {each.name: _Guesser(model, [each], _alone(model, each)) for each in predictors}
    for batch in batches:
        rows = []
        names = ("origin", "client", "previous", "time_us", "destination")
        columns = (batch[name].to_pylist() for name in names)
        for place, client, previous, time_us, destination in zip(*columns, strict=True):
            for name, guesser in guessers.items():
                best = guesser.best(place, client, previous, time_us)
                guesses = [place for place, _ in best]
                first = best[0].probability if best else 0.0
                hits = destination in guesses[:1], destination in guesses
                rows.append((name, min(int(first * BINS), BINS - 1), *map(int, hits), first))
        found = list(zip(*rows, strict=True)) if rows else [()] * 5
        types = pa.string(), pa.int32(), pa.int32(), pa.int32(), pa.float64()
        arrays = [pa.array(each, type_) for each, type_ in zip(found, types, strict=True)]
        yield pa.RecordBatch.from_arrays(
            arrays, ["predictor", "bin", "hit_1", "hit_3", "probability"]
        )


_Ask = Callable[[str, str, str | None, int], list[Prediction]]


def _alone(model: MobilityModel, predictor: Chain) -> _Ask:
    return partial(model.ranked, [(predictor, 1.0)])


class _Guesser:
    """The guesses of some predictors; equal questions are answered once."""

    def __init__(self, model: MobilityModel, predictors: list[Chain], ask: _Ask) -> None:
        self._ask = ask
        contexts = model.document.contexts
        used = {
            name
            for each in predictors
            for level in each.levels
            for name in contexts[level].features
        }
        self._client, self._previous = "client" in used, "previous" in used
        self._time = bool(used & {"part", "hour", "quarter"})
        self._known: dict[tuple[object, ...], list[Prediction]] = {}

    def best(self, place: str, client: str, previous: str | None, time_us: int) -> list[Prediction]:
        """The three most probable destinations."""
        key = (
            place,
            client if self._client else None,
            previous if self._previous else None,
            buckets(time_us)[-1] if self._time else None,  # The quarter of an hour tells all.
        )
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            found = self._ask(place, client, previous, time_us)
            self._known[key] = found
        return found
