"""Clients among devices alone, on sockets: what they ask and hear, and what is refused."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from sterna.core.adhoc.messages import ClientHere, ClientListens
from sterna.core.adhoc.serving import Serving
from sterna.core.mobile.ordering import Ordering, Publisher
from sterna.errors import SternaError
from sterna.model.event import Event
from sterna.net.address import Address
from sterna.net.broker import BrokerServer
from sterna.net.config import BrokerConfig, ConfigError
from sterna.net.status import status, topology
from sterna.wire.datagrams import decode_datagram, encode_datagram
from tests.net.live import connect, gather_events, until
from tests.net.proxy import Proxy
from tests.net.test_elected import Brokers, brokers_in, free_port
from tests.net.test_server import number, run

pytestmark = pytest.mark.spec("RE-4", "LV-1")

BEAT_US = 100_000
ALONE = {"overlay": "ad-hoc"}
ACCEPTED = r'sterna_events_total\{kind="Accepted"\}'


@asynccontextmanager
async def devices_in(directory: Path, names: str, **options: Any) -> AsyncIterator[Brokers]:
    beats = {"election": {"beat_us": BEAT_US}, "ad-hoc": {"beat_us": BEAT_US, **options}}
    brokers = Brokers(directory, names, protocols=beats)
    try:
        for name in names:
            await brokers.start(name, network=ALONE)
        yield brokers
    finally:
        for name in list(brokers.servers):
            await brokers.stop(name)


def part(server: BrokerServer) -> Serving:
    found = server.node.part("ad-hoc")
    assert isinstance(found, Serving)
    return found


def serving(brokers: Brokers) -> list[str]:
    told = {name: status(server)["ad_hoc"] for name, server in brokers.servers.items()}
    return [name for name, each in told.items() if each["serves"]]


def test_a_client_wakes_no_broker_until_it_has_something_to_say(tmp_path: Path) -> None:
    async def doing() -> None:
        async with devices_in(tmp_path, "AB") as brokers, connect(brokers.url("A")) as client:
            heard = [server.reach.radio.datagrams for server in brokers.servers.values()]
            await until(lambda: all(each["heard"] >= 2 for each in heard))
            for server in brokers.servers.values():
                assert "ServingBegan" not in server.metrics.text().decode()
            assert serving(brokers) == []
            assert not client.is_connected
            assert not client.is_on_its_way
            assert topology(brokers.servers["B"])["ad_hoc"]["serving"] == []

            await client.publish(n=1)
            assert client.broker in serving(brokers)
            server = brokers.servers[client.broker]
            assert number(server, "sterna_ad_hoc_serves") == 1
            assert 'sterna_datagrams_total{what="heard"}' in server.metrics.text().decode()

    run(doing())


def test_a_client_that_closes_at_once_still_finds_a_broker_for_what_it_published(
    tmp_path: Path,
) -> None:
    async def doing() -> None:
        async with devices_in(tmp_path, "A") as brokers:
            async with connect(brokers.url("A")) as client:
                client.publish(n=1)
            assert number(brokers.servers["A"], ACCEPTED) == 1

    run(doing())


def test_the_past_has_what_a_new_broker_held_for_its_first_subscribers(tmp_path: Path) -> None:
    async def doing() -> None:
        async with devices_in(tmp_path, "AB") as brokers, connect(brokers.url("A")) as client:
            await client.publish_all({"n": n} for n in range(3))
            broker = brokers.servers[client.broker or ""]
            await until(lambda: part(broker).is_settled)
            async with connect(brokers.url("B")) as other:
                subscription = other.subscribe("n >= 0", past=2)
                events = await gather_events(subscription, 2)
                assert [event.attributes["n"] for event in events] == [1, 2]

    run(doing())


def test_what_came_too_late_is_missed_and_says_nothing_of_what_was_published(
    tmp_path: Path,
) -> None:
    """Not even if the client has published it itself."""

    async def doing() -> None:
        async with devices_in(tmp_path, "A") as brokers, connect(brokers.url("A"), client="a") as a:
            own = a.subscribe("n >= 0")
            await a.publish(n=1)
            (first,) = await gather_events(own, 1)
            ordering = a._driver.node.part("ordering")
            assert isinstance(ordering, Ordering)
            other = Event(publisher="x", seq=first.seq, time_us=0, attributes={"n": 1})
            late = [replace(event, seq=event.seq - 1) for event in (first, other)]
            ordering._publishers["x"] = Publisher()
            ordering._publishers["x"].last = other.seq
            assert ordering.events_arriving(late, "A", 0) == []
            await a.publish(n=2)
            await a.drain()
            assert a.missed == 2

    run(doing())


def test_a_client_that_detaches_hears_nothing_and_gets_what_it_missed(tmp_path: Path) -> None:
    async def doing() -> None:
        async with (
            devices_in(tmp_path, "AB") as brokers,
            connect(brokers.url("A"), client="a") as a,
            connect(brokers.url("B"), client="b") as b,
        ):
            subscription = b.subscribe("n >= 0")
            await subscription.ready()
            await b.detach()
            await a.publish(n=1)
            assert not b.is_connected
            assert not b.is_on_its_way
            await b.attach()
            (event,) = await gather_events(subscription, 1)
            assert event.attributes["n"] == 1
            with pytest.raises(SternaError, match="attach it without an address"):
                await b.attach(brokers.url("A"))

    run(doing())


def test_a_client_with_a_state_comes_back_to_its_network(tmp_path: Path) -> None:
    """Its broker sleeps by then, and the broker of its device is down: the state knows the rest."""

    async def doing() -> None:
        async with (
            devices_in(tmp_path / "devices", "AB") as brokers,
            connect(brokers.url("A"), client="a") as a,
        ):
            urls = [brokers.url("B"), brokers.url("A")]
            async with connect(*urls, client="b", state=tmp_path / "b") as b:
                await b.subscribe("n >= 0", name="n").ready()
            await a.publish(n=1)
            if a.broker == "A":
                await brokers.stop("B")
            async with connect(*urls, client="b", state=tmp_path / "b") as b:
                (event,) = await gather_events(b.subscribe("n >= 0", name="n"), 1)
                assert event.attributes["n"] == 1

    run(doing())


def test_a_connection_that_has_died_without_notice_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sterna.net.client.search.HEARTBEAT_ALONE_S", 0.1)

    async def doing() -> None:
        async with devices_in(tmp_path, "") as brokers:
            port = brokers.ports["A"] = free_port()
            proxy = await Proxy(Address("127.0.0.1", port), Random(0)).start()  # noqa: S311
            server = await brokers.start(
                "A",
                network=ALONE,
                advertised_address=str(proxy.address),
            )
            async with connect(brokers.url("A"), client="a") as a:
                await a.publish(n=1)
                assert proxy.count == 1
                proxy.silence()
                async with asyncio.timeout(15):  # Else it would take 20 seconds.
                    await a.publish(n=2)
            assert number(server, ACCEPTED) >= 2
            await proxy.stop()

    run(doing())


def test_a_client_goes_to_brokers_whose_settings_differ_and_to_one_that_is_back(
    tmp_path: Path,
) -> None:
    """Settings may change while devices are on their way. Who is stopped keeps a snapshot."""

    async def doing() -> None:
        async with (
            devices_in(tmp_path, "AB") as brokers,
            connect(brokers.url("A"), client="a") as a,
        ):
            subscription = a.subscribe("n >= 0")
            await brokers.stop("B")
            await until(lambda: a.is_connected and a.broker == "A")
            beats = {"beat_us": BEAT_US, "lease_us": 7_000_000}
            other = {"election": {"beat_us": BEAT_US}, "ad-hoc": beats}
            await brokers.start("B", network=ALONE, protocols=other)
            for stopped, broker in (("A", "B"), ("B", "A")):
                await brokers.stop(stopped)
                await until(lambda at=broker: a.is_connected and a.broker == at)  # type: ignore[misc]
                await a.publish(at=broker, n=1)
                (event,) = await gather_events(subscription, 1)
                assert event.attributes["at"] == broker
                await brokers.start(stopped, network=ALONE)

    run(doing())


@pytest.mark.spec("LV-9")
@pytest.mark.parametrize(("before", "after"), [("tree", "ad-hoc"), ("ad-hoc", "elect")])
def test_a_client_goes_on_when_its_network_gets_another_overlay(
    tmp_path: Path, before: str, after: str
) -> None:
    """The broker is stopped and started with the other setting; the client learns of it there."""

    async def doing() -> None:
        beats = {"beat_us": BEAT_US}
        options = {
            "tree": {},
            "elect": {"election": beats},
            "ad-hoc": {"election": beats, "ad-hoc": beats},
        }
        brokers = Brokers(tmp_path, "A")
        await brokers.start("A", network={"overlay": before}, protocols=options[before])
        async with connect(brokers.url("A"), client="a", state=tmp_path / "a") as client:
            subscription = client.subscribe("n >= 0")
            await subscription.ready()
            await client.publish(n=1)
            await brokers.stop("A")
            client.publish(n=2)
            await brokers.start("A", network={"overlay": after}, protocols=options[after])
            events = await gather_events(subscription, 2)
            assert [event.attributes["n"] for event in events] == [1, 2]
            await client.drain()
        await brokers.stop("A")

    run(doing())


class Somebody:
    """Who sends datagrams to a broker, and gets its own."""

    def __init__(self, server: BrokerServer) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.target = server.address

    def send(self, name: str, message: Any) -> None:
        self.socket.sendto(encode_datagram(name, "run", "", message), self.target)

    async def hear(self) -> Any:
        async with asyncio.timeout(30):
            data = await asyncio.get_running_loop().sock_recv(self.socket, 10_000)
        return decode_datagram(data)[1]


def test_who_listens_is_sent_what_a_broker_says_and_no_node_learns_of_it(tmp_path: Path) -> None:
    async def doing() -> None:
        async with devices_in(tmp_path, "A") as brokers, connect(brokers.url("A")) as client:
            await client.publish(n=1)
            server = brokers.servers["A"]
            somebody = Somebody(server)
            somebody.send("x", ClientListens(client="x"))
            assert (await somebody.hear()).broker == "A"
            assert "x" in server.reach.radio.places
            assert "x" not in part(server)._news

    run(doing())


def test_a_client_named_like_a_neighbour_is_not_heard(tmp_path: Path) -> None:
    async def doing() -> None:
        async with brokers_in(
            tmp_path, "AB", protocols={"election": {"beat_us": BEAT_US}}
        ) as brokers:
            server = brokers.servers["A"]
            place = server.reach.radio.places["B"]
            Somebody(server).send("B", ClientHere(client="B"))
            await until(lambda: server.reach.radio.datagrams["namesake"] == 1)
            assert server.reach.radio.places["B"].source == place.source

    run(doing())


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ({"network": {"handover": "standard"}}, "it is phoenix; leave it out"),
        ({"network": {"advertisements": True}}, "whatever is advertised"),
        ({"network": {"quenching": True}}, "knows no subscriptions yet"),
        ({"network": {"hierarchy": True}}, "its root and parents are fixed"),
        ({"network": {"accept_brokers": False}}, "either end makes the link"),
        ({"network": {"protocols": ["presubscribing"]}}, "must not have 'presubscribing'"),
        ({"network": {"protocols": ["reversing"]}}, "must not have 'reversing'"),
        ({"mqtt": {"listen": "127.0.0.1:1883"}}, "MQTT clients cannot look for another broker"),
        ({"mqtt": {"websocket": "127.0.0.1:0"}}, "MQTT clients cannot look for another broker"),
        ({"places": {"grid": 9}}, "subscriptions with places are not passed on"),
        ({"protocols": {"ad-hoc": {"beat_us": 0}}}, "protocols.ad-hoc"),
        ({"protocols": {"ad-hoc": {"meeting": "fight"}}}, "protocols.ad-hoc"),
    ],
)
def test_what_does_not_go_with_devices_alone_is_refused(
    tables: dict[str, Any], problem: str
) -> None:
    network = {**ALONE, **tables.get("network", {})}
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_mapping({"name": "B1", **tables, "network": network})
    assert problem in "\n".join(refused.value.problems)


def test_the_overlay_decides_how_brokers_route_and_clients_move() -> None:
    """Brokers know all subscribers, so they announce no filters as well."""
    options = {"ordering": {"patience_us": 1_000_000}}
    config = BrokerConfig.from_mapping({"name": "B1", "network": ALONE, "protocols": options})
    assert not config.routing_options.announces
    assert config.handover_options.protocol == "phoenix"
    assert BrokerConfig.from_mapping({"name": "B1"}).routing_options.announces


def test_ad_hoc_is_an_overlay_and_no_protocol_to_list() -> None:
    with pytest.raises(ConfigError, match='"ad-hoc" instead'):
        BrokerConfig.from_mapping({"name": "B1", "network": {"protocols": ["ad-hoc"]}})


def test_one_broker_serves_a_client(tmp_path: Path) -> None:
    async def doing() -> None:
        async with devices_in(tmp_path, "AB") as brokers:
            with pytest.raises(SternaError, match="connect it without `watch`"):
                await connect(brokers.url("A"), brokers.url("B"), watch=2)

    run(doing())
