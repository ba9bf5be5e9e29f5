"""The package as one file, for the workers of a cluster."""

import hashlib
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import sterna

_SHIPPED = {".py", ".lark", ".typed", ".properties"}


@cache
def package() -> Path:
    """A zip file of this package's source; workers need its dependencies, but not itself."""
    root = Path(sterna.__file__).parent
    files = sorted(path for path in root.rglob("*") if path.suffix in _SHIPPED)
    contents = [(path.relative_to(root.parent).as_posix(), path.read_bytes()) for path in files]
    digest = hashlib.sha256()
    for name, data in contents:
        digest.update(f"{name} {len(data)} ".encode())
        digest.update(data)
    directory = Path(tempfile.mkdtemp(prefix="sterna-"))
    path = directory / f"sterna-{digest.hexdigest()[:12]}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents:
            # The same time in each: the name says what is inside, and compiled code is kept by it.
            archive.writestr(zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0)), data)
    return path
