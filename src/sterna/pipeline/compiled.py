"""Kernels that are compiled already, for workers that get this package as a zip file.

Numba keeps compiled code by the path of its source, which is a different one for every application
that Spark runs on a cluster. So the driver sends what it has compiled with the package, and workers
unpack it beside the zip file; one with another processor adds its own there.
"""

import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from numba.core.caching import ZipCacheLocator

from sterna.pipeline.shipping import COMPILED


class ShippedCacheLocator(ZipCacheLocator):
    """Finds compiled code that came with its source."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        super().__init__(function, file)  # type: ignore[no-untyped-call]
        self._cache_path = str(unpacked(Path(self._zip_path), PurePosixPath(self._internal_path)))

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> "ShippedCacheLocator | None":
        """The locator for a function, if it is one for it; Numba asks one after the other."""
        if not function.__module__.startswith("sterna.") or ".zip" not in file:
            return None
        try:
            return cls(function, file)
        except OSError:
            return None  # Nothing can be written there.


@cache
def unpacked(package: Path, source: PurePosixPath) -> Path:
    """The folder with the compiled code of a file in a package."""
    folder = package.with_name(f"{package.stem}-{source.stem}")
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=package.parent) as place:
        made = Path(place) / "made"
        made.mkdir()
        with zipfile.ZipFile(package) as archive:
            for name in archive.namelist():
                if PurePosixPath(name).suffix in COMPILED:
                    (made / PurePosixPath(name).name).write_bytes(archive.read(name))
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # No other process was faster.
                raise
    return folder
