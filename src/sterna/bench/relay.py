"""The least that a broker can do: pass on what publishers send, unchanged.

It is what the load generator is measured against: whatever a real broker does comes on top.
"""

import asyncio
import sys
from typing import cast

import uvloop

from sterna.core.handover.messages import Arrival, Welcome
from sterna.core.link import Ack, Data, Frame, Resume
from sterna.core.messages import SubscriptionChange
from sterna.wire.codec import Bodies, decode, encode
from sterna.wire.frames import (
    VERSION,
    Hello,
    Role,
    Splitter,
    control,
    decode_control,
    frame,
    is_control,
)


class Relay(asyncio.Protocol):
    """A connection of a client."""

    def __init__(self, subscribers: "dict[Relay, None]") -> None:
        self._subscribers = subscribers
        self._splitter = Splitter(2**30)
        self._transport: asyncio.Transport | None = None
        self._came = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._subscribers.pop(self, None)

    def data_received(self, data: bytes) -> None:
        raw, bodies = self._splitter.feed(data)
        is_new = False
        for body in bodies:
            if is_control(body):
                if isinstance(decode_control(body), Hello):
                    hello = Hello(versions=(VERSION, VERSION), role=Role.BROKER, node="relay")
                    self._write(control(hello))
            elif bytes(body[:2]) == b"\x94\x00" and len(body) > 1 and _EVENTS in bytes(body[:64]):
                self._came += 1
                is_new = True
            else:
                self._answer(decode(body))
        if is_new:
            self._pass_on(raw)
            self._say(Ack(self._came))

    def _pass_on(self, raw: bytes) -> None:
        for subscriber in self._subscribers:
            subscriber._write(raw)

    def _answer(self, said: Frame) -> None:
        if isinstance(said, Resume):
            if not said.answers:
                self._say(Resume(1, said.incarnation, 0, answers=True))
        elif isinstance(said, Data):
            self._came = said.seq
            if isinstance(said.message, Arrival):
                self._say(Data(1, self._came, Welcome(published=0)))
            elif isinstance(said.message, SubscriptionChange):
                self._subscribers[self] = None
                self._say(Ack(self._came))

    def _say(self, said: Frame) -> None:
        self._write(frame(b"".join(encode(said, Bodies()))))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


_EVENTS = b"\xa6events"


async def _serve(port: int) -> None:
    subscribers: dict[Relay, None] = {}
    server = await asyncio.get_running_loop().create_server(
        lambda: Relay(subscribers), "127.0.0.1", port
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
