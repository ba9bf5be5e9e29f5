"""The answers of a broker that does not hand clients over to those who expect that it does.

While a network changes its handover protocol, a client or a broker may not know yet that another
broker does not take part. Nobody waits for ever: the client is received with what it brings along,
and the broker learns that nothing was kept.
"""

from typing import TYPE_CHECKING

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.handover.messages import (
    Arrival,
    Fetch,
    Introduction,
    Replay,
    Request,
    Resubscribe,
    Welcome,
)
from sterna.core.handover.transfer_messages import (
    IdsAsked,
    Question,
    Registration,
    SubscriptionsAsked,
    UnsubscribeAsked,
)
from sterna.core.names import LinkId, NodeId, Peer, Time
from sterna.core.overlay.messages import Unicast

if TYPE_CHECKING:
    from sterna.core.broker import Broker


class Declining(BrokerComponent):
    """Answers for protocols that hand clients over at a broker that has no part in them."""

    handles = (
        *(Arrival, Introduction, Resubscribe, Fetch, Replay),
        *(SubscriptionsAsked, IdsAsked, UnsubscribeAsked, Registration),
    )

    def on_arrival(self, message: Arrival, link: LinkId, now: Time) -> None:
        """Receive a client with what it brings along.

        One that has not been born brings nothing: what it has announced over this link holds.
        """
        if message.born and message.brings:
            self.broker.router.introduced(message.subscriptions, message.advertisements, link, now)
        for other in message.others:
            self.broker.message_arrived(other, link, now)
        known = None if message.brings else self.broker.router.digest_of(link)
        self.broker.send(link, Welcome(published=0, known=known), now)

    def on_introduction(self, message: Introduction, link: LinkId, now: Time) -> None:
        """A client was welcomed without what it has subscribed to."""
        router = self.broker.router
        router.introduced(message.subscriptions, message.advertisements, link, now)

    def on_subscriptions_asked(self, message: SubscriptionsAsked, link: LinkId, now: Time) -> None:
        """Another broker asks for the subscriptions of its client."""
        self._have_nothing(message, link, now)

    def on_ids_asked(self, message: IdsAsked, link: LinkId, now: Time) -> None:
        """Another broker asks which events were kept for its client."""
        self._have_nothing(message, link, now)

    def on_unsubscribe_asked(self, message: UnsubscribeAsked, link: LinkId, now: Time) -> None:
        """Another broker asks for what was kept for its client."""
        self._have_nothing(message, link, now)

    def on_registration(self, message: Registration, link: LinkId, now: Time) -> None:
        """Another broker asks for the events of a client that had its home here."""
        self._have_nothing(message, link, now)

    def _have_nothing(self, question: Question, link: LinkId, now: Time) -> None:
        forget_absent(self.broker, question.client, now)
        self.not_passed_on(question, link, now)

    def not_passed_on(self, message: Unicast, link: LinkId, now: Time) -> None:
        """Answer a question that goes no further: the overlay is a tree, so it came the way back.

        An answer that goes no further is lost.
        """
        if isinstance(message, Question) and self.broker.peers.get(link) is Peer.BROKER:
            self.broker.send(link, message.nothing(), now)

    def on_resubscribe(self, message: Resubscribe, _link: LinkId, now: Time) -> None:
        """Another broker asks for what was kept for its client."""
        self._decline(message, now)

    def on_fetch(self, message: Fetch, _link: LinkId, now: Time) -> None:
        """Another broker asks for what was kept for its client."""
        self._decline(message, now)

    def on_replay(self, message: Replay, _link: LinkId, now: Time) -> None:
        """Pass on what comes through here on its way back."""
        if message.path:
            *before, link = message.path
            if link in self.broker.peers:
                onward = msgspec.structs.replace(message, path=tuple(before))
                self.broker.send(link, onward, now)

    def _decline(self, request: Request, now: Time) -> None:
        """Answer that nothing was kept, and keep nothing from now on."""
        forget_absent(self.broker, request.client, now)
        nothing = Replay(
            client=request.client,
            number=request.number,
            events=(),
            missed=(),
            moving=(),
            published=0,
            path=request.path,
            forgotten=True,
        )
        self.on_replay(nothing, "", now)


def forget_absent(broker: "Broker", client: NodeId, now: Time) -> None:
    """A client is elsewhere now: drop what waits for it here, unless it is connected again."""
    if broker.peers.get(client) is Peer.CLIENT and not broker.is_connected(client):
        broker.forget(client, now)
