"""Which brokers a client with several of them chooses, so that no single death cuts it off."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.net.client.independence import Place, Taken, most_independent, place_of, shared
from sterna.net.client.transport import Tcp
from sterna.sim.topology import Topology, from_parents, star
from tests.net.live import connect, network_in
from tests.scale import examples


def cut_off_both(topology: Topology, a: str, b: str) -> int:
    """For each broker, how many others there are without whom neither of two gets its events."""
    count = 0
    for source in topology.brokers:
        for dead in topology.brokers:
            if dead == source:
                continue
            reached, before = {source}, set[str]()
            while reached != before:
                before = set(reached)
                reached |= {y for pair in topology.links for y in pair if {*pair} & before} - {dead}
            count += not reached & {a, b}
    return count


@pytest.mark.spec("RE-5")
@examples(60)
@given(st.data())
def test_what_two_brokers_share_are_those_without_whom_neither_gets_anything(
    data: st.DataObject,
) -> None:
    count = data.draw(st.integers(2, 9))
    topology = from_parents([data.draw(st.integers(0, child - 1)) for child in range(1, count)])
    a, b = data.draw(st.permutations(topology.brokers))[:2]

    assert shared(topology.links, a, b) == cut_off_both(topology, a, b)


def test_brokers_of_different_networks_share_nothing() -> None:
    assert shared([("B1", "B2"), ("B3", "B4")], "B2", "B4") == 0
    assert shared([], "B1", "B2") == 0


def test_two_leaves_of_a_star_share_its_centre() -> None:
    """Two of four: events from the others pass the centre. Centre and leaf share more."""
    links = star(4).links

    assert shared(links, "B2", "B3") == 1  # What is published at B4 passes B1.
    assert shared(links, "B1", "B2") == 2  # What is published at B3 or B4 does.


@pytest.mark.spec("RE-5")
def test_the_addresses_of_other_brokers_come_in_the_order_of_what_they_share() -> None:
    """Whoever does not answer is out, and so is whose broker has a session already."""
    links = tuple(star(4).links)
    places = {
        "sterna://a:1": None,
        "sterna://a:2": Place("", ()),
        "sterna://b:1": Place("B2", links),
        "sterna://c:1": Place("B1", links),
        "sterna://c:2": Place("B3", links),
        "sterna://c:3": Place("B4", links),
        "sterna://b:2": Place("B4", links),
    }

    def chosen(*taken: Taken) -> list[str]:
        return [url.removeprefix("sterna://") for url in most_independent(places, taken)]

    assert chosen() == ["b:1", "c:1", "c:2", "c:3", "b:2", "a:2"]
    assert chosen(Taken("b", "B2")) == ["c:2", "c:3", "c:1", "b:2", "a:2"]
    assert chosen(Taken("c", "B4"), Taken("c", None)) == ["b:1", "c:2", "c:1", "a:2"]


@pytest.mark.spec("RE-5")
def test_a_client_picks_brokers_that_depend_on_each_other_least(tmp_path: Path) -> None:
    """B2 and B4 are a branch, B3 is another. The first is that of the list, if it answers."""

    async def run(urls: dict[str, str]) -> None:
        for listed, picked in {
            "B4 B2 B1 B3": ("B4", "B3"),
            "B3 B1 B2 B4": ("B3", "B4"),
            "B2 B4 B1 B3": ("B2", "B3"),
        }.items():
            chosen = [urls[name] for name in listed.split()]
            async with connect(*chosen, client="car", watch=2) as car:
                assert car.brokers == picked

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network.urls))


@pytest.mark.spec("RE-5")
def test_a_broker_that_does_not_say_how_it_is_linked_is_the_last(tmp_path: Path) -> None:
    """It hangs; and at another address there is nobody."""

    async def run(urls: dict[str, str]) -> None:
        assert await place_of("sterna://127.0.0.1:1", Tcp()) is None
        assert await place_of(urls["B2"], Tcp()) is None
        place = await place_of(urls["B1"], Tcp())
        assert place is not None
        assert place.broker == "B1"
        assert sorted(place.links) == [("B1", "B2"), ("B1", "B3")]
        async with connect(urls["B1"], urls["B2"], urls["B3"], client="car", watch=2) as car:
            assert car.brokers == ("B1", "B3")
            assert car.sessions == ("car~1", "car~2"), "it has not tried B2 before"

    with network_in(tmp_path, 3) as network:
        os.kill(network.pid("B2"), signal.SIGSTOP)
        try:
            asyncio.run(run(network.urls))
        finally:
            os.kill(network.pid("B2"), signal.SIGCONT)


@pytest.mark.spec("RE-5")
def test_another_host_comes_first(tmp_path: Path) -> None:
    """The same brokers, but one has an address on another host."""

    async def run(urls: dict[str, str]) -> None:
        elsewhere = urls["B1"].replace("127.0.0.1", "localhost")
        async with connect(urls["B2"], urls["B3"], elsewhere, client="car", watch=2) as car:
            assert car.brokers == ("B2", "B1")

    with network_in(tmp_path, 3) as network:
        asyncio.run(run(network.urls))
