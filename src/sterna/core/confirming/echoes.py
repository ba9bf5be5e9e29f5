"""The brokers' part in confirming subscriptions: a question goes out, and its echo comes back.

A client's broker asks every neighbour from which matching events may come. Each of these asks its
other neighbours in the same way, and answers when all of them have answered; a broker that has
nobody to ask answers at once. (Propagation of information with feedback on a tree: Segall,
"Distributed network protocols", 1983.)

**Why the echo proves it.** A link keeps the order of its messages. A broker tells a neighbour of a
filter before it asks the neighbour, so the neighbour has the filter when it gets the question. If
the neighbour needed no message because another filter covers this one, that other filter was sent
over the same link earlier, and has arrived as well, even if it had been on its way.

**Who is asked.** Events may come from every neighbour. Where advertisements decide, they may come
from those whose advertisements overlap the filter, and neighbours whose advertisements arrive
before the broker has answered are asked, too. A neighbour that was asked for all events (flooding,
hierarchies) has to answer as well, for that wish may still be on its way. So has a publisher that
discards what nobody wants, while it is connected.

**What goes wrong.** A neighbour whose link is down is asked when the link is up again, behind the
subscriptions that waited for that. A link that is gone for good is not waited for. A neighbour that
has lost its memory is asked again. A neighbour that does not take part in the protocol gets no
message of it; the answer names that neighbour instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.confirming.asking import Asking
from sterna.core.confirming.messages import (
    CONFIRMING,
    Confirmation,
    ConfirmationAsked,
    Echo,
    EchoAsked,
    EchoDropped,
)
from sterna.core.inputs import LinkUp
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message, SubscriptionChange
from sterna.core.names import LinkId, NodeId, Peer, RouteId, Time
from sterna.core.protocol import Protocol
from sterna.core.settings import Settings
from sterna.model.filters import Filter

K = TypeVar("K")
V = TypeVar("V")


class Progress(Enum):
    """How far a question is with one neighbour."""

    TO_ASK = "to ask"
    ASKED = "asked"
    DONE = "done"


@dataclass(slots=True)
class Question:
    """Somebody wants to know when a filter is known."""

    asker: LinkId
    number: int
    """The number by which the asker recognises the answer."""
    filter: Filter
    subscription: RouteId | None = None
    """The name of the filter, if the asker is a client."""
    links: dict[LinkId, Progress] = field(default_factory=dict)
    but_not: dict[NodeId, None] = field(default_factory=dict)
    """The nodes that could not be asked."""

    @property
    def key(self) -> RouteId | int:
        """What the asker knows it by: a client has one question for each subscription."""
        return self.number if self.subscription is None else self.subscription


class KeptEcho(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a question."""

    own_number: int
    asker: LinkId
    number: int
    filter: Filter
    subscription: RouteId | None
    links: dict[LinkId, Progress]
    but_not: list[NodeId]


class KeptEchoes(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of the questions at a broker."""

    questions: list[KeptEcho]
    mute: list[LinkId]
    number: int


class Echoes(BrokerComponent):
    """Passes questions on, and answers them when all who were asked have answered.

    A client has at most one question for each of its subscriptions, so the limit of subscriptions
    bounds the questions as well. A question ends with its subscription; one about a subscription
    that a component answers for may stay until the client has twice as many questions as names.

    What a message costs does not depend on how many questions are open.
    """

    name = CONFIRMING
    handles = (ConfirmationAsked, EchoAsked, Echo, EchoDropped)
    Kept = KeptEchoes

    def __init__(self) -> None:
        self._questions: dict[int, Question] = {}
        """The open questions, by the numbers that this broker gives them."""
        self._askers: dict[LinkId, dict[RouteId | int, int]] = {}
        """Their numbers, by who has asked and what the asker knows them by."""
        self._concerned: dict[LinkId, dict[int, None]] = {}
        """Their numbers, by who was asked or has to be."""
        self._mute: dict[LinkId, None] = {}
        """The links whose other end does not take part in the protocol."""
        self._number = 0

    # ---- Messages

    def on_confirmation_asked(self, message: ConfirmationAsked, link: LinkId, now: Time) -> None:
        """A client asks; a question that it asked before about the same subscription ends."""
        if self.broker.goes_elsewhere(message, link, now):
            return
        self._drop_if_asked(link, message.subscription, now)
        self._drop_ended(link, now)
        filter_ = self._filter(link, message.subscription)
        if filter_ is not None:  # Else the client has unsubscribed.
            self._begin(Question(link, message.number, filter_, message.subscription), now)

    def on_echo_asked(self, message: EchoAsked, link: LinkId, now: Time) -> None:
        """A neighbour asks for all that lies behind this broker."""
        self._drop_if_asked(link, message.number, now)
        if message.filter.is_bound:
            self._begin(Question(link, message.number, message.filter), now)
        else:  # It means nothing here, so there is nothing to know.
            self.broker.send(link, Echo(number=message.number), now)

    def on_echo(self, message: Echo, link: LinkId, now: Time) -> None:
        """All behind a neighbour know a filter."""
        question = self._questions.get(message.number)
        if question is not None and question.links.get(link) is Progress.ASKED:
            question.links[link] = Progress.DONE
            question.but_not |= dict.fromkeys(message.but_not)
            self._answer_if_done(message.number, now)

    def on_echo_dropped(self, message: EchoDropped, link: LinkId, now: Time) -> None:
        """A neighbour does not wait for the answer any more."""
        self._drop_if_asked(link, message.number, now)

    # ---- Questions

    def _begin(self, question: Question, now: Time) -> None:
        self._number += 1
        self._open(self._number, question)
        self._pursue(self._number, now)

    def _open(self, number: int, question: Question) -> None:
        self._questions[number] = question
        self._askers.setdefault(question.asker, {})[question.key] = number
        for link in question.links:
            self._concerned.setdefault(link, {})[number] = None

    def _close(self, number: int) -> Question:
        question = self._questions.pop(number)
        _remove(self._askers, question.asker, question.key)
        for link in question.links:
            _remove(self._concerned, link, number)
        return question

    def _pursue(self, number: int, now: Time) -> None:
        """Ask whoever has to be asked by now, as far as the links are up."""
        broker, question = self.broker, self._questions[number]
        for link in broker.router.sources(question.filter):
            waits = broker.peers[link] is Peer.BROKER or link in broker.up
            if waits and link != question.asker and link not in question.links:
                question.links[link] = Progress.TO_ASK
                self._concerned.setdefault(link, {})[number] = None
        for link, progress in question.links.items():
            if progress is not Progress.TO_ASK or link not in broker.up:
                continue
            if link in self._mute:
                question.but_not[link] = None
                question.links[link] = Progress.DONE
            else:
                broker.send(link, EchoAsked(number=number, filter=question.filter), now)
                question.links[link] = Progress.ASKED
        self._answer_if_done(number, now)

    def _pursue_all(self, now: Time) -> None:
        for number in list(self._questions):
            self._pursue(number, now)

    def _answer_if_done(self, number: int, now: Time) -> None:
        if all(each is Progress.DONE for each in self._questions[number].links.values()):
            self._answer(self._close(number), now)

    def _answer(self, question: Question, now: Time) -> None:
        kind = Echo if question.subscription is None else Confirmation
        answer = kind(number=question.number, but_not=tuple(question.but_not))
        if not self.broker.goes_elsewhere(answer, question.asker, now):
            self.broker.send(question.asker, answer, now)

    def _drop(self, number: int, now: Time) -> None:
        """Nobody waits for the answer: those who were asked need not find it."""
        question = self._close(number)
        for link, progress in question.links.items():
            if progress is Progress.ASKED and self.broker.peers[link] is Peer.BROKER:
                self.broker.send(link, EchoDropped(number=number), now)

    def _drop_if_asked(self, asker: LinkId, key: RouteId | int, now: Time) -> None:
        number = self._askers.get(asker, {}).get(key)
        if number is not None:
            self._drop(number, now)

    def _drop_ended(self, asker: LinkId, now: Time) -> None:
        """Drop what a client asked about subscriptions that have ended since.

        Nobody says when an entry that a component made in the routing table ends. So it is looked
        up, but only when at least half of the questions must have ended.
        """
        asked = self._askers.get(asker, {})
        if len(asked) > 2 * sum(len(names) for _, names in self.broker.claimed(asker)):
            for key, number in list(asked.items()):
                if self._filter(asker, str(key)) is None:
                    self._drop(number, now)

    def _drop_all(self, asker: LinkId, now: Time) -> None:
        for number in list(self._askers.get(asker, {}).values()):
            self._drop(number, now)

    def _filter(self, client: LinkId, subscription: RouteId) -> Filter | None:
        return self.broker.router.subscriptions.widest_of(client, subscription)

    # ---- Moments

    def link_made(self, given: LinkUp, now: Time) -> None:
        del now
        self._mute.pop(given.link, None)
        if given.features is not None and CONFIRMING not in given.features:
            self._mute[given.link] = None

    def link_up(self, link: LinkId, now: Time) -> None:
        if self.broker.peers.get(link) is Peer.BROKER:
            self._pursue_all(now)

    def link_down(self, link: LinkId, now: Time) -> None:
        """A publisher that is away knows what is wanted before it publishes again."""
        if self.broker.peers.get(link) is Peer.CLIENT:  # Handover may have forgotten it already.
            self._do_without(link, now)

    def link_reset(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """The other end knows nothing of its own questions, nor of those it was asked."""
        del unconfirmed
        self._drop_all(link, now)
        if self.broker.peers[link] is Peer.CLIENT:
            self._do_without(link, now)
        for number in self._concerned.get(link, {}):
            self._questions[number].links[link] = Progress.TO_ASK

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        del unconfirmed
        self._mute.pop(link, None)
        self._drop_all(link, now)
        self._do_without(link, now)

    def link_disowned(self, link: LinkId, now: Time) -> None:
        self.link_gone(link, (), now)

    def _do_without(self, link: LinkId, now: Time) -> None:
        for number in sorted(self._concerned.pop(link, {})):
            del self._questions[number].links[link]
            self._answer_if_done(number, now)

    def subscriptions_changed(self, change: SubscriptionChange, link: LinkId, now: Time) -> None:
        """A question ends with its subscription."""
        if link in self._askers:
            for id_ in change.removed:
                self._drop_if_asked(link, id_, now)

    def advertisements_changed(self, link: LinkId, now: Time) -> None:
        """Events may come from a neighbour now: tell it what is wanted first, and then ask."""
        if self._questions and self.broker.peers.get(link) is Peer.BROKER:
            self.broker.router.tell(now)
            self._pursue_all(now)

    # ---- Settings and snapshots

    def configure(self, settings: Settings, now: Time) -> None:
        del settings
        self._pursue_all(now)

    def begin(self, now: Time) -> None:
        """Which neighbours take part is known when their links are made the next time."""
        del now
        self._mute = dict.fromkeys(self.broker.peers)

    def end(self, now: Time) -> bool:
        """Answer all questions: this broker does not take part any more."""
        for number, question in list(self._questions.items()):
            question.but_not[self.broker.id] = None
            self._answer(self._close(number), now)
        return True

    def keep(self, writer: Writer) -> KeptEchoes:
        del writer
        return KeptEchoes(
            questions=[
                KeptEcho(
                    own_number=number,
                    asker=each.asker,
                    number=each.number,
                    filter=each.filter,
                    subscription=each.subscription,
                    links=dict(each.links),
                    but_not=list(each.but_not),
                )
                for number, each in self._questions.items()
            ],
            mute=list(self._mute),
            number=self._number,
        )

    def restore(self, kept: KeptEchoes, reader: Reader) -> None:
        del reader
        for each in kept.questions:
            question = Question(
                each.asker,
                each.number,
                each.filter,
                each.subscription,
                dict(each.links),
                dict.fromkeys(each.but_not),
            )
            self._open(each.own_number, question)
        self._mute = dict.fromkeys(kept.mute)
        self._number = kept.number


def _remove(index: dict[LinkId, dict[K, V]], link: LinkId, key: K) -> None:
    del index[link][key]
    if not index[link]:
        del index[link]


PROTOCOL = Protocol(name=CONFIRMING, broker=Echoes, client=Asking, is_last=True)
