"""Acknowledging by hand: what an application is not done with comes again after a restart."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sterna
from sterna.model.event import Event
from sterna.net.client.backlog import Backlog
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, connect, gather_events, network_in, settle

pytestmark = pytest.mark.spec("LV-2")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    with network_in(tmp_path_factory.mktemp("acknowledging"), 1) as network:
        yield network


def event(number: int) -> Event:
    return Event(publisher=f"p{number % 3}", seq=number + 1, time_us=0, attributes={"n": number})


# ---- Counting


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(1, 4)),
            st.tuples(st.sampled_from(["take", "take_all", "finish"]), st.just(0)),
            st.tuples(st.just("acknowledge"), st.integers(0, 30)),
        ),
        max_size=40,
    )
)
def test_each_event_waits_is_in_hand_or_done_in_the_order_of_delivery(
    doings: list[tuple[str, int]],
) -> None:
    """Compared with a list of all events and two positions in it."""
    backlog = Backlog()
    came, taken, done = 0, 0, 0
    for doing, number in doings:
        match doing:
            case "put":
                backlog.put([event(came + each) for each in range(number)])
                came += number
            case "take" if taken < came:
                assert backlog.take().attributes["n"] == taken
                taken += 1
            case "take_all":
                assert [e.attributes["n"] for e in backlog.take_all()] == [*range(taken, came)]
                taken = came
            case "finish":
                assert backlog.finish() == (done < taken)
                done = taken
            case "acknowledge":
                is_in_hand = done <= number < taken
                assert backlog.finish(event(number)) == is_in_hand
                done = number + 1 if is_in_hand else done
        assert backlog.done == done
        assert [e.attributes["n"] for e in backlog.everything()] == [*range(done, came)]
    again = Backlog()
    again.put(event(number) for number in range(came))
    again.finished_before(done)
    assert again.everything() == backlog.everything()


# ---- Across restarts


def numbers(events: list[Event]) -> list[object]:
    return [event.attributes["n"] for event in events]


def test_what_was_not_acknowledged_comes_again(network: LocalNetwork, tmp_path: Path) -> None:
    """However the program ends; what was acknowledged does not, and neither does what is before."""
    url = network.url("B1")

    async def run() -> None:
        async with connect(url, client="ack-p") as publisher:
            async with connect(url, client="ack-s", state=tmp_path) as client:
                wanted = client.subscribe("ack = 1", name="wanted", acknowledge="manual")
                await settle(network, [publisher, client])
                await publisher.publish_all({"ack": 1, "n": n} for n in range(6))
                events = await gather_events(wanted, 4)
                wanted.acknowledge(events[1])
                wanted.acknowledge(events[0])  # Once more changes nothing.
            # The client was closed in peace, with two events in hand and two waiting.
            async with connect(url, client="ack-s", state=tmp_path) as client:
                wanted = client.subscribe("ack = 1", name="wanted", acknowledge="manual")
                assert numbers(await gather_events(wanted, 4)) == [2, 3, 4, 5]
                wanted.acknowledge(events[2])  # The one of before is the same event.
            async with connect(url, client="ack-s", state=tmp_path) as client:
                wanted = client.subscribe("ack = 1", name="wanted")  # By itself, from now on.
                assert numbers(await gather_events(wanted, 2)) == [3, 4]
            async with connect(url, client="ack-s", state=tmp_path) as client:
                wanted = client.subscribe("ack = 1", name="wanted", acknowledge="manual")
                assert numbers(await gather_events(wanted, 1)) == [5]

    asyncio.run(run())


def test_a_program_that_is_killed_gets_what_it_did_not_acknowledge(
    network: LocalNetwork, tmp_path: Path
) -> None:
    """The blocking client, which takes events ahead; the process ends without a word."""
    program = f"""
import os, sterna
ann = sterna.blocking.connect({network.url("B1")!r}, client="ack-ann", state={str(tmp_path)!r})
wanted = ann.subscribe("ann = 1", acknowledge="manual")
ann.publish_all([{{"ann": 1, "n": n}} for n in range(5)])
events = [wanted.get(timeout=60) for _ in range(4)]
wanted.acknowledge(events[2])
os._exit(9)
"""
    died = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert died.returncode == 9, died.stderr

    with sterna.blocking.connect(network.url("B1"), client="ack-ann", state=tmp_path) as ann:
        wanted = ann.subscribe("ann = 1", acknowledge="manual")
        assert [wanted.get(SETTLE_S).attributes["n"] for _ in range(2)] == [3, 4]


def test_a_blocking_program_that_fails_gets_its_last_event_again(
    network: LocalNetwork, tmp_path: Path
) -> None:
    """As an asyncio program does: only leaving the `with` in peace says that it is done."""
    url, seen = network.url("B1"), []
    for fails in (True, False, False):
        try:
            with sterna.blocking.connect(url, client="ack-bob", state=tmp_path) as bob:
                wanted = bob.subscribe("bob = 1")
                if fails:
                    bob.publish_all([{"bob": 1, "n": n} for n in range(5)])
                seen.append([wanted.get(SETTLE_S).attributes["n"] for _ in range(2)])
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            continue

    assert seen == [[0, 1], [1, 2], [3, 4]]


def test_who_acknowledges_by_itself_is_not_helped(network: LocalNetwork) -> None:
    async def run() -> None:
        async with connect(network.url("B1"), client="ack-auto") as client:
            wanted = client.subscribe("auto = 1")
            await client.publish(auto=1)
            event = await wanted.get(timeout=SETTLE_S)
            with pytest.raises(sterna.LocalProtocolError, match="acknowledge='manual'"):
                wanted.acknowledge(event)
            with pytest.raises(ValueError, match="'auto' or 'manual'"):
                client.subscribe("auto = 2", acknowledge="never")  # type: ignore[arg-type]

    asyncio.run(run())
