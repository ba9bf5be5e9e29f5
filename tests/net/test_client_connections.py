"""A client's connection: what it tells of it, how it obeys its core, and how it is opened."""

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import sterna
from sterna.core.inputs import Attach, Detach, Leave
from sterna.core.link import Resume
from sterna.core.settings import Settings
from sterna.net.address import Address
from sterna.net.client.connections import UNREAD_MAX, Changes
from sterna.net.client.life import Life
from sterna.net.connection import Connection
from sterna.net.local import LocalNetwork
from sterna.wire.codec import Bodies, encode
from sterna.wire.frames import FEATURES, VERSION, Hello, Role, control, frame
from tests.net.live import SETTLE_S, connect, network_in, until

pytestmark = pytest.mark.spec("LV-2")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    with network_in(tmp_path_factory.mktemp("connections"), 2) as network:
        yield network


def in_time(doing: Coroutine[Any, Any, None]) -> None:
    """Run it; a client that never connects or never hangs up is a failure, too."""
    asyncio.run(asyncio.wait_for(doing, 2 * SETTLE_S))


async def told(connections: sterna.Connections, count: int) -> list[object]:
    return [await connections.get(timeout=SETTLE_S) for _ in range(count)]


# ---- What it tells


@pytest.mark.spec("LV-3")
def test_a_move_and_the_end_are_told(network: LocalNetwork) -> None:
    async def run() -> None:
        one, two = network.url("B1"), network.url("B2")
        async with connect(one, client="moves") as client:
            connections = client.connections()
            assert await told(connections, 1) == [sterna.Connected("B1", one)]
            await client.attach(two)
            assert await told(connections, 3) == [
                sterna.Lost("B1", "the client has detached"),
                sterna.Connected("B2", two),
                sterna.Moved("B1", "B2"),
            ]
            await client.detach()
            await client.attach(two)
            assert await told(connections, 2) == [
                sterna.Lost("B2", "the client has detached"),
                sterna.Connected("B2", two),
            ]
        assert [change async for change in connections] == [
            sterna.Lost("B2", "the client is closed")
        ]
        with pytest.raises(sterna.ClosedError):
            await connections.get()

    in_time(run())


@pytest.mark.spec("LV-1", "LV-3")
def test_a_broker_that_is_killed_is_told_and_another_takes_over(tmp_path: Path) -> None:
    """The client goes to the next broker of its list by itself, and says so."""

    async def run(network: LocalNetwork) -> None:
        one, two = network.url("B1"), network.url("B2")
        seen: list[object] = []
        async with connect(one, two, client="survivor") as client:
            client.on_connection(seen.append)
            network.kill("B1")
            await until(lambda: client.broker == "B2")
            await asyncio.to_thread(network.restart, "B1")  # It has what is there for the client.
            await until(lambda: len(seen) == 4)
            lost = seen.pop(1)
            assert isinstance(lost, sterna.Lost)
            assert lost.broker == "B1"
            assert "the connection broke" in lost.reason or "has closed" in lost.reason
            assert seen == [
                sterna.Connected("B1", one),
                sterna.Connected("B2", two),
                sterna.Moved("B1", "B2"),
            ]
            assert client.broker == "B2"
            await client.publish(n=1)

    with network_in(tmp_path, 2) as network:
        in_time(run(network))


def test_a_restart_elsewhere_is_a_move(network: LocalNetwork, tmp_path: Path) -> None:
    """With a state, the client knows where its last process was."""

    async def run() -> None:
        async with connect(network.url("B1"), client="reborn", state=tmp_path):
            pass
        client = connect(network.url("B2"), client="reborn", state=tmp_path)
        connections = client.connections()
        async with client:
            assert await told(connections, 2) == [
                sterna.Connected("B2", network.url("B2")),
                sterna.Moved("B1", "B2"),
            ]

    in_time(run())


def test_a_client_that_was_refused_says_so_to_who_reads_on(network: LocalNetwork) -> None:
    """Another client of the same name takes over; waiting calls do not wait for ever."""

    async def run() -> None:
        async with connect(network.url("B1"), client="twin") as first:
            connections = first.connections()
            subscription = first.subscribe("twin > 0")
            await told(connections, 1)
            async with connect(network.url("B1"), client="twin"):
                (lost,) = await told(connections, 1)
                assert isinstance(lost, sterna.Lost)
                with pytest.raises(sterna.ClosedError, match=r"refuses twin") as refused:
                    await connections.get(timeout=SETTLE_S)
                assert refused.value.broker == "B1"
                for call in (lambda: first.publish(n=1), lambda: first.move("x")):
                    with pytest.raises(sterna.ClosedError):
                        call()
                with pytest.raises(sterna.ClosedError):
                    await subscription.get(timeout=SETTLE_S)

    in_time(run())


@pytest.mark.parametrize("has_state", [False, True])
def test_a_client_whose_name_is_taken_at_another_broker_is_told_as_well(
    network: LocalNetwork, tmp_path: Path, *, has_state: bool
) -> None:
    """Two programs, one of them perhaps with a copy of the other's state: the later one stays."""

    async def run() -> None:
        name = f"double-{has_state}"
        one, two = (tmp_path / "1", tmp_path / "2") if has_state else (None, None)
        async with connect(network.url("B1"), client=name, state=one) as first:
            subscription = first.subscribe("double > 0")
            await subscription.ready(SETTLE_S)
            if one is not None and two is not None:
                shutil.copytree(one, two)
            async with connect(network.url("B2"), client=name, state=two) as second:
                with pytest.raises(sterna.ClosedError, match=r"to another broker.*a name of its"):
                    await subscription.get(timeout=SETTLE_S)
                with pytest.raises(sterna.ClosedError):
                    first.publish(n=1)
                wanted = second.subscribe("double > 0", name="again")
                await second.publish(double=1)
                assert (await wanted.get(SETTLE_S)).attributes == {"double": 1}

    in_time(run())


def test_callbacks_come_and_go_and_one_that_fails_is_logged(
    network: LocalNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        seen: list[object] = []

        def fail(_change: object) -> None:
            raise ZeroDivisionError

        async with connect(network.url("B1"), client="calls") as client:
            client.on_connection(fail)
            remove = client.on_connection(seen.append)
            await client.detach()
            remove()
            remove()  # Once more does no harm.
            await client.attach()
            assert [type(change) for change in seen] == [sterna.Connected, sterna.Lost]

    with caplog.at_level(logging.ERROR, "sterna.client"):
        in_time(run())
    assert caplog.text.count("ZeroDivisionError") >= 2


@pytest.mark.parametrize("has_state", [False, True])
def test_a_callback_for_facts_that_fails_is_logged(
    network: LocalNetwork, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, has_state: bool
) -> None:
    def fails(_fact: object) -> None:
        raise ZeroDivisionError

    async def run() -> None:
        client = f"facts-{has_state}"
        state = tmp_path if has_state else None
        async with connect(network.url("B1"), client=client, facts=fails, state=state) as told:
            wanted = told.subscribe("facts = 1")
            await told.publish({"facts": 1})
            assert (await wanted.get(SETTLE_S)).attributes == {"facts": 1}

    asyncio.run(run())
    assert "the callback for facts failed" in caplog.text


def test_a_reader_that_does_not_read_keeps_the_newest_only() -> None:
    async def run() -> None:
        changes = Changes(Life("idle"))
        reader = changes.add_reader()
        for number in range(UNREAD_MAX + 5):
            changes.tell(sterna.Lost("B1", str(number)))
        reader.close()
        changes.tell(sterna.Lost("B1", "after the end"))
        reasons = [change.reason async for change in reader if isinstance(change, sterna.Lost)]
        assert reasons == [str(number) for number in range(5, UNREAD_MAX + 5)]

    in_time(run())


def test_without_asyncio(network: LocalNetwork) -> None:
    one, two = network.url("B1"), network.url("B2")
    seen: list[object] = []
    with sterna.blocking.connect(one, client="threads") as client:
        connections = client.connections()
        end = client.on_connection(seen.append)
        assert connections.get(SETTLE_S) == sterna.Connected("B1", one)
        with pytest.raises(sterna.TimedOutError, match="did not change"):
            connections.get(timeout=0.01)
        client.attach(two)
        moved = [connections.get(SETTLE_S) for _ in range(3)]
        assert moved[1:] == [sterna.Connected("B2", two), sterna.Moved("B1", "B2")]
        connections.close()
        assert list(connections) == []
        end()
        assert seen[:1] == [sterna.Connected("B1", one)]


# ---- It obeys its core


def test_it_disconnects_and_connects_when_its_core_says_so(network: LocalNetwork) -> None:
    """As the simulator's clients do: the core decides, and the driver carries it out."""

    async def run() -> None:
        async with connect(network.url("B1"), client="obeys") as client:
            client._driver.give(Detach())
            await until(lambda: client._keeper.connection is None)
            assert not client._keeper.is_looking  # It does not come back by itself.
            client._driver.give(Attach(broker="B1"))
            await until(lambda: client._keeper.is_looking or client.is_connected)
            async with asyncio.timeout(SETTLE_S):
                await client._keeper.welcome()
            await client.publish(n=1)

    in_time(run())


def test_it_hangs_up_when_its_core_has_left(network: LocalNetwork) -> None:
    async def run() -> None:
        async with connect(network.url("B1"), client="leaves") as client:
            client._driver.give(Leave())
            await until(lambda: client._keeper.connection is None)
            assert not client.is_on_its_way
            assert client._driver.link is None

    in_time(run())


def test_what_comes_with_the_greeting_is_not_lost() -> None:
    """The core asks for the connection when it hears who is there; until then, frames wait.

    This broker says all that it has to say at once, and never again.
    """

    async def run() -> None:
        async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            hello = Hello(
                versions=(VERSION, VERSION),
                role=Role.BROKER,
                node="brief",
                settings=Settings(),
                features=FEATURES,
                frame_bytes_max=2**20,
            )
            resume = Resume(incarnation=1, partner=None, acknowledged=0, answers=True)
            writer.write(control(hello) + frame(b"".join(encode(resume, Bodies()))))

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        address = Address(*server.sockets[0].getsockname())
        client = connect(address.url, client="listens", timeout=SETTLE_S)
        starting = asyncio.ensure_future(client._start())
        await until(lambda: client._driver.link == "brief" and "brief" in client._driver.node.up)
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        server.close()

    in_time(run())


def test_with_a_state_it_moves_as_well(network: LocalNetwork, tmp_path: Path) -> None:
    """What its core wants has to be safe before the client does it."""

    async def run() -> None:
        async with connect(network.url("B1"), client="waits", state=tmp_path) as client:
            for broker in ("B2", "B1"):
                await client.attach(network.url(broker))
                assert client.broker == broker
                await client.publish(n=1)

    in_time(run())


# ---- Other transports


class UnixSockets:
    """Reaches each broker through a socket in a directory, called after its port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.dialled: list[Address] = []

    async def dial(self, address: Address, make: Callable[[], Connection]) -> Connection:
        self.dialled.append(address)
        path = str(self.directory / str(address.port))
        _, connection = await asyncio.get_running_loop().create_unix_connection(make, path)
        return connection


async def _tunnel(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Address
) -> None:
    there = await asyncio.open_connection(*target)

    async def carry(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            to.write(data)
        to.close()

    await asyncio.gather(carry(reader, there[1]), carry(there[0], writer))


def test_another_transport_goes_in_without_anything_else(network: LocalNetwork) -> None:
    async def run(directory: Path) -> None:
        transport = UnixSockets(directory)
        target = network.addresses["B1"]
        server = await asyncio.start_unix_server(
            lambda reader, writer: _tunnel(reader, writer, target), directory / str(target.port)
        )
        # Nobody listens for B2 there: the client goes on to the next address.
        urls = (network.url("B2"), network.url("B1"))
        async with connect(*urls, client="unix", transport=transport) as client:
            assert client.broker == "B1"
            subscription = client.subscribe("unix > 0")
            await client.publish(unix=1)
            assert (await subscription.get(timeout=SETTLE_S)).attributes == {"unix": 1}
            assert transport.dialled == [network.addresses["B2"], target]
        server.close()

    with _short_directory() as directory:
        in_time(run(Path(directory)))


def test_a_transport_with_a_fault_of_its_own_is_told_at_once(network: LocalNetwork) -> None:
    class Broken:
        async def dial(self, _address: Address, _make: Callable[[], Connection]) -> Connection:
            raise ZeroDivisionError

    async def run() -> None:
        with pytest.raises(sterna.SternaError, match="cannot connect: ZeroDivisionError"):
            await connect(network.url("B1"), transport=Broken(), timeout=SETTLE_S)

    in_time(run())


def _short_directory() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="sterna-")  # The path of a socket is short.
