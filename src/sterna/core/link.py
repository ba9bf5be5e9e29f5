"""A link session: everything arrives, once and in order, over a connection that may lose, repeat
and break.

Each direction numbers its messages from 1. The receiver hands them on in that order, keeps what
arrives early, and acknowledges up to where it has everything (cumulatively: with each message
it sends itself, else after a short delay). The sender keeps what is not acknowledged. When a
connection is up, both ends send a `Resume` with what they have, and the sender goes on from there;
on a connection that may lose frames, it also repeats what it kept when an answer is overdue.

A node may come back with an old memory: its directory was restored from a copy, or cut off where it
was damaged. Then the other end confirms what was never sent, or has forgotten what it confirmed.
Whoever notices begins anew, under another incarnation and over another connection: all messages are
numbered from 1 again. What is certainly there is not sent again, and the rest is.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from sterna.core.depot import PageId, Stretch
from sterna.core.frames import Ack, Data, Frame, Paged, Resume
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message
from sterna.core.names import NEVER, Time
from sterna.core.sizes import Load, load
from sterna.core.unacknowledged import KeptPaged, Unacknowledged

__all__ = [
    "RELIABLE",
    "SILENT",
    "Ack",
    "Data",
    "Frame",
    "KeptSession",
    "LinkSession",
    "LinkTiming",
    "Mismatch",
    "Paged",
    "Resume",
    "State",
]


class LinkTiming(msgspec.Struct, frozen=True, kw_only=True):
    """When a session acknowledges and repeats."""

    ack_delay_us: Time = 20_000
    """How long to wait for a message that can carry the acknowledgement; 0: until the end of the
    turn, so that all that arrived together is acknowledged together."""
    ack_every: int = 32
    """Acknowledge at once after so many messages."""
    resend_us: Time | None = 200_000
    """Repeat after so long without acknowledgement; None on connections that lose nothing."""
    resend_max_us: Time = 3_200_000
    """The wait doubles with repeated failure, up to this."""


RELIABLE = LinkTiming(resend_us=None)
"""For connections that lose nothing while they are up, such as TCP."""


SILENT = LinkTiming(ack_delay_us=NEVER, ack_every=NEVER, resend_us=None)
"""For drivers that know what has arrived: nothing is acknowledged, nor repeated."""


class State(Enum):
    """How far the handshake between the two ends is."""

    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"


class KeptSession(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of one end of a link."""

    incarnation: int
    partner: int | None
    state: State
    next_seq: int
    unacknowledged: list[tuple[int, int, int]]
    """The number of each message, what it acknowledged, and the number that the writer gave it."""
    expected: int
    early: dict[int, int]
    ack_due: int
    ack_at: Time
    resend_at: Time
    resend_wait: Time
    wake_at: Time
    transmitted: int | None = None
    """The number of the last message that was ever transmitted; None if the last one was."""
    begins_anew: bool = False
    paged: list[KeptPaged] = []
    """What is in pages."""


class Mismatch(NamedTuple):
    """How the memories of the two ends of a link differ, in messages."""

    forgotten_here: int
    """The other end has so many that this end does not remember to have sent."""
    forgotten_there: int
    """The other end has confirmed so many that it does not remember to have received."""


class LinkSession:
    """One end of a link. Frames to transmit gather in `outbox`; `wake` is due at `wake_at`."""

    __slots__ = (
        *("_ack_at", "_ack_due", "_begins_anew", "_early", "_expected", "_next_seq", "_resend_at"),
        *("_resend_wait", "_timing", "_transmitted", "_unacknowledged", "given_up", "incarnation"),
        *("has_news", "is_remembered", "mismatch", "outbox", "partner", "state", "wake_at"),
    )

    def __init__(self, incarnation: int, timing: LinkTiming) -> None:
        self.incarnation = incarnation
        self.partner: int | None = None
        self.state = State.CLOSED
        self.outbox: list[Frame] = []
        self.wake_at: Time = NEVER
        self.given_up: list[Message | Stretch] | None = None
        """Set when the messages of this link are numbered anew: what the other end may not have."""
        self.is_remembered = False
        """Whether the other end has kept its state then, so that it can do with those messages."""
        self.mismatch: Mismatch | None = None
        """Set when the two ends remember different things: this one has to begin anew."""
        self.has_news = False
        """Whether one of these was set, or the link has just opened: for the node to look at."""
        self._timing = timing
        self._next_seq = 1
        self._transmitted = 0
        """The number of the last message that was ever transmitted, when the link was last open."""
        self._begins_anew = False
        self._unacknowledged = Unacknowledged()
        self._expected = 1
        self._early: dict[int, Message] = {}
        self._ack_due = 0
        self._ack_at: Time = NEVER
        self._resend_at: Time = NEVER
        self._resend_wait = timing.resend_us or 0

    @property
    def backlog(self) -> int:
        """How many messages are not acknowledged yet."""
        return self._unacknowledged.backlog

    @property
    def last_seq(self) -> int:
        """The number of the newest message; 0 if there was none."""
        return self._next_seq - 1

    @property
    def parts(self) -> int:
        """How many parts they are in; see `unconfirmed`."""
        return len(self._unacknowledged)

    def queued(self, weigh: Callable[[Message], Load] = load, up_to: int | None = None) -> Load:
        """How much is not acknowledged yet, of all messages or up to a number.

        `weigh` says how much a message is.
        """
        return self._unacknowledged.load(weigh, up_to)

    def unconfirmed(self) -> Iterator[Message | Stretch]:
        """The messages that the other end has not acknowledged, oldest first, lazily."""
        return self._unacknowledged.parts()

    def unconfirmed_at(self, place: int) -> tuple[Message | Stretch, Load]:
        """One part of what is not acknowledged, and its size; the oldest is at 0."""
        return self._unacknowledged.at(place)

    def unconfirmed_frames(self) -> list[Frame]:
        """The frames that the other end has not acknowledged, oldest first."""
        return list(self._unacknowledged)

    def to_spill(self, bytes_max: int) -> Sequence[Data]:
        """The oldest consecutive messages in memory that may be spilled: about so many bytes."""
        return self._unacknowledged.to_spill(bytes_max)

    def holds(self, frames: Sequence[Data]) -> Sequence[Data]:
        """Of frames that could be spilled, those that still can."""
        return self._unacknowledged.holds(frames)

    def spill(self, first: int, count: int, page: PageId, place: int) -> None:
        """Messages with consecutive numbers are in a page now, the first of them at a place."""
        self._unacknowledged.spill(first, count, page, place)

    def pages(self) -> list[PageId]:
        """The pages that hold messages which are not acknowledged."""
        return list(self._unacknowledged.pages())

    @property
    def oldest_unconfirmed(self) -> int | None:
        """The number of the oldest message that is not acknowledged; None if there is none."""
        return self._unacknowledged[0].seq if self._unacknowledged else None

    def expects(self, seq: int) -> bool:
        """Whether the next message has this number, and would be taken."""
        return self.state is State.OPEN and seq == self._expected

    def open(self, now: Time) -> None:
        """A connection is up."""
        self.close()
        self.state = State.OPENING
        self._resume(answers=False)
        self._expect_answer(now)

    def close(self) -> None:
        """The connection is lost."""
        if self.state is State.OPEN:
            self._transmitted = self._next_seq - 1
        self.state = State.CLOSED
        self.outbox.clear()
        self._early.clear()  # It is sent again, and maybe it is something else by then.
        self._ack_due = 0
        self._ack_at = self._resend_at = self.wake_at = NEVER
        self._resend_wait = self._timing.resend_us or 0

    def send(self, message: Message, now: Time) -> None:
        """Send a message now, or keep it until there is a connection."""
        frame = Data(self._next_seq, self._expected - 1, message)
        self._next_seq += 1
        self._unacknowledged.append(frame)
        if self.state is State.OPEN:
            self.outbox.append(frame)
            self._ack_due = 0
            self._ack_at = NEVER
            if self._resend_at == NEVER:
                self._expect_answer(now)

    def send_again(self, part: Message | Stretch, now: Time) -> None:
        """Send a part of what was given up, under new numbers."""
        if not isinstance(part, Stretch):
            self.send(part, now)
            return
        frame = Paged(self._next_seq, part)
        self._next_seq += part.count
        self._unacknowledged.put(frame)
        if self.state is State.OPEN:
            self.outbox.append(frame)
            if self._resend_at == NEVER:
                self._expect_answer(now)

    def receive(self, frame: Frame, now: Time) -> Sequence[Message]:
        """Take a frame; return the messages that are next in order thanks to it."""
        if type(frame) is Data:
            return self.receive_data(frame, now)
        if type(frame) is Ack:
            if self.state is State.OPEN:
                self._confirm(frame.acknowledged, now)
        elif type(frame) is Resume and self.state is not State.CLOSED:
            self._resumed(frame, now)
        return ()

    def arrived(self, seq: int) -> None:
        """The driver knows that the other end has everything up to a number."""
        self._unacknowledged.confirm(seq)

    def turn_ends(self) -> None:
        """Acknowledge now, if that is due at the end of a turn and no message has done it."""
        if self._ack_due and not self._timing.ack_delay_us and self.state is State.OPEN:
            self._acknowledge()

    def wake(self, now: Time) -> None:
        """Do what is due: acknowledge, repeat."""
        if self._ack_at <= now:
            self._acknowledge()
        if self._resend_at <= now:
            self._resend_wait = min(2 * self._resend_wait, self._timing.resend_max_us)
            if self.state is State.OPENING:
                self._resume(answers=False)
            else:
                self.outbox += self._unacknowledged
            self._expect_answer(now)
        self.wake_at = min(self._ack_at, self._resend_at)

    def receive_data(self, frame: Data, now: Time) -> Sequence[Message]:
        """Take a message; return those that are next in order thanks to it."""
        if self.state is not State.OPEN:
            return ()  # It is sent again: the other end has not received our Resume yet.
        if frame.acknowledged:
            self._confirm(frame.acknowledged, now)
            if self.mismatch is not None:
                return ()
        self._ack_due += 1
        if frame.seq != self._expected:  # Repeated, or after a gap: acknowledge at once.
            # Where nothing gets lost there are no gaps, unless the other end makes them on purpose.
            if frame.seq > self._expected and self._timing.resend_us is not None:
                self._early[frame.seq] = frame.message
            self._acknowledge_by(now)
            return ()
        self._expected += 1
        delay_us = self._timing.ack_delay_us
        if delay_us in (0, NEVER):
            pass  # `turn_ends` acknowledges it, or nobody needs to.
        elif self._ack_due >= self._timing.ack_every:
            self._acknowledge()
        elif self._ack_at == NEVER:
            self._acknowledge_by(now + delay_us)
        if not self._early:
            return (frame.message,)
        messages = [frame.message]
        while self._expected in self._early:
            messages.append(self._early.pop(self._expected))
            self._expected += 1
        return messages

    # ---- Snapshots

    def keep(self, writer: Writer) -> "KeptSession":
        """What a snapshot has to hold; between turns, when nothing waits in the outbox."""
        unacknowledged, paged = self._unacknowledged.keep(writer)
        return KeptSession(
            incarnation=self.incarnation,
            partner=self.partner,
            state=self.state,
            next_seq=self._next_seq,
            unacknowledged=unacknowledged,
            paged=paged,
            expected=self._expected,
            early={seq: writer.message(message) for seq, message in self._early.items()},
            ack_due=self._ack_due,
            ack_at=self._ack_at,
            resend_at=self._resend_at,
            resend_wait=self._resend_wait,
            wake_at=self.wake_at,
            transmitted=self._transmitted,
            begins_anew=self._begins_anew,
        )

    def restore(self, kept: "KeptSession", reader: Reader) -> None:
        """Go on with what a snapshot has held."""
        self.partner, self.state = kept.partner, kept.state
        self._next_seq, self._expected = kept.next_seq, kept.expected
        self._unacknowledged = Unacknowledged.restored(kept.unacknowledged, kept.paged, reader)
        self._early = {seq: reader.message(number) for seq, number in kept.early.items()}
        self._ack_due, self._ack_at = kept.ack_due, kept.ack_at
        self._resend_at, self._resend_wait = kept.resend_at, kept.resend_wait
        self.wake_at = kept.wake_at
        self._transmitted = kept.next_seq - 1 if kept.transmitted is None else kept.transmitted
        self._begins_anew = kept.begins_anew

    # ---- Handshake

    def _resume(self, *, answers: bool) -> None:
        self.outbox.append(Resume(self.incarnation, self.partner, self._expected - 1, answers))

    def _resumed(self, frame: Resume, now: Time) -> None:
        if self.partner != frame.incarnation:
            self._meet(frame)
        if self.state is State.OPENING:
            self._notice(self._mismatch(frame))
        if frame.partner == self.incarnation:  # Else it means an earlier incarnation of ours.
            sent = self._next_seq - 1 if self.mismatch is None else self._transmitted
            self._confirm(min(frame.acknowledged, sent), now)
        if self.mismatch is not None:
            self.close()
            return
        if not frame.answers:
            self._resume(answers=True)
        if self.state is State.OPENING:
            self.state = State.OPEN
            self.has_news = True
            if self._begins_anew:
                self._begins_anew, self.is_remembered = False, True
                self._number_anew()
            self._resend_at = NEVER
            self._resend_wait = self._timing.resend_us or 0
            if self._unacknowledged:
                self.outbox += self._unacknowledged
                self._expect_answer(now)

    def _meet(self, frame: Resume) -> None:
        """The other end is new, has lost its state, or begins anew because the memories differ."""
        if self.partner is not None:
            if self.given_up is None:
                self.is_remembered = frame.partner == self.incarnation
            self._number_anew()
        self.partner = frame.incarnation
        self._expected = 1
        self._early.clear()

    def _number_anew(self) -> None:
        self.has_news = True
        self.given_up = [*(self.given_up or ()), *self.unconfirmed()]
        self._unacknowledged = Unacknowledged()
        self._next_seq = 1
        self._transmitted = 0

    # ---- Memories that differ

    def _mismatch(self, frame: Resume) -> Mismatch | None:
        """How what the other end remembers differs from what this end does, if it does."""
        confirmed = self._next_seq - 1 - self.backlog
        acknowledged = frame.acknowledged
        if frame.partner == self.incarnation:
            if confirmed <= acknowledged <= self._transmitted:
                return None
        elif not confirmed and self._expected == 1:
            return None  # Nothing was exchanged since the two ends met.
        else:
            acknowledged = 0  # It does not know this session at all.
        return Mismatch(max(0, acknowledged - self._transmitted), max(0, confirmed - acknowledged))

    def _notice(self, mismatch: Mismatch | None) -> None:
        if mismatch is not None:
            self.mismatch = mismatch
            self.has_news = True

    def begin_anew(self, incarnation: int) -> None:
        """Number all messages anew from the next connection on: the memories differ."""
        self.incarnation = incarnation
        self.mismatch = None
        self._begins_anew = True
        left = [*(self.given_up or ()), *self.unconfirmed()]
        self.given_up = None
        self._unacknowledged = Unacknowledged()
        self._next_seq = 1
        for part in left:
            if isinstance(part, Stretch):
                self.send_again(part, 0)
            else:
                self._unacknowledged.append(Data(self._next_seq, 0, part))
                self._next_seq += 1
        self._transmitted = 0
        self._expected = 1
        self._early.clear()

    # ---- Acknowledging and repeating

    def _confirm(self, acknowledged: int, now: Time) -> None:
        waiting = self._unacknowledged
        if not waiting or waiting[0].seq > acknowledged:
            return
        if acknowledged >= self._next_seq:  # The handshake got lost that would have shown it.
            self._notice(Mismatch(acknowledged - self._next_seq + 1, 0))
            self.close()
            return
        waiting.confirm(acknowledged)
        self._resend_wait = self._timing.resend_us or 0
        self._resend_at = NEVER
        if waiting:
            self._expect_answer(now)

    def _acknowledge(self) -> None:
        self.outbox.append(Ack(self._expected - 1))
        self._ack_due = 0
        self._ack_at = NEVER

    def _acknowledge_by(self, time: Time) -> None:
        self._ack_at = min(self._ack_at, time)
        self.wake_at = min(self.wake_at, time)

    def _expect_answer(self, now: Time) -> None:
        if self._timing.resend_us is not None:
            self._resend_at = now + self._resend_wait
            self.wake_at = min(self.wake_at, self._resend_at)
