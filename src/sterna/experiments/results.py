"""The results file of an experiment: one line of JSON for each run, appended when it is done."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from sterna.errors import SternaError

try:
    import fcntl
except ImportError:  # There are none of these locks on Windows.
    fcntl = None  # type: ignore[assignment]


FOLDER = Path("results")
"""Where results are unless the user names another folder."""


class ResultsError(SternaError):
    """A results file cannot be used; the message says what to do."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one line that a file could not be written in the block, and what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResultsError(f"cannot write {path} ({reason}); give another --out") from None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one simulation gave."""

    experiment: str
    setting: dict[str, Any]
    seed: int
    code: str
    """The fingerprint of the code that has simulated it."""
    measures: dict[str, Any]
    seconds: float
    """How long it took."""

    @property
    def key(self) -> "RunKey":
        """What makes it the same run, whatever the code."""
        return run_key(self.setting, self.seed)


RunKey = tuple[str, int]


def run_key(setting: dict[str, Any], seed: int) -> RunKey:
    """The settings as text, and the seed."""
    return json.dumps(setting, sort_keys=True), seed


def results_path(folder: Path, experiment: str) -> Path:
    """Where the runs of an experiment are."""
    return folder / f"{experiment}.runs.jsonl"


def read_runs(path: Path, experiment: str) -> list[Run]:
    """All runs that are done, in the order in which they were; none if there is no file.

    A last line without an end was being written when its writer was killed; it does not count.
    """
    try:
        *lines, _ = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ResultsError(f"cannot read {path} ({error.strerror}); give another --out") from None
    runs = []
    for number, line in enumerate(lines, 1):
        try:
            run = msgspec.convert(json.loads(line), Run)
        except (ValueError, msgspec.ValidationError) as error:
            raise ResultsError(
                f"{path}, line {number}: this is no result of a run ({error}); delete the line, "
                "move the file away, or give another --out"
            ) from None
        if run.experiment != experiment:
            raise ResultsError(
                f"{path}, line {number}: this is a result of {run.experiment}, not of "
                f"{experiment}; move the file away, or give another --out"
            )
        runs.append(run)
    return runs


class Appending:
    """A results file to which this process, and no other, appends."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def append(self, run: Run) -> None:
        """Add a run; when this returns, it is on disk."""
        line = json.dumps(msgspec.structs.asdict(run), separators=(",", ":"))
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


@contextmanager
def appending(path: Path) -> Iterator[Appending]:
    """Open a results file to append to it, without a line that was not finished."""
    with writing(path):
        file = path.open("ab+")
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ResultsError(
                    f"another process is writing to {path}; wait for it, or give another --out"
                ) from None
        file.seek(0)
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
        yield Appending(file)
