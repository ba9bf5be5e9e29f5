"""Mobility mining from visits to a tested model, with the intermediate tables."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sterna.model.location import MODEL_SUFFIX
from sterna.model.mobility import MobilityModel, MobilityModelError
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.mining.contexts import with_features
from sterna.pipeline.mining.evaluation import BLENDED, CLIENTS, TIME, Score, evaluated, scores
from sterna.pipeline.mining.graph import dwell, moves, ploc, transitions
from sterna.pipeline.mining.inputs import visited
from sterna.pipeline.mining.learning import known, lean, learnt
from sterna.pipeline.mining.sources import Source
from sterna.pipeline.mining.splits import ObservedPeriod, last_cut_us, span, with_cuts
from sterna.pipeline.mining.visits import is_recorded
from sterna.pipeline.progress import step

STEPS_MAX = 3
"""How many steps the table `ploc` has."""

MODEL = f"mobility{MODEL_SUFFIX}"


@dataclass(frozen=True, kw_only=True)
class Mined:
    """The results of mining."""

    visits: DataFrame
    places: DataFrame | None
    model: MobilityModel
    span: ObservedPeriod
    holdout: float
    rows: int
    left_out: int
    """How many rows of the input could not be read."""
    evaluation: pa.Table

    @property
    def scores(self) -> list[Score]:
        """The scores on held-out time, the best first."""
        return scores(self.evaluation, TIME)

    @property
    def score(self) -> Score | None:
        """The score of the model on held-out time."""
        return next((each for each in self.scores if each.predictor == BLENDED), None)

    @property
    def score_of_new_clients(self) -> Score | None:
        """The score of a model on held-out clients, which it never saw."""
        return next(iter(scores(self.evaluation, CLIENTS)), None)

    @property
    def calibration(self) -> list[dict[str, float]]:
        """How often the first guess was right, by its probability."""
        rows = self.evaluation.to_pylist()
        own = [row for row in rows if (row["held_out"], row["predictor"]) == (TIME, BLENDED)]
        return [
            {
                "probability": row["probability"],
                "right": row["hits_at_1"] / row["steps"],
                "steps": row["steps"],
            }
            for row in sorted(own, key=lambda row: row["bin"])
        ]

    def save(self, path: Path) -> None:
        """Save the model in a file of its own."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.model.save(path)
        except (OSError, MobilityModelError) as error:
            raise PipelineError(f"{error}; give another --model") from None

    def write(self, directory: Path) -> None:
        """Write the tables as Parquet; old ones are replaced once all new ones are complete."""
        step("writing tables")
        tables = self.tables()
        with _replaced(directory) as new, ThreadPoolExecutor() as pool:
            writing = [
                pool.submit(table.write.parquet, str(new / name)) for name, table in tables.items()
            ]
            for each in writing:
                each.result()
        tables["movement_graph"].unpersist()

    def tables(self) -> dict[str, DataFrame]:
        """The tables by name. None is made by a single task, except from little data."""
        graph = transitions(self.visits, recorded=is_recorded(self.visits)).cache()
        tables = {
            "visits": self.visits,
            "dwell": dwell(self.visits),
            "movement_graph": graph,
            "ploc": ploc(graph, STEPS_MAX),
            "evaluation": self.visits.sparkSession.createDataFrame(self.evaluation),
        }
        if self.places is not None:
            tables["places"] = self.places
        return tables


def mine_source(
    spark: SparkSession,
    source: Source,
    *,
    holdout: float = 0.3,
    own_clocks: bool | None = None,
) -> Mined:
    """Mine files or journals."""
    step("reading where clients were")
    found = visited(spark, source)
    return mine(
        found.visits,
        grid=found.grid,
        clients=found.clients,
        holdout=holdout,
        own_clocks=own_clocks,
        places=found.places,
        rows=found.rows,
        left_out=found.left_out,
    )


def mine(
    visits: DataFrame,
    *,
    grid: str = "",
    clients: bool = True,
    holdout: float = 0.3,
    own_clocks: bool | None = None,
    places: DataFrame | None = None,
    rows: int = 0,
    left_out: int = 0,
) -> Mined:
    """Learn from the first part of the time that VISITS cover, and test on the rest.

    `grid` is the kind of places, as in a model. Without `clients`, single clients are not
    distinguished. With `own_clocks`, the time of each client is cut for itself; None: if all begin
    at one moment.
    """
    step("counting visits")
    visits = visits.cache()
    whole = span(visits)
    if own_clocks is not None:
        whole = ObservedPeriod(**{**asdict(whole), "own_clocks": own_clocks})
    moved = with_cuts(moves(visits, recorded=is_recorded(visits)), visits, whole, holdout).cache()
    step("learning where clients go")
    steps = with_features(moved)
    before = known(
        with_cuts(visits, visits, whole, holdout),
        moved,
        steps,
        grid=grid,
        until_us=last_cut_us(visits, whole, holdout),
        clients=clients,
    )
    if not before.counted.num_rows:
        raise PipelineError("the training time has no moves: give more data, or hold out less")
    model = learnt(before)
    tests = [evaluated(steps, model.to_bytes(), TIME)]
    if clients:
        stranger = learnt(before, without_held_out=True)
        tests.append(evaluated(steps.where("held_out"), stranger.to_bytes(), CLIENTS))
    step("testing predictions")
    evaluation = tests[0] if len(tests) == 1 else tests[0].union(tests[1])
    mined = Mined(
        visits=visits,
        places=places,
        model=lean(model),
        span=whole,
        holdout=holdout,
        rows=rows,
        left_out=left_out,
        evaluation=evaluation.toArrow(),
    )
    moved.unpersist()
    return mined


@contextmanager
def _replaced(directory: Path) -> Iterator[Path]:
    """A directory to write to, whose content then replaces that of the other."""
    directory = directory.absolute()
    new = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(new, ignore_errors=True)
    try:
        yield new
        directory.mkdir(parents=True, exist_ok=True)
        for each in sorted(new.iterdir()):
            old = directory / each.name
            if old.exists():
                shutil.rmtree(old)
            each.rename(old)
    except OSError as error:
        raise PipelineError(
            f"cannot write to {directory}: {error.strerror}; give another --out"
        ) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
