"""A broker process among hostile peers: it answers or hangs up, and others do not notice.

During each attack a publisher and a subscriber that behave go on: all their events are
acknowledged and arrive, in order, and the broker's memory stays within its limits.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from sterna.core.handover.messages import Arrival, Departed
from sterna.core.link import Ack, Data, Frame, Resume
from sterna.core.location.messages import Probe
from sterna.core.messages import Events, Message, Route, SubscriptionChange
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.local import LocalNetwork
from sterna.wire.codec import Bodies, encode
from sterna.wire.frames import (
    VERSION,
    Ask,
    Control,
    Hello,
    Ping,
    Refusal,
    Role,
    Splitter,
    control,
    decode_control,
    frame,
    is_control,
)
from tests.net.live import connect, network_in, until
from tests.wire.messages import raw

MIB = 2**20
CONNECTIONS_MAX = 40
SUBSCRIPTIONS_MAX = 300
QUEUE_BYTES_MAX = 4 * MIB
GROWTH_BYTES_MAX = 64 * MIB
"""What an attack may cost: what waits for clients, what is in flight, and what Python keeps."""
WITNESSED = 30
"""So many events at least go through while an attack is on."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    limits = {
        "connections_max": CONNECTIONS_MAX,
        "handshake_s": 0.5,
        "subscriptions_per_client_max": SUBSCRIPTIONS_MAX,
        "queue_bytes_per_client_max": QUEUE_BYTES_MAX,
        "queue_bytes_max": 2 * QUEUE_BYTES_MAX,
        "memory_bytes_max": 256 * MIB,  # Each is held to its own limit, and not only all together.
        "in_flight_bytes_max": 4 * MIB,
    }
    network = network_in(tmp_path_factory.mktemp("hostile"), 1, limits=limits)
    with network:
        asyncio.run(_use(network))
        yield network
        assert network.is_running("B1")
        assert network.died() == {}


async def _use(network: LocalNetwork) -> None:
    """What a broker loads when it is first used is not an attack's doing."""
    async with connect(network.url("B1"), client="first") as client:
        for number in range(SUBSCRIPTIONS_MAX):
            client.subscribe(f"n = {number} AND m > {number}")
        await client.publish_all({"n": number, "m": 2 * number} for number in range(500))


class Attacker:
    """A connection that says what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._seq = 0

    async def send(self, data: bytes) -> None:
        with suppress(OSError):
            self.writer.write(data)
            await self.writer.drain()

    async def hello(self, name: str, role: Role = Role.CLIENT) -> None:
        await self.send(control(Hello(versions=(VERSION, VERSION), role=role, node=name)))

    async def come_in(self, name: str, *, life: int = 1) -> None:
        """Speak as a client whose link is up; in another life it has lost its memory."""
        await self.hello(name)
        await self.send(framed(Resume(life, None, 0, True)))

    async def say(self, *messages: Message) -> None:
        """Messages in their order."""
        data = b""
        for message in messages:
            self._seq += 1
            data += framed(Data(self._seq, 0, message))
        await self.send(data)

    async def hung_up(self) -> str | None:
        """Wait until the broker closes the connection; return the reason, if it gave one."""
        reason = None
        async with asyncio.timeout(30):
            with suppress(OSError):
                async for said in self.heard():
                    if isinstance(said, Refusal):
                        reason = said.reason
        return reason

    async def heard(self) -> AsyncIterator[Control]:
        splitter = Splitter(2**30)
        while data := await self.reader.read(65_536):
            for body in splitter.feed(data)[1]:
                if is_control(body):
                    yield decode_control(body)


def framed(said: Frame) -> bytes:
    return frame(b"".join(encode(said, Bodies())))


@asynccontextmanager
async def attacker(network: LocalNetwork) -> AsyncIterator[Attacker]:
    reader, writer = await asyncio.open_connection(*network.addresses["B1"])
    try:
        yield Attacker(reader, writer)
    finally:
        writer.transport.abort()


def memory_bytes(network: LocalNetwork) -> int:
    """What the broker's process has in memory."""
    status = Path(f"/proc/{network.pid('B1')}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def withstands(
    network: LocalNetwork, attack: Callable[[LocalNetwork], Coroutine[object, object, None]]
) -> None:
    """The attack is over when it has done what it says; meanwhile, others are served."""

    async def run() -> None:
        async with (
            connect(network.url("B1"), client="good-publisher") as publisher,
            connect(network.url("B1"), client="good-subscriber") as subscriber,
        ):
            subscription = subscriber.subscribe("good = TRUE")
            await publisher.publish(good=True, n=0)
            before = most = memory_bytes(network)
            task = asyncio.create_task(attack(network))
            count = 1
            async with asyncio.timeout(60):
                while not task.done() or count < WITNESSED:
                    await publisher.publish(good=True, n=count)
                    count += 1
                    most = max(most, memory_bytes(network))
            await task
            await until(lambda: subscription.waiting >= count - 1)
            numbers = [event.attributes["n"] for event in subscription.take()]
            assert numbers == list(range(count))[-len(numbers) :]
            assert len(numbers) >= count - 1  # The first may have come before the subscription.
            assert most - before < GROWTH_BYTES_MAX

    asyncio.run(run())


# ---- Nonsense


@pytest.mark.spec("LV-6")
def test_random_bytes(network: LocalNetwork) -> None:
    async def attack(network: LocalNetwork) -> None:
        rng = random.Random("random bytes")  # noqa: S311 - reproducible, not secret.
        for number in range(60):
            async with attacker(network) as peer:
                if number % 2:
                    await peer.come_in(f"random-{number % 4}")
                await peer.send(rng.randbytes(rng.randrange(1, 5_000)))
                peer.writer.write_eof()
                await peer.hung_up()

    withstands(network, attack)


@pytest.mark.spec("LV-6")
def test_frames_that_end_in_the_middle(network: LocalNetwork) -> None:
    async def attack(network: LocalNetwork) -> None:
        whole = control(Hello(versions=(VERSION, VERSION), role=Role.CLIENT, node="cut"))
        whole += framed(Resume(1, None, 0, True)) + framed(Data(1, 0, arrival()))
        for length in range(1, len(whole), 3):
            async with attacker(network) as peer:
                await peer.send(whole[:length])
                peer.writer.write_eof()
                await peer.hung_up()

    withstands(network, attack)


def arrival(*routes: Route, visit: int = 1) -> Arrival:
    return Arrival(visit=visit, born=0, stay=0, received=0, subscriptions=routes)


HELLO = Hello(versions=(VERSION, VERSION), role=Role.CLIENT, node="odd")


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\xff\xff\xff\xff", "too long"),
        (b"\x00\x01\x00\x01", "too long"),  # More than a stranger may send.
        (control(Hello(versions=(77, 78), role=Role.CLIENT, node="odd")), "upgrade the older one"),
        (control(Hello(versions=(1, 1), role=Role.CLIENT, node="")), "a name has"),
        (control(Hello(versions=(1, 1), role=Role.CLIENT, node="a\nb")), "a name has"),
        (control(Hello(versions=(1, 1), role=Role.CLIENT, node="x" * 300)), "a name has"),
        (control(Hello(versions=(1, 1), role=Role.CLIENT, node="B1")), "name of a broker"),
        (control(Hello(versions=(1, 1), role=Role.BROKER, node="B7")), "other settings"),
        (control(HELLO).replace(b"odd", b"\xff\xfe\xfd"), "not a control frame"),
        (control(HELLO).replace(b"client", b"emperr"), "not a control frame"),
        (frame(b"\x91" * 60_000), "not a control frame"),
        (control(Ping()), "has to be a Hello"),
        (control(Ask(what="status")), "has to be a Hello"),
        (framed(Ack(1)), "has to be a Hello"),
        (control(HELLO) * 2, "Hello makes no sense here"),
        (control(Hello(versions=(1, 1), role=Role.OBSERVER, node="o")) + framed(Ack(1)), "Hello"),
        (control(HELLO) + control(Ask(what="everything")), "ask for one of"),
        (control(HELLO) + frame(b"\x94\x00\x01\x00\xc0"), "not a frame"),
        (control(HELLO) + (MIB + 1).to_bytes(4, "big"), "too long"),
    ],
)
def test_who_speaks_another_language_is_told_so(
    network: LocalNetwork, said: bytes, reason: str
) -> None:
    async def run() -> None:
        async with attacker(network) as peer:
            await peer.send(said)
            assert reason in (await peer.hung_up() or "")

    asyncio.run(run())


def event(publisher: str, number: int = 1, payload: bytes = b"") -> Event:
    attributes = {"n": number}
    return Event(publisher=publisher, seq=number, time_us=1, attributes=attributes, payload=payload)


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Departed(client="good-subscriber", visit=2**60, published=0), "do not send Departed"),
        (Events(events=(event("good-publisher"),)), "a client sends its own"),
        (SubscriptionChange(added=(Route("1", Filter("a = '" + "x" * 40_000 + "'")),)), "limit"),
    ],
)
def test_what_is_not_a_clients_to_say_is_refused(
    network: LocalNetwork, message: Message, reason: str
) -> None:
    async def attack(network: LocalNetwork) -> None:
        for _ in range(3):
            async with attacker(network) as peer:
                await peer.come_in("liar")
                await peer.say(message)
                assert reason in (await peer.hung_up() or "")

    withstands(network, attack)


# ---- Too much


@pytest.mark.spec("LV-6")
def test_a_flood_of_subscriptions(network: LocalNetwork) -> None:
    async def attack(network: LocalNetwork) -> None:
        async with attacker(network) as peer:
            await peer.come_in("greedy")
            await peer.say(arrival())
            routes = [Route(str(n), Filter(f"n = {n} AND m > {n}")) for n in range(2_000)]
            await peer.say(*(SubscriptionChange(added=(route,)) for route in routes))
            assert "subscriptions_per_client_max" in (await peer.hung_up() or "")
        for _ in range(5):  # The same ones again and again are not too many, only much work.
            async with attacker(network) as peer:
                await peer.come_in("busy")
                some = [SubscriptionChange(added=(route,)) for route in routes[:100]]
                none = SubscriptionChange(removed=tuple(route.id for route in routes))
                await peer.say(arrival(), *some, none, *some, none)
                await peer.send(control(Ask(what="status")))
                async with asyncio.timeout(30):
                    await anext(aiter(peer.heard()))

    withstands(network, attack)


@pytest.mark.spec("LV-6")
def test_filters_that_take_long_to_read(network: LocalNetwork) -> None:
    """They are as long as they may be; the broker has others to serve in between."""
    text = " OR ".join(f"a = {n}" for n in range(2_500))
    routes = [Route(str(n), Filter(f"{text} OR b = {n}")) for n in range(10)]

    async def attack(network: LocalNetwork) -> None:
        async with attacker(network) as peer:
            await peer.come_in("long-winded")
            await peer.say(arrival(), *(SubscriptionChange(added=(r,)) for r in routes))
            await peer.send(control(Ping()))
            async with asyncio.timeout(30):
                await anext(aiter(peer.heard()))

    withstands(network, attack)


@pytest.mark.spec("LV-6")
def test_a_filter_that_is_too_long(network: LocalNetwork) -> None:
    text = " OR ".join(f"a = {n}" for n in range(4_000))

    async def attack(network: LocalNetwork) -> None:
        async with attacker(network) as peer:
            await peer.come_in("too-long-winded")
            await peer.say(arrival(), SubscriptionChange(added=(Route("1", Filter(text)),)))
            assert "32,768 are the limit" in (await peer.hung_up() or "")

    withstands(network, attack)


@pytest.mark.spec("LV-6")
def test_connections_that_never_say_who_they_are(network: LocalNetwork) -> None:
    """Some say nothing, some a byte now and then: they are ended when their time is over."""

    async def loris(network: LocalNetwork, *, dribbles: bool) -> None:
        async with attacker(network) as peer:
            task = asyncio.create_task(peer.hung_up())
            for byte in (60_000).to_bytes(4, "big") + bytes(1_000):
                if task.done():
                    break
                if dribbles:
                    await peer.send(bytes((byte,)))
                await asyncio.wait([task], timeout=0.02)
            assert "no Hello" in (await task or "no Hello")  # Or it was reset in the middle.

    async def attack(network: LocalNetwork) -> None:
        await asyncio.gather(*(loris(network, dribbles=n % 2 == 0) for n in range(30)))

    withstands(network, attack)


@pytest.mark.spec("LV-6")
def test_more_connections_than_there_may_be(network: LocalNetwork) -> None:
    async def visit(network: LocalNetwork) -> bool:
        with suppress(OSError):
            async with attacker(network) as peer:
                return "too many connections" in (await peer.hung_up() or "")
        return False

    async def attack(network: LocalNetwork) -> None:
        refused = await asyncio.gather(*(visit(network) for _ in range(4 * CONNECTIONS_MAX)))
        assert sum(refused) > CONNECTIONS_MAX

    withstands(network, attack)


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("acknowledges", [False, True], ids=["reads nothing", "confirms nothing"])
def test_a_client_that_does_not_take_its_events(network: LocalNetwork, acknowledges: bool) -> None:
    """It is disconnected when more waits for it than may, whether it does not read or only does
    not confirm; what is kept for it is bounded.
    """

    async def attack(network: LocalNetwork) -> None:
        name = f"deaf-{acknowledges}"
        async with attacker(network) as peer, connect(network.url("B1"), client="loud") as loud:
            await peer.come_in(name)
            await peer.say(arrival())
            await peer.say(SubscriptionChange(added=(Route("1", Filter("loud = TRUE")),)))
            reading = asyncio.create_task(peer.hung_up()) if acknowledges else None
            for _ in range(8):
                await loud.publish_all(({"loud": True}, bytes(8_192)) for _ in range(300))
            if reading is not None:
                await reading
            else:
                await until(lambda: not _is_here(network, name))
        async with connect(network.url("B1"), client=name):
            pass  # Its goodbye: the broker keeps nothing of it.

    withstands(network, attack)


def _is_here(network: LocalNetwork, client: str) -> bool:
    queues = network.ask("B1", "queues")["queues"]
    return any(queue["name"] == client and queue["is_here"] for queue in queues)


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("role", [Role.CLIENT, Role.OBSERVER])
@pytest.mark.parametrize("said", [Ping(), Ask(what="status"), Ask(what="queues")], ids=str)
def test_questions_whose_answers_nobody_reads(
    network: LocalNetwork, said: Control, role: Role
) -> None:
    async def attack(network: LocalNetwork) -> None:
        async with attacker(network) as peer:
            await peer.hello("curious", role)
            with suppress(OSError, TimeoutError):
                for _ in range(200):
                    peer.writer.write(control(said) * 200)
                    async with asyncio.timeout(2):
                        await peer.writer.drain()

    withstands(network, attack)


# ---- Sessions


@pytest.mark.spec("LV-6")
def test_a_session_that_makes_no_sense(network: LocalNetwork) -> None:
    """Confirmations of what was never sent, gaps, repetitions, and memories of other lives."""
    rng = random.Random("sessions")  # noqa: S311 - reproducible, not secret.
    numbers = (*([0, 1, 2, 2**40, 2**62] * 20), -1)  # A negative one ends the connection at once.

    def nonsense() -> Frame:
        number = rng.choice(numbers)
        return rng.choice(
            (
                Ack(number),
                Data(number, rng.choice(numbers), Probe(number=number)),
                Resume(number, rng.choice((None, *numbers)), rng.choice(numbers), True),
                Resume(number, None, number, False),
                Data(number, 0, arrival(Route("1", Filter("TRUE")))),
                Data(number, 0, Events(events=(event("confused"),))),
            )
        )

    async def attack(network: LocalNetwork) -> None:
        for _ in range(10):
            async with attacker(network) as peer:
                await peer.hello("confused")
                for _ in range(20):
                    await peer.send(b"".join(frame(raw(nonsense())) for _ in range(10)))
                with contextlib.suppress(OSError):  # It may have hung up by now.
                    peer.writer.write_eof()
                await peer.hung_up()

    withstands(network, attack)


@pytest.mark.spec("LV-6")
def test_what_comes_after_a_gap_is_not_kept(network: LocalNetwork) -> None:
    async def attack(network: LocalNetwork) -> None:
        async with attacker(network) as peer:
            await peer.come_in("gaps")
            for number in range(2, 400):
                said = Events(events=(event("gaps", number, bytes(500_000)),))
                await peer.send(framed(Data(number, 0, said)))

    withstands(network, attack)


@pytest.mark.spec("LV-1", "LV-6")
def test_who_takes_a_name_over_gets_its_events_and_the_other_hears_of_it(
    network: LocalNetwork,
) -> None:
    """Two connections of one name: the later one is the client, and nothing hangs."""

    async def attack(network: LocalNetwork) -> None:
        async with AsyncExitStack() as stack:
            before = None
            for life in range(1, 11):
                twin = await stack.enter_async_context(attacker(network))
                await twin.come_in("twin", life=life)
                await twin.say(arrival(visit=life))
                if before is not None:
                    assert "taken over" in (await before.hung_up() or "")
                before = twin

    withstands(network, attack)
