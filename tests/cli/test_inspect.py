"""`sterna status`, `topology` and `queues`: what a broker says of itself."""

import socket
import threading

import pytest

import sterna as library
from sterna.errors import SternaError
from sterna.net.local import LocalNetwork
from sterna.net.observer import ask
from tests.cli.conftest import sterna, sterna_json, subscribed

pytestmark = pytest.mark.spec("LV-7", "LV-6")


def test_status(network: LocalNetwork) -> None:
    status, document = sterna_json("status", network.url("B1"))

    assert status == 0
    assert (document["name"], document["is_ready"]) == ("B1", True)
    assert document["neighbours"] == {"B2": True}
    _, out, _ = sterna("status", network.url("B1"))
    assert f"B1 {network.url('B1')} ready" in out
    assert "covering routing" in out


def test_topology(network: LocalNetwork) -> None:
    status, document = sterna_json("topology", network.url("B2"))

    assert status == 0
    assert (document["at"], document["links"]) == ("B2", [["B1", "B2"]])
    assert sterna("topology", network.url("B2"))[1] == "B2  asked\n└── B1\n2 brokers\n"


def test_queues(network: LocalNetwork) -> None:
    """A client that is away has a queue with what was published meanwhile."""
    with library.blocking.connect(network.url("B1"), client="away") as away:
        away.subscribe("topic = 'queues'")
        subscribed(network, "away")
        away.detach()
        assert sterna("pub", network.url("B1"), "topic=queues")[0] == 0
        network.wait_until_settled()
        status, document = sterna_json("queues", network.url("B1"))
        queues = {queue["name"]: queue for queue in document["queues"]}
        _, out, _ = sterna("queues", network.url("B1"))
        away.attach()

    assert status == 0
    assert (queues["away"]["is_here"], queues["away"]["subscriptions"]) == (False, 1)
    assert queues["away"]["kept_events"] + queues["away"]["unconfirmed_messages"] == 1
    assert queues["B2"]["role"] == "broker"
    assert "away" in out


@pytest.mark.parametrize("command", ["status", "topology", "queues"])
def test_who_does_not_answer_is_told(command: str) -> None:
    for url in ("sterna://127.0.0.1:1", "http://127.0.0.1"):
        status, out, err = sterna(command, url)
        assert (status, out) == (2, "")
        assert err.startswith("error: ")
        assert "error" in sterna_json(command, url)[1]


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\2\x92\x0e"])
def test_what_is_no_broker_is_told(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(SternaError, match=r"127\.0\.0\.1"):
            ask(f"sterna://127.0.0.1:{server.getsockname()[1]}", "status")
        thread.join()


def test_a_question_that_a_broker_does_not_know_is_refused(network: LocalNetwork) -> None:
    with pytest.raises(SternaError, match="ask for one of status"):
        ask(network.url("B1"), "weather")
