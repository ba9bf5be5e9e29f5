"""How long single events take at a fixed rate.

The times of sending are fixed in advance, and each event counts from its own: when the broker
stalls, all events that should have been sent meanwhile count as late.
"""

import select
import socket
from collections.abc import Sequence
from time import perf_counter

import msgspec

from sterna.bench.load import CONFIRM_AFTER_S, CONFIRM_EVERY, LoadError
from sterna.bench.speaker import Content, Speaker

LEAD_S = 0.1
"""The first event is sent so many seconds after all is ready."""
OVERDUE_S = 10.0
READ_BYTES = 2**18
_NEVER = float("inf")


class Latencies(msgspec.Struct, frozen=True):
    """Microseconds for each event."""

    took_us: list[float]
    """From when each event should have been sent until it arrived."""
    late_us: list[float]
    """From when each event should have been sent until it was: what the generator itself adds."""


class Line:
    """A client on a socket that blocks, for one thread that waits for several of them."""

    def __init__(self, speaker: Speaker, port: int) -> None:
        self.speaker = speaker
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=OVERDUE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        speaker.begin()
        self.write(speaker.take())

    def fileno(self) -> int:
        return self._socket.fileno()

    def write(self, data: bytes) -> None:
        if data:
            self._socket.sendall(data)

    def read(self) -> float:
        """Wait for bytes, and feed them in; return when they came."""
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise LoadError(f"nothing came for {self.speaker.name} in {OVERDUE_S:g} s") from None
        came = perf_counter()
        if not data:
            raise LoadError(f"{self.speaker.name} was disconnected")
        self.speaker.feed(data)
        self.write(self.speaker.take())
        return came

    def confirm(self) -> None:
        self.speaker.confirm()
        self.write(self.speaker.take())

    def until_ready(self) -> None:
        """Wait until the broker has accepted the client."""
        while not self.speaker.is_ready:
            self.read()

    def close(self) -> None:
        self._socket.close()


class Pair:
    """A publisher and a subscriber in one thread, so that one clock is used."""

    def __init__(self, publisher: Speaker, subscriber: Speaker, port: int) -> None:
        self._outward, self._inward = Line(publisher, port), Line(subscriber, port)
        self._outward.until_ready()
        self._inward.until_ready()
        self._published = 0

    def measure(self, contents: Sequence[Content], rate: float) -> Latencies:
        """Publish these at a rate, each on its own, and wait for all of them."""
        outward, inward = self._outward, self._inward
        packets = [outward.speaker.encode([content], 1)[0].data for content in contents]
        first, count = self._published + 1, len(packets)
        self._published += count
        numbers: list[int] = []
        inward.speaker.numbers = numbers
        begin = perf_counter() + LEAD_S
        due = [begin + number / rate for number in range(count)]
        took, late = [0.0] * count, [0.0] * count
        sent = arrived = 0
        confirm_at = _NEVER
        while arrived < count:
            now = perf_counter()
            if sent < count and due[sent] <= now:
                late[sent] = (now - due[sent]) * 1e6
                outward.write(packets[sent])
                sent += 1
                continue
            if now >= confirm_at or inward.speaker.unconfirmed >= CONFIRM_EVERY:
                confirm_at = _NEVER
                inward.confirm()
            if now > due[-1] + OVERDUE_S:
                raise LoadError(f"{count - arrived:,} of {count:,} events did not arrive")
            until = min(due[sent] if sent < count else now + 1.0, confirm_at)
            wait_s = max(0.0, until - perf_counter())
            for line in select.select([inward, outward], [], [], wait_s)[0]:
                came = line.read()
                for number in numbers:
                    took[number - first] = (came - due[number - first]) * 1e6
                arrived += len(numbers)
                numbers.clear()
            if inward.speaker.unconfirmed and confirm_at == _NEVER:
                confirm_at = perf_counter() + CONFIRM_AFTER_S
        inward.confirm()
        return Latencies(took, late)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
