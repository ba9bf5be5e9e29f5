"""A mobility model from counts, tuned on the last part of what was known."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.mobility import Document, Dwell, MobilityModel, Sizes
from sterna.pipeline.mining.blending import blended
from sterna.pipeline.mining.contexts import LEVELS, Tally, counted
from sterna.pipeline.mining.counts import Counts, Names
from sterna.pipeline.mining.graph import dwell
from sterna.pipeline.mining.tuning import tuned

HALF_LIVES = (None, 0.4)
"""The parts of the time after which a move counts half; the better one is taken."""

VALIDATION_MAX = 20_000
"""How many steps are tuned on; of more, a sample is taken."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """The counts of everything before the cut, on the driver."""

    counted: pa.Table
    validation: pa.Table
    """Different steps of the validation time, each with how often it was made."""
    moves: pa.Table
    """The columns are origin, destination and count."""
    dwell: pa.Table
    grid: str
    until_us: int
    clients: bool
    """Whether clients occur more than once, so that it is worth distinguishing them."""


def known(
    visits: DataFrame,
    moves: DataFrame,
    steps: DataFrame,
    *,
    grid: str,
    until_us: int,
    clients: bool,
) -> Known:
    """Count everything before the cut. Visits, moves and steps have cuts; steps have features."""
    counts = counted(steps, _tallies(), clients=clients)
    features = ("place", "previous", "client", "part", "hour", "quarter")
    validation = (
        steps.where("time >= validation AND known < cut")
        .orderBy(F.xxhash64("client", "time", "known", "destination"), "client", "time")
        .limit(VALIDATION_MAX)
        .groupBy(*features, "destination", "held_out")
        .agg(F.count(F.lit(1)).alias("times"))
        .orderBy("client", "place", "previous", "quarter", "destination")
    )
    graph = moves.where("known < cut").groupBy("origin", "destination").count()
    stayed = dwell(visits.where("left < cut"))
    # Small jobs leave cores idle: they run side by side.
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda table: table.toArrow(), (counts, validation, graph, stayed)))
    return Known(
        counted=found[0],
        validation=found[1],
        moves=found[2],
        dwell=found[3],
        grid=grid,
        until_us=until_us,
        clients=clients,
    )


def learnt(known: Known, *, without_held_out: bool = False) -> MobilityModel:
    """The model of these counts; without the clients that are held out, if so asked."""
    chosen = [_tally("validation", each, without_held_out) for each in HALF_LIVES]
    cut = [_tally("cut", each, without_held_out) for each in HALF_LIVES]
    rows = known.counted.filter(pc.greater(known.counted[cut[0].name], 0))
    moves, dwells, validation = known.moves, known.dwell, known.validation
    if without_held_out:
        moves, dwells = moves.slice(0, 0), dwells.slice(0, 0)
        validation = validation.filter(pc.invert(validation["held_out"]))
    names = Names.of(
        places=[
            *(rows[name] for name in ("place", "previous", "destination")),
            *(moves[name] for name in ("origin", "destination")),
            dwells["place"],
        ],
        clients=rows["client"],
    )
    tunings = [
        tuned(Counts(names, rows, tally.name), validation, known.grid, clients=known.clients)
        for tally in chosen
    ]
    best = max(range(len(tunings)), key=lambda number: tunings[number].gain)
    blend = blended(Counts(names, rows, chosen[best].name), validation, known.grid, tunings[best])
    counts = Counts(names, rows, cut[best].name)
    contexts = [counts.contexts(level) for level in range(len(LEVELS))]
    edges = zip(
        names.numbers(moves["origin"]).tolist(),
        names.numbers(moves["destination"]).tolist(),
        moves["count"].to_pylist(),
        strict=True,
    )
    document = Document(
        sizes=_NOTHING,
        until_us=known.until_us,
        grid=known.grid,
        near=blend.near,
        sharpness=blend.sharpness,
        places=names.places.to_pylist(),
        clients=names.clients.to_pylist(),
        popularity=counts.popularity.tolist(),
        contexts=contexts,
        predictors=blend.predictors,
        moves=sorted(edges),
        dwell=_dwell(dwells, names),
    )
    return MobilityModel(_sized(document))


def lean(model: MobilityModel) -> MobilityModel:
    """The model without what its blend does not use."""
    document = model.document
    blend = [each for each in document.predictors if each.weight > 0]
    used = sorted({level for each in blend for level in each.levels})
    clients = any("client" in document.contexts[level].features for level in used)
    return MobilityModel(
        _sized(
            replace(
                document,
                clients=document.clients if clients else [],
                contexts=[document.contexts[level] for level in used],
                predictors=[
                    replace(each, levels=tuple(used.index(level) for level in each.levels))
                    for each in blend
                ],
            )
        )
    )


def _tallies() -> list[Tally]:
    return [
        _tally(until, half_life, known_only)
        for until in ("validation", "cut")
        for half_life in HALF_LIVES
        for known_only in (False, True)
    ]


def _tally(until: str, half_life: float | None, known_only: bool) -> Tally:  # noqa: FBT001
    who = "known" if known_only else "all"
    name = f"{who}_until_{until}_{HALF_LIVES.index(half_life)}"
    return Tally(name=name, until=until, known_only=known_only, half_life=half_life)


_NOTHING = Sizes(places=0, clients=0, moves=0, counts=0)


def _sized(document: Document) -> Document:
    sizes = Sizes(
        places=len(document.places),
        clients=len(document.clients),
        moves=len(document.moves),
        counts=sum(len(each.counts) for each in document.contexts),
    )
    return replace(document, sizes=sizes)


def _dwell(table: pa.Table, names: Names) -> dict[int, Dwell]:
    columns = [table[name].to_pylist() for name in Dwell.__struct_fields__]
    places = names.numbers(table["place"]).tolist()
    dwells = (
        Dwell(**dict(zip(Dwell.__struct_fields__, row, strict=True)))
        for row in zip(*columns, strict=True)
    )
    return dict(sorted(zip(places, dwells, strict=True)))
