"""The answers of a broker that does not hand clients over to those who expect that it does.

While a network changes its handover protocol, a client or a broker may not know yet that another
broker does not take part. Nobody waits for ever: the client is received with what it brings along,
and the broker learns that nothing was kept.
"""

from typing import TYPE_CHECKING

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.handover.messages import Arrival, Fetch, Replay, Request, Resubscribe, Welcome
from sterna.core.names import LinkId, NodeId, Peer, Time

if TYPE_CHECKING:
    from sterna.core.broker import Broker


class Declining(BrokerComponent):
    """Answers for relocation at a broker that has no part in it."""

    handles = (Arrival, Resubscribe, Fetch, Replay)

    def on_arrival(self, message: Arrival, link: LinkId, now: Time) -> None:
        """Receive a client with what it brings along.

        One that has not been born brings nothing: what it has announced over this link holds.
        """
        if message.born:
            self.broker.router.introduced(message.subscriptions, message.advertisements, link, now)
            for other in message.others:
                self.broker.message_arrived(other, link, now)
        self.broker.send(link, Welcome(published=0), now)

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
