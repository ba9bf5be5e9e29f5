"""Requests that were sent on, and whose replay has not come back yet."""

from sterna.core.handover.messages import Replay, Request
from sterna.core.keeping import Reader, Writer
from sterna.core.names import LinkId, NodeId

Key = tuple[NodeId, NodeId, int]
"""The broker that asks, the client, and the number of the request at that broker."""


class UnderWay:
    """The requests that a broker has sent on: if a link begins anew, they are sent over it again.

    The neighbour may have an old memory, and not remember that it was asked. If it does remember,
    it ignores what it is asked again.
    """

    def __init__(self) -> None:
        self._sent: dict[Key, tuple[Request, LinkId]] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def begin(self, request: Request, link: LinkId) -> None:
        """A request is sent on over a link."""
        self._sent[_key("", request)] = request, link

    def has(self, broker: NodeId, request: Request) -> bool:
        """Whether this broker has sent a request on, and the replay has not come back."""
        return _key(broker, request) in self._sent

    def end(self, broker: NodeId, replay: Replay) -> None:
        """A replay has come back to this broker."""
        self._sent.pop(_key(broker, replay), None)

    def end_before(self, client: NodeId, born: int) -> None:
        """A client was born anew: requests of its earlier life do not matter any more."""
        self._sent = {
            key: sent
            for key, sent in self._sent.items()
            if key[1] != client or sent[0].born >= born
        }

    def over(self, link: LinkId) -> list[Request]:
        """The requests that were sent over a link."""
        return [request for request, sent_over in self._sent.values() if sent_over == link]

    def take(self, link: LinkId) -> list[Request]:
        """The requests that were sent over a link that never comes back."""
        taken = self.over(link)
        self._sent = {key: sent for key, sent in self._sent.items() if sent[1] != link}
        return taken

    def keep(self, writer: Writer) -> list[tuple[int, LinkId]]:
        """What a snapshot has to hold."""
        return [(writer.message(request), link) for request, link in self._sent.values()]

    def restore(self, kept: list[tuple[int, LinkId]], reader: Reader) -> None:
        """Go on with what a snapshot has held."""
        for number, link in kept:
            self.begin(reader.message(number, Request), link)


def _key(broker: NodeId, message: Request | Replay) -> Key:
    return message.path[0] if message.path else broker, message.client, message.number
