"""The interface of the matching index: keys, mistakes, threads, and what it needs."""

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from sterna import Filter, UnboundError
from sterna.matching import MatchIndex
from tests.light import LightPython
from tests.matching.test_index import Event, by_event, filled, in_columns

pytestmark = pytest.mark.spec("MOD-7")


def test_few_filters_need_neither_numpy_nor_numba() -> None:
    program = (
        "import sys; from sterna import Filter; from sterna.matching import MatchIndex\n"
        "index = MatchIndex(); index.add(1, Filter('a = 1')); assert index.match({'a': 1}) == [1]\n"
        "print([m for m in ('numpy', 'numba') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert answer.stdout.strip() == "[]", answer.stderr


WITHOUT = """
import sterna
from sterna import Filter
from sterna.matching import MatchIndex

index = MatchIndex()
index.add_all((key, Filter(f"a > {key}")) for key in range(50))
for key in range(50, 100):
    index.add(key, Filter(f"a > {key} OR b LIKE '%x%'"))
index.remove(7)
print(len(index), 7 in index, 8 in index, index.memory() > 0)
print(index.match({"a": 9.5}), len(index.match({"b": "axe"})))
print(index.match_each([{"a": 1}, {"a": 2}] * 20)[0] == list(range(40)))
try:
    index.match_batch({"a": [1, 2]})
except sterna.MissingExtraError as error:
    print(error)
"""


def test_without_numpy_and_numba_filters_are_asked_one_by_one(light: LightPython) -> None:
    assert light.run(WITHOUT).splitlines() == [
        "99 False True True",
        "[0, 1, 2, 3, 4, 5, 6, 8, 9] 50",
        "True",
        "matching batches needs numba and numpy: pip install 'sterna[broker]'",
    ]


@pytest.mark.parametrize("count", [3, 100])
def test_keys_are_any_hashable_and_taken_once(count: int) -> None:
    keys: list[Any] = [("link", 1), "ann", 7, frozenset({1}), None, 2.5]
    index = filled(
        {key: Filter("a = 1") for key in keys[:count]}
        | {("more", k): Filter("a = 2") for k in range(count)}
    )

    assert set(index.match({"a": 1})) == set(keys[:count])
    assert "ann" in index
    with pytest.raises(ValueError, match="'ann' is in the index already; remove it first"):
        index.add("ann", Filter("a = 3"))
    with pytest.raises(KeyError):
        index.remove("bob")
    with pytest.raises(TypeError, match="unhashable"):
        index.add([], Filter("a = 3"))
    assert len(index) == min(count, len(keys)) + count


@pytest.mark.parametrize("count", [0, 100])
def test_what_cannot_be_added_changes_nothing(count: int) -> None:
    index = filled({k: Filter("a = 1") for k in range(count)})
    with pytest.raises(UnboundError, match=r"\$budget"):
        index.add("x", Filter("price < $budget"))
    with pytest.raises(TypeError, match="a str is no filter"):
        index.add("x", "a = 1")  # type: ignore[arg-type]

    assert len(index) == count
    assert "x" not in index
    index.add("x", Filter("a = 1"))
    assert max(map(str, index.match({"a": 1}))) == "x"


@pytest.mark.parametrize("count", [3, 100])
def test_a_value_that_events_cannot_carry_is_an_error(count: int) -> None:
    index = filled({k: Filter("a = 1") for k in range(count)})

    with pytest.raises(TypeError, match="attribute 'a' is a list"):
        index.match({"a": [1]})  # type: ignore[dict-item]
    assert len(index.match({"a": np.int64(1)})) == count  # type: ignore[dict-item]


HISTORY = """
from sterna import Filter, UnboundError
from sterna.matching import MatchIndex
from sterna.matching import MatchIndex
index = MatchIndex()
for key in range(400):
    name = f"key-{key}"
    index.add(name, Filter(f"a > {key % 50} AND b IN ('x', 'y{key % 3}') OR c LIKE '%q{key % 4}%'"))
    if key % 3 == 0:
        index.remove(name)
print(index.match({"a": 45, "b": "y1", "c": "abq2"}))
print(index.match_batch({"a": [45, 3], "b": ["y1", "x"], "c": ["q1", None]})[1].tolist())
"""


def test_the_order_of_answers_does_not_depend_on_the_process() -> None:
    answers = {
        subprocess.run(
            [sys.executable, "-c", HISTORY],
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(answers) == 1
    assert "key-" in answers.pop()


def test_several_threads_match_at_the_same_time() -> None:
    filters = {key: Filter(f"a > {key % 90} AND b < {key % 70}") for key in range(2000)}
    index = filled(filters)
    batch: list[Event] = [{"a": float(k), "b": float(k % 13)} for k in range(100)]
    expected = [index.match(event) for event in batch]
    wrong: list[Event] = []

    def ask() -> None:
        for _ in range(20):
            wrong.extend(
                e for e, keys in zip(batch, expected, strict=True) if index.match(e) != keys
            )
            if by_event(index.match_batch(in_columns(batch)), len(batch)) != expected:
                wrong.append({})

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.spec("LV-6")
def test_filters_count_while_they_are_there() -> None:
    """What is not compiled takes time for each event."""
    index: MatchIndex[int] = MatchIndex()
    filters = [Filter(text) for text in ("a = 1", "a = 1 OR b LIKE '%x'", "NOT c < d + 1")]
    for key, filter_ in enumerate(filters):
        index.add(key, filter_)
    assert index.effort == (5, 1)

    index.remove(1)
    assert index.effort == (3, 0)
    index.compiled()
    assert index.effort.readings == index.effort.tests <= 1
