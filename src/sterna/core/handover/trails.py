"""Where the events of roaming clients are: trails, births and departures.

Tables that are reduced by covering or merging do not tell where a client is, so each broker keeps a
*trail* for each roaming client: the link that leads to where its events are. A new client is
announced to all brokers once. A request follows the trail and turns it around on its way, as in the
arrow protocol (Demmer and Herlihy, 1998). A second request, sent before the first is answered,
follows the turned trail to the broker that sent the first and waits there. What a client left
behind is always at one place, or on its way to the next.

A client that leaves for good is announced to all brokers, too. They drop the trail and remember the
departure for a while: a request for something from before it is answered with nothing. Of two
numbers of the same client the greater one is the later one, so whatever crosses on the way, all
brokers agree in the end.
"""

import msgspec

from sterna.core.handover.messages import Departed, Located, Request
from sterna.core.keeping import Reader, Writer
from sterna.core.lives import Earlier
from sterna.core.names import LinkId, NodeId, Time

DEPARTED_MAX = 10_000
"""How many clients that have left a broker remembers."""

BURST = 2**20
"""How many events a client is assumed to have published at once, where nobody has counted them."""

STRANGERS_MAX = 10_000
"""How many requests for unknown clients a broker keeps."""


class Trail(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where the events for a client are: over a link, or (None) here."""

    link: LinkId | None
    born: int
    """The birth of the client it was laid for: a client that has lost its state is another one."""
    numbered: int | None = None
    """The number of its last event when this broker learned of its birth; None: not known."""
    since: Time = 0
    """When this broker learned of its birth."""
    first: int = 0
    """The birth of the same life for which trails were laid before; 0 if it is the only one."""

    @property
    def life(self) -> int:
        """The birth of the life that it leads to."""
        return self.first or self.born

    def last_number(self, now: Time) -> int | None:
        """The number of the client's last event, or a greater one; None if it is not known.

        The client may have published a burst, and then half a million events in each second. The
        estimate grows more slowly than the number that a right clock gives the client's next life.
        """
        if self.numbered is None:
            return None
        return self.numbered + BURST + max(0, now - self.since) // 2


class Departure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is remembered of a client that has left: its last visit, and its last event."""

    visit: int
    published: int
    numbered: int = 0
    """The greatest number that the client may have used for an event."""


class Stranger(msgspec.Struct, frozen=True):
    """A request for a client that this broker does not know yet."""

    request: Request
    source: LinkId | None
    since: Time


class KeptTrails(msgspec.Struct, frozen=True):
    """What a snapshot holds of trails and departures."""

    trails: dict[NodeId, Trail]
    departures: dict[NodeId, Departure]


class Trails:
    """The trails at one broker, and the clients that have left."""

    def __init__(self) -> None:
        self._trails: dict[NodeId, Trail] = {}
        self.departures: dict[NodeId, Departure] = {}

    def __contains__(self, client: object) -> bool:
        return client in self._trails

    def __getitem__(self, client: NodeId) -> Trail:
        return self._trails[client]

    def get(self, client: NodeId) -> Trail | None:
        """The trail of a client, if it is known."""
        return self._trails.get(client)

    def lay(self, client: NodeId, link: LinkId | None, born: int, *, renews: int = 0) -> None:
        """The events for a client are over a link, or (None) here."""
        trail = self._trails.get(client)
        if trail is None or trail.born != born:
            trail = Trail(link, born, first=renews)
        self._trails[client] = msgspec.structs.replace(trail, link=link)

    def number(self, client: NodeId, numbered: int | None, now: Time) -> None:
        """A client has used numbers up to this one for its events, as it was born just now."""
        trail = self._trails[client]
        self._trails[client] = msgspec.structs.replace(trail, numbered=numbered, since=now)

    def last_departure(self, client: NodeId) -> int:
        """The last visit of a client that has left, if that is remembered."""
        departure = self.departures.get(client)
        return 0 if departure is None else departure.visit

    def last_published(self, client: NodeId) -> int:
        """The number of the last event of a client that has left, if that is remembered."""
        departure = self.departures.get(client)
        return 0 if departure is None else departure.published

    def last_life(self, client: NodeId) -> int:
        """The latest number that is known of a client: of its departure, or of its birth."""
        trail = self._trails.get(client)
        return max(self.last_departure(client), 0 if trail is None else trail.born)

    def is_over(self, client: NodeId, born: int) -> bool:
        """Whether a life of a client has ended: it has left since, or was born anew."""
        trail = self._trails.get(client)
        return self.last_departure(client) >= born or (trail is not None and trail.life > born)

    def earlier(self, client: NodeId, now: Time) -> Earlier:
        """What is known of the lives of a client: the last departure, and the last birth."""
        trail, departure = self._trails.get(client), self.departures.get(client)
        seq = 0 if departure is None else max(departure.published, departure.numbered)
        if trail is not None:
            seq = max(seq, trail.last_number(now) or 0)
        return Earlier(self.last_life(client), seq)

    def locate(self, message: Located, link: LinkId, now: Time) -> bool:
        """Note that a new client is somewhere behind a link; return whether that is news."""
        if message.born <= self.last_life(message.client):
            return False
        numbered = self.numbered(message.client, message.numbered, now)
        self.lay(message.client, link, message.born, renews=message.renews)
        self.number(message.client, numbered, now)
        return True

    def numbered(self, client: NodeId, numbered: int | None, now: Time) -> int | None:
        """The greatest number that a client may have used, by its own word and in earlier lives."""
        return max(numbered or 0, self.earlier(client, now).seq) or numbered

    def depart(self, message: Departed) -> bool:
        """Note that a client has left for good; return whether that is news."""
        client = message.client
        if self.last_departure(client) >= message.visit:
            return False
        self.departures.pop(client, None)
        self.departures[client] = Departure(message.visit, message.published, message.numbered)
        if len(self.departures) > DEPARTED_MAX:
            del self.departures[next(iter(self.departures))]
        trail = self._trails.get(client)
        if trail is not None and trail.born <= message.visit:
            del self._trails[client]
        return True

    def end_here(self, client: NodeId) -> None:
        """Drop the trail of a client whose events are no longer here, nor anywhere else."""
        trail = self._trails.get(client)
        if trail is not None and trail.link is None:
            del self._trails[client]

    def link_gone(self, link: LinkId) -> None:
        """A client behind a link that is gone cannot be found, unless another link leads there."""
        self._trails = {
            client: trail for client, trail in self._trails.items() if trail.link != link
        }

    def news_for(self, link: LinkId, now: Time) -> list[Departed | Located]:
        """All that a new neighbour has to know."""
        departed = [
            Departed(
                client=client,
                visit=departure.visit,
                published=departure.published,
                numbered=departure.numbered,
            )
            for client, departure in self.departures.items()
        ]
        located = [
            Located(
                client=client,
                born=trail.born,
                numbered=trail.last_number(now),
                renews=trail.first,
            )
            for client, trail in self._trails.items()
            if trail.link != link
        ]
        return [*departed, *located]

    def join(self, others: "Trails") -> None:
        """Know what another protocol at this broker has known."""
        for client, departure in others.departures.items():
            if self.last_departure(client) < departure.visit:
                self.departures[client] = departure
        for client, trail in others._trails.items():
            if self.last_life(client) < trail.born:
                self._trails[client] = trail

    def keep(self) -> KeptTrails:
        """What a snapshot has to hold."""
        return KeptTrails(dict(self._trails), dict(self.departures))

    def restore(self, kept: KeptTrails) -> None:
        """Go on with what a snapshot has held."""
        self._trails, self.departures = dict(kept.trails), dict(kept.departures)


class Strangers:
    """Requests that wait until their client is known, in the order in which they came."""

    def __init__(self) -> None:
        self._by_client: dict[NodeId, list[Stranger]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, client: object) -> bool:
        return client in self._by_client

    def clients(self) -> list[NodeId]:
        """The clients that are asked for."""
        return list(self._by_client)

    def add(self, stranger: Stranger) -> Stranger | None:
        """Keep a request; return the oldest one, discarded for it, if there are too many."""
        self._by_client.setdefault(stranger.request.client, []).append(stranger)
        self._count += 1
        if self._count <= STRANGERS_MAX:
            return None
        first, *others = self.take(next(iter(self._by_client)))
        if others:
            self._by_client[first.request.client] = others
            self._count += len(others)
        return first

    def take(self, client: NodeId) -> list[Stranger]:
        """Take all requests for a client."""
        strangers = self._by_client.pop(client, [])
        self._count -= len(strangers)
        return strangers

    def keep(self, writer: Writer) -> list[tuple[int, LinkId | None, Time]]:
        """What a snapshot has to hold."""
        return [
            (writer.message(each.request), each.source, each.since)
            for strangers in self._by_client.values()
            for each in strangers
        ]

    def restore(self, kept: list[tuple[int, LinkId | None, Time]], reader: Reader) -> None:
        """Go on with what a snapshot has held."""
        for number, source, since in kept:
            self.add(Stranger(reader.message(number, Request), source, since))
