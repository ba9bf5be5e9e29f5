"""Arrays and dicts grow without copying all that is in them, and lose nothing."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.matching import growth
from sterna.matching.growth import SMALL_DICT_MAX, LargeDict, grown, zeros
from tests.scale import examples


@pytest.mark.parametrize("shape", [(5,), (5, 3)])
def test_an_array_keeps_its_entries_and_gets_zeros(shape: tuple[int, ...]) -> None:
    array = zeros(shape, np.int32)
    array[:] = 7
    for length in (6, 100, 1000):
        array = grown(array, length)
        assert array.shape == (length, *shape[1:])
        assert (array[:5] == 7).all()
        assert not array[5:].any()


def test_a_large_array_grows_in_place() -> None:
    array = zeros((growth.COPIED_MAX,), np.int64)
    array[:3] = 1
    larger = grown(array, 4 * len(array))

    assert np.shares_memory(array, larger)
    assert larger.sum() == 3


def test_without_address_space_to_reserve_an_array_grows_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(growth, "RESERVED", sys.maxsize)
    array = grown(zeros((4,), np.int64), growth.COPIED_MAX)

    assert len(array) == growth.COPIED_MAX


@given(
    changes=st.lists(
        st.tuples(
            st.booleans(), st.one_of(st.integers(0, 300), st.floats(0, 9), st.text(max_size=2))
        )
    ),
    more=st.integers(0, 400),
)
@examples(100)
def test_a_large_dict_is_a_dict(changes: list[tuple[bool, object]], more: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "SMALL_DICT_MAX", 30)
        large: LargeDict[object, int] = LargeDict()
        plain: dict[object, int] = {}
        changes = [*changes, *((True, k * 1024) for k in range(more)), *changes]
        for place, (adds, key) in enumerate(changes):
            if adds and key not in plain:
                large.add(key, place)
                plain[key] = place
            elif not adds and key in plain:
                assert large.pop(key) == plain.pop(key)
        copy: LargeDict[object, int] = pickle.loads(pickle.dumps(large))  # noqa: S301
        for each in (large, copy):
            assert len(each) == len(plain)
            assert set(each) == set(plain)
            assert all(key in each and each.get(key) == value for key, value in plain.items())
            assert each.get("none of them", -1) == -1
            assert sorted(each.values()) == sorted(plain.values())


@pytest.mark.parametrize("step", [1, 1024, 0.5])
def test_the_parts_of_a_large_dict_stay_small(step: float) -> None:
    large: LargeDict[float, int] = LargeDict()
    for k in range(50_000):
        large.add(k * step, k)

    assert max(map(len, large._parts)) < 2 * 50_000 / growth.PARTS


@pytest.mark.parametrize("protocol", [4, 5])
def test_an_array_that_was_pickled_grows(protocol: int) -> None:
    """Such an array may live in the bytes that it came from."""
    array = zeros((5000,), np.int32)
    array[:] = 7
    copy = grown(pickle.loads(pickle.dumps(array, protocol)), 6000)  # noqa: S301

    assert copy.dtype == np.int32
    assert copy.sum() == 7 * 5000
    assert len(copy) == 6000


MADE_ELSEWHERE = """
import pickle, sys
from sterna.matching.growth import SMALL_DICT_MAX, LargeDict
large = LargeDict()
for number in range(SMALL_DICT_MAX + 5):
    large.add(f"v{number}", number)
sys.stdout.buffer.write(pickle.dumps(large))
"""


@pytest.mark.parametrize("seed", ["1", "2"])  # One of them is not that of this process.
def test_a_large_dict_from_another_process_finds_its_entries(seed: str) -> None:
    """Strings have other hashes there, as between the driver of Spark and its workers."""
    made = subprocess.run(
        [sys.executable, "-c", MADE_ELSEWHERE],
        env={**os.environ, "PYTHONHASHSEED": seed},
        stdout=subprocess.PIPE,
        check=True,
    )
    large: LargeDict[str, int] = pickle.loads(made.stdout)  # noqa: S301 - our own.

    names = [f"v{number}" for number in range(SMALL_DICT_MAX + 5)]
    assert len(large) == len(names)
    assert large.get_each(names, -1) == [*range(len(names))]
    assert all(name in large and large.get(name) == int(name[1:]) for name in names)
    assert large.pop("v7") == 7
