"""What goes over a connection: messages with their numbers, and what a link session adds."""

from collections.abc import Iterable
from typing import final

import msgspec

from sterna.core.depot import Depot, Stretch
from sterna.core.messages import Message


class Frame(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What goes over a connection."""


@final
class Data(Frame, frozen=True):
    """A message with its number, and up to where the sender has received everything."""

    seq: int
    acknowledged: int
    message: Message


@final
class Paged(Frame, frozen=True):
    """Messages with consecutive numbers that are in a page.

    It never goes over a connection: the driver sends the messages one by one, each as a `Data` that
    acknowledges nothing.
    """

    seq: int
    """The number of the first message."""
    stretch: Stretch

    @property
    def last(self) -> int:
        """The number of the last message."""
        return self.seq + self.stretch.count - 1

    def without(self, count: int) -> "Paged":
        """What is left without the first so many messages; there is something left."""
        return Paged(self.seq + count, self.stretch.without(count))


def sendable(frame: Frame, depot: Depot) -> Iterable[Frame]:
    """The frames that go over a connection for one: messages in a page are sent one by one."""
    if type(frame) is not Paged:
        return (frame,)
    messages = enumerate(frame.stretch.messages(depot), frame.seq)
    return (Data(seq, 0, message) for seq, message in messages)


class Ack(Frame, frozen=True):
    """Acknowledges everything up to this number."""

    acknowledged: int


class Resume(Frame, frozen=True):
    """The first frame on a new connection: sender, addressee, and what was received so far."""

    incarnation: int
    """The sender's incarnation: a new number after it has lost its state of this link."""
    partner: int | None
    """The incarnation of the other end that the sender remembers; None if it remembers none."""
    acknowledged: int
    answers: bool
    """Whether this answers a Resume of the other end; if not, it asks for one."""
