"""`sterna clients`, `subscriptions` and `kick`: who is at a broker, what they want, and out."""

import asyncio
import json
from pathlib import Path
from unittest.mock import PropertyMock, patch

import pytest

import sterna as library
from sterna.net import status as reports
from sterna.net.broker import BrokerServer
from sterna.net.broker.native import NativeSession
from sterna.net.local import LocalNetwork, wait_for
from sterna.net.observer import Observer, ask, clients_of
from tests.cli.conftest import WAIT_S, sterna, sterna_json, subscribed
from tests.net.test_server import config_in, run

pytestmark = pytest.mark.spec("LV-7", "LV-6")


def test_who_is_there_and_what_they_want(network: LocalNetwork) -> None:
    url = network.url("B1")
    with (
        library.blocking.connect(url, client="listed") as listed,
        library.blocking.connect(url, client="gone") as gone,
    ):
        listed.move("1st")
        listed.subscribe("listed = 1", name="one")
        listed.subscribe("place IN myloc")
        gone.subscribe("gone = 1")
        subscribed(network, "listed", "gone")
        gone.detach()
        wait_for(lambda: not known(url)["gone"]["is_here"], "it is here", limit_s=WAIT_S)

        _, document = sterna_json("clients", url)
        clients = {client["name"]: client for client in document["clients"]}
        assert (document["at"], clients["listed"]["is_here"]) == ("B1", True)
        assert clients["listed"]["address"].startswith("127.0.0.1:")
        assert "listed" in sterna("clients", url)[1]

        _, document = sterna_json("subscriptions", url, "--client", "listed")
        assert {each["name"]: each["filter"] for each in document["subscriptions"]} == {
            "one": "listed = 1",
            "place IN myloc": "place IN myloc",
        }
        assert "gone  gone = 1\n" in sterna("subscriptions", url)[1]
        assert "subscribes to nothing" in sterna("subscriptions", url, "--client", "x")[2]


def known(url: str) -> dict[str, dict[str, object]]:
    return {client["name"]: client for client in clients_of(url)[1]}


def test_a_client_that_is_kicked_is_told_and_forgotten(network: LocalNetwork) -> None:
    url = network.url("B1")
    with library.blocking.connect(url, client="kicked") as kicked:
        wanted = kicked.subscribe("kicked = 1")
        subscribed(network, "kicked")
        assert sterna("kick", url, "kicked") == (0, "kicked was here, and is forgotten\n", "")
        with pytest.raises(library.ClosedError, match="sterna kick"):
            wanted.get(WAIT_S)
    assert "kicked" not in known(url)

    status, _, err = sterna("kick", url, "kicked")
    assert (status, "has no client 'kicked'" in err) == (1, True)
    assert sterna_json("kick", url, "B2")[0] == 1, "a broker is no client"
    with library.blocking.connect(url, client="kicked") as kicked:
        kicked.publish(n=1).wait(WAIT_S)


def test_many_clients_are_reported_in_parts(network: LocalNetwork) -> None:
    """An answer has some of them, and says where the next one begins."""
    url = network.url("B2")
    with library.blocking.connect(url, client="many") as many:
        for number in range(reports.PAGE):
            many.subscribe(f"many = {number}")
        wait_for(
            lambda: len(known(url)["many"]["subscriptions"]) == reports.PAGE,  # type: ignore[arg-type]
            "it has not subscribed",
            limit_s=WAIT_S,
        )
        with library.blocking.connect(url, client="next one"):
            with Observer(url) as observer:
                answer = observer.ask("clients")
            assert "next one" not in [client["name"] for client in answer["clients"]]
            assert answer["following"] is not None
            assert {"many", "next one"} <= set(known(url))


@pytest.mark.parametrize("command", [["clients"], ["subscriptions"], ["kick"]])
def test_who_does_not_answer_is_told(command: list[str]) -> None:
    more = ["x"] if command == ["kick"] else []
    status, out, err = sterna(*command, "sterna://127.0.0.1:1", *more)

    assert (status, out) == (2, "")
    assert err.startswith("error: no broker answers")
    assert "error" in json.loads(sterna(*command, "sterna://127.0.0.1:1", *more, "--json")[1])


def test_only_the_machine_itself_may_kick(tmp_path: Path) -> None:
    async def kick() -> None:
        server = BrokerServer(config_in(tmp_path))
        await server.start()
        url = server.address.url
        async with library.connect(url, client="stays") as client:
            with (
                patch.object(NativeSession, "is_local", PropertyMock(return_value=False)),
                pytest.raises(library.SternaError, match="on the broker's own machine"),
            ):
                await asyncio.to_thread(ask, url, "kick", client="stays")
            await client.publish(n=1).wait(WAIT_S)
        await server.stop()

    run(kick())
