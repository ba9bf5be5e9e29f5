"""WebSockets as a transport: what is inside sees the same bytes as over TCP.

`websockets` reads and writes the frames, and does the handshake; there is no I/O in it.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

from sterna.extras import require
from sterna.net.address import Address
from sterna.net.broker.transport import WAITING_MAX, Listening, TcpListening

FRAMING_BYTES = 64
"""What a frame may have besides its content."""


class WebSockets:
    """Accepts WebSockets that speak one of some subprotocols, in binary messages."""

    def __init__(self, subprotocols: Iterable[str], message_bytes_max: int) -> None:
        self._subprotocols = list(subprotocols)
        self._message_bytes_max = message_bytes_max

    async def listen(self, address: Address, make: Callable[[], asyncio.Protocol]) -> Listening:
        """Listen at a host and a port."""
        require("broker", "MQTT over WebSockets", "websockets")
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _WebSocket(make(), self._subprotocols, self._message_bytes_max),
            *(address.host, address.port),
            backlog=WAITING_MAX,
        )
        return TcpListening(address.host, server)


class _WebSocket(asyncio.Protocol):
    """Between the socket and what is inside."""

    def __init__(
        self, inside: asyncio.Protocol, subprotocols: list[str], message_bytes_max: int
    ) -> None:
        from websockets.server import ServerProtocol  # noqa: PLC0415 - it needs an extra.

        self._inside = inside
        self._protocol = ServerProtocol(
            subprotocols=cast("Any", subprotocols), max_size=message_bytes_max + FRAMING_BYTES
        )
        self._socket: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._inside.connection_made(_Transport(self, self._socket))

    def data_received(self, data: bytes) -> None:
        from websockets.frames import Frame, Opcode  # noqa: PLC0415
        from websockets.http11 import Request  # noqa: PLC0415

        protocol = self._protocol
        protocol.receive_data(data)
        content: list[bytes] = []
        for event in protocol.events_received():
            if isinstance(event, Request):
                protocol.send_response(protocol.accept(event))
            elif isinstance(event, Frame):
                if event.opcode in {Opcode.BINARY, Opcode.CONT}:
                    content.append(bytes(event.data))
                elif event.opcode is Opcode.TEXT:
                    protocol.fail(1003, "binary messages only")
        self._send()
        if content:
            self._inside.data_received(b"".join(content))

    def write(self, data: bytes) -> None:
        """Send bytes as a message."""
        from websockets.protocol import OPEN  # noqa: PLC0415

        if self._protocol.state is OPEN:
            self._protocol.send_binary(data)
            self._send()

    def close(self) -> None:
        """End the WebSocket, and then the connection."""
        from websockets.protocol import OPEN  # noqa: PLC0415

        if self._protocol.state is OPEN:
            self._protocol.send_close(1000)
            self._send()
        self._socket.close()

    def _send(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._socket.write(data)
            else:
                self._socket.close()  # All is said.

    def pause_writing(self) -> None:
        self._inside.pause_writing()

    def resume_writing(self) -> None:
        self._inside.resume_writing()

    def eof_received(self) -> None:
        self._protocol.receive_eof()

    def connection_lost(self, error: Exception | None) -> None:
        self._inside.connection_lost(error)


class _Transport(asyncio.Transport):
    """The socket as what is inside sees it."""

    def __init__(self, web_socket: _WebSocket, socket: asyncio.Transport) -> None:
        super().__init__()
        self._web_socket = web_socket
        self._socket = socket

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._web_socket.write(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._web_socket.write(b"".join(list_of_data))

    def is_reading(self) -> bool:
        return self._socket.is_reading()

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def close(self) -> None:
        self._web_socket.close()

    def abort(self) -> None:
        self._socket.abort()
