"""A broker process under attack by filters that take long to read or to compare: others do not
notice, and the event loop never stands still.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sterna.net.local import LocalNetwork
from tests.net.attacks import LATE_S, Attacker, witness
from tests.net.live import network_in

pytestmark = pytest.mark.spec("LV-6")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[LocalNetwork]:
    """Two brokers: what the first one is asked for is announced to the second."""
    with network_in(tmp_path, 2) as network:
        yield network
        assert network.died() == {}


def long_filter(test: str, word: str, characters: int) -> str:
    """Many different tests in a row, with so many characters."""
    tests: list[str] = []
    while sum(map(len, tests)) + len(tests) * len(word) < characters:
        tests.append(test.format(len(tests)))
    return word.join(tests)


LONG = {
    "alternatives": long_filter("(a{0} = {0} OR b{0} LIKE '%x_{0}%')", " OR ", 28_000),
    "conjunctions": long_filter("(a{0} > {0} OR b{0} < {0})", " AND ", 28_000),
    "members": "x IN (" + ", ".join(f"'v{number}'" for number in range(3_000)) + ")",
    "one pattern": f"x LIKE '%{'a_%' * 9_000}'",
}


MANY = {
    "equal": [f"n = {number} AND m > {number % 7}" for number in range(300)],
    "patterns": [f"x LIKE '%a_{number}%_b%'" for number in range(300)],
    "arithmetic": [f"a + b * {number} > c" for number in range(300)],
    "topics": [f"x MATCHES '+/{number % 7}/+/{number}/#'" for number in range(300)],
    "alternatives": [
        " OR ".join(f"(a{place} > {place * number} AND b < {place})" for place in range(9))
        for number in range(60)
    ],
}


def test_long_filters_in_one_frame(network: LocalNetwork) -> None:
    """As in the attack that held a broker for 8 seconds."""
    filters = list(LONG.values())
    some = [f"n = {number} AND ({filters[number % len(filters)]})" for number in range(12)]
    assert_unnoticed(network, [some])


def test_many_filters_in_one_frame(network: LocalNetwork) -> None:
    """Each is compared with those that are there, for each neighbour."""
    assert_unnoticed(network, list(MANY.values()))


def test_many_filters_in_many_frames(network: LocalNetwork) -> None:
    assert_unnoticed(network, [[f"x LIKE '%{n}_{n}%_b%'"] for n in range(1_000)])


def assert_unnoticed(network: LocalNetwork, frames: Sequence[Sequence[str]]) -> None:
    """Each frame has some filters. They come in one piece, and are all there in the end."""

    async def attack() -> Attacker:
        attacker = await Attacker.come_in(network.addresses["B1"])
        pieces = [attacker.change(filters) for filters in frames]
        await attacker.send(b"".join([*pieces, attacker.publication(end=True)]))
        return attacker

    assert asyncio.run(witness(network, attack)) < LATE_S
