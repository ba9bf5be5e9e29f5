"""A running broker reads its configuration again: what it applies, and what it says about it."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import pytest
from msgspec.structs import replace

import sterna
from sterna.core.facts import Accepted
from sterna.core.history.recent import Recent
from sterna.errors import SternaError
from sterna.journal import facts_in, read_journal
from sterna.net.broker import BrokerServer, native
from sterna.net.broker.native import NativeSession
from sterna.net.config import BrokerConfig, ConfigSection, all_keys
from sterna.net.config.schema import is_for_start, keys, sections
from sterna.net.connection import Connection
from sterna.net.local import LocalNetwork
from sterna.net.observer import ask
from sterna.wire.frames import Control, Hello, control
from tests.net.live import connect, gather_events, network_in, settle, until
from tests.net.test_server import config_in, run

pytestmark = pytest.mark.spec("LV-9")

PLAIN = {"name": "B1", "listen": "127.0.0.1:0"}


class Reloading:
    """A broker in this process whose configuration is a file that the test writes."""

    def __init__(self, directory: Path, text: str = "") -> None:
        self.directory = directory
        self.file = directory / "broker.toml"
        self.write(text)
        self.server = BrokerServer(self.read(), reread=self.read)

    def write(self, text: str = "", **top: str) -> None:
        lines = [f'{key} = "{value}"' for key, value in {**PLAIN, **top}.items()]
        self.file.write_text("\n".join([*lines, text]), encoding="utf-8")

    def read(self) -> BrokerConfig:
        return BrokerConfig.load(self.file)

    async def reload(self, text: str = "", **top: str) -> Any:
        """Write the file anew, and have the broker read it: what it reports."""
        self.write(text, **top)
        return await asyncio.to_thread(ask, self.server.address.url, "reload")


@pytest.fixture
def restored_logging() -> Iterator[None]:
    logger = logging.getLogger("sterna")
    before = (logger.handlers, logger.level, logger.propagate)
    yield
    logger.handlers, logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


@pytest.mark.usefixtures("restored_logging")
def test_a_reload_reports_each_key(tmp_path: Path) -> None:
    """Keys are applied, need a restart, or have not changed; each is one of these."""
    text = """
    [network]
    strategy = "merging"
    handover = "naive"
    [durability]
    level = "sync"
    snapshot_inputs = 7
    [limits]
    kept_s = 60
    connections_max = 20
    subscriptions_per_client_max = 5
    [heartbeat]
    every_s = 1
    [journal]
    segment_s = 5
    [log]
    level = "error"
    """

    async def reload() -> None:
        broker = Reloading(tmp_path)
        await broker.server.start()
        before = broker.server.config

        report = await broker.reload(text, listen="127.0.0.1:1")

        assert report["error"] is None
        assert report["applied"] == [
            *("network.strategy", "network.handover", "durability.snapshot_inputs"),
            *("limits.connections_max", "limits.subscriptions_per_client_max", "limits.kept_s"),
            *("heartbeat.every_s", "journal.segment_s", "log.level"),
        ]
        assert report["needs_restart"] == ["listen", "durability.level"]
        every = [*report["applied"], *report["needs_restart"], *report["unchanged"]]
        assert sorted(every) == sorted(all_keys(BrokerConfig))
        server = broker.server
        assert (server.config.listen, server.config.durability.level) == (
            before.listen,
            before.durability.level,
        )
        assert server.node.settings == server.configuration.settings
        assert str(server.node.settings.routing.strategy) == "merging"
        assert server.node.settings.handover.cache_ttl_us == 60_000_000
        assert server.driver.log is not None
        assert server.driver.log.options.snapshot_records == 7
        assert logging.getLogger("sterna").level == logging.ERROR
        again = await broker.reload(text, listen="127.0.0.1:1")
        assert (again["applied"], again["needs_restart"]) == ([], ["listen", "durability.level"])
        await server.stop()

    run(reload())


def test_a_broken_file_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The mistakes are answered and logged, and the broker goes on as it was."""

    async def reload() -> None:
        broker = Reloading(tmp_path)
        await broker.server.start()
        before, settings = broker.server.config, broker.server.node.settings
        for text in (
            '[network]\nstrategy = "rumour"\n[limits]\nkept_s = 5',
            '[places]\ngraph = "nowhere.csv"\n[limits]\nkept_s = 5',
            "this is no TOML",
        ):
            report = await broker.reload(text)
            assert str(broker.file) in report["error"]
            assert "\n" not in report["error"]
            assert not report["applied"]
            assert broker.server.config is before
            assert broker.server.node.settings is settings
        assert "choose one of" in caplog.text
        async with connect(broker.server.address.url, client="c") as client:
            await client.publish(n=1)
        await broker.server.stop()

    with caplog.at_level(logging.ERROR, logger="sterna.broker"):
        run(reload())


def test_a_graph_is_read_again(tmp_path: Path) -> None:
    """The file of the graph is another, and the configuration is the same."""
    graph = tmp_path / "graph.csv"
    text = '[places]\ngraph = "graph.csv"'

    async def reload() -> None:
        graph.write_text("a,b\n", encoding="utf-8")
        broker = Reloading(tmp_path)
        await broker.server.start()
        assert (await broker.reload(text))["applied"] == ["places.graph"]
        assert (await broker.reload(text))["applied"] == []
        graph.write_text("a,b\nb,c\n", encoding="utf-8")
        assert (await broker.reload(text))["applied"] == ["places.graph"]
        places = broker.server.node.settings.places
        assert places is not None
        assert ("b", "c") in places.edges
        await broker.server.stop()

    run(reload())


def test_only_peers_on_this_machine_may_have_it_reload(tmp_path: Path) -> None:
    async def reload() -> None:
        broker = Reloading(tmp_path)
        await broker.server.start()
        with (
            patch.object(NativeSession, "is_local", PropertyMock(return_value=False)),
            pytest.raises(SternaError, match="on the broker's own machine"),
        ):
            await broker.reload("[limits]\nkept_s = 5")
        assert broker.server.config.limits.kept_s is None
        await broker.server.stop()

    run(reload())


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        *(("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("::ffff:127.0.0.1", True)),
        *(("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("fe80::1%eth0", False), ("", False)),
    ],
)
def test_which_hosts_are_this_machine(host: str, is_local: bool) -> None:
    with patch.object(NativeSession, "host", PropertyMock(return_value=host)):
        assert NativeSession.__new__(NativeSession).is_local is is_local


def test_keys_that_need_a_restart_are_few() -> None:
    """A key that only a start looks at says so: the reference page has a mark for it."""
    kinds: dict[str, type[ConfigSection]] = {"": BrokerConfig, **sections(BrokerConfig)}
    marked = [
        f"{name}.{field.name}".lstrip(".")
        for name, kind in kinds.items()
        for field in keys(kind)
        if is_for_start(field)
    ]

    assert marked == [
        *("name", "listen", "advertised_address", "data", "network.overlay"),
        "network.neighbours",
        *("durability.level", "durability.segment_bytes", "durability.salvage"),
        *("http.listen", "journal.enabled", "mqtt.listen", "mqtt.websocket"),
    ]


def test_clients_follow_without_losing_their_connection(tmp_path: Path) -> None:
    """They get the settings that they have to know, and the longest frame; nothing is lost."""

    async def reload() -> None:
        broker = Reloading(tmp_path)
        await broker.server.start()
        async with connect(broker.server.address.url, client="c") as client:
            changes = client.connections()
            subscription = client.subscribe("n >= 0")
            await client.publish(n=0)
            await broker.reload("[network]\nquenching = true\nadvertisements = true")
            await until(lambda: client._driver.node.settings.client.advertisements)
            await client.publish(n=1)
            await broker.reload('[limits]\nframe_bytes_max = "2 MiB"\n[network]\nquenching = true')
            await until(lambda: not client._driver.node.settings.client.advertisements)
            await until(lambda: client._keeper.frame_bytes_max == 2 * 2**20)
            await client.publish({"n": 2}, bytes(3 * 2**19))
            got = await gather_events(subscription, 3)
            assert [event.attributes["n"] for event in got] == [0, 1, 2]
            assert client.missed == 0
            assert isinstance(await changes.get(timeout=1), sterna.Connected)
            with pytest.raises(TimeoutError):
                await changes.get(timeout=0.05)
        await broker.server.stop()

    run(reload())


def test_new_settings_are_encoded_once_and_sent_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many clients and a large graph do not stop the broker: others have their turns between."""
    encoded: list[Hello] = []
    sent_at: list[int] = []
    turns = 0

    def encode(said: Control) -> bytes:
        if isinstance(said, Hello):
            encoded.append(said)
        return control(said)

    def send(session: NativeSession, data: bytes) -> None:
        sent_at.append(turns)
        Connection.say_encoded(session, data)

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    async def reload() -> None:
        broker = Reloading(tmp_path)
        await broker.server.start()
        url = broker.server.address.url
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(connect(url, client=f"c{number}"))
                for number in range(5)
            ]
            await until(lambda: all(client.is_connected for client in clients))
            broker.write("[network]\nquenching = true")
            monkeypatch.setattr(native, "control", encode)
            monkeypatch.setattr(native, "INFORMING_BYTES", 0)
            monkeypatch.setattr(NativeSession, "say_encoded", send, raising=False)
            turn()
            await broker.server.reload()
            await until(
                lambda: all(each._driver.node.settings.client.quenching for each in clients)
            )
            monkeypatch.undo()
            assert len(encoded) == 1
            assert len(sent_at) == len(set(sent_at)) == len(clients)
        await broker.server.stop()

    run(reload())


def test_a_journal_goes_on_with_other_sizes(tmp_path: Path) -> None:
    """Facts from before and after are in it, once and in order."""

    async def reload() -> None:
        broker = Reloading(tmp_path)
        await broker.server.start()
        async with connect(broker.server.address.url, client="c") as client:
            await client.publish(n=0)
            report = await broker.reload("[journal]\nflush_s = 0.1\nsegment_s = 0.2")
            assert report["applied"] == ["journal.segment_s", "journal.flush_s"]
            await client.publish(n=1)
        await broker.server.stop()

    run(reload())
    accepted = [
        event.attributes["n"]
        for batch in read_journal(tmp_path / "data" / "journal", "B1")
        for fact in facts_in(batch)
        if isinstance(fact, Accepted)
        for event in fact.events
    ]
    assert accepted == [0, 1]


def test_a_signal_is_enough(tmp_path: Path) -> None:
    """SIGHUP has a process read its file again; a broken one is a message."""
    with network_in(tmp_path, 1, log={"level": "info"}) as network:
        config = network.configs["B1"]
        network.configs["B1"] = replace(config, limits=replace(config.limits, kept_s=5.0))
        network._write_config("B1")

        os.kill(network.pid("B1"), signal.SIGHUP)

        asyncio.run(until(lambda: "applied: limits.kept_s" in _messages(network)))
        (network.directory / "B1" / "broker.toml").write_text("broken", encoding="utf-8")
        os.kill(network.pid("B1"), signal.SIGHUP)
        asyncio.run(until(lambda: "nothing has changed: " in _messages(network)))
        assert network.ask("B1", "status")["is_ready"]


def test_neighbours_hear_whether_a_broker_routes_by_advertisements(tmp_path: Path) -> None:
    """The next handshake tells them, and it comes at once."""

    async def reload() -> None:
        broker = Reloading(tmp_path)
        await broker.server.start()
        network = {"neighbours": [broker.server.address.url]}
        neighbour = BrokerServer(config_in(tmp_path / "B2", name="B2", network=network))
        await neighbour.start()
        advertising = neighbour.node.router._advertising
        await until(lambda: advertising.get("B1") is False)
        await broker.reload("[network]\nadvertisements = true")
        await until(lambda: advertising["B1"])
        await broker.reload()
        await until(lambda: not advertising["B1"])
        await neighbour.stop()
        await broker.server.stop()

    run(reload())


def test_events_find_their_way_while_advertisements_come_and_go(tmp_path: Path) -> None:
    """Brokers begin and cease to route by advertisements, one after the other."""

    async def go(network: LocalNetwork) -> None:
        async with (
            connect(network.url("B1"), client="p", timeout=30) as publisher,
            connect(network.url("B3"), client="s", timeout=30) as subscriber,
        ):
            subscription = subscriber.subscribe("n >= 0")
            await settle(network, [publisher, subscriber])
            count = 0
            for advertisements in (True, False, True):
                for name in network.names:
                    config = network.configs[name]
                    settings = replace(config.network, advertisements=advertisements)
                    network.configs[name] = replace(config, network=settings)
                    report = await asyncio.to_thread(network.reload, name)
                    assert report["applied"] == ["network.advertisements"]
                    for _ in range(10):
                        publisher.publish(n=count)
                        count += 1
                await settle(network, [publisher, subscriber])
                publisher.publish(n=count)
                count += 1
            await publisher.drain()
            await settle(network, [publisher, subscriber])
            got = [event.attributes["n"] for event in subscription.take()]
            assert got == list(range(count))

    with network_in(tmp_path, 3) as network:
        asyncio.run(go(network))


def _messages(network: LocalNetwork) -> str:
    return network.messages("B1").read_text(encoding="utf-8")


def test_a_parent_that_is_no_neighbour_is_refused(tmp_path: Path) -> None:
    async def reload() -> None:
        broker = Reloading(tmp_path)
        await broker.server.start()

        report = await broker.reload('[network]\nhierarchy = true\nparent = "B9"')

        assert (
            report["error"] == "network.parent: is 'B9', which is no neighbour; there are none yet"
        )
        assert broker.server.node.settings.routing.parent is None
        await broker.server.stop()

    run(reload())


@pytest.mark.spec("PA-2", "PA-3")
def test_what_is_remembered_of_the_past_changes_at_once(tmp_path: Path) -> None:
    """What the broker has stays, as far as there is room; its clients hold for another time."""
    text = """
    [history]
    memory_events_max = 5
    search = "nearest"
    publisher_events_max = 2
    hold_s = 3
    [[history.buffers]]
    filter = "n < 3"
    """

    async def reload() -> None:
        broker = Reloading(tmp_path)
        await broker.server.start()
        async with connect(broker.server.address.url, client="ann") as ann:
            await ann.publish_all({"n": n} for n in range(10))
            subscription = ann.subscribe("n >= 0", past=8)
            assert [e.attributes["n"] for e in await gather_events(subscription, 8)] == [
                *range(2, 10)
            ]

            report = await broker.reload(text)

            assert report["applied"] == [
                *("history.memory_events_max", "history.buffers"),
                *("history.publisher_events_max", "history.search", "history.hold_s"),
            ]
            await until(lambda: ann._driver.node.settings.history.hold_us == 3_000_000)
            again = ann.subscribe("n >= 0", name="again", past=8)
            (first, second) = await gather_events(again, 2)
            assert 5 <= first.attributes["n"] == second.attributes["n"] - 1
            await ann.publish(n=1)
            recent = broker.server.node.part("past")
            assert isinstance(recent, Recent)
            assert [event.attributes for event in recent.buffers[0].passed.events()] == [{"n": 1}]
        await broker.server.stop()

    run(reload())
