"""How long a broker stops answering while it takes a snapshot, seen from outside.

An observer pings the broker every millisecond and never waits for an answer before the next ping:
a stop of the broker's event loop shows as pings that are answered late, the longest of them by all
of the stop. Meanwhile a publisher sends an event now and then that nobody wants, until the broker
takes a snapshot because it has had so many inputs.
"""

import select
import socket
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec

from sterna.bench.latency import READ_BYTES, Line
from sterna.bench.load import LoadError
from sterna.bench.native import FRAME_BYTES_MAX, NativeSpeaker
from sterna.wire.frames import (
    VERSION,
    Answer,
    Ask,
    Hello,
    Ping,
    Pong,
    Refusal,
    Role,
    Splitter,
    control,
    decode_control,
    is_control,
)

PING_EVERY_S = 0.001
INPUT_EVERY_S = 0.005
LOOK_EVERY_S = 0.05
"""How often the broker is asked whether it has taken the snapshot, in seconds."""
TAIL_S = 0.3
"""How many seconds it is watched after the snapshot."""
SNAPSHOT_S = 600.0
"""A snapshot that takes more seconds ends the measurement."""
TICKERS = 16
"""Publishers that bring the broker near its next snapshot quickly."""
SPARE_INPUTS = 100
"""Inputs that may come from elsewhere, such as the broker's own timers."""


class RoundTrips(msgspec.Struct, frozen=True):
    """Milliseconds from each ping to its answer."""

    calm_ms: list[float]
    """The round trips before a snapshot was due."""
    snapshot_ms: list[float]
    """The round trips from shortly before the snapshot was due until shortly after it."""


def spare_inputs(calm_s: float) -> int:
    """How many inputs there must be between a full broker and its snapshot, at least."""
    return round(calm_s / INPUT_EVERY_S) + SPARE_INPUTS


def watch_snapshot(port: int, snapshot_inputs: int, calm_s: float) -> RoundTrips:
    """Ping a broker for a while, and then while it takes the snapshot after so many inputs."""
    watcher = Watcher(port)
    try:
        watcher.approach(snapshot_inputs - spare_inputs(calm_s))
        calm_ms = watcher.watch(calm_s)
        if watcher.snapshots > 0:
            raise LoadError("the broker took a snapshot before it was due")
        snapshot_ms = watcher.watch(SNAPSHOT_S, lambda: watcher.snapshots > 0)
        if watcher.snapshots == 0:
            raise LoadError(f"the broker took no snapshot within {SNAPSHOT_S:g} s")
        return RoundTrips(calm_ms, [*snapshot_ms, *watcher.watch(TAIL_S)])
    finally:
        watcher.close()


class Watcher:
    """An observer that pings, and publishers of events that nobody wants, in one thread."""

    def __init__(self, port: int) -> None:
        self.snapshots = 0
        """How many snapshots the broker has taken since it was first asked."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SNAPSHOT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._splitter = Splitter(FRAME_BYTES_MAX)
        self._answers: list[dict[str, Any]] = []
        """The answers to the last question for the broker's status."""
        self._since_snapshot = 0
        self._waiting: deque[tuple[float, list[float]]] = deque()
        """The unanswered pings: when each was sent, and the list for its round trip."""
        self._tickers = [Line(NativeSpeaker(f"ticker-{n}", ()), port) for n in range(TICKERS)]
        self._published = dict.fromkeys(self._tickers, 0)
        for ticker in self._tickers:
            ticker.until_ready()
        hello = Hello(versions=(VERSION, VERSION), role=Role.OBSERVER, node="watcher")
        self._socket.sendall(control(hello))

    def close(self) -> None:
        self._socket.close()
        for ticker in self._tickers:
            ticker.close()

    def approach(self, inputs: int) -> None:
        """Give the broker events until it has had so many inputs since its last snapshot."""
        if self._ask()["inputs"] > 2 * self._since_snapshot:
            raise LoadError("the broker took a snapshot while it was filled")
        while self._since_snapshot < inputs:
            for ticker in self._tickers:
                self._tick(ticker)
            for ticker in self._tickers:
                while not self._is_acknowledged(ticker):
                    ticker.read()
            self._ask()

    def watch(self, seconds: float, is_enough: Callable[[], bool] = lambda: False) -> list[float]:
        """Ping for so long, or until it is enough; return the round trips in milliseconds."""
        took_ms: list[float] = []
        ticker = self._tickers[0]
        own, ticking = self._socket.fileno(), ticker.fileno()
        ping_at = tick_at = look_at = begin = perf_counter()
        while (now := perf_counter()) < begin + seconds and not is_enough():
            if now >= ping_at:
                self._waiting.append((now, took_ms))
                self._socket.sendall(_PING)
                ping_at = max(ping_at + PING_EVERY_S, now)
            if now >= tick_at and self._is_acknowledged(ticker):
                self._tick(ticker)
                tick_at = now + INPUT_EVERY_S
            if now >= look_at and self._answers:
                self._answers.clear()
                self._socket.sendall(_ASK)
                look_at = now + LOOK_EVERY_S
            wait_s = max(0.0, ping_at - perf_counter())
            ready = select.select([own, ticking], [], [], wait_s)[0]
            if own in ready:
                self._read()
            if ticking in ready:
                ticker.read()
        while self._waiting:  # Pings of this period belong to it.
            self._read()
        return took_ms

    # ---- Sending

    def _tick(self, ticker: Line) -> None:
        self._published[ticker] += 1
        ticker.write(ticker.speaker.encode([("nobody-wants-this", 0.0)], 1)[0].data)

    def _is_acknowledged(self, ticker: Line) -> bool:
        return ticker.speaker.acknowledged == self._published[ticker]

    def _ask(self) -> dict[str, Any]:
        self._answers.clear()
        self._socket.sendall(_ASK)
        while not self._answers:
            self._read()
        return self._answers[-1]

    # ---- Receiving

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise LoadError(f"the broker does not answer for {SNAPSHOT_S:g} s") from None
        came = perf_counter()
        if not data:
            raise LoadError("the broker hung up on its observer")
        for body in self._splitter.feed(data)[1]:
            if is_control(body):
                self._control_came(decode_control(body), came)

    def _control_came(self, said: object, came: float) -> None:
        match said:
            case Pong():
                sent, took_ms = self._waiting.popleft()
                took_ms.append((came - sent) * 1e3)
            case Ping():
                self._socket.sendall(control(Pong()))
            case Answer():
                self._status_came(said.answer)
            case Refusal():
                raise LoadError(f"the broker refused its observer: {said.reason}")

    def _status_came(self, status: dict[str, Any]) -> None:
        self._answers.append(status)
        since = status["log"]["inputs_since_snapshot"]
        self.snapshots += since < self._since_snapshot
        self._since_snapshot = since


_PING = control(Ping())
_ASK = control(Ask(what="status"))
