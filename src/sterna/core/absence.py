"""How many clients a broker remembers that are away, and whom it forgets when there are too many.

Anybody can connect under a new name and vanish, again and again. The clients that cost the least
are forgotten first: those without subscriptions for which nothing is kept, and of these, those that
have been away for the longest time. Only when there are none left do others go, in that order, too.
If the filters of all of them are too many, those with the most filters are forgotten first.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message
from sterna.core.names import LinkId, NodeId, Peer, Time
from sterna.core.settings import Settings

AT_ONCE = 250
"""So many clients are forgotten in one turn, if the settings allow for much fewer suddenly."""

PAUSE_US: Time = 50_000
"""How long others have their turn before more are forgotten."""


class Away(NamedTuple):
    """What is noted of a client when its connection is lost."""

    filters: int
    """How many filters it has announced."""
    place: int
    """How many clients were away before, and when this one was: of two, the greater is later."""


class KeptAbsence(msgspec.Struct, frozen=True):
    """What a snapshot holds of the clients that are away, those that went first at the front."""

    light: list[tuple[NodeId, int, int]]
    laden: list[tuple[NodeId, int, int]]
    count: int


class Absence(BrokerComponent):
    """Bounds how many clients a broker remembers that are away, whatever protocol serves them."""

    name = "absence"
    Kept = KeptAbsence

    def __init__(self) -> None:
        self._light: dict[NodeId, Away] = {}
        """Clients that lose nothing when they are forgotten; the first went away first."""
        self._laden: dict[NodeId, Away] = {}
        """Clients that have subscriptions, or for which something is kept."""
        self._filters = 0
        """How many filters all of them have announced."""
        self._most: list[tuple[int, int, NodeId]] = []
        """A heap with the most filters first; entries of clients that are back remain a while."""
        self._count = 0

    def __len__(self) -> int:
        return len(self._light) + len(self._laden)

    def link_down(self, link: LinkId, now: Time) -> None:
        del now
        if self.broker.peers[link] is Peer.CLIENT:
            self._enter(link)

    def link_up(self, link: LinkId, now: Time) -> None:
        del now
        self._leave(link)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        del unconfirmed, now
        self._leave(link)

    def configure(self, settings: Settings, now: Time) -> None:
        del settings
        if self._surplus() is not None:
            self.wake_by(now)  # When all other components know the settings.

    def wake(self, now: Time) -> None:
        self.forget_surplus(now)

    def find(self) -> None:
        """Note who is away, from a snapshot that does not say who went first."""
        for link in self.broker.known:
            if self.broker.peers[link] is Peer.CLIENT and link not in self.broker.up:
                self._enter(link)

    # ---- Who is away

    def _enter(self, client: NodeId) -> None:
        broker, self._count = self.broker, self._count + 1
        claimed = {kind: len(names) for kind, names in broker.claimed(client)}
        away = Away(sum(claimed.values()), self._count)
        is_laden = (
            away.filters > claimed.get("advertisement", 0)
            or broker.queued(client).events
            or broker.kept(client).events
            or any(is_kept(client) for is_kept in broker.hooks.is_kept_elsewhere)
        )
        (self._laden if is_laden else self._light)[client] = away
        self._filters += away.filters
        if away.filters:
            heappush(self._most, (-away.filters, away.place, client))

    def _leave(self, client: NodeId) -> None:
        away = self._light.pop(client, None) or self._laden.pop(client, None)
        if away is None:
            return
        self._filters -= away.filters
        if len(self._most) > 2 * len(self) + 64:
            self._rank()

    def _rank(self) -> None:
        """Find out anew who has the most filters."""
        both = (*self._light.items(), *self._laden.items())
        self._most = [(-away.filters, away.place, client) for client, away in both if away.filters]
        heapify(self._most)

    # ---- Whom to forget

    def forget_surplus(self, now: Time) -> None:
        """Forget clients until there are no more than the settings allow."""
        left = []
        for _ in range(AT_ONCE):
            client = self._surplus()
            if client is None:
                break
            self._leave(client)
            if not self._forget(client, now):
                left.append(client)
        else:
            if len(left) < AT_ONCE:
                self.wake_by(now + PAUSE_US)
        for client in left:
            self._enter(client)

    def _surplus(self) -> NodeId | None:
        """The next client that has to go; None if nobody has to."""
        options = self.broker.settings.handover
        if options.away_clients_max is not None and len(self) > options.away_clients_max:
            return next(iter(self._light or self._laden))
        if options.away_filters_max is not None and self._filters > options.away_filters_max:
            return self._with_most()
        return None

    def _with_most(self) -> NodeId:
        while True:
            _, place, client = self._most[0]
            away = self._light.get(client) or self._laden.get(client)
            if away is not None and away.place == place:
                return client
            heappop(self._most)

    def _forget(self, client: NodeId, now: Time) -> bool:
        """Forget a client, unless a component that looks after it needs it for a while."""
        broker = self.broker
        if any(keeps(client) for keeps in broker.hooks.keeps):
            return any(forget(client, now) for forget in broker.hooks.forget_away)
        broker.forget_early(client, now)
        return True

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptAbsence:
        del writer
        light, laden = (
            [(client, *away) for client, away in each.items()]
            for each in (self._light, self._laden)
        )
        return KeptAbsence(light, laden, self._count)

    def restore(self, kept: KeptAbsence, reader: Reader) -> None:
        del reader
        self._light = {client: Away(*away) for client, *away in kept.light}
        self._laden = {client: Away(*away) for client, *away in kept.laden}
        self._filters = sum(
            away.filters for each in (self._light, self._laden) for away in each.values()
        )
        self._count = kept.count
        self._rank()
