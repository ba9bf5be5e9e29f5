"""The cache of compiled subscriptions: what is read is what was written, or it is made again."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sterna.pipeline.matching import cache as cache_module
from sterna.pipeline.matching.cache import CompiledCache, compiled_cache, source_digest


class Maker:
    """Makes something, and counts how often."""

    def __init__(self, made: object) -> None:
        self.made = made
        self.count = 0

    def __call__(self) -> object:
        self.count += 1
        return self.made


@pytest.fixture
def kept(tmp_path: Path) -> CompiledCache:
    return CompiledCache(tmp_path / "kept", bytes_max=10_000)


def files(cache: CompiledCache) -> list[Path]:
    return sorted(cache.folder.iterdir())


def test_what_was_made_is_not_made_again(kept: CompiledCache) -> None:
    """From the same things; from others it is."""
    makes = Maker(["a"]), Maker(["b"]), Maker(["c"])
    for _ in range(2):
        assert kept.get(("x", 1), makes[0]) == ["a"]
        assert kept.get(("x", "1"), makes[1]) == ["b"]
        assert CompiledCache(kept.folder).get(("x1",), makes[2]) == ["c"]

    assert [make.count for make in makes] == [1, 1, 1]


def test_another_compiler_makes_its_own(
    kept: CompiledCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Maker("old"), Maker("new")
    kept.get(("x",), old)
    monkeypatch.setattr(cache_module, "compiler", lambda: "another")

    assert kept.get(("x",), new) == "new"


@pytest.mark.parametrize("folder", ["model/filters", "matching/kernels", "pipeline/matching"])
def test_the_compiler_is_its_source(folder: str, tmp_path: Path) -> None:
    for each in ("model/filters", "matching/kernels", "pipeline/matching"):
        (tmp_path / each).mkdir(parents=True)
    file = tmp_path / folder / "some.py"
    file.write_text("1", encoding="utf-8")
    before = source_digest(tmp_path)
    file.write_text("2", encoding="utf-8")

    assert None is not before != source_digest(tmp_path)
    assert source_digest(tmp_path / "package.zip") is None


@pytest.mark.parametrize("damage", ["a bit", "the hash", "cut short", "nothing left", "another"])
def test_a_damaged_entry_is_made_again(damage: str, kept: CompiledCache) -> None:
    """And replaced, so that the next one finds it intact."""
    kept.get(("other",), Maker("other"))
    (other,) = files(kept)
    make = Maker("right" * 10)
    kept.get(("x",), make)
    (entry,) = set(files(kept)) - {other}
    data = bytearray(entry.read_bytes())
    match damage:
        case "a bit":
            data[-9] ^= 1
        case "the hash":
            data[3] ^= 1
        case "cut short":
            del data[-1]
        case "nothing left":
            data.clear()
        case _:
            data[:] = other.read_bytes()
    entry.write_bytes(data)

    with entry.open("rb") as reading:
        assert [kept.get(("x",), make) for _ in range(2)] == ["right" * 10] * 2
        assert make.count == 2
        assert reading.read() == data, "a reader finds one file or the other, no mixture"


def test_what_was_not_used_for_longest_makes_room(kept: CompiledCache) -> None:
    """And nothing is kept that needs more than all the room."""
    makes = [Maker(bytes([number]) * 3000) for number in range(4)]
    for number in range(3):
        kept.get((number,), makes[number])
        for path in files(kept):  # As if it were a minute ago.
            about = path.stat()
            os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns - 60 * 10**9))
    kept.get((0,), makes[0])
    kept.get((3,), makes[3])
    kept.get(("large",), Maker(b"." * 10_001))

    assert len(files(kept)) == 3
    for number in (0, 2, 3):
        kept.get((number,), makes[number])
    assert [make.count for make in makes] == [1, 1, 1, 1]
    kept.get((1,), makes[1])
    assert makes[1].count == 2


def test_what_a_killed_process_left_is_removed(kept: CompiledCache) -> None:
    """But not what another one is writing now."""
    kept.folder.mkdir(mode=0o700)
    old, young = kept.folder / ".new-old", kept.folder / ".new-young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 4000,) * 2)

    kept.get(("x",), Maker("x"))

    assert (old.exists(), young.exists()) == (False, True)


def test_many_may_write_at_the_same_time(tmp_path: Path) -> None:
    """Into a folder with room for a few of the entries: each gets what it asked for."""

    def use(worker: int) -> bool:
        cache = CompiledCache(tmp_path / "kept", bytes_max=5000)
        numbers = [(worker + turn) % 7 for turn in range(100)]
        return all(cache.get((n,), Maker(str(n) * 1500)) == str(n) * 1500 for n in numbers)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(4)))

    left = files(CompiledCache(tmp_path / "kept"))
    assert 0 < sum(path.stat().st_size - 32 for path in left) <= 5000
    assert all(path.suffix == ".compiled" for path in left)


def test_a_folder_that_others_can_write_to_is_not_used(kept: CompiledCache) -> None:
    """What is in it is unpickled, which may run code."""
    make = Maker("x")
    kept.get(("x",), make)
    kept.folder.chmod(0o770)

    kept.get(("x",), make)
    kept.get(("y",), make)

    assert make.count == 3
    assert len(files(kept)) == 1


def test_without_a_folder_all_works_as_well(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    make = Maker("x")

    assert [CompiledCache(tmp_path / "file").get((), make) for _ in "ab"] == ["x", "x"]


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the caller says, else the variable, else the user's folder for caches."""

    def folder(where: str | None = None) -> Path | None:
        cache = compiled_cache(where)
        return None if cache is None else cache.folder

    monkeypatch.setenv("STERNA_CACHE", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() is None
    assert folder("/there") == Path("/there/subscriptions")
    monkeypatch.setenv("STERNA_CACHE", "/here")
    assert folder() == Path("/here/subscriptions")
    assert folder("off") is None
    monkeypatch.delenv("STERNA_CACHE")
    assert folder() == tmp_path / "sterna" / "subscriptions"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/ann")
    assert folder() == Path("/home/ann/.cache/sterna/subscriptions")
