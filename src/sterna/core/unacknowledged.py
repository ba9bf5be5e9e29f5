"""The queue of a link: what was sent, or waits to be sent, and is not acknowledged yet."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile

import msgspec

from sterna.core.depot import PageId, Stretch
from sterna.core.frames import Data, Paged
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message
from sterna.core.sizes import Load, load


class KeptPaged(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds of messages that are in a page."""

    seq: int
    stretch: Stretch


_NONE: deque[Load] = deque()
"""Nothing, for all to share: an empty deque takes 760 bytes, and most links are idle."""


class Unacknowledged(deque[Data | Paged]):
    """Frames in the order of their numbers. Some may stand for many messages, in a page."""

    __slots__ = ("_bytes", "_events", "_loads", "_more", "_spared_bytes")

    def __init__(self, frames: Iterable[Data | Paged] = ()) -> None:
        super().__init__(frames)
        self._loads = _NONE
        """How much each of the oldest frames is. Others were not looked at: most messages are
        acknowledged before anybody asks how much is queued."""
        self._events = self._bytes = self._spared_bytes = 0
        self._more = sum(frame.stretch.count - 1 for frame in self if type(frame) is Paged)
        """How many more messages there are than frames."""

    @property
    def backlog(self) -> int:
        """How many messages there are."""
        return len(self) + self._more

    def load(self, weigh: Callable[[Message], Load] = load, up_to: int | None = None) -> Load:
        """How much all of it is, or all up to a number; `weigh` says how much a message is.

        What was weighed once is known, and counts whatever its number is.
        """
        newest = list(islice(reversed(self), len(self) - len(self._loads)))
        for frame in reversed(newest):
            if up_to is not None and frame.seq > up_to:
                break
            self._count(weigh(frame.message) if type(frame) is Data else frame.stretch.load)
        return Load(self._events, self._bytes, self._spared_bytes)

    def confirm(self, acknowledged: int) -> None:
        """Everything up to this number has arrived."""
        if len(self) == 1 and not self._loads and type(self[0]) is Data:  # Mostly it is so.
            if self[0].seq <= acknowledged:
                self.popleft()
            return
        if self._more:
            self._confirm_paged(acknowledged)
        loads = self._loads
        while self and self[0].seq <= acknowledged:
            self.popleft()
            if loads:
                self._uncount()

    def _confirm_paged(self, acknowledged: int) -> None:
        while self and self[0].seq <= acknowledged:
            first, is_weighed = self.popleft(), bool(self._loads)
            if is_weighed:
                self._uncount()
            if type(first) is Paged:
                arrived = acknowledged - first.seq + 1
                self._more -= min(arrived, first.stretch.count - 1)
                if arrived < first.stretch.count:
                    rest = first.without(arrived)
                    self.appendleft(rest)
                    if is_weighed:
                        self._loads.appendleft(rest.stretch.load)
                        self._add(rest.stretch.load)

    def put(self, frame: Paged) -> None:
        """Add messages that are in a page."""
        self.append(frame)
        self._more += frame.stretch.count - 1

    def parts(self) -> Iterator[Message | Stretch]:
        """What waits, without its numbers."""
        return (frame.message if type(frame) is Data else frame.stretch for frame in self)

    def at(self, place: int) -> tuple[Message | Stretch, Load]:
        """One of the parts, and its size; the oldest is at 0."""
        self.load()  # So all are weighed.
        frame = self[place]
        return frame.message if type(frame) is Data else frame.stretch, self._loads[place]

    # ---- Spilling

    def to_spill(self, bytes_max: int) -> Sequence[Data]:
        """The oldest consecutive messages in memory that may be spilled: about so many bytes."""
        found: list[Data] = []
        size = 0
        self.load()
        for frame, each in zip(self, self._loads, strict=True):
            if type(frame) is Data and frame.message.is_said_once:
                found.append(frame)
                size += each.memory_bytes
                if size >= bytes_max:
                    break
            elif found:
                break
        return found

    def holds(self, frames: Sequence[Data]) -> Sequence[Data]:
        """Of consecutive frames from this queue, those that are still in it."""
        wanted, last = {frame.seq: frame for frame in frames}, frames[-1].seq
        until = takewhile(lambda frame: frame.seq <= last, self)
        return [frame for frame in until if type(frame) is Data and wanted.get(frame.seq) is frame]

    def spill(self, first: int, count: int, page: PageId, place: int) -> None:
        """Messages with consecutive numbers are in a page now, the first of them at a place.

        Those that are not in memory, or not here any more, are ignored.
        """
        self.load()
        before: list[Data | Paged] = []
        spilled: list[tuple[Data, Load]] = []
        loads: list[Load] = []
        while self and self[0].seq < first + count:
            frame, size = self.popleft(), self._loads.popleft()
            if type(frame) is Data and frame.seq >= first and frame.message.is_said_once:
                spilled.append((frame, size))
                continue
            self._put_back(spilled, before, loads, page, place - first)
            spilled = []
            before.append(frame)
            loads.append(size)
        self._put_back(spilled, before, loads, page, place - first)
        self.extendleft(reversed(before))
        self._loads.extendleft(reversed(loads))

    def _put_back(
        self, spilled: list[tuple[Data, Load]], frames: list[Data | Paged], loads: list[Load],
        page: PageId, offset: int,
    ) -> None:  # fmt: skip
        """Have one frame stand for messages that were taken out of the queue."""
        if not spilled:
            return
        seq = spilled[0][0].seq
        events = sum(size.events for _, size in spilled)
        bytes_ = sum(size.bytes for _, size in spilled)
        stretch = Stretch(page, seq + offset, len(spilled), events, bytes_)
        frames.append(Paged(seq, stretch))
        loads.append(stretch.load)
        self._more += len(spilled) - 1
        self._spared_bytes += stretch.load.spared_bytes

    def pages(self) -> Iterator[PageId]:
        """The pages that hold some of it."""
        return (frame.stretch.page for frame in self if type(frame) is Paged)

    # ---- Snapshots

    def keep(self, writer: Writer) -> tuple[list[tuple[int, int, int]], list[KeptPaged]]:
        """What a snapshot has to hold: of each message the number, what it acknowledged, and the
        number that the writer gave it; and what is in pages.
        """
        return (
            [(f.seq, f.acknowledged, writer.message(f.message)) for f in self if type(f) is Data],
            [KeptPaged(f.seq, f.stretch) for f in self if type(f) is Paged],
        )

    @classmethod
    def restored(
        cls, kept: Iterable[tuple[int, int, int]], paged: Iterable[KeptPaged], reader: Reader
    ) -> "Unacknowledged":
        """The queue that a snapshot has held."""
        frames: list[Data | Paged] = [
            Data(seq, acknowledged, reader.message(number)) for seq, acknowledged, number in kept
        ]
        frames += [Paged(each.seq, each.stretch) for each in paged]
        return cls(sorted(frames, key=lambda frame: frame.seq))

    # ---- Counting

    def _count(self, size: Load) -> None:
        if self._loads is _NONE:
            self._loads = deque()
        self._loads.append(size)
        self._add(size)

    def _add(self, size: Load) -> None:
        self._events += size.events
        self._bytes += size.bytes
        self._spared_bytes += size.spared_bytes

    def _uncount(self) -> None:
        events, bytes_, spared_bytes = self._loads.popleft()
        self._events -= events
        self._bytes -= bytes_
        self._spared_bytes -= spared_bytes
