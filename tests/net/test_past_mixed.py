"""Brokers that search for the past beside one of an earlier release, which then is upgraded."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sterna.core.history.messages import SEARCH
from sterna.net.broker import BrokerServer
from sterna.net.broker.configuration import Configuration
from sterna.wire.frames import Hello
from tests.net.live import SETTLE_S, Client, connect, until
from tests.net.test_server import config_in, run

pytestmark = pytest.mark.spec("LV-9", "PA-2")


class Earlier(Configuration):
    """The configuration of a broker that knows nothing of searches."""

    def hello(self, address: str) -> Hello:
        hello = super().hello(address)
        return replace(hello, features=tuple(f for f in hello.features if f != SEARCH))

    @classmethod
    def of(cls, server: BrokerServer) -> None:
        """Have a broker that has not started be one of these."""
        settings = server.configuration.settings
        protocols = tuple(name for name in settings.protocols if name != SEARCH)
        server.configuration.settings = replace(settings, protocols=protocols)
        server.configuration.__class__ = cls


async def past_of(client: Client, name: str, count: int) -> list[tuple[str, Any]]:
    """The first events of a subscription into the past."""
    subscription = client.subscribe("n >= 0", name=name, past=100)
    got = [await subscription.get(timeout=SETTLE_S) for _ in range(count)]
    assert subscription.take() == []
    return sorted((event.publisher, event.attributes["n"]) for event in got)


def test_an_earlier_release_is_not_asked_until_it_is_upgraded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B1 is of an earlier release; its own clients get what it remembers. Then it comes back, with
    all that it has remembered, and others find that.
    """
    servers: dict[str, BrokerServer] = {}

    async def start(name: str, listen: str = "127.0.0.1:0", to: str = "") -> BrokerServer:
        neighbours = [servers[to].address.url] if to else []
        config = config_in(
            tmp_path / name, name=name, listen=listen, network={"neighbours": neighbours}
        )
        servers[name] = BrokerServer(config)
        if name == "B1" and listen.endswith(":0"):
            Earlier.of(servers[name])
        await servers[name].start()
        return servers[name]

    async def change() -> None:
        old = await start("B1")
        await start("B2", to="B1")
        await start("B3", to="B2")
        assert old.node.part(SEARCH) is None
        async with AsyncExitStack() as stack:
            clients = {}
            for name, at in (("early", "B1"), ("late", "B3"), ("ann", "B2"), ("bob", "B1")):
                client = connect(servers[at].address.url, client=name, timeout=SETTLE_S)
                clients[name] = await stack.enter_async_context(client)
            for name in ("early", "late"):
                await clients[name].publish_all({"n": n} for n in range(3))
            early, late = ([(name, n) for n in range(3)] for name in ("early", "late"))
            assert await past_of(clients["ann"], "1", 3) == late
            assert await past_of(clients["bob"], "1", 3) == early

            await old.stop()
            new = await start("B1", str(old.address))
            peers = servers["B2"].node.part(SEARCH)._mute  # type: ignore[union-attr]
            await until(lambda: new.node.part(SEARCH) is not None and "B1" not in peers)
            await until(lambda: {"early", "bob", "B2"} <= set(new.node.up))
            assert await past_of(clients["ann"], "2", 6) == [*early, *late]
            assert await past_of(clients["bob"], "2", 6) == [*early, *late]
        for server in servers.values():
            await server.stop()

    run(change())
    assert "protocol that is not known here" not in caplog.text
