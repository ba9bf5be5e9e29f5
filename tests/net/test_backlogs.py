"""What waits for a broker that was down is sent little by little when it is back."""

import asyncio
from pathlib import Path

import pytest

from sterna.core.actions import Disconnect, Transmit
from sterna.core.depot import Stretch
from sterna.core.inputs import TimePassed
from sterna.core.link import Data, Frame, Paged
from sterna.core.messages import Events
from sterna.core.node import Turn
from sterna.core.spilling import KeptPart
from sterna.model.event import Event
from sterna.net.broker import BrokerServer
from sterna.net.broker.driver import AT_ONCE_BYTES
from sterna.net.depot import entries
from sterna.net.local import LocalNetwork
from sterna.wire.codec import Bodies, decode, encode
from tests.net.live import SETTLE_S, connect, gather_events, network_in, settle, until
from tests.net.test_server import config_in

COUNT = 1_500
TEXT = "x" * 20_000


@pytest.mark.spec("LV-1", "LV-6")
def test_a_long_backlog_holds_nobody(tmp_path: Path) -> None:
    """30 MB: all of it comes, in order, and the event loop never stands still."""

    async def run(network: LocalNetwork) -> None:
        async with (
            connect(network.url("B2"), client="subscriber", timeout=SETTLE_S) as subscriber,
            connect(network.url("B1"), client="publisher", timeout=SETTLE_S) as publisher,
        ):
            subscription = subscriber.subscribe("n >= 0")
            await settle(network, [subscriber, publisher])
            await asyncio.to_thread(network.kill, "B2")
            for first in range(0, COUNT, 40):
                numbers = range(first, min(first + 40, COUNT))
                await publisher.publish_all({"n": n, "text": TEXT} for n in numbers)
            await publisher.drain()
            await asyncio.to_thread(network.restart, "B2")
            got = await gather_events(subscription, COUNT)
            assert [event.attributes["n"] for event in got] == list(range(COUNT))
            assert (await asyncio.to_thread(network.held)).get("B1") is None

    with network_in(tmp_path, 2) as network:
        asyncio.run(run(network))


class Taker:
    """The end of a link that takes anything, and notes how much comes with each flush."""

    def __init__(self) -> None:
        self.flushed: list[list[bytes]] = []
        self.is_closed = False
        self._put: list[bytes] = []

    def encode(self, frame: Frame, bodies: Bodies) -> tuple[bytes, ...]:
        return encode(frame, bodies)

    def put(self, parts: tuple[bytes, ...]) -> int:
        self._put.append(b"".join(parts))
        return len(self._put[-1])

    def flush(self) -> None:
        if self._put:
            self.flushed.append(self._put)
        self._put = []

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.spec("LV-6")
def test_a_turn_of_the_loop_sends_a_part_of_a_backlog(tmp_path: Path) -> None:
    """What comes later waits behind it, and so does the end of the connection."""
    event = Event(publisher="p", seq=1, time_us=0, attributes={"text": TEXT})

    def turn(*seqs: int, ends: bool = False) -> Turn:
        frames = [Data(seq, 0, Events(events=(event,))) for seq in seqs]
        actions = [Transmit("x", frame) for frame in frames]
        return Turn([*actions, *([Disconnect("x")] if ends else [])], [], TimePassed())

    async def run() -> None:
        server = BrokerServer(config_in(tmp_path))
        await server.start()
        taker, driver = Taker(), server.driver
        server.sessions.links["x"] = taker  # type: ignore[assignment]
        driver.release(driver.prepare(turn(*range(1, 501))))
        driver.release(driver.prepare(turn(501, ends=True)))
        assert driver.has_backlog
        await until(lambda: taker.is_closed)
        taker.flush()
        del server.sessions.links["x"]
        await server.stop(drain_s=0)
        frames = [decode(frame) for part in taker.flushed for frame in part]
        assert [frame.seq for frame in frames if isinstance(frame, Data)] == list(range(1, 502))
        most = max(sum(map(len, part)) for part in taker.flushed)
        assert most <= 2 * (AT_ONCE_BYTES + len(TEXT) + 100)

    asyncio.run(run())


class SlowTaker(Taker):
    """The end of a link that takes nothing unless it is told to."""

    @property
    def waiting_bytes(self) -> int:
        return sum(len(frame) for part in self.flushed for frame in part) - self.taken_bytes

    taken_bytes = 0


@pytest.mark.spec("LV-6")
def test_what_is_on_disk_stays_there_until_it_is_taken(tmp_path: Path) -> None:
    """A page is sent message by message, each under its number; what comes later waits behind."""
    events = [
        Event(publisher="p", seq=seq, time_us=0, attributes={"text": TEXT}) for seq in range(1, 501)
    ]
    part = KeptPart("", "x", list(enumerate(events)))

    async def run() -> None:
        server = BrokerServer(config_in(tmp_path))
        await server.start()
        taker, driver = SlowTaker(), server.driver
        server.sessions.links["x"] = taker  # type: ignore[assignment]
        driver.spill._sizes[1] = driver.spill._pages.write(1, entries(part), sync=False)
        paged = Paged(11, Stretch(1, 0, 500, 500, 0))
        last = Data(511, 0, Events(events=(events[0],)))
        turn = Turn([Transmit("x", paged), Transmit("x", last)], [], TimePassed())
        driver.release(driver.prepare(turn))
        await until(lambda: taker.waiting_bytes > AT_ONCE_BYTES)
        await asyncio.sleep(0.1)
        assert taker.waiting_bytes < 3 * AT_ONCE_BYTES
        taker.taken_bytes = 10**9
        await until(lambda: not driver.has_backlog)
        taker.flush()
        del server.sessions.links["x"]
        driver.spill._sizes.clear()
        await server.stop(drain_s=0)
        frames = [decode(frame) for part in taker.flushed for frame in part]
        assert frames[:500] == [
            Data(seq, 0, Events(events=(event,))) for seq, event in enumerate(events, 11)
        ]
        assert frames[500:] == [last]

    asyncio.run(run())
