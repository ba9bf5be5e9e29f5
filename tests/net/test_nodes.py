"""The numbers that nodes begin with."""

import subprocess
import sys

import pytest

from sterna.core.lives import NOTHING_KNOWN, SESSIONS_MAX, Earlier
from sterna.core.settings import Settings
from sterna.net.nodes import new_broker, new_client

pytestmark = pytest.mark.spec("LV-2")


def incarnation(name: str, earlier: Earlier = NOTHING_KNOWN) -> int:
    return new_client(name, Settings(), earlier).incarnation


def test_an_incarnation_is_greater_each_time() -> None:
    numbers = [incarnation("anyone") for _ in range(100)]
    assert numbers == sorted(set(numbers))


def test_many_nodes_of_one_process_do_not_outrun_the_clock() -> None:
    """A node that starts in another process after them begins behind none of its former lives."""
    here = [incarnation(f"client {number}") for number in range(1_000)]
    program = "from tests.net.test_nodes import incarnation; print(incarnation('client 999'))"
    there = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert int(there) >= max(here)


def test_a_life_is_above_those_that_a_broker_knows_although_the_clock_was_set_back() -> None:
    ahead = incarnation("ann") + 36_000
    began = new_client("ann", Settings(), Earlier(ahead * SESSIONS_MAX + 7, 2**50))
    assert began.incarnation == ahead + 1
    assert began.seq == 2**50


def test_a_broker_without_a_memory_is_not_taken_for_an_earlier_one() -> None:
    """Whatever its clock shows: one without a battery may show the same at each start."""
    numbers = {new_broker("B1", Settings()).incarnation for _ in range(10)}
    assert len(numbers) == 10
