"""A sweep: all settings of an experiment with all seeds, each simulated once, in any order.

Results come back to this process as they finish, and are appended to a file at once. A sweep that
was killed goes on where it was, and gives the same table.
"""

import gc
import shlex
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, Protocol, Self

import msgspec

from sterna.experiments.experiment import (
    DeliveryError,
    Experiment,
    M,
    Point,
    S,
    in_words,
    summarize,
)
from sterna.experiments.fingerprint import fingerprint, measures_of
from sterna.experiments.results import (
    FOLDER,
    Appending,
    Run,
    RunKey,
    appending,
    read_runs,
    results_path,
    run_key,
)

Progress = Callable[[str, int, int], None]
"""Called whenever a run has finished: which one, how many are done, and how many there are."""


LARGE_S = 1.0
"""A simulation that takes longer has so much that its memory is freed at once."""

FINDINGS_MAX = 3
"""How many wrong deliveries of a run are named in one line."""

OTHER_CODE = (
    "it was simulated by other code than this command has; install the same Sterna wherever it "
    "simulates, and start the command again"
)
"""What is wrong with a run of a process or a worker that has loaded other sources."""


@dataclass(frozen=True)
class Task:
    """What is simulated at once: a setting, or several that come from the same simulation."""

    experiment: Experiment[Any, Any]
    settings: tuple[Any, ...]
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What became of one setting of a task."""

    measures: dict[str, Any] | None
    """What was measured; None if the run was wrong."""
    seconds: float = 0.0
    problem: str = ""
    findings: tuple[str, ...] = ()
    """The wrong deliveries, if that is what was wrong."""
    code: str = ""
    """The fingerprint of the code that has simulated it, where it was simulated."""


@dataclass(frozen=True)
class WrongRun:
    """A run that delivered something wrong, or failed otherwise."""

    experiment: str
    setting: msgspec.Struct
    seed: int
    problem: str
    findings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.experiment}: {in_words(self.setting)}, seed {self.seed}: {self.problem}"

    def as_json(self) -> dict[str, Any]:
        """The run and what was wrong with it, for programs."""
        return {
            "experiment": self.experiment,
            "setting": msgspec.to_builtins(self.setting),
            "seed": self.seed,
            "problem": self.problem,
            "findings": list(self.findings),
        }


class Runner(Protocol):
    """Where tasks are performed."""

    @property
    def slots(self) -> int:
        """How many tasks to give it at a time."""

    def run(self, task: Task) -> Sequence[Outcome]:
        """Perform a task. With several slots, it is called by as many threads."""


class Sweep(Generic[S, M]):
    """The runs of one experiment that are wanted, and those that are there already."""

    def __init__(
        self,
        experiment: Experiment[S, M],
        folder: Path,
        *,
        quick: bool,
        seeds: int,
        reuse: bool = False,
        version: str | None = None,
    ) -> None:
        """Read what is there; with `reuse`, runs of other versions of the code count.

        With a `version`, no runs of any other version do.
        """
        self.experiment = experiment
        self.settings = experiment.settings(quick=quick)
        self.seeds = seeds
        self.quick = quick
        self.path = results_path(folder, experiment.name)
        self.code = fingerprint(experiment)
        self.reuse = reuse
        self.version = version
        self.load()

    def load(self) -> Self:
        """Read again which runs are there."""
        measured = set(measures_of(self.experiment).__struct_fields__)
        runs = [
            run
            for run in read_runs(self.path, self.experiment.name)
            if self.version in (None, run.code)
        ]
        present = {run.key: run for run in runs if run.code == self.code}
        self._others = {
            run.key: run
            for run in runs
            if run.code != self.code and run.measures.keys() == measured and run.key not in present
        }
        self._runs = {**self._others, **present} if self.reuse else present
        return self

    @property
    def total(self) -> int:
        """How many runs are wanted."""
        return sum(1 for _ in self._wanted())

    @property
    def done(self) -> int:
        """How many of the wanted runs are there."""
        return sum(key in self._runs for key in self._wanted())

    @property
    def left(self) -> int:
        """How many runs are still to be simulated."""
        return self.total - self.done

    @property
    def of_other_code(self) -> int:
        """How many of the wanted runs are there from other versions of the code only."""
        return sum(key in self._others for key in self._wanted())

    @property
    def other_versions(self) -> int:
        """How many other versions of the code these runs are of."""
        codes = {self._others[key].code for key in self._wanted() if key in self._others}
        return len(codes)

    @property
    def command(self) -> str:
        """The command that gives the same results in the same folder."""
        folder = self.path.parent
        out = "" if folder == FOLDER else f" --out {shlex.quote(str(folder))}"
        return f"{self.recipe}{out}"

    @property
    def recipe(self) -> str:
        """The command that gives the same results anywhere: files of two folders have the same."""
        quick = " --quick" * self.quick
        return f"sterna experiment run {self.experiment.name}{quick} --seeds {self.seeds}"

    def run(self, runner: Runner, progress: Progress) -> list[WrongRun]:
        """Simulate what is left; the wrong runs are returned, and are left again the next time."""
        if not self.left:
            return []
        wrong: list[WrongRun] = []
        with (
            appending(self.path) as file,
            closing(_performed(runner, self.load().tasks())) as performed,
        ):
            total, done = self.total, self.done
            progress(f"{total - done:,} runs are left", done, total)
            for task, outcomes in performed:
                for setting, outcome in zip(task.settings, outcomes, strict=True):
                    found = self._take(file, setting, task.seed, outcome)
                    wrong += [] if found is None else [found]
                done += len(task.settings)
                progress(f"{in_words(task.settings[-1])}, seed {task.seed}", done, total)
        order = {setting: number for number, setting in enumerate(self.settings)}
        return sorted(wrong, key=lambda each: (order[each.setting], each.seed))  # type: ignore[index]

    def tasks(self) -> list[Task]:
        """What is left to simulate, what takes longest first."""
        groups: dict[tuple[Hashable, int], list[S]] = {}
        for setting in self.settings:
            for seed in self.seeds_of(setting):
                if _key(setting, seed) not in self._runs:
                    group = self.experiment.together(setting), seed
                    groups.setdefault(group, []).append(setting)
        tasks = [
            Task(self.experiment, tuple(settings), seed) for (_, seed), settings in groups.items()
        ]
        return sorted(tasks, key=lambda task: -max(map(self.experiment.work, task.settings)))

    def points(self) -> list[Point[S, M]]:
        """All results, in the order of the settings; all runs must be there."""
        kind: Any = measures_of(self.experiment)
        return [
            summarize(
                setting,
                [
                    msgspec.convert(self._runs[_key(setting, seed)].measures, kind)
                    for seed in self.seeds_of(setting)
                ],
            )
            for setting in self.settings
        ]

    def seeds_of(self, setting: S) -> range:
        """The seeds of a setting; not all settings need all of them (`Experiment.seeds_max`)."""
        enough = self.experiment.seeds_max(setting)
        return range(1, 1 + (self.seeds if enough is None else min(self.seeds, enough)))

    def _wanted(self) -> Iterator[RunKey]:
        for setting in self.settings:
            for seed in self.seeds_of(setting):
                yield _key(setting, seed)

    def _take(self, file: Appending, setting: Any, seed: int, outcome: Outcome) -> WrongRun | None:
        """Keep the result of a run, or report what was wrong with it."""
        if outcome.measures is None:
            return WrongRun(self.experiment.name, setting, seed, outcome.problem, outcome.findings)
        if outcome.code != self.code:
            return WrongRun(self.experiment.name, setting, seed, OTHER_CODE)
        run = Run(
            experiment=self.experiment.name,
            setting=msgspec.to_builtins(setting),
            seed=seed,
            code=outcome.code,
            measures=outcome.measures,
            seconds=round(outcome.seconds, 3),
        )
        file.append(run)
        self._runs[run.key] = run
        self._others.pop(run.key, None)
        return None


def found_sweep(experiment: Experiment[S, M], folder: Path, *, quick: bool) -> Sweep[S, M] | None:
    """The results that are there for all settings, with as many seeds as are complete.

    They are all of the same version of the code: the present one or, if there are not all of it,
    the latest of which there are.
    """
    present = fingerprint(experiment)
    runs = read_runs(results_path(folder, experiment.name), experiment.name)
    versions = dict.fromkeys(run.code for run in reversed(runs))  # The latest first.
    for version in (present, *(code for code in versions if code != present)):
        found: Sweep[S, M] | None = None
        while True:
            seeds = 1 if found is None else found.seeds + 1
            more = Sweep(experiment, folder, quick=quick, seeds=seeds, reuse=True, version=version)
            if more.left or (found is not None and more.total == found.total):
                break  # These are not all there, or no setting needs more seeds.
            found = more
        if found is not None:
            return found
    return None


def in_versions(count: int) -> str:
    """So many other versions of the code, as text."""
    return "another version of the code" if count == 1 else f"{count} other versions of the code"


def perform(task: Task) -> list[Outcome]:
    """Simulate the settings of a task, wherever this is called; a wrong one stops no other.

    The outcomes say which code it is there. The sources are read before the first simulation of a
    process, when they have just been loaded.
    """
    code = fingerprint(task.experiment)
    return [replace(_outcome(task, setting), code=code) for setting in task.settings]


def failed(task: Task, problem: str) -> list[Outcome]:
    """The outcomes of a task that was not performed to its end."""
    return [Outcome(None, problem=problem) for _ in task.settings]


def _outcome(task: Task, setting: msgspec.Struct) -> Outcome:
    began = time.perf_counter()
    try:
        with _without_search_for_cycles():
            measured = task.experiment.measure(setting, task.seed)
        measures: dict[str, Any] = msgspec.to_builtins(measured)
    except DeliveryError as wrong:
        more = len(wrong.findings) - FINDINGS_MAX
        named = [*wrong.findings[:FINDINGS_MAX], *([f"{more} more"] if more > 0 else [])]
        problem = f"wrong deliveries: {'; '.join(named)}"
        return Outcome(None, problem=problem, findings=tuple(wrong.findings))
    except Exception as error:  # noqa: BLE001 - whatever it is, the others go on.
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}, line {last.lineno}"
        (said,) = traceback.format_exception_only(error)[-1:]
        return Outcome(None, problem=f"{' '.join(said.split())} ({where})")
    return Outcome(measures, time.perf_counter() - began)


@contextmanager
def _without_search_for_cycles() -> Iterator[None]:
    """Do not search for cycles in the block, which takes a tenth of the time of a simulation.

    It makes hardly any before it ends.
    """
    was_enabled, began = gc.isenabled(), time.perf_counter()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        if time.perf_counter() - began > LARGE_S:  # Its network is one large cycle.
            gc.collect()


def _performed(
    runner: Runner, tasks: Sequence[Task]
) -> Generator[tuple[Task, Sequence[Outcome]], None, None]:
    """Tasks with their outcomes, as they finish."""
    if runner.slots == 1:
        for task in tasks:
            yield task, runner.run(task)
        return
    waiting = deque(tasks)
    finished: SimpleQueue[tuple[Task, Sequence[Outcome] | Exception]] = SimpleQueue()

    def work() -> None:
        while waiting:
            try:
                task = waiting.popleft()
            except IndexError:  # Another thread was faster.
                return
            try:
                finished.put((task, runner.run(task)))
            except Exception as error:  # noqa: BLE001 - it is raised where it can be handled.
                finished.put((task, error))

    for _ in range(min(runner.slots, len(tasks))):
        Thread(target=work, daemon=True).start()
    try:
        for _ in tasks:
            task, outcomes = finished.get()
            if isinstance(outcomes, Exception):
                raise outcomes
            yield task, outcomes
    finally:
        waiting.clear()


def _key(setting: msgspec.Struct, seed: int) -> RunKey:
    return run_key(msgspec.to_builtins(setting), seed)
