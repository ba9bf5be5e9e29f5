"""The numbers that nodes begin with."""

import subprocess
import sys

import pytest

from sterna.net.nodes import next_incarnation

pytestmark = pytest.mark.spec("LV-2")


def test_an_incarnation_is_greater_each_time() -> None:
    numbers = [next_incarnation("anyone") for _ in range(100)]
    assert numbers == sorted(set(numbers))


def test_many_nodes_of_one_process_do_not_outrun_the_clock() -> None:
    """A node that starts in another process after them begins behind none of its former lives."""
    here = [next_incarnation(f"client {number}") for number in range(1_000)]
    program = "from sterna.net.nodes import next_incarnation; print(next_incarnation('client 999'))"
    there = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert int(there) >= max(here)
