"""Sterna's own protocol for the load generator: it counts events without decoding them."""

from collections import deque
from collections.abc import Sequence
from time import time_ns

import msgspec

from sterna.bench.speaker import Chunk, Content, Speaker, SpeakerError, payload, together
from sterna.core.handover.messages import Arrival, Welcome
from sterna.core.link import Ack, Data, Frame, Resume
from sterna.core.messages import Message, Route, SubscriptionChange
from sterna.model.filters import Filter
from sterna.net.nodes import next_incarnation
from sterna.wire.codec import Bodies, decode, encode
from sterna.wire.frames import (
    VERSION,
    Hello,
    Ping,
    Pong,
    Refusal,
    Role,
    Splitter,
    control,
    decode_control,
    frame,
    is_control,
)

FRAME_BYTES_MAX = 2**30
"""A replay is one frame."""


class NativeSpeaker(Speaker):
    """A client of a Sterna broker; goes back to its broker, or to another one after `move`."""

    def __init__(self, name: str, filters: Sequence[str]) -> None:
        super().__init__(name, filters)
        self.stay_received = 0
        """How many events came since the broker welcomed the client."""
        self._routes = tuple(
            Route(f"{name}/{number}", Filter(text)) for number, text in enumerate(filters)
        )
        self._splitter = Splitter(FRAME_BYTES_MAX)
        self._incarnation = next_incarnation(name)
        self._partner: int | None = None
        self._sent = self._expected = 0
        self._visit = next_incarnation(name) << 32
        self._born = self._stay = 0
        self._last_introduction = 0
        """The number of the message after which the broker knows all subscriptions."""
        self._number = 0
        """The number of its last event."""
        self._under_way: deque[tuple[int, int]] = deque()
        """Frames of events that are not acknowledged, with the number of events in each."""

    def move(self) -> None:
        """The next connection is to another broker."""
        self._incarnation = next_incarnation(self.name)
        self._partner = None
        self._sent = self._expected = self._last_introduction = 0
        self._visit += 1

    def begin(self) -> None:
        self.is_ready = False
        self.unconfirmed = 0
        self._splitter = Splitter(FRAME_BYTES_MAX)
        hello = Hello(versions=(VERSION, VERSION), role=Role.CLIENT, node=self.name)
        self._outgoing.append(control(hello))

    def feed(self, data: bytes) -> None:
        for body in self._splitter.feed(data)[1]:
            head = bytes(body[:_HEAD_BYTES])
            if head[:2] == _ACK:
                self._acknowledged(_integer(head, 2)[0])
            elif head[:2] == _DATA and (at := head.find(_EVENTS)) > 0:
                self._events_came(body, head, at + len(_EVENTS))
            elif is_control(body):
                self._control_came(decode_control(body))
            else:
                self._frame_came(decode(body))

    def confirm(self) -> None:
        if self.unconfirmed:
            self.unconfirmed = 0
            self._say(Ack(self._expected))

    def encode(self, contents: Sequence[Content], batch: int) -> list[Chunk]:
        frames = []
        now = time_ns() // 1000
        for start in range(0, len(contents), batch):
            events = [
                (self.name, number, now, {"sym": symbol, "price": price}, payload(number))
                for number, (symbol, price) in enumerate(
                    contents[start : start + batch], self._number + 1
                )
            ]
            self._number += len(events)
            self._sent += 1
            self._under_way.append((self._sent, len(events)))
            message = {"type": "Events", "events": events}
            body = _encoder.encode((0, self._sent, self._expected, message))
            frames.append((frame(body), len(events)))
        return together(frames)

    # ---- Incoming frames

    def _events_came(self, body: memoryview, head: bytes, at: int) -> None:
        seq, next_at = _integer(head, 2)
        if seq <= self._expected:
            return  # Repeated on a new connection.
        self._expected = seq
        self._acknowledged(_integer(head, next_at)[0])
        count = _array_length(head, at)
        self.received += count
        self.stay_received += count
        self.unconfirmed += 1
        if self.numbers is not None:
            self.numbers += _numbers(body)

    def _acknowledged(self, seq: int) -> None:
        under_way = self._under_way
        while under_way and under_way[0][0] <= seq:
            self.acknowledged += under_way.popleft()[1]
        if not self.is_ready and self._last_introduction and seq >= self._last_introduction:
            self.is_ready = True

    def _control_came(self, said: object) -> None:
        match said:
            case Hello():
                self._say(Resume(self._incarnation, self._partner, self._expected, answers=False))
            case Ping():
                self._outgoing.append(control(Pong()))
            case Refusal():
                raise SpeakerError(f"the broker refused {self.name}: {said.reason}")

    def _frame_came(self, said: Frame) -> None:
        if isinstance(said, Resume):
            self._resumed(said)
        elif isinstance(said, Data):
            self._expected = max(self._expected, said.seq)
            self.unconfirmed += 1
            if isinstance(said.message, Welcome):
                self._welcomed(said.message)
            self._acknowledged(said.acknowledged)

    def _resumed(self, said: Resume) -> None:
        if not said.answers:
            self._say(Resume(self._incarnation, said.incarnation, self._expected, answers=True))
        if self._partner == said.incarnation:
            self.is_ready = self.is_ready or bool(self._last_introduction)
            return
        self._partner = said.incarnation
        self._expected = 0
        self._send(
            Arrival(
                visit=self._visit,
                born=self._born,
                stay=self._stay,
                received=self.stay_received,
                subscriptions=self._routes if self._born else (),
            )
        )

    def _welcomed(self, message: Welcome) -> None:
        self._stay, self.stay_received = self._visit, 0
        if not self._born and self._routes:
            self._send(SubscriptionChange(added=self._routes))
        self._born = message.born or self._born or self._visit
        self._last_introduction = self._sent

    def _send(self, message: Message) -> None:
        self._sent += 1
        self._say(Data(self._sent, self._expected, message))

    def _say(self, said: Frame) -> None:
        self._outgoing.append(frame(b"".join(encode(said, _NONE))))


_NONE = Bodies()
_HEAD_BYTES = 64
_DATA, _ACK = b"\x94\x00", b"\x92\x01"
_EVENTS = b"\xa6events"
"""How the content of messages with events begins, after their type."""

_encoder = msgspec.msgpack.Encoder()


class _Event(msgspec.Struct, array_like=True, gc=False):
    publisher: msgspec.Raw
    seq: int


class _Carrying(msgspec.Struct, gc=False):
    events: list[_Event]


_decoder = msgspec.msgpack.Decoder(tuple[int, int, int, _Carrying])


def _numbers(body: memoryview) -> list[int]:
    return [event.seq for event in _decoder.decode(body)[3].events]


def _integer(head: bytes, at: int) -> tuple[int, int]:
    """A MessagePack integer that is not negative, and where the next value begins."""
    mark = head[at]
    if mark < 0x80:
        return mark, at + 1
    size = 1 << (mark - 0xCC)
    return int.from_bytes(head[at + 1 : at + 1 + size], "big"), at + 1 + size


def _array_length(head: bytes, at: int) -> int:
    mark = head[at]
    if mark & 0xF0 == 0x90:
        return mark & 0x0F
    size = 2 if mark == 0xDC else 4
    return int.from_bytes(head[at + 1 : at + 1 + size], "big")
