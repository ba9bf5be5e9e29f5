"""The longest calls of the index are measured as `sterna.bench.index_pause` says."""

import gc

from sterna.bench.index_pause import longest_calls
from sterna.bench.workloads import ids


def test_all_sorts_of_calls_are_measured() -> None:
    said: list[str] = []
    found = longest_calls(400, ids(), progress=said.append)

    assert (found.add.calls, found.replace.calls, found.introduce.calls) == (400, 200, 200)
    assert found.match.calls > 10
    assert found.add.cpu_ms > 0
    assert found.as_json()["add"]["wall_ms"] == found.add.wall_ms
    assert gc.isenabled()
    assert any("adding" in line for line in said)
