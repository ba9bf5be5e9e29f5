"""Brokers on sockets that make their own tree: heartbeats, links, restarts, and strangers."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sterna.core.broker import Broker
from sterna.core.inputs import Heard, Restarted
from sterna.core.messages import SubscriptionChange
from sterna.core.overlay.election import Beat, Election, Reign
from sterna.net import engine as engines
from sterna.net.address import Address
from sterna.net.broker import BrokerServer
from sterna.net.config import BrokerConfig, ConfigError
from sterna.net.engine import Engine
from sterna.net.records import decode_record, encode_record
from sterna.net.status import electing_of, status, topology
from sterna.wire.codec import to_msgpack
from sterna.wire.datagrams import encode_datagram
from tests.net.fences import Fences
from tests.net.live import connect, gather_events, until
from tests.net.test_server import config_in, number, run
from tests.wire.test_datagrams import datagram

pytestmark = pytest.mark.spec("MB-1", "LV-1")

BEAT_US = 100_000
ELECT = {"overlay": "elect"}


def free_port() -> int:
    """A port that nobody uses, for connections and datagrams."""
    while True:
        with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            try:
                udp.bind(tcp.getsockname())
            except OSError:
                continue
            port: int = tcp.getsockname()[1]
            return port


class Brokers:
    """Brokers in this process, each with a directory and an address of its own."""

    def __init__(self, directory: Path, names: str, **tables: Any) -> None:
        self.directory = directory
        self.tables = tables
        self.ports = {name: free_port() for name in names}
        self.servers: dict[str, BrokerServer] = {}

    def url(self, name: str) -> str:
        return f"sterna://127.0.0.1:{self.ports[name]}"

    async def start(self, name: str, **changes: Any) -> BrokerServer:
        """Start a broker; all have the same list of candidates, with themselves in it."""
        urls = [self.url(each) for each in self.ports]
        network = {**ELECT, "neighbours": urls, **changes.pop("network", {})}
        tables = {
            "listen": f"127.0.0.1:{self.ports[name]}",
            "network": network,
            **(
                {"protocols": {"election": {"beat_us": BEAT_US}}}
                if network["overlay"] == "elect"
                else {}
            ),
            **self.tables,
            **changes,
        }
        config = config_in(self.directory / name, name=name, **tables)
        server = self.servers[name] = BrokerServer(config)
        await server.start()
        return server

    async def stop(self, name: str) -> None:
        await self.servers.pop(name).stop(drain_s=1)

    async def whole(self) -> None:
        """Wait until all that run are one network."""
        await until(self.is_whole)

    def is_whole(self) -> bool:
        told = [topology(server) for server in self.servers.values()]
        leaders = {each["leader"] for each in told}
        return len(leaders) == 1 and all(
            each["brokers"] == sorted(self.servers)
            and len(each["links"]) == len(self.servers) - 1
            and all(neighbour["is_up"] for neighbour in each["neighbours"])
            for each in told
        )

    def settled(self) -> bool:
        return all(status(server)["is_settled"] for server in self.servers.values())


@asynccontextmanager
async def brokers_in(directory: Path, names: str, **tables: Any) -> AsyncIterator[Brokers]:
    brokers = Brokers(directory, names, **tables)
    try:
        for name in names:
            await brokers.start(name)
        await brokers.whole()
        yield brokers
    finally:
        for name in list(brokers.servers):
            await brokers.stop(name)


def with_brokers(
    directory: Path, names: str, doing: Callable[[Brokers], Awaitable[None]], **tables: Any
) -> None:
    async def do() -> None:
        async with brokers_in(directory, names, **tables) as brokers:
            await doing(brokers)

    run(do())


def election(server: BrokerServer) -> Election:
    found = electing_of(server)
    assert found is not None
    return found


# ---- Links


def test_the_first_one_leads_and_another_one_when_it_has_ended(tmp_path: Path) -> None:
    """When it comes back, it changes no leader; and its status says all of that."""

    async def doing(brokers: Brokers) -> None:
        assert {election(each).leader for each in brokers.servers.values()} == {"A"}
        await brokers.stop("A")
        await brokers.whole()
        (leader,) = {election(each).leader for each in brokers.servers.values()}
        again = await brokers.start("A")
        await brokers.whole()
        assert {election(each).leader for each in brokers.servers.values()} == {leader}

        told = status(again)["election"]
        assert (told["leader"], told["next_hop"], told["hops"]) == (leader, leader, 1)
        assert told["brokers"] == 4
        assert sorted(told["in_reach"]) == ["B", "C", "D"]
        assert told["datagrams"]["heard"] > 0
        assert number(again, "sterna_election_leader") == 0
        assert number(brokers.servers[leader], "sterna_election_leader") == 1
        assert number(again, "sterna_election_brokers") == 4
        assert 'sterna_facts_total{kind="LeaderChanged"}' in again.metrics.text().decode()

    with_brokers(tmp_path, "ABCD", doing)


def test_a_broker_comes_back_at_another_address(tmp_path: Path) -> None:
    """Its candidates know its old one only. What waits for its client is there."""

    async def doing(brokers: Brokers) -> None:
        urls = [brokers.url(name) for name in brokers.ports]
        async with (
            connect(brokers.url("B"), client="pat", timeout=30) as pat,
            connect(brokers.url("C"), client="ann", timeout=30) as ann,
        ):
            subscription = ann.subscribe("n > 0")
            await subscription.ready(timeout=30)
            await brokers.stop("C")
            await pat.publish(n=1)
            brokers.ports["C"] = free_port()
            await brokers.start("C", network={"neighbours": urls[:2]})
            await brokers.whole()
            await pat.publish(n=2)
            await ann.attach(brokers.url("C"))
            got = await gather_events(subscription, 2)
            assert [event.attributes["n"] for event in got] == [1, 2]
        place = brokers.servers["A"].reach.radio.places["C"]
        assert place.address.port == brokers.ports["C"]

    with_brokers(tmp_path, "ABC", doing)


def test_candidates_need_not_know_each_other(tmp_path: Path) -> None:
    """Who is heard is sent heartbeats, too: it is enough if one of two names the other."""

    async def doing(brokers: Brokers) -> None:
        await brokers.stop("B")
        await brokers.start("B", network={"neighbours": []})
        await brokers.whole()

    with_brokers(tmp_path, "AB", doing)


def test_a_broker_that_is_heard_and_cannot_be_connected_is_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Datagrams pass between A and B, and connections do not: C is the way."""
    monkeypatch.setattr("sterna.net.radio.UNLINKED_S", 1.0)

    async def doing() -> None:
        brokers = Brokers(tmp_path, "ABC")
        addresses = {name: Address("127.0.0.1", port) for name, port in brokers.ports.items()}
        fences = Fences(addresses, Random(1))  # noqa: S311 - reproducible.
        await fences.open()
        fences.refuse("A", "B")
        for name in "ABC":
            neighbours = {"neighbours": list(fences.candidates(name))}
            await brokers.start(name, network=neighbours)
        await brokers.whole()
        assert topology(brokers.servers["C"])["links"] == [["A", "C"], ["B", "C"]]
        assert brokers.servers["B"].reach.radio.datagrams["unlinked"] > 0
        for name in "ABC":
            await brokers.stop(name)
        await fences.close()

    run(doing())


# ---- Heartbeats and the log


@pytest.mark.parametrize("level", ["batch", "sync"])
def test_heartbeats_are_not_synced_one_by_one(tmp_path: Path, level: str) -> None:
    async def doing(brokers: Brokers) -> None:
        await until(brokers.settled)
        server = brokers.servers["B"]
        log, engine = server.driver.log, server.engine
        assert log is not None
        for _ in range(20):
            synced, target = log.synced, engine.inputs + 30
            await until(partial(_has_reached, engine, target))
            if log.synced == synced:
                return
        pytest.fail("something is synced all the time")

    with_brokers(tmp_path, "ABC", doing, durability={"level": level})


def _has_reached(engine: Engine[Broker], inputs: int) -> bool:
    return engine.inputs >= inputs


def test_a_log_of_heartbeats_does_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "UNSAFE_MAX", 20)

    async def doing(brokers: Brokers) -> None:
        server = brokers.servers["B"]
        log, engine = server.driver.log, server.engine
        assert log is not None
        await until(lambda: engine.inputs > 500)
        await until(lambda: log.records_since_snapshot < 150)

    fast = {"election": {"beat_us": 20_000}}
    with_brokers(tmp_path, "ABC", doing, durability={"snapshot_inputs": 100}, protocols=fast)


@pytest.mark.parametrize(
    "given",
    [
        Heard(sender="B2", message=Beat(reign=Reign(-5, "B1"), round=3, path=("B1", "B2"))),
        Restarted(),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_is_given_comes_back_from_the_log(given: Heard | Restarted) -> None:
    assert decode_record(encode_record(given, 7)) == (given, 7)


# ---- Strangers


class Stranger:
    """Somebody who sends datagrams."""

    def __init__(self, server: BrokerServer) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.target = server.address

    def send(self, data: bytes) -> None:
        self.socket.sendto(data, self.target)


def test_what_is_no_heartbeat_is_ignored_and_counted(tmp_path: Path) -> None:
    async def doing(brokers: Brokers) -> None:
        server = brokers.servers["A"]
        stranger, counted = Stranger(server), server.reach.radio.datagrams
        reign = Reign(-1, "X")  # It would lead at once.
        beat = Beat(reign=reign, round=1, path=("X",))
        for data in (
            b"",
            b"hello",
            bytes(9_000),
            datagram(to_msgpack(SubscriptionChange())),
            encode_datagram("X", "run", "nowhere", beat),
            encode_datagram("X\n", "run", "", beat),
        ):
            stranger.send(data)
        await until(lambda: counted["malformed"] == 6)
        stranger.send(encode_datagram("A", "another run", "", beat))
        await until(lambda: counted["namesake"] == 1)
        heard = counted["heard"]
        for path in ((), ("Y",), ("X", "Y"), ("X", "X")):  # No way of X's beats to X.
            stranger.send(encode_datagram("X", "run", "", Beat(reign=reign, round=1, path=path)))
        await until(lambda: counted["heard"] >= heard + 4 and "X" in server.reach.radio.places)
        assert election(server).leader == "A"
        assert "X" not in election(server).heard
        assert 'sterna_datagrams_total{what="malformed"} 6.0' in server.metrics.text().decode()
        assert brokers.is_whole()

    with_brokers(tmp_path, "AB", doing)


def test_a_broker_that_is_another_one_than_was_heard_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody says that X is where B is."""

    async def doing(brokers: Brokers) -> None:
        server = brokers.servers["A"]
        beat = Beat(reign=Reign(-1, "X"), round=1, path=("X",))
        address = str(brokers.servers["B"].address)
        Stranger(server).send(encode_datagram("X", "run", address, beat))
        await until(lambda: "X was heard here, and this is B" in caplog.text)
        await brokers.whole()  # X is silent.
        assert "X" not in server.node.peers

    with_brokers(tmp_path, "AB", doing)


def test_a_client_with_the_name_of_a_broker_is_sent_away(tmp_path: Path) -> None:
    async def doing(brokers: Brokers) -> None:
        await brokers.stop("B")
        await brokers.whole()
        client = await connect(brokers.url("A"), client="B", timeout=30)
        assert "B" in brokers.servers["A"].sessions.links
        await brokers.start("B")
        await brokers.whole()
        await client.close(timeout=0)

    with_brokers(tmp_path, "AB", doing)


def test_a_flood_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.net.radio.PER_SECOND_MAX", 50)

    async def doing(brokers: Brokers) -> None:
        server = brokers.servers["A"]
        stranger, counted = Stranger(server), server.reach.radio.datagrams
        beat = Beat(reign=Reign(10**18, "X"), round=1, path=("X",))
        data = encode_datagram("X", "run", "", beat)
        while not counted["flood"]:
            for _ in range(100):
                stranger.send(data)
            await asyncio.sleep(0.01)
        await brokers.whole()

    with_brokers(tmp_path, "AB", doing)


# ---- Settings


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"handover": "relocation"}, "set standard, prefetching or logging"),
        ({"handover": "home"}, "does not work on a tree that changes"),
        ({"advertisements": True}, "routing by advertisements loses events"),
        ({"hierarchy": True}, "its root and parents are fixed"),
        ({"accept_brokers": False}, "either end makes the link"),
        ({"protocols": ["presubscribing"]}, "must not have 'presubscribing'"),
        ({"protocols": ["reversing"]}, "must not have 'reversing'"),
        ({"protocols": ["election"]}, 'set network.overlay = "elect" instead'),
    ],
)
def test_what_loses_events_on_a_tree_that_changes_is_refused(
    setting: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_mapping({"name": "B1", "network": {**ELECT, **setting}})
    (told,) = refused.value.problems
    assert problem in told


@pytest.mark.parametrize("handover", ["standard", "prefetching", "logging", "none", "naive"])
def test_other_handovers_are_taken(handover: str) -> None:
    config = BrokerConfig.from_mapping({"name": "B1", "network": {**ELECT, "handover": handover}})
    assert config.handover_options.protocol == handover


def test_brokers_that_elect_hand_over_by_standard() -> None:
    config = BrokerConfig.from_mapping({"name": "B1", "network": ELECT})
    assert config.handover_options.protocol == "standard"


@pytest.mark.parametrize("beat_us", [0, -1, 9_999, "often"])
def test_an_impossible_heartbeat_is_refused(beat_us: object) -> None:
    with pytest.raises(ConfigError, match=r"protocols\.election"):
        BrokerConfig.from_mapping(
            {"name": "B1", "network": ELECT, "protocols": {"election": {"beat_us": beat_us}}}
        )


def test_a_tree_becomes_one_that_brokers_make_and_back(tmp_path: Path) -> None:
    """Both after a restart. What was on its way when a broker was down arrives nevertheless."""

    async def doing() -> None:
        brokers = Brokers(tmp_path, "ABC")
        tree = {"overlay": "tree", "handover": "standard"}
        line = {
            name: {**tree, "neighbours": [brokers.url(up)] if up else []}
            for name, up in (("A", ""), ("B", "A"), ("C", "B"))
        }
        for name, network in line.items():
            await brokers.start(name, network=network)
        await until(lambda: len(topology(brokers.servers["A"])["brokers"]) == 3)
        ann = await connect(brokers.url("C"), client="ann", timeout=30)
        pat = await connect(brokers.url("A"), client="pat", timeout=30)
        subscription = ann.subscribe("n > 0")
        await subscription.ready(timeout=30)
        await brokers.stop("C")
        await pat.publish(n=1)
        for name in "BA":
            await brokers.stop(name)
        for name in line:  # B and C do not hear each other.
            network = {"neighbours": [brokers.url("A")]}
            await brokers.start(name, network=network)
        await brokers.whole()
        assert topology(brokers.servers["A"])["links"] == [["A", "B"], ["A", "C"]]
        await pat.publish(n=2)
        got = await gather_events(subscription, 2)
        assert [event.attributes["n"] for event in got] == [1, 2]

        await until(brokers.settled)
        for name in "CBA":
            await brokers.stop(name)
        for name, network in line.items():
            await brokers.start(name, network=network)
        await until(lambda: len(topology(brokers.servers["A"])["brokers"]) == 3)
        assert topology(brokers.servers["A"])["links"] == [["A", "B"], ["B", "C"]]
        await until(brokers.settled)
        await pat.publish(n=3)
        (event,) = await gather_events(subscription, 1)
        assert event.attributes["n"] == 3
        for client in (ann, pat):
            await client.close(timeout=5)
        for name in "CBA":
            await brokers.stop(name)

    run(doing())


def test_the_overlay_changes_with_a_restart_only(tmp_path: Path) -> None:
    async def doing() -> None:
        configs = [
            config_in(tmp_path, network={"overlay": overlay}) for overlay in ("tree", "elect")
        ]
        server = BrokerServer(configs[0], reread=lambda: configs[1])
        await server.start()
        report = await server.reload()
        assert report.error is None or re.search("restart", report.error)
        assert "network.overlay" in report.needs_restart or report.error
        assert electing_of(server) is None
        await server.stop(drain_s=0)

    run(doing())


def test_the_time_between_heartbeats_changes_at_once(tmp_path: Path) -> None:
    async def doing() -> None:
        configs = [
            config_in(tmp_path, network=ELECT, protocols={"election": {"beat_us": beat_us}})
            for beat_us in (3_600_000_000, 20_000)
        ]
        server = BrokerServer(configs[0], reread=lambda: configs[1])
        await server.start()
        assert election(server).round == 1
        report = await server.reload()
        assert report.applied == ("protocols",)
        await until(lambda: election(server).round > 3)
        await server.stop(drain_s=0)

    run(doing())
