"""The blocking client: the same promises as the asyncio one, from any thread."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

import sterna
from sterna.core.names import LocalProtocolError
from sterna.net.client.connections import Change, Connected, Lost
from sterna.net.client.deliveries import QUEUE_EVENTS_MAX
from sterna.net.client.window import BATCH_EVENTS, WINDOW_EVENTS
from sterna.net.local import LocalNetwork, wait_for

pytestmark = pytest.mark.spec("LV-2")

WAIT_S = 60.0


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    """Brokers B1 and B2, with a street of locations. Tests share it: each has its own topic."""
    directory = tmp_path_factory.mktemp("network")
    streets = directory / "streets.csv"
    streets.write_text("1st,2nd\n2nd,3rd\n3rd,4th\n4th,5th\n")
    with LocalNetwork(
        2, directory=directory, config={"places": {"graph": str(streets)}}
    ) as network:
        yield network


@pytest.fixture
def ann(network: LocalNetwork) -> Iterator[sterna.blocking.Client]:
    with sterna.blocking.connect(network.url("B1"), client="ann") as client:
        yield client


@pytest.fixture
def bob(network: LocalNetwork) -> Iterator[sterna.blocking.Client]:
    with sterna.blocking.connect(network.url("B2"), client="bob") as client:
        yield client


def known(network: LocalNetwork, client: str, at: str) -> None:
    """Wait until all brokers know the subscriptions of a client."""

    def is_known() -> bool:
        queues = {each["name"]: each for each in network.ask(at, "queues")["queues"]}
        return bool(queues.get(client, {}).get("subscriptions"))

    wait_for(is_known, f"{client} does not subscribe", limit_s=WAIT_S)
    network.wait_until_settled()


def numbers(subscription: sterna.blocking.Subscription, count: int) -> list[object]:
    return [subscription.get(WAIT_S).attributes["n"] for _ in range(count)]


def test_publish_and_subscribe(
    network: LocalNetwork, ann: sterna.blocking.Client, bob: sterna.blocking.Client
) -> None:
    wanted = ann.subscribe("topic = 'both' AND n > 1")
    known(network, "ann", "B1")
    receipts = [bob.publish(topic="both", n=n) for n in range(4)]
    ids = [receipt.wait(WAIT_S) for receipt in receipts]

    got = [wanted.get(WAIT_S), wanted.get(WAIT_S)]

    assert [event.id for event in got] == ids[2:]
    assert {id_.publisher for id_ in ids} == {"bob"}
    assert (ann.name, ann.broker, ann.is_connected, ann.missed) == ("ann", "B1", True, 0)
    with pytest.raises(TimeoutError):
        wanted.get(timeout=0.01)


def test_more_events_than_fit_arrive_once_and_in_order(
    network: LocalNetwork, ann: sterna.blocking.Client, bob: sterna.blocking.Client
) -> None:
    """More than may be on their way, and more than the receiver keeps before it reads no more."""
    count = WINDOW_EVENTS + 2 * QUEUE_EVENTS_MAX
    with ann.subscribe("topic = 'many'") as wanted:
        known(network, "ann", "B1")
        assert bob.publish_all({"topic": "many", "n": n} for n in range(count)) == count
        got = []
        for event in wanted:
            got.append(event.attributes["n"])
            if len(got) == count:
                break

    assert got == [*range(count)]
    assert [*wanted] == [], "a closed subscription ends"


def test_threads_share_a_client_and_a_subscription(
    network: LocalNetwork, ann: sterna.blocking.Client, bob: sterna.blocking.Client
) -> None:
    """Each event goes to one thread; those of one publishing thread keep their order."""
    threads, each = 8, 500
    wanted = ann.subscribe("topic = 'threads'")
    known(network, "ann", "B1")
    got: list[list[tuple[int, int]]] = [[] for _ in range(threads)]

    def publish(thread: int) -> None:
        receipts = [bob.publish(topic="threads", thread=thread, n=n) for n in range(each)]
        receipts[-1].wait(WAIT_S)

    def receive(thread: int) -> None:
        for event in wanted:
            if "end" in event.attributes:
                return
            got[thread].append((int(event.attributes["thread"]), int(event.attributes["n"])))

    with ThreadPoolExecutor(2 * threads) as pool:
        receiving = [pool.submit(receive, thread) for thread in range(threads)]
        try:
            for publishing in [pool.submit(publish, thread) for thread in range(threads)]:
                publishing.result(WAIT_S)
            for _ in range(threads):
                bob.publish(topic="threads", end=True)
            for each_ in receiving:
                each_.result(WAIT_S)
        finally:
            ann.close()  # A thread that waits in vain ends as well.

    together = [pair for part in got for pair in part]
    assert sorted(together) == [(thread, n) for thread in range(threads) for n in range(each)]
    for part in got:
        for thread in range(threads):
            seen = [n for publisher, n in part if publisher == thread]
            assert seen == sorted(seen)


def test_a_callback_may_use_the_client(
    network: LocalNetwork, ann: sterna.blocking.Client, bob: sterna.blocking.Client
) -> None:
    """It runs in a thread of its own, and one that fails is not the end."""
    answers = bob.subscribe("topic = 'answer'")

    def answer(event: sterna.Event) -> None:
        ann.publish(topic="answer", n=event.attributes["n"]).wait(WAIT_S)
        if event.attributes["n"] == 1:
            raise ValueError("on purpose")

    ann.subscribe("topic = 'question'", callback=answer)
    known(network, "ann", "B1")
    known(network, "bob", "B2")
    for n in (1, 2):
        bob.publish(topic="question", n=n)

    assert numbers(answers, 2) == [1, 2]


def test_the_past(ann: sterna.blocking.Client) -> None:
    ann.publish_all([{"topic": "past", "n": n} for n in range(5)])

    assert numbers(ann.subscribe("topic = 'past'", past=2), 2) == [3, 4]
    hour = ann.subscribe("topic = 'past'", past=timedelta(hours=1), name="an hour")
    assert numbers(hour, 5) == [*range(5)]
    assert (hour.name, str(hour.where), hour.waiting) == ("an hour", "topic = 'past'", 0)


def test_take_gives_what_is_here(ann: sterna.blocking.Client) -> None:
    wanted = ann.subscribe("topic = 'take'")
    assert wanted.take() == []
    ann.publish_all([{"topic": "take", "n": n} for n in range(3)])
    wait_for(lambda: wanted.waiting == 3, "they do not arrive", limit_s=WAIT_S)

    assert [event.attributes["n"] for event in wanted.take()] == [0, 1, 2]


def test_places_and_variables(network: LocalNetwork, ann: sterna.blocking.Client) -> None:
    ann.move("2nd")
    ann.set("most", 9)
    wanted = ann.subscribe("topic = 'where' AND place IN myloc(1) AND n < $most")
    for place, n in (("4th", 1), ("3rd", 10), ("3rd", 2)):
        ann.publish(topic="where", place=place, n=n)
    assert numbers(wanted, 1) == [2]

    ann.move("4th")
    ann.set("most", 20)
    known(network, "ann", "B1")
    for place, n in (("2nd", 1), ("5th", 15)):
        ann.publish(topic="where", place=place, n=n)
    assert numbers(wanted, 1) == [15]


@pytest.mark.spec("LV-3")
def test_a_client_that_is_away_gets_what_came_meanwhile(
    network: LocalNetwork, ann: sterna.blocking.Client, bob: sterna.blocking.Client
) -> None:
    """It detaches, and attaches to another broker."""
    wanted = ann.subscribe("topic = 'away'")
    known(network, "ann", "B1")
    ann.detach()
    assert not ann.is_connected
    bob.publish(topic="away", n=1).wait(WAIT_S)
    ann.attach(network.url("B2"))
    assert ann.broker == "B2"
    bob.publish(topic="away", n=2)
    ann.attach(network.url("B1"))
    bob.publish(topic="away", n=3)

    assert numbers(wanted, 3) == [1, 2, 3]


def test_a_state_survives_the_process(network: LocalNetwork, tmp_path: Path) -> None:
    """The program takes two of four events and dies without a word; the next one gets the rest."""
    program = f"""
import os, sterna
ann = sterna.blocking.connect({network.url("B1")!r}, client="ann", state={str(tmp_path)!r})
wanted = ann.subscribe("topic = 'state'")
ann.publish_all([{{"topic": "state", "n": n}} for n in range(4)])
for event in wanted:
    print(event.attributes["n"], flush=True)
    if event.attributes["n"] == 2:
        os._exit(9)
"""
    died = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (died.returncode, died.stdout) == (9, "0\n1\n2\n"), died.stderr

    with sterna.blocking.connect(network.url("B1"), client="ann", state=tmp_path) as ann:
        wanted = ann.subscribe("topic = 'state'")
        assert numbers(wanted, 2) == [2, 3], "the third was taken and not yet done"


def test_closing_with_many_events_waiting_takes_no_patience(
    network: LocalNetwork, bob: sterna.blocking.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker's word on the goodbye comes behind more events than the client would read."""
    with sterna.blocking.connect(network.url("B1"), client="carl") as carl:
        wanted = carl.subscribe("topic = 'flood'")
        known(network, "carl", "B1")
        bob.publish_all({"topic": "flood", "n": n} for n in range(3 * QUEUE_EVENTS_MAX))
        wait_for(lambda: wanted.waiting > QUEUE_EVENTS_MAX, "they do not arrive", limit_s=WAIT_S)

    assert "closes before" not in caplog.text
    assert "carl" not in [each["name"] for each in network.ask("B1", "queues")["queues"]]


@pytest.mark.spec("LV-1")
def test_a_broker_that_is_killed_meanwhile_costs_nothing(tmp_path: Path) -> None:
    """The publisher waits for it to come back, and everything arrives once and in order."""
    count = 4 * WINDOW_EVENTS
    with (
        LocalNetwork(1, directory=tmp_path) as network,
        sterna.blocking.connect(network.url("B1"), client="ann") as ann,
        sterna.blocking.connect(network.url("B1"), client="bob") as bob,
        ThreadPoolExecutor(1) as pool,
    ):
        wanted = ann.subscribe("n >= 0")
        known(network, "ann", "B1")
        publishing = pool.submit(bob.publish_all, ({"n": n} for n in range(count)))
        got = numbers(wanted, 1000)
        network.kill("B1")
        network.restart("B1")
        got += numbers(wanted, count - 1000)

        assert publishing.result(WAIT_S) == count
    assert got == [*range(count)]


def test_a_publisher_waits_while_too_many_events_are_in_flight(network: LocalNetwork) -> None:
    taken = []

    def many() -> Iterator[dict[str, object]]:
        for n in range(3 * WINDOW_EVENTS):
            taken.append(n)
            yield {"topic": "window", "n": n}

    with sterna.blocking.connect(network.url("B1"), client="dora") as dora:
        dora.detach()
        with pytest.raises(TimeoutError):
            dora.publish_all(many(), timeout=2)
        assert len(taken) <= WINDOW_EVENTS + BATCH_EVENTS
        dora.attach(network.url("B1"))
        dora.drain()


def test_the_end_reaches_who_waits(network: LocalNetwork) -> None:
    """A thread that iterates ends with the client."""
    client = sterna.blocking.connect(network.url("B1"))
    wanted = client.subscribe("topic = 'end'")
    got: list[sterna.Event] = []
    thread = threading.Thread(target=lambda: got.extend(wanted))
    thread.start()
    client.close()
    thread.join(WAIT_S)

    assert not thread.is_alive()
    assert got == []
    client.close()  # Once more does no harm.
    wanted.close()
    for call in (
        lambda: client.publish(n=1),
        client.drain,
        wanted.get,
        wanted.take,
        lambda: client.subscribe("n = 1"),
        lambda: client.attach(network.url("B1")),
    ):
        with pytest.raises(sterna.ClosedError):
            call()


def test_a_broker_that_is_not_there_is_told() -> None:
    before = threading.active_count()
    with pytest.raises(sterna.NotConnectedError, match="no broker answers"):
        sterna.blocking.connect("sterna://127.0.0.1:1", timeout=0.05)
    with pytest.raises(ValueError, match="no address of a broker"):
        sterna.blocking.connect("http://127.0.0.1")

    assert threading.active_count() == before, "no thread stays behind"


def test_mistakes_are_told_where_they_are_made(ann: sterna.blocking.Client) -> None:
    with pytest.raises(TypeError):
        ann.publish(n=[1])
    with pytest.raises(TypeError):
        ann.publish({"n": 1}, "text")  # type: ignore[arg-type]
    with pytest.raises(sterna.FilterError):
        ann.subscribe("n >")
    ann.subscribe("n = 1")
    with pytest.raises(LocalProtocolError):
        ann.subscribe("n = 1")

    large = ann.publish({"n": 1}, b"x" * 2**20)
    small = ann.publish(n=2)
    with pytest.raises(ValueError, match="frame_bytes_max"):
        large.wait(WAIT_S)
    with pytest.raises(ValueError, match="frame_bytes_max"):
        ann.drain()
    assert small.wait(WAIT_S).publisher == "ann", "others are not held up"
    with pytest.raises(ValueError, match="frame_bytes_max"):
        ann.publish(text="€" * 400_000).wait(WAIT_S)  # Three bytes each.
    assert ann.publish(n=3).wait(WAIT_S).publisher == "ann", "the broker was not bothered"


def test_advertisements(ann: sterna.blocking.Client) -> None:
    advertised = ann.advertise("topic = 'advertised'", name="mine")

    assert (advertised.name, str(advertised.where)) == ("mine", "topic = 'advertised'")
    advertised.close()


@pytest.mark.spec("RE-5")
def test_several_brokers_serve_a_blocking_client(network: LocalNetwork) -> None:
    """Each event once and in order, also after it was away; it publishes over one of them."""
    changes: list[Change] = []
    called: list[object] = []
    with sterna.blocking.connect(*network.urls.values(), client="car", watch=2) as car:
        assert sorted(car.brokers) == ["B1", "B2"]
        assert car.sessions == ("car~1", "car~2")
        remove = car.on_connection(changes.append)
        events = car.subscribe("topic = 'watched'", keep="ring(5)").ready(WAIT_S)
        car.subscribe(
            "topic = 'watched'", name="2", callback=lambda e: called.append(e.attributes["n"])
        )
        id_ = car.publish(topic="watched", n=0).wait(WAIT_S)
        assert id_.publisher == "car"
        assert car.publish_all([{"topic": "watched", "n": n} for n in range(1, 4)]) == 3
        assert [events.get(WAIT_S).attributes["n"] for _ in range(4)] == [0, 1, 2, 3]
        car.detach()
        assert car.brokers == ()
        with sterna.blocking.connect(network.url("B1"), client="ben") as ben:
            ben.publish(topic="watched", n=4).wait(WAIT_S)
        car.attach()
        car.drain(WAIT_S)
        assert events.get(WAIT_S).attributes["n"] == 4
        wait_for(lambda: len(called) == 5, "not all events came", limit_s=WAIT_S)
        assert sorted(map(type, changes), key=str) == 4 * [Connected] + 2 * [Lost]
        remove()
        assert not car._client._sessions._callbacks
        with pytest.raises(LocalProtocolError, match="not acknowledged by hand"):
            events.acknowledge(sterna.Event(publisher="p", seq=1, time_us=0))
        with pytest.raises(sterna.TimedOutError):
            events.get(timeout=0.01)
    with pytest.raises(sterna.ClosedError):
        car.publish(n=1)
    with pytest.raises(sterna.ClosedError):
        events.get(WAIT_S)
    with pytest.raises(ValueError, match="no state"):
        sterna.blocking.connect(*network.urls.values(), watch=2, state="s")  # type: ignore[call-overload]
