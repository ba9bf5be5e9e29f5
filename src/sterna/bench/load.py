"""The load generator: many connections in one process, which publish and count.

What is published is encoded before the clock starts, and what arrives is counted without decoding
it, so that the generator takes little of a small machine.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import cast

from sterna.bench.speaker import Chunk, Content, Speaker, SpeakerError
from sterna.errors import SternaError

CONFIRM_EVERY = 32
CONFIRM_AFTER_S = 0.002
"""How many seconds to wait before confirming, as the client library does."""

WRITE_BYTES_MAX = 2**20


class LoadError(SternaError):
    """A run that does not count; the message says what went wrong."""


class LoadConnection(asyncio.Protocol):
    """The socket of a speaker, and the goal that it is to reach next."""

    def __init__(self, speaker: Speaker, group: "LoadGroup") -> None:
        self.speaker = speaker
        self.goal: Callable[[], bool] | None = None
        self.wanted = 0
        """How many events it is to have received since it connected."""
        self._group = group
        self._transport: asyncio.Transport | None = None
        self._chunks: deque[Chunk] = deque()
        self._sent = 0
        self._window = 0
        self._is_full = False
        self._timer: asyncio.TimerHandle | None = None

    def prepare(self, contents: Sequence[Content], batch: int, window: int) -> None:
        """Encode events; `window` of them may be on their way at a time."""
        self._chunks.extend(self.speaker.encode(contents, batch))
        self._window = window

    def publish(self) -> None:
        """Write as much as the window allows."""
        speaker, transport = self.speaker, self._transport
        while (
            transport is not None
            and self._chunks
            and not self._is_full
            and (not speaker.acknowledges or self._sent - speaker.acknowledged < self._window)
        ):
            chunk = self._chunks.popleft()
            self._sent += chunk.events
            transport.write(chunk.data)

    @property
    def is_done(self) -> bool:
        """Whether all is written, and acknowledged as far as the protocol does that."""
        speaker = self.speaker
        return not self._chunks and (not speaker.acknowledges or speaker.acknowledged == self._sent)

    def look(self) -> None:
        """Inform the group when the goal is reached."""
        if self.goal is not None and self.goal():
            self.goal = None
            self._group.reached()

    def close(self) -> None:
        """Confirm what has arrived, so that it is not repeated, and close the connection."""
        if self._timer is not None:
            self._timer.cancel()
        self._confirm()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    # ---- Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(WRITE_BYTES_MAX)
        self.speaker.begin()
        self._write(self.speaker.take())

    def data_received(self, data: bytes) -> None:
        speaker = self.speaker
        try:
            speaker.feed(data)
        except SpeakerError as problem:
            self._group.failed(str(problem))
            return
        if speaker.unconfirmed >= CONFIRM_EVERY:
            speaker.confirm()
        elif speaker.unconfirmed and self._timer is None:
            self._timer = self._group.loop.call_later(CONFIRM_AFTER_S, self._confirm)
        self._write(speaker.take())
        if self._chunks:
            self.publish()
        self.look()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self.publish()
        self.look()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        if self._transport is not None:
            self._transport = None
            self._group.failed(f"{self.speaker.name} was disconnected")

    def _confirm(self) -> None:
        self._timer = None
        self.speaker.confirm()
        self._write(self.speaker.take())

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None:
            self._transport.write(data)


class LoadGroup:
    """Clients with a common goal."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.clients: list[LoadConnection] = []
        self._missing = 0
        self._all_reached: asyncio.Future[float] | None = None
        self._problem: str | None = None
        """What has gone wrong; no goal can be reached after that."""

    async def connect(self, host: str, port: int, speakers: Sequence[Speaker]) -> None:
        """Connect them one after the other, until the broker has accepted them."""
        for speaker in speakers:
            client = LoadConnection(speaker, self)
            self.clients.append(client)
            await self._connect(client, host, port)

    async def again(self, host: str, port: int) -> None:
        """Connect those again that were dropped."""
        for client in self.clients:
            await self._connect(client, host, port)

    async def _connect(self, client: LoadConnection, host: str, port: int) -> None:
        client.speaker.is_ready = False
        reached = self.aim([client], [lambda: client.speaker.is_ready])
        await self.loop.create_connection(lambda: client, host, port)
        await reached

    def expect(self, counts: Sequence[int]) -> "asyncio.Future[float]":
        """The time at which each client has received so many more events than its last goal."""
        for client, count in zip(self.clients, counts, strict=True):
            client.wanted += count  # Some may have come already.
        return self.aim(self.clients, [_received(client) for client in self.clients])

    def publish(self) -> "asyncio.Future[float]":
        """Publish what is prepared; the result is the time at which all is acknowledged."""
        reached = self.aim(self.clients, [_done(client) for client in self.clients])
        for client in self.clients:
            client.publish()
            client.look()
        return reached

    def aim(
        self, clients: Sequence[LoadConnection], goals: Sequence[Callable[[], bool]]
    ) -> "asyncio.Future[float]":
        """The time at which the last client has reached its goal."""
        self._missing = len(clients)
        self._all_reached = self.loop.create_future()
        for client, goal in zip(clients, goals, strict=True):
            client.goal = goal
        for client in clients:
            client.look()
        if self._problem is not None:
            self.failed(self._problem)
        return self._all_reached

    def reached(self) -> None:
        self._missing -= 1
        if not self._missing and self._all_reached is not None and not self._all_reached.done():
            self._all_reached.set_result(perf_counter())

    def failed(self, problem: str) -> None:
        self._problem = problem
        if self._all_reached is not None and not self._all_reached.done():
            self._all_reached.set_exception(LoadError(problem))

    def drop(self) -> None:
        """Cut the connections."""
        for client in self.clients:
            client.close()
            client.wanted = client.speaker.received

    def __str__(self) -> str:
        missing = [client.speaker.name for client in self.clients if client.goal is not None]
        received = sum(client.speaker.received for client in self.clients)
        acknowledged = sum(client.speaker.acknowledged for client in self.clients)
        return (
            f"{len(missing)} of {len(self.clients)} clients are not done, such as "
            f"{', '.join(missing[:3])}; {received:,} events received, {acknowledged:,} acknowledged"
        )


def _received(client: LoadConnection) -> Callable[[], bool]:
    speaker, wanted = client.speaker, client.wanted
    return lambda: speaker.received >= wanted


def _done(client: LoadConnection) -> Callable[[], bool]:
    return lambda: client.is_done
