"""The HTTP pages for those who run a broker, and what bad requests get."""

import asyncio
import json
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import uvloop

from sterna.net.address import Address
from sterna.net.http import HEADER_BYTES_MAX, HttpServer, Pages
from tests.net.live import network_in

pytestmark = pytest.mark.spec("LV-6")

ANY_PORT = Address("127.0.0.1", 0)


class Broker:
    """What the pages show; stands in for a broker that would need a network around it."""

    reason: str | None = None

    def pages(self) -> Pages:
        return Pages(
            not_ready=lambda: self.reason,
            metrics=lambda: b"sterna_ready 1.0\n",
            documents={"/status": lambda: {"name": "b1", "events": 3}, "/broken": self._broken},
        )

    def _broken(self) -> object:
        raise RuntimeError("no queues today")


def serve(test: Callable[[Address, Broker], Awaitable[None]], **options: float) -> None:
    """Run a test against a server on loopback, with Python's own loop and with uvloop's."""

    async def run() -> None:
        broker = Broker()
        server = HttpServer(broker.pages(), **options)  # type: ignore[arg-type]
        address = await server.start(ANY_PORT)
        try:
            async with asyncio.timeout(20):  # What is broken fails instead of hanging.
                await test(address, broker)
        finally:
            await server.close()

    for new_loop in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(run())


async def ask(address: Address, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes, read until the server closes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(first.split(" ")[1]), headers, body


async def get(address: Address, path: str) -> tuple[int, dict[str, str], bytes]:
    return await ask(address, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def test_the_pages() -> None:
    async def look(address: Address, _broker: Broker) -> None:
        status, _, body = await get(address, "/health")
        assert (status, body) == (200, b"ok\n")
        status, headers, body = await get(address, "/metrics?x=1")
        assert (status, body) == (200, b"sterna_ready 1.0\n")
        assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert headers["Content-Length"] == str(len(body))
        status, headers, body = await get(address, "/status")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert json.loads(body) == {"name": "b1", "events": 3}

    serve(look)


def test_readiness_says_why_not() -> None:
    """503 with the reason until the broker takes clients."""

    async def look(address: Address, broker: Broker) -> None:
        broker.reason = "draining"
        status, _, body = await get(address, "/ready")
        assert (status, body) == (503, b"draining\n")
        broker.reason = None
        assert (await get(address, "/ready"))[0] == 200

    serve(look)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nowhere HTTP/1.1\r\n\r\n", 404),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST /health HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"HEAD /health HTTP/1.1\r\n\r\n", 405),
        (b"GET /health HTTP/2.0\r\n\r\n", 400),
        (b"GET /health\r\n\r\n", 400),
        (b"GET http://x/health HTTP/1.1\r\n\r\n", 400),
        (b"\x00\xff\x93NUMPY\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * (2 * HEADER_BYTES_MAX), 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * (2 * HEADER_BYTES_MAX) + b"\r\n\r\n", 400),
    ],
)
def test_other_requests_are_turned_away(request_: bytes, status: int) -> None:
    """An answer that says no, and the connection is closed."""

    async def look(address: Address, _broker: Broker) -> None:
        assert (await ask(address, request_))[0] == status
        assert (await get(address, "/health"))[0] == 200

    serve(look)


def test_a_page_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """500 without details for the asker; the details are in the log."""

    async def look(address: Address, _broker: Broker) -> None:
        status, _, body = await get(address, "/broken")
        assert status == 500
        assert b"queues" not in body

    with caplog.at_level(logging.ERROR):
        serve(look)
    assert "no queues today" in caplog.text


def test_a_slow_request_is_cut_off() -> None:
    """Whoever does not finish its header in time is disconnected without an answer."""

    async def look(address: Address, _broker: Broker) -> None:
        assert await _closed_without_answer(address, b"GET /health HT")

    serve(look, header_s=0.05)


async def _closed_without_answer(address: Address, request: bytes) -> bool:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True
    finally:
        writer.close()


def test_the_oldest_connection_gives_way() -> None:
    """Whoever keeps a place without asking loses it to who comes; the others keep theirs."""

    async def look(address: Address, _broker: Broker) -> None:
        held = [await asyncio.open_connection(*address) for _ in range(3)]
        # Those that were accepted before are served before.
        assert (await get(address, "/health"))[0] == 200
        for reader, writer in held[2:]:
            writer.write(b"GET /health HTTP/1.1\r\n\r\n")
            assert b" 200 OK\r\n" in await reader.read()
            writer.close()
        for reader, writer in held[:2]:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()

    serve(look, connections_max=2, header_s=20.0)


@pytest.mark.parametrize(
    "said", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n"], ids=["idle", "slow", "deaf"]
)
def test_health_is_answered_whoever_else_is_connected(tmp_path: Path, said: bytes) -> None:
    """A broker process with 200 connections that say nothing, or do not take their answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = Address(*free.getsockname())
    network = network_in(tmp_path, 1, http={"listen": str(address)})

    async def run() -> None:
        async with asyncio.timeout(20), AsyncExitStack() as stack:
            for _ in range(200):
                _, writer = await asyncio.open_connection(*address)
                stack.callback(writer.transport.abort)
                writer.write(said)
            for _ in range(20):
                began = time.perf_counter()
                assert (await get(address, "/health"))[0] == 200
                assert time.perf_counter() - began < 1

    with network:
        asyncio.run(run())


def test_closing_frees_the_port() -> None:
    async def run() -> None:
        first = HttpServer(Broker().pages())
        address = await first.start(ANY_PORT)
        assert (await get(address, "/health"))[0] == 200
        await first.close()
        with pytest.raises(ConnectionError):
            await get(address, "/health")

    asyncio.run(run())
