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
        self._questions: dict[str, Asked | None] = {}
        """The open questions by subscription; None if the broker has not been asked yet."""
        self._number = 0
        self._is_mute = False
        """Whether the broker does not take part in the protocol."""

    def ask(self, name: str, now: Time) -> None:
        """State `SubscriptionKnown` when every broker that matters knows a subscription."""
        self._questions.setdefault(name, None)
        self._send(now)

    def on_confirmation(self, message: Confirmation, _link: LinkId, now: Time) -> None:
        numbers = {asked.number: name for name, asked in self._questions.items() if asked}
        name = numbers.get(message.number)
        if name is None or not self.client.is_introduced:
            return  # The subscription has ended or changed, or the broker was told farewell since.
        if self._questions[name] == self._question(name, message.number):
            self._known(name, message.but_not, now)
        else:
            self._questions[name] = None
            self._send(now)

    def on_echo_asked(self, message: EchoAsked, link: LinkId, now: Time) -> None:
        """The broker asks a publisher, which knows what is wanted from messages before this one."""
        self.client.send(link, Echo(number=message.number), now)

    def _send(self, now: Time) -> None:
        """Ask what was not asked yet, once the broker knows the client's subscriptions."""
        client = self.client
        if client.link is None or not client.may_publish:
            return
        for name in [name for name, asked in self._questions.items() if asked is None]:
            if self._is_mute:
                self._known(name, (client.link,), now)
                continue
            self._number += 1
            self._questions[name] = self._question(name, self._number)
            asked = ConfirmationAsked(subscription=client.route(name), number=self._number)
            client.send(client.link, asked, now)

    def _question(self, name: str, number: int) -> Asked:
        wants = self.client.wants
        depends = self.client.subscriptions[name].uses_myloc
        at = wants.whereabouts.context.location if depends else None
        return Asked(number, wants.told(name).filter, at)

    def _known(self, name: str, but_not: tuple[NodeId, ...], now: Time) -> None:
        del self._questions[name]
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
        self._questions = dict.fromkeys(self._questions)
        self._send(now)

    def unsubscribed(self, name: str, now: Time) -> None:
        del now
        self._questions.pop(name, None)

    # ---- Settings and snapshots

    def begin(self, now: Time) -> None:
        """Whether the broker takes part is known when its link is made the next time."""
        del now
        self._is_mute = True

    def keep(self, writer: Writer) -> KeptAsking:
        del writer
        return KeptAsking(
            questions=list(self._questions.items()), number=self._number, is_mute=self._is_mute
        )

    def restore(self, kept: KeptAsking, reader: Reader) -> None:
        del reader
        self._questions = dict(kept.questions)
        self._number, self._is_mute = kept.number, kept.is_mute
