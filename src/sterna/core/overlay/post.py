"""Messages to brokers by name, over as many links as it takes."""

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import cast

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.handover.courier import Courier
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message
from sterna.core.names import LinkId, Peer, Time
from sterna.core.overlay.members import Members
from sterna.core.overlay.messages import Unicast
from sterna.core.protocol import Protocol
from sterna.core.sizes import Load

UNSENT_MAX = 10_000
"""How many messages wait at most for brokers that are not known."""


class KeptPost(msgspec.Struct, frozen=True):
    """What a snapshot holds of the messages that wait for a link."""

    held: dict[LinkId, list[int]]
    unsent: list[int]


class Unsent:
    """Messages that wait until their broker is known, in their order.

    If there are too many, the oldest one that its sender repeats is dropped, such as a question.
    Messages that are sent once are dropped only if no others are left.
    """

    def __init__(self) -> None:
        self._repeated: deque[tuple[int, Unicast]] = deque()
        self._once: deque[tuple[int, Unicast]] = deque()
        self._count = 0

    def __len__(self) -> int:
        return len(self._repeated) + len(self._once)

    def __iter__(self) -> Iterator[Unicast]:
        for _, message in merge(self._repeated, self._once, key=itemgetter(0)):
            yield message

    def add(self, message: Unicast) -> None:
        """Have a message wait behind all others."""
        self._count += 1
        waiting = self._repeated if message.is_repeated else self._once
        waiting.append((self._count, message))
        if len(self) > UNSENT_MAX:
            (self._repeated or self._once).popleft()


class Post(BrokerComponent):
    """Sends messages to other brokers, and passes on those of others.

    On each link they keep their place behind the subscriptions that were announced before them.
    """

    name = "post"
    Kept = KeptPost

    def __init__(self) -> None:
        self._courier = Courier()
        self.unsent = Unsent()
        """Messages to brokers that nobody has announced yet."""

    def send(self, message: Unicast, now: Time) -> None:
        """Send a message on its way, also to this broker itself."""
        if message.to == self.broker.id:
            self.broker.message_arrived(message, self.broker.id, now)
            return
        link = self.members.way_to(message.to)
        if link is not None:
            self._courier.send(self.broker, link, message, now)
        else:
            self.unsent.add(message)

    def overlay_changed(self, now: Time) -> None:
        """There may be a way now for what could not be sent."""
        unsent, self.unsent = self.unsent, Unsent()
        for message in unsent:
            self.send(message, now)

    @property
    def members(self) -> Members:
        """The broker's view of the overlay."""
        return cast("Members", self.broker.part(Members.name))

    def link_up(self, link: LinkId, now: Time) -> None:
        self._courier.link_up(self.broker, link, now)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """What may not have arrived over the link, or has waited for it, looks for another way."""
        if self.broker.peers[link] is Peer.BROKER:
            for message in (*unconfirmed, *self._courier.take(link)):
                if isinstance(message, Unicast):
                    self.send(message, now)

    def kept(self, link: LinkId) -> Load:
        return self._courier.held(link)

    def end(self, now: Time) -> bool:
        """It stays: other brokers may go on to send messages by name through this one."""
        del now
        return False

    def keep(self, writer: Writer) -> KeptPost:
        unsent = [writer.message(message) for message in self.unsent]
        return KeptPost(self._courier.keep(writer), unsent)

    def restore(self, kept: KeptPost, reader: Reader) -> None:
        self._courier.restore(kept.held, reader)
        for number in kept.unsent:
            self.unsent.add(reader.message(number, Unicast))


POST = Protocol(name="post", broker=Post, is_last=True)
