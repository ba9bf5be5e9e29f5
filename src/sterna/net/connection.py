"""A connection: frames in, frames out, one write for all the frames of one turn."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from sterna.net.stream import Stream
from sterna.wire.codec import LENGTH_BYTES, MalformedError
from sterna.wire.frames import Control, Splitter, control, decode_control, is_control


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


class Connection(Stream):
    """A stream of frames."""

    def __init__(self, owner: Owner, frame_bytes_max: int, *, write_bytes_max: int = 2**20) -> None:
        super().__init__(write_bytes_max=write_bytes_max)
        self.owner = owner
        self.splitter = Splitter(frame_bytes_max)
        self.peer = ""
        """The name of the other side, once the handshake is finished."""
        self.heard = True
        """Whether anything was received since this was set to False."""
        self.changed = asyncio.Event()
        """Set when the handshake is finished, and when the connection is over."""

    # ---- Called by its owner

    @property
    def unfinished_bytes(self) -> int:
        """How many bytes of a frame have arrived that is not complete."""
        return self.splitter.rest

    def say(self, said: Control) -> None:
        """Send a control frame at once."""
        self.write(control(said))

    def say_encoded(self, data: bytes) -> None:
        """Send a control frame at once that is encoded already, such as one that goes to many."""
        self.write(data)

    def put(self, parts: Sequence[bytes]) -> int:
        """Have a link frame sent with the next `flush`; return its size in bytes."""
        size = sum(map(len, parts))
        self._outgoing.append(size.to_bytes(LENGTH_BYTES, "big"))
        self._outgoing += parts
        self._outgoing_bytes += LENGTH_BYTES + size
        return LENGTH_BYTES + size

    def close(self) -> None:
        self.splitter.clear()
        super().close()

    # ---- Called by the event loop

    def begun(self) -> None:
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

    def congested(self, *, is_full: bool) -> None:
        self.owner.congested(self, is_full=is_full)

    def ended(self) -> None:
        self.changed.set()
        self.owner.lost(self)
