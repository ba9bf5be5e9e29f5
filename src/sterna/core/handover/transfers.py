"""How far a new broker is with fetching what a client has left behind at brokers that it named."""

from dataclasses import dataclass, field

import msgspec

from sterna.core.handover.messages import Arrival
from sterna.core.handover.transfer_messages import Question, UnsubscribeAsked
from sterna.core.keeping import Reader, Writer
from sterna.core.names import NodeId, Time
from sterna.model.event import Event


@dataclass(slots=True)
class Transfer:
    """What a guest waits for, and from whom."""

    arrival: Arrival
    to_ask: list[NodeId]
    """The brokers that are asked next, if the present one has nothing."""
    asked: dict[NodeId, None] = field(default_factory=dict)
    """Those that were asked already."""
    question: Question | None = None
    """What is asked, and not answered yet."""
    since: Time = 0
    """When it was sent."""
    published: int = 0
    """The number of the client's last event, as far as those who were asked know."""
    deferred: list[Question] = field(default_factory=list)
    """Questions of others, which can be answered when the client's subscriptions are known."""

    logged: list[Event] = field(default_factory=list)
    """Events that are in this broker's log, so that they need not be sent."""

    prefetch: int = 0
    """The number of the prediction that brings the client here; 0 if it has come."""
    copies: tuple[NodeId, ...] = ()
    """Other brokers that have something for the client, which they can discard afterwards."""

    @property
    def awaits_events(self) -> bool:
        """Whether this broker has subscribed for the client, and waits for its events."""
        return isinstance(self.question, UnsubscribeAsked)

    def defer(self, question: Question) -> None:
        """Answer a question later; the same one may come again."""
        self.deferred = [each for each in self.deferred if each.sender != question.sender]
        self.deferred.append(question)

    def keep(self, writer: Writer) -> "KeptTransfer":
        """What a snapshot has to hold."""
        return KeptTransfer(
            arrival=writer.message(self.arrival),
            to_ask=list(self.to_ask),
            asked=list(self.asked),
            question=None if self.question is None else writer.message(self.question),
            since=self.since,
            published=self.published,
            deferred=[writer.message(question) for question in self.deferred],
            logged=[writer.event(event) for event in self.logged],
            prefetch=self.prefetch,
            copies=self.copies,
        )


class KeptTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a transfer."""

    arrival: int
    to_ask: list[NodeId]
    asked: list[NodeId]
    question: int | None
    since: Time
    published: int
    deferred: list[int]
    logged: list[int]
    prefetch: int
    copies: tuple[NodeId, ...]

    def restored(self, reader: Reader) -> Transfer:
        """The transfer that was kept."""
        return Transfer(
            arrival=reader.message(self.arrival, Arrival),
            to_ask=self.to_ask,
            asked=dict.fromkeys(self.asked),
            question=None if self.question is None else reader.message(self.question, Question),
            since=self.since,
            published=self.published,
            deferred=[reader.message(number, Question) for number in self.deferred],
            logged=[reader.event(number) for number in self.logged],
            prefetch=self.prefetch,
            copies=self.copies,
        )
