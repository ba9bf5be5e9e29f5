"""Health, readiness, metrics and status over HTTP, for operators of a broker."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from sterna.net.address import Address
from sterna.net.metrics import CONTENT_TYPE

HEADER_BYTES_MAX = 8 * 1024
HEADER_S = 2.0
"""How long the header of a request may take, slow peers included."""
ANSWER_S = 5.0
"""How long a peer may take to read the answer."""
CONNECTIONS_MAX = 64

log = logging.getLogger("sterna.http")


class HttpResponse(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class Pages(msgspec.Struct, frozen=True, kw_only=True):
    """The pages that are served. Each is made anew for every request, in the loop's thread."""

    not_ready: Callable[[], str | None]
    """Why the broker does not accept clients now; None when it does."""
    metrics: Callable[[], bytes]
    documents: Mapping[str, Callable[[], object]] = {}
    """By path, such as `/status`, a function whose result becomes a JSON document."""

    def answer(self, path: str) -> HttpResponse:
        """The page at a path."""
        match path:
            case "/health":  # That this is answered at all is the sign of health.
                return HttpResponse(HTTPStatus.OK, b"ok\n")
            case "/ready":
                reason = self.not_ready()
                if reason is None:
                    return HttpResponse(HTTPStatus.OK, b"ready\n")
                return _plain(HTTPStatus.SERVICE_UNAVAILABLE, reason)
            case "/metrics":
                return HttpResponse(HTTPStatus.OK, self.metrics(), CONTENT_TYPE)
            case _ if path in self.documents:
                body = msgspec.json.encode(self.documents[path](), enc_hook=str)
                return HttpResponse(HTTPStatus.OK, body + b"\n", "application/json")
            case _:
                paths = ["/health", "/ready", "/metrics", *self.documents]
                return _plain(HTTPStatus.NOT_FOUND, f"there are {', '.join(paths)}")


class HttpServer:
    """Answers GET requests, one a connection: a handful of pages needs no framework.

    A request is answered as soon as it is here. So a connection that stays is one whose peer asks
    for nothing, or does not take its answer, and if there are too many, the oldest gives way.
    """

    def __init__(
        self,
        pages: Pages,
        *,
        header_s: float = HEADER_S,
        answer_s: float = ANSWER_S,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._pages = pages
        self._header_s = header_s
        self._answer_s = answer_s
        self._connections_max = connections_max
        self._connections: dict[asyncio.Timeout, None] = {}
        """How long each connection may still take, the oldest first."""
        self._server: asyncio.Server | None = None

    async def start(self, address: Address) -> Address:
        """Listen; return the address, with the port that was chosen if any free one would do."""
        self._server = await asyncio.start_server(
            self._serve, address.host, address.port, limit=HEADER_BYTES_MAX
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        return Address(host, port)

    async def close(self) -> None:
        """Stop listening; requests under way are answered within the time limit of a request."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(self._header_s)
        try:
            async with limit:
                self._make_room()
                self._connections[limit] = None
                answer = await self._answer(reader)
                limit.reschedule(loop.time() + self._answer_s)
                writer.write(_encoded(answer))
                writer.write_eof()
                await writer.drain()
                # A peer that is still sending would lose the answer if its bytes were not read.
                for _ in range(16):
                    if not await reader.read(HEADER_BYTES_MAX):
                        break
        except (TimeoutError, OSError):
            pass  # The peer is too slow, or gone, or has given way.
        finally:
            self._connections.pop(limit, None)
            writer.transport.abort()

    def _make_room(self) -> None:
        """End the oldest connection if there are too many."""
        if len(self._connections) >= self._connections_max:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            if not oldest.expired():
                oldest.reschedule(0)

    async def _answer(self, reader: asyncio.StreamReader) -> HttpResponse:
        try:
            header = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _plain(HTTPStatus.BAD_REQUEST, f"the header is over {HEADER_BYTES_MAX} bytes")
        except asyncio.IncompleteReadError:
            return _plain(HTTPStatus.BAD_REQUEST, "the request ends too early")
        match header.split(b"\r\n", 1)[0].split(b" "):
            case [b"GET", target, b"HTTP/1.0" | b"HTTP/1.1"] if target.startswith(b"/"):
                path = target.partition(b"?")[0].decode("latin-1")
            case [method, _, b"HTTP/1.0" | b"HTTP/1.1"] if method.isalpha() and method != b"GET":
                return _plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered")
            case _:
                return _plain(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request")
        try:
            return self._pages.answer(path)
        except Exception:
            log.exception("no answer for %s", path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR, "see the broker's log")


def _plain(status: HTTPStatus, text: str) -> HttpResponse:
    return HttpResponse(status, f"{text}\n".encode())


def _encoded(answer: HttpResponse) -> bytes:
    allow = "Allow: GET\r\n" if answer.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        f"{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + answer.body
