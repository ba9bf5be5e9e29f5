"""A connection: frames in, frames out, one write for all the frames of one turn."""

import asyncio
from collections.abc import Sequence
from typing import Protocol, cast

from sterna.wire.codec import LENGTH_BYTES, MalformedError
from sterna.wire.frames import Control, Splitter, control, decode_control, is_control

CLOSE_S = 5.0
"""How many seconds the last frames may take to be sent."""

WRITE_BYTES_MAX = 2**31 - 1
"""Event loops accept no larger limit for what waits to be written."""

JOINED_BYTES_MAX = 16 * 1024
"""Joining up to so many bytes costs less than to have the system gather them."""


class Owner(Protocol):
    """The owner of a connection."""

    def connected(self, connection: "Connection") -> None:
        """The connection is up."""

    def control_arrived(self, connection: "Connection", said: Control) -> None:
        """The other side has sent a control frame."""

    def frames_arrived(
        self, connection: "Connection", raw: bytes, bodies: Sequence[memoryview]
    ) -> None:
        """Link frames have arrived; they are given as received and one by one."""

    def unfinished(self, connection: "Connection", size_bytes: int) -> None:
        """So many bytes have arrived, and the frame that they belong to is not complete."""

    def malformed(self, connection: "Connection", problem: MalformedError) -> None:
        """The other side does not speak the protocol; the connection has to end."""

    def lost(self, connection: "Connection") -> None:
        """The connection is over."""

    def congested(self, connection: "Connection", *, is_full: bool) -> None:
        """The other side reads more slowly than we write, or it has caught up."""


class Connection(asyncio.Protocol):
    """One socket. What is to be sent accumulates until `flush`."""

    def __init__(self, owner: Owner, frame_bytes_max: int, *, write_bytes_max: int = 2**20) -> None:
        self.owner = owner
        self.splitter = Splitter(frame_bytes_max)
        self.peer = ""
        """The name of the other side, once the handshake is finished."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self._taken_bytes = 0
        self._oldest_unconfirmed: int | None = None
        self._sent_before_bytes = 0
        """How many bytes had been sent before the oldest message that is not confirmed."""
        self._looked_at_bytes = 0
        """How many bytes had been sent when `unconfirmed_bytes` was called last."""
        self.heard = True
        """Whether anything was received since this was set to False."""
        self.is_over = False
        self.error: Exception | None = None
        """What broke the connection, if neither side closed it."""
        self.changed = asyncio.Event()
        """Set when the handshake is finished, and when the connection is over."""
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

    @property
    def unfinished_bytes(self) -> int:
        """How many bytes of a frame have arrived that is not complete."""
        return self.splitter.rest

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

    def say(self, said: Control) -> None:
        """Send a control frame at once."""
        self.say_encoded(control(said))

    def say_encoded(self, data: bytes) -> None:
        """Send a control frame at once that is encoded already, such as one that goes to many."""
        if self._transport is not None:
            self.flush()
            self.sent_bytes += len(data)
            self._transport.write(data)

    def put(self, parts: Sequence[bytes]) -> int:
        """Have a link frame sent with the next `flush`; return its size in bytes."""
        size = sum(map(len, parts))
        self._outgoing.append(size.to_bytes(LENGTH_BYTES, "big"))
        self._outgoing += parts
        self._outgoing_bytes += LENGTH_BYTES + size
        return LENGTH_BYTES + size

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
        """Call the owner's `congested` when more than this waits to be written."""
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
        self.splitter.clear()
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
        self.owner.connected(self)

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        self.heard = True
        self.received_bytes += len(data)
        try:
            raw, bodies = self.splitter.feed(data)
            if bodies:
                self._hand_on(raw, bodies)
            else:
                self.owner.unfinished(self, len(data))
        except MalformedError as problem:
            self.owner.malformed(self, problem)

    def _hand_on(self, raw: bytes, bodies: Sequence[memoryview]) -> None:
        if not any(is_control(body) for body in bodies):
            self.owner.frames_arrived(self, raw, bodies)
            return
        for body in bodies:
            if self.is_over:
                return
            if is_control(body):
                self.owner.control_arrived(self, decode_control(body))
            else:
                framed = len(body).to_bytes(LENGTH_BYTES, "big") + bytes(body)
                self.owner.frames_arrived(self, framed, [body])

    def pause_writing(self) -> None:
        self.owner.congested(self, is_full=True)

    def resume_writing(self) -> None:
        self.owner.congested(self, is_full=False)

    def connection_lost(self, error: Exception | None) -> None:
        self.error = error
        self.is_over = True
        self._transport = None
        self.changed.set()
        self.owner.lost(self)
