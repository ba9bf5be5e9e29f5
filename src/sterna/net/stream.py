"""A connection as bytes: one write for all that goes over it in one turn of the event loop."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

CLOSE_S = 5.0
"""How many seconds the last frames may take to be sent."""

WRITE_BYTES_MAX = 2**31 - 1
"""Event loops accept no larger limit for what waits to be written."""

JOINED_BYTES_MAX = 16 * 1024
"""Joining up to so many bytes costs less than to have the system gather them."""


class Stream(asyncio.Protocol, ABC):
    """One socket. What is to be sent accumulates until `flush`."""

    def __init__(self, *, write_bytes_max: int = 2**20) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0
        self._taken_bytes = 0
        self._oldest_unconfirmed: int | None = None
        self._sent_before_bytes = 0
        """How many bytes had been sent before the oldest message that is not confirmed."""
        self._looked_at_bytes = 0
        """How many bytes had been sent when `unconfirmed_bytes` was called last."""
        self.is_over = False
        self.error: Exception | None = None
        """What broke the connection, if neither side closed it."""
        self._write_bytes_max = write_bytes_max
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0

    # ---- Called by its owner

    @property
    def host(self) -> str:
        """The host of the other side; empty if the transport does not know it."""
        return str(self._peer_name()[0])

    @property
    def address(self) -> str:
        """The address of the other side, for messages."""
        host, port = self._peer_name()
        return f"{host}:{port}" if host else "an unknown address"

    def _peer_name(self) -> tuple[str, int]:
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return (name[0], name[1]) if isinstance(name, tuple) else ("", 0)

    @property
    def waiting_bytes(self) -> int:
        """How many bytes the other side has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def is_stuck(self) -> bool:
        """Whether something waits, and the other side took nothing since the last call."""
        waiting_bytes = self.waiting_bytes
        taken_bytes = self.sent_bytes - waiting_bytes
        before, self._taken_bytes = self._taken_bytes, taken_bytes
        return waiting_bytes > 0 and taken_bytes == before

    def unconfirmed_bytes(self, oldest: int | None) -> int:
        """About how many bytes were sent since a message that the other side has not confirmed.

        0 if that is another message than at the last call: then the other side makes progress.
        """
        before, self._looked_at_bytes = self._looked_at_bytes, self.sent_bytes
        if oldest is not None and oldest == self._oldest_unconfirmed:
            return self.sent_bytes - self._sent_before_bytes
        self._oldest_unconfirmed, self._sent_before_bytes = oldest, before
        return 0

    def write(self, data: bytes) -> None:
        """Send bytes at once, behind what has accumulated."""
        if self._transport is not None:
            self.flush()
            self.sent_bytes += len(data)
            self._transport.write(data)

    def put(self, parts: Sequence[bytes]) -> int:
        """Have bytes sent with the next `flush`; return how many."""
        size = sum(map(len, parts))
        self._outgoing += parts
        self._outgoing_bytes += size
        return size

    def flush(self) -> None:
        """Send what has accumulated, in one write."""
        outgoing, size = self._outgoing, self._outgoing_bytes
        if not outgoing:
            return
        self._outgoing, self._outgoing_bytes = [], 0
        if self._transport is not None:
            self.sent_bytes += size
            if size < JOINED_BYTES_MAX:
                self._transport.write(b"".join(outgoing))
            else:
                self._transport.writelines(outgoing)

    def limit_writing(self, bytes_max: int) -> None:
        """Call `congested` when more than this waits to be written."""
        self._write_bytes_max = min(bytes_max, WRITE_BYTES_MAX)
        if self._transport is not None and not self.is_over:
            self._transport.set_write_buffer_limits(self._write_bytes_max)

    def pause_reading(self) -> None:
        """Stop reading; the other side has to wait."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if self._transport is not None and not self._transport.is_reading() and not self.is_over:
            self._transport.resume_reading()

    def close(self) -> None:
        """End the connection once everything is sent, but do not wait for ever."""
        self.is_over = True
        if self._transport is not None:
            self.flush()
            self._transport.close()
            if self.waiting_bytes:
                asyncio.get_running_loop().call_later(CLOSE_S, self.abort)

    def abort(self) -> None:
        """End the connection now."""
        self.is_over = True
        if self._transport is not None:
            self._transport.abort()

    # ---- Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.limit_writing(self._write_bytes_max)
        self.begun()

    def pause_writing(self) -> None:
        self.congested(is_full=True)

    def resume_writing(self) -> None:
        self.congested(is_full=False)

    def connection_lost(self, error: Exception | None) -> None:
        self.error = error
        self.is_over = True
        self._transport = None
        self.ended()

    # ---- For those that know what the bytes mean

    @abstractmethod
    def begun(self) -> None:
        """The connection is up."""

    @abstractmethod
    def congested(self, *, is_full: bool) -> None:
        """The other side reads more slowly than we write, or it has caught up."""

    @abstractmethod
    def ended(self) -> None:
        """The connection is over."""
