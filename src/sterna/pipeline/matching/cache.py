"""Compiled subscriptions in a folder, so that those that were compiled before are only read.

The name of an entry is a hash of what it was made from: the subscriptions, how they were asked for,
and the source of all that compiles them. Its file begins with a hash of its name and content; an
entry that does not agree with it is made again. Files appear complete, also if others write them at
the same time.
"""

import hashlib
import os
import pickle
import platform
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyspark

import sterna

VARIABLE = "STERNA_CACHE"
"""Names the folder, or has OFF."""

OFF = "off"
"""Stands for no cache, in the variable and everywhere else."""

BYTES_MAX = 1 << 30
"""How many bytes all entries may take; those that were not used for longest are removed."""

_COMPILERS = ("model", "matching", "pipeline/matching")
"""The folders of this package whose source decides what is in an entry."""

_SUFFIX = ".compiled"
_NEW = ".new-"
_DIGEST_BYTES = 32
_ABANDONED_S = 3600.0
"""A file that is still being written after so many seconds belongs to a process that has ended."""

Made = TypeVar("Made")


def compiled_cache(where: Path | str | None = None) -> "CompiledCache | None":
    """The cache in a folder; None without one.

    By default the environment variable STERNA_CACHE names the folder. If it is not set, it is
    `sterna` in the user's folder for caches. "off" stands for no cache.
    """
    named = where or os.environ.get(VARIABLE) or _usual_folder()
    if named is None or str(named) == OFF or compiler() is None:
        return None
    return CompiledCache(Path(named).absolute() / "subscriptions")


class CompiledCache:
    """A folder of compiled subscriptions, which many processes may use at the same time.

    Whatever is wrong with the folder, subscriptions are compiled as if there were no cache.
    """

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX) -> None:
        self.folder = folder
        self.bytes_max = bytes_max

    def get(self, made_from: tuple[object, ...], make: Callable[[], Made]) -> Made:
        """What is made from these things, which `repr` has to tell apart; it is made if needed."""
        name = hashlib.sha256(repr((compiler(), *made_from)).encode()).hexdigest()
        if not self._is_ours():
            return make()
        data = self._read(name)
        if data is not None:
            found: Made = pickle.loads(data)  # noqa: S301 - our own, and intact.
            return found
        made = make()
        with suppress(OSError):  # No room, or no right to write.
            self._write(name, pickle.dumps(made, protocol=5))
            self._remove_old()
        return made

    def _is_ours(self) -> bool:
        """Whether nobody else can write into the folder: what is in it may run code."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = self.folder.stat()
        except OSError:
            return False
        others = stat.S_IWGRP | stat.S_IWOTH
        return about.st_uid == os.getuid() and not about.st_mode & others

    def _read(self, name: str) -> bytes | None:
        path = self.folder / (name + _SUFFIX)
        try:
            data = path.read_bytes()
            os.utime(path)  # It was used now.
        except OSError:
            return None
        digest, data = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        return data if digest == _digest(name, data) else None

    def _write(self, name: str, data: bytes) -> None:
        if len(data) > self.bytes_max:
            return
        descriptor, new = tempfile.mkstemp(prefix=_NEW, dir=self.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_digest(name, data))
                file.write(data)
            Path(new).replace(self.folder / (name + _SUFFIX))
        except BaseException:
            Path(new).unlink(missing_ok=True)
            raise

    def _remove_old(self) -> None:
        """Make room, and remove what processes left behind that were killed."""
        left = self.bytes_max
        for path, about in sorted(self._files(), key=lambda file: -file[1].st_mtime_ns):
            if path.name.startswith(_NEW):
                is_wanted = time.time() - about.st_mtime < _ABANDONED_S
            else:
                left -= about.st_size - _DIGEST_BYTES
                is_wanted = left >= 0
            if not is_wanted:
                path.unlink(missing_ok=True)

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.folder.iterdir():
            if path.name.endswith(_SUFFIX) or path.name.startswith(_NEW):
                with suppress(FileNotFoundError):  # Another process was faster.
                    yield path, path.stat()


@cache
def compiler() -> str | None:
    """A hash of what compiles subscriptions; None if its source cannot be read."""
    return source_digest(Path(sterna.__file__).parent)


def source_digest(root: Path) -> str | None:
    """A hash of the source of this package, as far as it compiles, and of what it depends on."""
    versions = platform.python_version(), np.__version__, pa.__version__, pyspark.__version__
    digest = hashlib.sha256(repr(versions).encode())
    for folder in _COMPILERS:
        if not (root / folder).is_dir():
            return None  # The package is a zip file.
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".py", ".lark"}:
                data = path.read_bytes()
                digest.update(f"{path.relative_to(root)} {len(data)} ".encode())
                digest.update(data)
    return digest.hexdigest()


def _digest(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + data).digest()


def _usual_folder() -> Path | None:
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path.home() / ".cache") / "sterna"
    except RuntimeError:  # There is no home.
        return None
