"""Every broker knows the whole overlay, so that none makes a link that would close a ring.

Each broker announces to each neighbour the links on its own side: its own, and those that its other
neighbours announced. A network of brokers is a tree, so every link is announced from one side only,
and a link that a neighbour no longer announces has ended.

If a ring was closed nevertheless, its links are announced from both sides. The greatest link of a
ring is cut by the brokers at its ends. All brokers agree on it, and brokers that know less of the
network cut none that others would keep: a broker that sees a ring at all sees all of it.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from sterna.core.actions import Disconnect
from sterna.core.component import BrokerComponent
from sterna.core.differences import difference
from sterna.core.facts import RingFound
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message
from sterna.core.names import LinkId, NodeId, Peer, Time
from sterna.core.overlay.messages import OverlayChange, OverlayLink
from sterna.core.protocol import Protocol

Links = dict[OverlayLink, None]


class Way(NamedTuple):
    """How a broker is reached: over which link, and how many links there are to it."""

    link: LinkId
    hops: int


class KeptMembers(msgspec.Struct, frozen=True):
    """What a snapshot holds of the overlay."""

    heard: dict[LinkId, list[OverlayLink]]
    told: dict[LinkId, list[OverlayLink]]


class Members(BrokerComponent):
    """A broker's view of the overlay."""

    name = "overlay"
    handles = (OverlayChange,)
    Kept = KeptMembers

    def __init__(self) -> None:
        self._received: dict[LinkId, Links] = {}
        """The links that each neighbour has announced."""
        self._announced: dict[LinkId, Links] = {}
        """The links that were announced to each neighbour."""
        self._ways: dict[NodeId, Way] | None = None
        """The way to each broker; None if it has to be found out again."""

    def links(self) -> list[OverlayLink]:
        """All links of the overlay, as far as they are known."""
        return sorted(self._side(None))

    def brokers(self) -> list[NodeId]:
        """All brokers that can be reached, and this one."""
        return sorted({self.broker.id, *_ends(self._side(None))})

    def beyond(self, neighbour: LinkId) -> tuple[OverlayLink, ...]:
        """The links behind a neighbour, as far as they are known."""
        return tuple(self._received.get(neighbour, ()))

    def way_to(self, broker: NodeId) -> LinkId | None:
        """The neighbour that leads to a broker."""
        way = self._survey().get(broker)
        return None if way is None else way.link

    def nearest(self, brokers: Iterable[NodeId]) -> list[NodeId]:
        """Of some brokers, those that can be reached, the nearest first; equally near, by name."""
        ways = self._survey()
        known = [broker for broker in dict.fromkeys(brokers) if broker in ways]
        return sorted(known, key=lambda broker: (ways[broker].hops, broker))

    def _survey(self) -> dict[NodeId, "Way"]:
        """The way to each broker: found once, until the overlay changes."""
        if self._ways is None:
            self._ways = {}
            for neighbour, heard in self._received.items():
                for broker, way in _ways_over(neighbour, self.broker.id, heard).items():
                    known = self._ways.get(broker)
                    if known is None or way.hops < known.hops:
                        self._ways[broker] = way
        return self._ways

    def keep(self, writer: Writer) -> KeptMembers:
        del writer
        return KeptMembers(
            {link: list(links) for link, links in self._received.items()},
            {link: list(links) for link, links in self._announced.items()},
        )

    def restore(self, kept: KeptMembers, reader: Reader) -> None:
        del reader
        self._received = {link: dict.fromkeys(links) for link, links in kept.heard.items()}
        self._announced = {link: dict.fromkeys(links) for link, links in kept.told.items()}
        self._ways = None

    def begin(self, now: Time) -> None:
        for link in self.broker.known:  # One that is down comes back as a link that is known.
            self.link_new(link, now)
            if link in self._received:
                self.broker.send(link, OverlayChange(asks=True), now)

    def end(self, now: Time) -> bool:
        """Messages to brokers by name need it."""
        del now
        return self.broker.part("post") is None

    def link_new(self, link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is Peer.BROKER:
            self._received[link], self._announced[link] = {}, {}
            self._announce(now)

    def link_gone(self, link: LinkId, _unconfirmed: Sequence[Message], now: Time) -> None:
        if link in self._received:
            del self._received[link], self._announced[link]
            self._announce(now)

    def on_overlay_change(self, message: OverlayChange, link: LinkId, now: Time) -> None:
        heard = self._received.get(link)
        if heard is None:
            return
        for each in message.removed:
            heard.pop(each, None)
        heard |= dict.fromkeys(message.added)
        if message.asks:
            self._announced[link] = {}
        self._announce(now)
        if self.broker.part("election") is not None:
            return  # Brokers that make their own tree end what does not belong to it.
        for neighbour in self._too_many():
            self.broker.state(RingFound(at=self.broker.id, time=now, link=neighbour))
            self.broker.act(Disconnect(neighbour))
            self.broker.forget(neighbour, now)

    def _announce(self, now: Time) -> None:
        """Announce to each neighbour what has changed on this side of it."""
        self._ways = None
        for link, told in self._announced.items():
            side = self._side(link)
            added, removed = difference(told, side)
            if added or removed:
                self._announced[link] = side
                self.broker.send(link, OverlayChange(added=added, removed=removed), now)
        for changed in self.broker.hooks.overlay_changed:
            changed(now)

    def _side(self, link: LinkId | None) -> Links:
        """All links that are known, without those over a link."""
        side: Links = {}
        for neighbour, heard in self._received.items():
            if neighbour != link:
                side[self._own(neighbour)] = None
                side |= heard
        return side

    def _own(self, neighbour: NodeId) -> OverlayLink:
        return OverlayLink(*sorted((self.broker.id, neighbour)))

    def _too_many(self) -> list[LinkId]:
        """The neighbours that smaller links lead to as well: the ends of rings' greatest links."""
        parts: dict[NodeId, NodeId] = {}
        """One broker leads to another that is connected with it by links so far, or to itself."""
        found = []
        for link in self.links():
            a, b = _root(parts, link.a), _root(parts, link.b)
            if a != b:
                parts[a] = b
            elif self.broker.id in (link.a, link.b):
                found.append(link.b if link.a == self.broker.id else link.a)
        return [neighbour for neighbour in found if neighbour in self._received]


OVERLAY = Protocol(name="overlay", broker=Members)


def _root(parts: dict[NodeId, NodeId], broker: NodeId) -> NodeId:
    while parts.setdefault(broker, broker) != broker:
        parts[broker] = parts.setdefault(parts[broker], parts[broker])
        broker = parts[broker]
    return broker


def _ways_over(neighbour: NodeId, here: NodeId, links: Iterable[OverlayLink]) -> dict[NodeId, Way]:
    """The ways to all brokers behind a neighbour, which has announced these links."""
    beside: dict[NodeId, list[NodeId]] = {}
    for link in links:
        beside.setdefault(link.a, []).append(link.b)
        beside.setdefault(link.b, []).append(link.a)
    ways, to_visit = {neighbour: Way(neighbour, 1)}, deque([neighbour])
    while to_visit:
        broker = to_visit.popleft()
        for other in beside.get(broker, ()):
            if other != here and other not in ways:
                ways[other] = Way(neighbour, ways[broker].hops + 1)
                to_visit.append(other)
    return ways


def _ends(links: Iterable[OverlayLink]) -> set[NodeId]:
    return {end for link in links for end in (link.a, link.b)}
