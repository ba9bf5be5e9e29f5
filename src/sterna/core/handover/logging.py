"""Logging: only what the new broker does not have is sent. (Burcea et al., 3.2.2)

As the standard algorithm, but after step 2 the old broker sends the identities of the events that
it has stored. The new broker looks for them in its log of recent events, and asks for the others
only. So neighbours with similar interests save each other the transfer.
"""

from typing import cast

from sterna.core.handover.guests import Guest
from sterna.core.handover.roaming import Roaming
from sterna.core.handover.standard import Standard
from sterna.core.handover.transfer_messages import (
    IdsAsked,
    IdsFound,
    Question,
    SubscriptionsAsked,
)
from sterna.core.handover.transfers import Transfer
from sterna.core.history.recent import Recent
from sterna.core.names import LinkId, NodeId, Time
from sterna.core.protocol import Kind, Protocol


class Logging(Standard):
    """The brokers' part in logging."""

    name = "logging"
    handles = (*Standard.handles, IdsFound)
    sends_ids = True

    # ---- After step 2, at the old broker

    def on_subscriptions_asked(self, message: SubscriptionsAsked, link: LinkId, now: Time) -> None:
        """Send a client's subscriptions to its new broker, and then what it is going to get."""
        super().on_subscriptions_asked(message, link, now)
        if self.has(message):
            self._send_ids(message, now)

    def on_ids_asked(self, message: IdsAsked, _link: LinkId, now: Time) -> None:
        """A client has brought its subscriptions to its new broker: the identities are missing."""
        if self.is_asked_for(message, now):
            self._send_ids(message, now)

    def _send_ids(self, question: Question, now: Time) -> None:
        ids = tuple(event.id for event in self.guests.kept(self.broker, question.client, now))
        found = IdsFound(
            to=question.sender,
            sender=self.broker.id,
            client=question.client,
            number=question.number,
            ids=ids,
        )
        self.broker.post.send(found, now)

    # ---- After step 2, at the new broker

    def subscribed(
        self, client: NodeId, guest: Guest, now: Time, *, ids_follow: bool = False
    ) -> None:
        """The identities follow the subscriptions, unless the client has brought these.

        A broker with another strategy sends none.
        """
        if guest.brings:
            self.ask(client, guest, IdsAsked, now)
        elif not ids_follow:
            self.ask_for_events(client, guest, now)

    def on_ids_found(self, message: IdsFound, _link: LinkId, now: Time) -> None:
        """The identities of a guest's events: ask for those that are not in the log."""
        guest = self.answered(message, (IdsAsked, SubscriptionsAsked), now)
        if guest is not None:
            transfer = cast("Transfer", guest.transfer)
            log = cast("Recent | None", self.broker.part(Recent.name))
            if log is not None:  # It may have ended before this does.
                transfer.logged = log.memory.find(message.ids)
            self.ask_for_events(message.client, guest, now)


LOGGING = Protocol(
    name="logging",
    kind=Kind.HANDOVER,
    broker=Logging,
    client=Roaming,
    needs=("overlay", "past", "post"),
)
