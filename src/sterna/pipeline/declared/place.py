"""The directory of the tables: its owner, its lock, and what a run leaves there."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from sterna.pipeline.errors import PipelineError

VERSION = 2
"""The version of the tables and their checkpoints. A run leaves later versions alone."""
WITHOUT_DELTA = 1
"""The version of release 0.1, whose tables had no Delta log."""

MARK, HALF, LOCK = "_sterna.json", "_sterna.half", "_lock"
CHECKPOINTS, RUN = "_checkpoints", "_run"

_OLD = "old "
"""The beginning of a view's name while release 0.1 put another in its place."""


@contextmanager
def held(root: Path) -> Iterator[None]:
    """Make sure that tables can be written here, and that no other process does."""
    _put_back(root)
    _check_ours(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise PipelineError(
            f"{root} cannot be written ({error.strerror}): give another folder with --out"
        ) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PipelineError(
                f"another run writes to {root}: wait until it is done, or give another --out"
            ) from None
        if not (root / MARK).exists():
            mark(root)
        yield
    finally:
        os.close(lock)


def mark(root: Path) -> None:
    """Say that the tables have the version that this program writes."""
    half = root / HALF
    half.write_text(json.dumps({"tables": VERSION}) + "\n", encoding="utf-8")
    half.rename(root / MARK)


def check_version(root: Path) -> None:
    """Make sure that the tables have a version that this program can go on with."""
    said = version(root)
    if said not in {None, WITHOUT_DELTA, VERSION}:
        raise PipelineError(
            f"{root} has version {said} of the tables and this program writes {VERSION}: make "
            "them anew with --full-refresh, or give another --out"
        )


def check_tables(root: Path) -> None:
    """Make sure that a folder has tables, with the version that this program writes."""
    if not (root / MARK).exists():
        raise PipelineError(f"{root} has no tables: give the --out of sterna pipeline run")
    check_version(root)
    if version(root) != VERSION:
        raise PipelineError(
            f"{root} has tables of an earlier release: run sterna pipeline run first, which makes "
            "Delta tables of them"
        )


@contextmanager
def run_folder(root: Path) -> Iterator[Path]:
    """An empty folder for what a run makes before it takes its place."""
    folder = root / RUN
    _clear(folder)
    folder.mkdir()
    try:
        yield folder
    finally:
        _clear(folder)


def _clear(folder: Path) -> None:
    """Remove what a run left, except for views of release 0.1 that nothing has replaced."""
    for old in folder.glob(f"{_OLD}*"):
        view = folder.parent / old.name.removeprefix(_OLD)
        if not view.exists():
            old.rename(view)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replacing(root: Path) -> Iterator[Path]:
    """Another folder beside this one, which takes its place at the end."""
    fresh = root.with_name(f".{root.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    old = _set_aside(root)
    try:
        yield fresh
        shutil.rmtree(old, ignore_errors=True)
        root.rename(old)
        fresh.rename(root)
    finally:
        _put_back(root)
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _set_aside(root: Path) -> Path:
    """The path of a folder while another takes its place."""
    return root.with_name(f".{root.name}.old")


def _put_back(root: Path) -> None:
    """Undo what a run has begun that failed, or was killed, before it replaced the folder."""
    if not root.exists() and _set_aside(root).exists():
        _set_aside(root).rename(root)


@contextmanager
def plain_path(root: Path) -> Iterator[Path]:
    """A path of the folder without spaces and the like, which Spark would encode.

    It finds no checkpoints below such a path: it makes `%20` of a space once too often.
    """
    if quote(str(root)) == str(root):
        yield root
        return
    with TemporaryDirectory(prefix="sterna-") as folder:
        link = Path(folder) / "tables"
        link.symlink_to(root)
        yield link


def _check_ours(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise PipelineError(f"{root} is a file: give a folder for the tables with --out")
    is_ours = (root / MARK).exists() or not root.exists()
    if not is_ours and any(entry.name not in {LOCK, HALF} for entry in root.iterdir()):
        raise PipelineError(
            f"{root} is not empty and holds no tables of Sterna: give another folder with --out"
        )


def version(root: Path) -> object:
    """The version of the tables in a folder; None if there are none."""
    try:
        said = json.loads((root / MARK).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return "unknown"
    return said.get("tables", "unknown") if isinstance(said, dict) else "unknown"
