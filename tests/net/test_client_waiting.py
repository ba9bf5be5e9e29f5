"""How long calls of a client wait, and what they say when that is too long."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator

import pytest

import sterna
from sterna.core.names import LocalProtocolError
from sterna.net import stream
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, Client, connect, network_in, until
from tests.net.proxy import Proxy

pytestmark = pytest.mark.spec("LV-2")

NOBODY = "sterna://127.0.0.1:1"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    with network_in(tmp_path_factory.mktemp("waiting"), 1) as network:
        yield network


async def shut_off(network: LocalNetwork, client: str) -> tuple[Proxy, Client]:
    """A client whose broker cannot be reached any more."""
    rng = random.Random("proxy")  # noqa: S311 - reproducible, not secret.
    proxy = await Proxy(network.addresses["B1"], rng).start()
    connected = await connect(proxy.url, client=client)
    proxy.is_shut = True
    proxy.drop()
    await until(lambda: not connected.is_connected)
    return proxy, connected


@pytest.mark.parametrize(
    "wait",
    [
        lambda client: client.publish(n=1).wait(timeout=0.02),
        lambda client: client.drain(timeout=0.02),
        lambda client: client.publish_all([{"n": 2}], timeout=0.02),
        lambda client: client.subscribe("never = 1").get(timeout=0.02),
        lambda client: client.subscribe("never = 2").get(timeout=0),
    ],
    ids=["receipt", "drain", "publish_all", "get", "get nothing"],
)
def test_what_does_not_happen_in_time_is_a_timed_out_error(
    network: LocalNetwork, wait: Callable[[Client], Awaitable[object]]
) -> None:
    """It is a SternaError and a TimeoutError, and may happen yet."""

    async def run() -> None:
        proxy, client = await shut_off(network, "late")
        client.publish(n=0)
        with pytest.raises(sterna.TimedOutError) as error:
            await wait(client)
        assert isinstance(error.value, TimeoutError)
        assert isinstance(error.value, sterna.SternaError)
        assert error.value.timeout in {0.02, 0}
        proxy.heal()
        await client.drain(timeout=SETTLE_S)
        await client.close()
        await proxy.stop()

    asyncio.run(run())


def test_an_event_that_comes_too_late_for_one_call_comes_with_the_next(
    network: LocalNetwork,
) -> None:
    """Nothing is lost, and several may wait for the events of one subscription."""

    async def run() -> None:
        async with connect(network.url("B1"), client="patient") as client:
            wanted = client.subscribe("patient >= 0")
            with pytest.raises(sterna.TimedOutError, match=r"no event came in 0\.01 s"):
                await wanted.get(timeout=0.01)
            both = [asyncio.create_task(wanted.get(timeout=SETTLE_S)) for _ in range(2)]
            await asyncio.sleep(0)
            await client.publish_all({"patient": n} for n in range(3))
            events = [*await asyncio.gather(*both), await wanted.get(timeout=SETTLE_S)]
            assert sorted(event.attributes["patient"] for event in events) == [0, 1, 2]
            await wanted.close()
            with pytest.raises(sterna.ClosedError, match="is closed"):
                await wanted.get(timeout=SETTLE_S)

    asyncio.run(run())


def test_attaching_takes_the_time_of_connecting_unless_it_is_given_its_own(
    network: LocalNetwork,
) -> None:
    async def run() -> None:
        with pytest.raises(sterna.NotConnectedError, match="no broker answers") as error:
            await connect(NOBODY, "sterna://127.0.0.1:2", timeout=0.05)
        assert error.value.broker == NOBODY
        assert error.value.brokers == (NOBODY, "sterna://127.0.0.1:2")
        proxy, client = await shut_off(network, "attaches")
        with pytest.raises(sterna.NotConnectedError) as error:
            await client.attach(NOBODY, timeout=0.05)
        assert error.value.brokers == (NOBODY, proxy.url)
        assert client.is_on_its_way
        await client.detach(timeout=SETTLE_S)
        await until(lambda: not client.is_on_its_way)
        await client.detach(timeout=SETTLE_S)  # It is already.
        proxy.heal()
        await client.attach(timeout=SETTLE_S)
        await client.close(timeout=SETTLE_S)
        await proxy.stop()

    asyncio.run(run())


def test_a_client_that_gets_elsewhere_says_where(network: LocalNetwork) -> None:
    """The broker that it should attach to is dead; another one of its list answers."""

    async def run() -> None:
        async with connect(network.url("B1"), client="elsewhere", timeout=SETTLE_S) as client:
            with pytest.raises(sterna.NotConnectedError, match=r"is at B1 \(.*\) instead") as error:
                await client.attach(NOBODY)
            assert (error.value.broker, error.value.instead) == (NOBODY, "B1")
            assert client.is_connected
            await client.publish(n=1).wait(SETTLE_S)

    asyncio.run(run())
    with sterna.blocking.connect(network.url("B1"), client="blocked") as blocking:
        with pytest.raises(sterna.NotConnectedError, match="instead") as error:
            blocking.attach(NOBODY)
        assert error.value.instead == "B1"
        blocking.publish(n=1).wait(SETTLE_S)


def test_after_a_timeout_it_gets_there_when_a_broker_answers(network: LocalNetwork) -> None:
    """Nobody has to call again, and who waits for a receipt gets it, or hears where the client is.

    The same when the call itself is cancelled.
    """

    async def run() -> None:
        proxy, client = await shut_off(network, "late")
        with pytest.raises(sterna.NotConnectedError, match="late keeps trying"):
            await client.attach(NOBODY, timeout=0.05)
        receipt = client.publish(n=1)
        with pytest.raises(sterna.TimedOutError, match=f"late looks for a broker at {NOBODY}"):
            await receipt.wait(0.05)
        proxy.heal()
        await receipt.wait(SETTLE_S)
        assert client.broker == "B1"

        attaching = asyncio.ensure_future(client.attach(proxy.url))
        await asyncio.sleep(0)  # It has begun.
        attaching.cancel()
        await client.publish(n=2).wait(SETTLE_S)
        await client.detach(timeout=SETTLE_S)
        with pytest.raises(sterna.TimedOutError, match="late is detached"):
            await client.publish(n=3).wait(0.01)
        await client.close(timeout=0)
        await proxy.stop()

    asyncio.run(run())


def test_a_timeout_of_the_events_themselves_is_theirs(network: LocalNetwork) -> None:
    """What is published may come from something that times out by itself."""

    def readings() -> Iterator[dict[str, object]]:
        yield {"n": 1}
        raise TimeoutError("the sensor does not answer")

    async def run() -> None:
        async with connect(network.url("B1"), client="senses") as client:
            for timeout in (None, SETTLE_S):
                with pytest.raises(TimeoutError, match="the sensor") as error:
                    await client.publish_all(readings(), timeout=timeout)
                assert not isinstance(error.value, sterna.TimedOutError)

    asyncio.run(run())


def test_calls_that_waited_in_vain_are_forgotten(network: LocalNetwork) -> None:
    async def run() -> None:
        proxy, client = await shut_off(network, "in-vain")
        first = asyncio.create_task(client.publish(n=0).wait())
        last = client.publish(n=1)
        for _ in range(20):
            with pytest.raises(sterna.TimedOutError):
                await client.drain(timeout=0)
            with pytest.raises(sterna.TimedOutError):
                await last.wait(timeout=0)
        assert len(client._publications._receipts) == 1
        proxy.heal()
        await asyncio.wait_for(first, SETTLE_S)
        assert not client._publications._receipts
        await client.close()
        await proxy.stop()

    asyncio.run(run())


def test_attaching_does_not_wait_for_a_broker_that_reads_nothing(
    network: LocalNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that one has not taken goes to the next one."""
    monkeypatch.setattr(stream, "CLOSE_S", 10 * SETTLE_S)

    async def run() -> None:
        rng = random.Random("proxy")  # noqa: S311 - reproducible, not secret.
        proxy = await Proxy(network.addresses["B1"], rng).start()
        client = await connect(proxy.url, client="stuck")
        proxy.freeze()
        for number in range(100):
            client.publish({"stuck": number}, bytes(200_000))
        async with asyncio.timeout(SETTLE_S):
            with pytest.raises(sterna.NotConnectedError):
                await client.attach(network.url("B1"), timeout=0.05)
        assert not client.is_connected
        assert client.is_on_its_way
        await client.drain(timeout=SETTLE_S)  # It gets there by itself.
        await client.close()
        await proxy.stop()

    asyncio.run(run())


def test_what_is_too_large_says_how_large_it_is(network: LocalNetwork) -> None:
    async def run() -> None:
        async with connect(network.url("B1"), client="large") as client:
            limit = client.event_bytes_max
            with pytest.raises(sterna.EventTooLargeError) as error:
                client.publish({}, bytes(limit + 1))
            assert (error.value.size, error.value.limit) == (limit + 1, limit)
            await client.publish({}, bytes(limit))
            with pytest.raises(sterna.SubscriptionTooLargeError) as told:
                client.subscribe("large = 1", name="x" * limit)
            assert told.value.size > told.value.limit == limit
            with pytest.raises(sterna.SubscriptionTooLargeError, match="characters") as long:
                client.subscribe("large = '" + "x" * 32_768 + "'")
            assert long.value.size > long.value.limit == 32_768
            await client.publish(large=1)

    asyncio.run(run())


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.subscribe("n = 1", past=2**63),
        lambda client: client.subscribe("n = 1", past=2**70),
        lambda client: client.advertise("n = 1", name="\ud800"),
        lambda client: client.set("budget", 2**63, low=0, high=2**63),
        lambda client: client.set("budget", 2**70),
        lambda client: client.set("budget", "\ud800"),
    ],
    ids=range(6),
)
def test_what_no_broker_could_read_is_an_error_of_the_application(
    network: LocalNetwork, ask: Callable[[Client], object]
) -> None:
    """The client goes on as if it had not been asked."""

    async def run() -> None:
        async with connect(network.url("B1"), client="asks") as client:
            with pytest.raises(LocalProtocolError, match="could not read this"):
                ask(client)
            wanted = client.subscribe("n = 1", name="good")
            await client.publish(n=1)
            assert (await wanted.get(timeout=SETTLE_S)).attributes == {"n": 1}

    asyncio.run(run())


def test_the_blocking_client_waits_alike(network: LocalNetwork) -> None:
    with sterna.blocking.connect(network.url("B1"), client="blocks", timeout=SETTLE_S) as client:
        wanted = client.subscribe("blocks = 1")
        with pytest.raises(sterna.TimedOutError, match="no event came"):
            wanted.get(timeout=0.01)
        client.detach(timeout=SETTLE_S)
        for wait in (
            lambda: client.publish(n=1).wait(timeout=0.01),
            lambda: client.drain(timeout=0.01),
            lambda: client.publish_all(({"n": n} for n in range(3)), timeout=0.01),
            lambda: client.publish_all(({"n": n} for n in range(9_999)), timeout=0.2),
        ):
            with pytest.raises(sterna.TimedOutError, match="accepted"):
                wait()
        client.attach(timeout=SETTLE_S)
        client.drain(timeout=SETTLE_S)


def test_the_old_names_still_work(network: LocalNetwork) -> None:
    async def run() -> None:
        with pytest.warns(DeprecationWarning, match="connect_s is called timeout now"):
            client = connect(network.url("B1"), client="old", connect_s=SETTLE_S)
        await client
        with pytest.warns(DeprecationWarning, match="wait_s is called timeout now"):
            await client.close(wait_s=SETTLE_S)

    asyncio.run(run())
    with pytest.warns(DeprecationWarning, match="connect_s"):
        blocking = sterna.blocking.connect(network.url("B1"), client="old", connect_s=SETTLE_S)
    with pytest.warns(DeprecationWarning, match="wait_s"):
        blocking.close(wait_s=SETTLE_S)
