"""The naive handover: forget the client at the old broker, and have it subscribe at the new one.

What happens in between is lost, and what is on its way may come twice. (Fiege, 3.2 and Fig. 2)
"""

from sterna.core.component import BrokerComponent
from sterna.core.names import LinkId, Peer, Time
from sterna.core.protocol import Kind, Protocol


class Naive(BrokerComponent):
    """The border broker's part: a client that is gone has unsubscribed."""

    name = "naive"

    def link_down(self, link: LinkId, now: Time) -> None:
        is_kept = any(keeps(link) for keeps in self.broker.hooks.keeps)
        if self.broker.peers[link] is Peer.CLIENT and not is_kept:
            self.broker.forget(link, now)


NAIVE = Protocol(name="naive", kind=Kind.HANDOVER, broker=Naive)
