"""The package as one file, for the workers of a cluster."""

import atexit
import hashlib
import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import sterna

_SHIPPED = {".py", ".lark", ".typed", ".properties"}
COMPILED = {".nbi", ".nbc"}
"""The endings of files that Numba has compiled; see `sterna.pipeline.compiled`."""

LOCATORS = (
    "sterna.pipeline.compiled.ShippedCacheLocator,"
    "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,"
    "IPythonCacheLocator,ZipCacheLocator"
)
"""For NUMBA_CACHE_LOCATOR_CLASSES on workers: ours, and those that Numba has by itself."""


@cache
def package() -> Path:
    """A zip file of this package; workers need its dependencies, but not itself."""
    root = Path(sterna.__file__).parent
    files = sorted(path for path in root.rglob("*") if path.suffix in _SHIPPED or _is_new(path))
    contents = [(path.relative_to(root.parent).as_posix(), path.read_bytes()) for path in files]
    digest = hashlib.sha256()
    for name, data in contents:
        digest.update(f"{name} {len(data)} ".encode())
        digest.update(data)
    directory = Path(tempfile.mkdtemp(prefix="sterna-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = directory / f"sterna-{digest.hexdigest()[:12]}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents:
            # The same time in each: files of the same name have the same content.
            archive.writestr(zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0)), data)
    return path


def _is_new(path: Path) -> bool:
    """Whether it was compiled from the present source."""
    if path.suffix not in COMPILED:
        return False
    source = path.parent.with_name(path.name.split(".")[0] + ".py")
    return source.exists() and path.stat().st_mtime >= source.stat().st_mtime
