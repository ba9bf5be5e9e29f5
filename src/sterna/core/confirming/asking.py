"""The client's part in confirming subscriptions: it asks its broker, wherever it gets to."""

import msgspec

from sterna.core.component import ClientComponent
from sterna.core.confirming.facts import SubscriptionKnown
from sterna.core.confirming.messages import (
    CONFIRMING,
    Confirmation,
    ConfirmationAsked,
    Echo,
    EchoAsked,
)
from sterna.core.inputs import LinkUp
from sterna.core.keeping import Reader, Writer
from sterna.core.names import LinkId, NodeId, Time
from sterna.model.filters import Filter


class Asked(msgspec.Struct, frozen=True):
    """A question that the broker has, and what the subscription meant when it was asked."""

    number: int
    filter: Filter
    """What the broker was told of the subscription."""
    at: str | None
    """Where the client was, if the subscription depends on that."""


class KeptAsking(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of the questions of a client."""

    questions: list[tuple[str, Asked | None]]
    number: int
    is_mute: bool


class Asking(ClientComponent):
    """Asks the broker about subscriptions, one question for each at a time.

    A client that comes to another broker, or whose broker has lost its memory, asks again. So does
    one whose subscription means something else when the answer comes, because it has moved or set
    a variable.
    """

    name = CONFIRMING
    handles = (Confirmation, EchoAsked)
    facts = (SubscriptionKnown,)
    Kept = KeptAsking

    def __init__(self) -> None:
        self._unasked: dict[str, None] = {}
        """The subscriptions that the broker has not been asked about yet."""
        self._asked: dict[str, Asked] = {}
        """The questions that the broker has, by subscription."""
        self._numbers: dict[int, str] = {}
        """The subscriptions that these are about, by the numbers of the questions."""
        self._number = 0
        self._is_mute = False
        """Whether the broker does not take part in the protocol."""

    def ask(self, name: str, now: Time) -> None:
        """State `SubscriptionKnown` when every broker that matters knows a subscription."""
        if name not in self._asked:
            self._unasked[name] = None
            self._send(now)

    def on_confirmation(self, message: Confirmation, _link: LinkId, now: Time) -> None:
        name = self._numbers.get(message.number)
        if name is None or not self.client.is_introduced:
            return  # The subscription has ended or changed, or the broker was told farewell since.
        if self._close(name) == self._question(name, message.number):
            self._known(name, message.but_not, now)
        else:
            self._unasked[name] = None
            self._send(now)

    def on_echo_asked(self, message: EchoAsked, link: LinkId, now: Time) -> None:
        """The broker asks a publisher, which knows what is wanted from messages before this one."""
        self.client.send(link, Echo(number=message.number), now)

    def _send(self, now: Time) -> None:
        """Ask what was not asked yet, once the broker knows the client's subscriptions."""
        client = self.client
        if client.link is None or not client.may_publish:
            return
        unasked, self._unasked = self._unasked, {}
        for name in unasked:
            if self._is_mute:
                self._known(name, (client.link,), now)
                continue
            self._number += 1
            self._open(name, self._question(name, self._number))
            asked = ConfirmationAsked(subscription=client.route(name), number=self._number)
            client.send(client.link, asked, now)

    def _question(self, name: str, number: int) -> Asked:
        wants = self.client.wants
        depends = self.client.subscriptions[name].uses_myloc
        at = wants.whereabouts.context.location if depends else None
        return Asked(number, wants.told(name).filter, at)

    def _open(self, name: str, asked: Asked) -> None:
        self._asked[name] = asked
        self._numbers[asked.number] = name

    def _close(self, name: str) -> Asked | None:
        asked = self._asked.pop(name, None)
        if asked is not None:
            del self._numbers[asked.number]
        return asked

    def _known(self, name: str, but_not: tuple[NodeId, ...], now: Time) -> None:
        client = self.client
        client.state(SubscriptionKnown(at=client.id, time=now, subscription=name, but_not=but_not))

    # ---- Moments

    def link_made(self, given: LinkUp, now: Time) -> None:
        del now
        self._is_mute = given.features is not None and CONFIRMING not in given.features

    def link_up(self, link: LinkId, now: Time) -> None:
        del link
        self._send(now)

    def introduction_sent(self, now: Time) -> None:
        """The broker knows nothing of what was asked before."""
        self._unasked = dict.fromkeys((*self._asked, *self._unasked))
        self._asked, self._numbers = {}, {}
        self._send(now)

    def unsubscribed(self, name: str, now: Time) -> None:
        del now
        self._unasked.pop(name, None)
        self._close(name)

    # ---- Settings and snapshots

    def begin(self, now: Time) -> None:
        """Whether the broker takes part is known when its link is made the next time."""
        del now
        self._is_mute = True

    def end(self, now: Time) -> bool:
        """Answer all questions: the broker cannot be asked any more."""
        unknown = (self.client.link or self.client.id,)
        for name in (*self._asked, *self._unasked):
            self._known(name, unknown, now)
        return True

    def keep(self, writer: Writer) -> KeptAsking:
        del writer
        return KeptAsking(
            questions=[*self._asked.items(), *self._unasked.items()],
            number=self._number,
            is_mute=self._is_mute,
        )

    def restore(self, kept: KeptAsking, reader: Reader) -> None:
        del reader
        for name, asked in kept.questions:
            if asked is None:
                self._unasked[name] = None
            else:
                self._open(name, asked)
        self._number, self._is_mute = kept.number, kept.is_mute
