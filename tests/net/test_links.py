"""Links between brokers: two brokers of one name, and links that make no progress."""

import asyncio
import os
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest

from sterna.net.broker import BrokerServer, progress
from sterna.net.local import LocalNetwork
from tests.net.live import connect, gather_events, network_in, settle, until
from tests.net.test_server import config_in, number


def twin_of(network: LocalNetwork, name: str, directory: Path) -> BrokerServer:
    """A second broker of a name, with a directory of its own and the same neighbours."""
    neighbours = {"neighbours": [network.url(network.links[name])]}
    return BrokerServer(config_in(directory, name=name, network=neighbours))


@pytest.mark.spec("LV-1")
def test_a_second_broker_of_a_name_is_refused(tmp_path: Path) -> None:
    """Events between the innocent keep flowing meanwhile, and the link to the first one stands."""

    async def run(network: LocalNetwork) -> None:
        async with (
            connect(network.url("B1"), client="ann", timeout=30) as ann,
            connect(network.url("B2"), client="pat", timeout=30) as pat,
        ):
            subscription = ann.subscribe("n >= 0")
            await settle(network, [ann, pat])
            twin = twin_of(network, "B2", tmp_path / "twin")
            await twin.start()
            told = network.messages("B1")
            await until(lambda: told.read_text(encoding="utf-8").count("called B2 is") >= 3)
            await pat.publish_all({"n": number} for number in range(100))
            await pat.drain()
            got = await gather_events(subscription, 100)
            assert [event.attributes["n"] for event in got] == list(range(100))
            assert not twin.node.up
            await twin.stop(drain_s=0)
            assert network.ask("B1", "status")["neighbours"] == {"B2": True}

    with network_in(tmp_path / "network", 2) as network:
        asyncio.run(run(network))


@pytest.mark.spec("LV-1")
def test_a_broker_gets_in_when_the_first_of_its_name_gives_no_sign_of_life(tmp_path: Path) -> None:
    """As after a machine was cut off: nobody has closed its connection."""

    async def run(network: LocalNetwork) -> None:
        os.kill(network.pid("B2"), signal.SIGSTOP)
        try:
            second = twin_of(network, "B2", tmp_path / "second")
            await second.start()
            await until(lambda: "B1" in second.node.up)
            await second.stop(drain_s=0)
        finally:
            os.kill(network.pid("B2"), signal.SIGCONT)

    with network_in(tmp_path / "network", 2) as network:
        asyncio.run(run(network))


@pytest.mark.spec("LV-6")
def test_a_link_that_makes_no_progress_is_not_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "STALLED_S", 0.5)

    def ready(server: BrokerServer) -> str:
        address = server.http_address
        assert address is not None
        with urlopen(f"http://127.0.0.1:{address.port}/ready") as answer:
            return str(answer.read().decode())

    async def run(network: LocalNetwork) -> None:
        tables = {"network": {"neighbours": [network.url("B1")]}, "http": {"listen": "127.0.0.1:0"}}
        server = BrokerServer(config_in(tmp_path / "own", name="own", **tables))
        await server.start()
        await until(lambda: "B1" in server.node.up)
        async with connect(server.address.url, client="pat") as pat:
            os.kill(network.pid("B1"), signal.SIGSTOP)
            try:
                pat.subscribe("n >= 0")  # The neighbour has to know of it.
                await until(lambda: "B1" in server.progress.stalled())
                assert number(server, "sterna_links_stalled") == 1
                with pytest.raises(OSError, match="503"):
                    await asyncio.to_thread(ready, server)
            finally:
                os.kill(network.pid("B1"), signal.SIGCONT)
            await until(lambda: not server.progress.stalled())
            await asyncio.to_thread(ready, server)
            assert number(server, "sterna_links_stalled") == 0
        await server.stop(drain_s=0)

    with network_in(tmp_path / "network", 1) as network:
        asyncio.run(run(network))
