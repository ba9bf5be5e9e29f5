"""The router: keeps the table, announces to neighbours what is wanted here, and forwards events.

For each neighbour, the filters from all *other* links are reduced by the strategy, and the
difference to what was announced before is sent. (DESIGN: a strategy is a reduction; withdrawal is
the same difference.) Each filter gets a name of this broker when it comes in: the names that
neighbours and clients give are theirs, and two of them may be the same.
"""

from collections.abc import Collection, Mapping, Sequence

from sterna.core.component import BrokerComponent
from sterna.core.facts import Forwarded
from sterna.core.inputs import LinkUp
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import (
    AdvertisementChange,
    Announced,
    AnnouncementAsked,
    InterestAsked,
    Message,
    Route,
    SubscriptionChange,
    digest,
)
from sterna.core.names import NEVER, LinkId, Peer, RouteId, Time
from sterna.core.routing.kept import KeptRouter
from sterna.core.routing.neighbours import STEPS_MAX, Neighbours
from sterna.core.routing.offers import EARLIER, IMPLICIT, MANY, Offers
from sterna.core.routing.options import RoutingOptions
from sterna.core.routing.outdated import Outdated
from sterna.core.routing.stages import EVERYTHING, Effort
from sterna.core.routing.table import RoutingTable
from sterna.core.settings import Settings
from sterna.model.event import Event
from sterna.model.filters import Filter

PAUSE_US = 10_000
"""How many microseconds are between two such turns, for everything else."""


class Router(BrokerComponent):
    """Routing on an acyclic overlay of brokers, after the strategy that the options name."""

    name = "routing"
    handles = (SubscriptionChange, AdvertisementChange, AnnouncementAsked, Announced)
    Kept = KeptRouter

    def __init__(self, options: RoutingOptions) -> None:
        self.options = options
        self.subscriptions = RoutingTable()
        self.advertisements: dict[LinkId, dict[RouteId, Route]] = {}
        self._advertising: dict[LinkId, bool] = {}
        """Whether a neighbouring broker routes by advertisements, or a client knows that it has to
        advertise; not all have announced it."""
        self._outdated = Outdated()
        self._named = 0
        self._neighbours = Neighbours(options, self.subscriptions, self.advertisements, self._name)
        self._offers = Offers(self.advertisements, self._neighbours, self._name)

    # ---- Settings

    def configure(self, settings: Settings, now: Time) -> None:
        """Route in another way: neighbours are sent only the difference, so there is no gap."""
        before, self.options = self.options, settings.routing
        if before == self.options:
            return
        if self.options.by_advertisements and not before.by_advertisements:
            self._presume_advertisements(now)
        brokers = [link for link in self.broker.peers if self._is_told_as_broker(link)]
        self._neighbours.configure(self.options, brokers)
        for link in brokers:
            self._before_everything_ends(link, now)
        self.tell(now)

    def _before_everything_ends(self, link: LinkId, now: Time) -> None:
        """Have components tell a neighbour what they need before it hears that it shall not send
        everything any more: else what comes between the two messages would be lost.
        """
        known = self._neighbours.must_hear(link, EVERYTHING) and self.told_filters(link)
        if known and EVERYTHING in known.values():
            self._advertisements_changed(link, now)

    def advertising(self, link: LinkId, *, is_known: bool | None, now: Time) -> None:
        """A neighbouring broker routes by advertisements, or does not; None if that is not known.

        A client knows that it has to advertise, or does not.
        """
        if is_known is None or self._advertising.get(link) == is_known:
            return
        self._advertising[link] = is_known
        if self._is_told_as_broker(link):
            self._presume_peer(link, now)
            self._neighbours.begin_again(link)

    def _is_told_as_broker(self, link: LinkId) -> bool:
        return link in self._neighbours and self.broker.peers[link] is Peer.BROKER

    def _presume_advertisements(self, now: Time) -> None:
        """Peers that have advertised nothing so far may publish anything, until they advertise."""
        for link, peer in self.broker.peers.items():
            if peer is Peer.CLIENT:  # Whatever it knew before, it does not know of this.
                self._advertising[link] = False
            self._presume_peer(link, now)

    def _presume_peer(self, link: LinkId, now: Time) -> None:
        if (
            self.options.by_advertisements
            and not self._offers.of_this_life(link)
            and not self._advertises(link)
        ):
            self._offers.add(link, Route(IMPLICIT, EVERYTHING))
            self._advertisements_changed(link, now)

    def _advertises(self, link: LinkId) -> bool:
        """Whether a peer advertises what comes from it, as far as it is known."""
        return self._advertising.get(link, self.options.by_advertisements)

    # ---- Events

    def route(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        """Forward events that came over a link to all links that want them."""
        broker = self.broker
        to = self.subscriptions.match(events, broker.foresight)
        if link in to and broker.peers[link] is Peer.BROKER:
            del to[link]  # It has them; a client gets its own events back if it wants them.
        if to:
            broker.state(Forwarded(at=broker.id, time=now, source=link, to=to))
            for target, wanted in to.items():
                broker.send_events(wanted, target, now)

    def told(self, link: LinkId) -> int:
        """How many filters are announced to a neighbour."""
        return len(self._neighbours[link].subscriptions.difference.told)

    def told_filters(self, link: LinkId) -> dict[RouteId, Filter]:
        """The filters that are announced to a neighbour, by the names they have there."""
        told = self._neighbours[link].subscriptions.difference.told
        return {id_: route.filter for id_, route in told.items()}

    # ---- Messages

    def on_subscription_change(self, message: SubscriptionChange, link: LinkId, now: Time) -> None:
        self._outdated.hear(message, link)
        self._change_subscriptions(message, link)
        if message.added:  # Others may have been given ahead that hide them.
            self._neighbours.all_have_come()
        for changed in self.broker.hooks.subscriptions_changed:
            changed(message, link, now)
        self.tell(now)

    def change_ahead(
        self,
        part: SubscriptionChange | AdvertisementChange | InterestAsked,
        link: LinkId,
        now: Time,
    ) -> None:
        """Do a part of a message that is about to come; as a whole, it finds that part done."""
        if isinstance(part, SubscriptionChange):
            self._neighbours.many_come()
            self._change_subscriptions(part, link)
        elif isinstance(part, AdvertisementChange):
            self._offers.change(part, link, expected=True)
        elif self._has_many:
            self._neighbours.prepare_interest()
        self.tell(now, Effort(STEPS_MAX))

    def takes_long(self, message: Message | None, link: LinkId) -> bool:
        """Whether a message should be given ahead although it has few routes or none.

        None stands for the greeting of a neighbour, with which its link stands.
        """
        if message is None:
            return self.is_preparing(link)
        if isinstance(message, SubscriptionChange):
            return self._neighbours.takes_long(len(message.added))
        if isinstance(message, AdvertisementChange):
            gate = self._neighbours.gate(link)
            return bool(message.added) and gate is not None and gate.is_patient
        is_first = isinstance(message, InterestAsked) and not self._neighbours.has_interest
        return is_first and self._has_many

    def is_preparing(self, link: LinkId) -> bool:
        """Whether something is left to do before such a message can be handled quickly."""
        return self._neighbours.is_preparing(link, self.broker.up)

    @property
    def _has_many(self) -> bool:
        offers = sum(map(len, self.advertisements.values()))
        return len(self.subscriptions) + offers > MANY

    def expect(self, routes: Sequence[Route], link: LinkId, now: Time) -> None:
        """Prepare for some subscriptions of a client that is about to introduce itself.

        Neighbours know them from now on, and events go to the client once it has come.
        """
        self._neighbours.many_come()
        known = self.subscriptions.routes(link)
        for said in routes:
            is_known = said.id in known and known[said.id].filter == said.filter
            if is_known or not said.filter.is_bound or said.id in self._expected(link):
                continue
            route = Route(self._name(), said.filter)
            self.subscriptions.expect(link, said.id, route)
            self._neighbours.subscription_added(link, route)
        self.broker.awaited[link] = None
        self.tell(now, Effort(STEPS_MAX))

    def expect_offers(self, routes: Sequence[Route], link: LinkId, now: Time) -> None:
        """Neighbours know some advertisements of such a client from now on.

        What it has not advertised in the end leaves again.
        """
        self._offers.expect(routes, link)
        self.broker.awaited[link] = None
        self.tell(now)

    def frames_received(self, link: LinkId, now: Time) -> None:
        """The client has introduced itself; what else was expected of it leaves again."""
        self.link_down(link, now)

    def _expected(self, link: LinkId) -> Mapping[RouteId, Route]:
        return self.subscriptions.expected.get(link, {})

    def _expect_no_more(self, link: LinkId) -> None:
        """What was expected of a client and has not come leaves again."""
        routes = self.subscriptions.expect_no_more(link)
        self._neighbours.leaving.extend((link, route) for route in routes)
        self._offers.expect_no_more(link)

    def _change_subscriptions(self, message: SubscriptionChange, link: LinkId) -> None:
        """Enter and remove subscriptions."""
        for said in message.added:
            if not said.filter.is_bound:
                continue  # It means nothing here.
            known = self.subscriptions.routes(link).get(said.id)
            if known is not None:  # Announced twice: the last announcement counts.
                if known.filter == said.filter:
                    continue
                self._remove_subscription(link, said.id)
            route = self.subscriptions.take_expected(link, said)
            if route is not None:
                self.subscriptions.add(link, said.id, route)
                continue
            route = Route(self._name(), said.filter)
            self.subscriptions.add(link, said.id, route)
            self._neighbours.subscription_added(link, route)
        self._remove_subscriptions(link, message.removed)

    def on_advertisement_change(
        self, message: AdvertisementChange, link: LinkId, now: Time
    ) -> None:
        self._outdated.hear(message, link)
        self._offers.change(message, link)
        self._neighbours.arrived(link)
        if message.added:
            self._offers.remove(link, IMPLICIT)
        self._advertisements_changed(link, now)
        self.tell(now)

    # ---- Entries that a component answers for

    def enter(self, link: LinkId, id_: RouteId, filter_: Filter, widest: Filter) -> None:
        """Route events that match a filter to a link, without announcing it to brokers.

        The component does that in its own way. Publishers that quench get `widest`, which covers
        whatever the component may replace the filter with.
        """
        route = self.subscriptions.withdraw(link, id_)
        if route is None or route.filter != widest:  # Else publishers know all there is to know.
            if route is not None:
                self._neighbours.interest_removed(route)
            route = Route(self._name(), widest)
            self._neighbours.interest_added(route)
        self.subscriptions.enter(link, id_, filter_, route)

    def withdraw(self, link: LinkId, id_: RouteId) -> None:
        """End such an entry, if there is one; after the last change of a turn, call `tell`."""
        route = self.subscriptions.withdraw(link, id_)
        if route is not None:
            self._neighbours.interest_removed(route)

    def must_hear(self, link: LinkId, filter_: Filter) -> bool:
        """Whether a neighbouring broker has to know a filter for its events to come here."""
        return self._is_told_as_broker(link) and self._neighbours.must_hear(link, filter_)

    def sources(self, filter_: Filter) -> list[LinkId]:
        """The links over which matching events may come, of those whose other end is told filters.

        They lead to neighbouring brokers, and to publishers that discard what nobody wants.
        """
        return self._neighbours.sources(filter_)

    def is_offered(self, filters: Sequence[Filter], but_not: Collection[LinkId | None]) -> bool:
        """Whether events that match one of some filters were advertised over other links."""
        for link, routes in self.advertisements.items():
            if link in but_not:
                continue
            gate = self._neighbours.gate(link)
            for filter_ in filters:
                if gate is not None and gate.overlaps(filter_):
                    return True
                if gate is None and any(r.filter.overlaps(filter_) for r in routes.values()):
                    return True
        return False

    # ---- Links

    def link_made(self, given: LinkUp, now: Time) -> None:
        """If there is much to tell a neighbour, begin to prepare it before the link stands."""
        if given.peer is Peer.BROKER and self._has_many:
            self._neighbours.prepare(given.link, advertises=self._advertises(given.link))
            self.tell(now)

    def unprepare(self, link: LinkId) -> None:
        """The connection is lost before the link stood."""
        self._neighbours.end(link)

    def link_new(self, link: LinkId, now: Time) -> None:
        self._expect_no_more(link)
        is_known = self._is_told_as_broker(link)
        is_kept = any(keeps(link) for keeps in self.broker.hooks.keeps)
        if not is_known and not is_kept:
            self.live_again(link, now)
            self._forget(link, now, with_earlier=False)
        if link in self._neighbours:
            self._neighbours.forgot(link)
        elif self.broker.peers[link] is Peer.BROKER:
            self._neighbours.begin(link)
        self._presume_peer(link, now)
        self.tell(now)
        if is_known or (is_kept and self.broker.peers[link] is Peer.BROKER):
            self._ask_for_all(link, now)

    def _ask_for_all(self, link: LinkId, now: Time) -> None:
        """What a neighbour announced holds until it has announced all anew: else events that pass
        in between would be lost. (Release 0.1 does not answer; what it does not announce again
        stays, and brings it events that it does not need.)
        """
        subscriptions = list(self.subscriptions.routes(link))
        advertisements = [id_ for id_ in self.advertisements.get(link, {}) if id_ != IMPLICIT]
        if subscriptions or advertisements:
            self._outdated.begin(link, subscriptions, advertisements)
            self.broker.send(link, AnnouncementAsked(), now)

    def on_announcement_asked(self, _message: AnnouncementAsked, link: LinkId, now: Time) -> None:
        """All was announced when the link stood again, before this could arrive."""
        if self.broker.peers[link] is Peer.BROKER:
            self.broker.send(link, Announced(), now)

    def on_announced(self, _message: Announced, link: LinkId, now: Time) -> None:
        for change in self._outdated.end(link):
            self.broker.message_arrived(change, link, now)

    def link_up(self, link: LinkId, now: Time) -> None:
        if self._is_told_as_broker(link):
            self._before_everything_ends(link, now)
        self.tell(now)

    def link_down(self, link: LinkId, now: Time) -> None:
        if self._expected(link) or link in self._offers.expected:
            self._expect_no_more(link)
            self.tell(now)

    def link_gone(self, link: LinkId, _unconfirmed: Sequence[Message], now: Time) -> None:
        self._expect_no_more(link)
        self._advertising.pop(link, None)
        self._outdated.end(link)
        self._neighbours.end(link)
        if not any(outlasts(link) for outlasts in self.broker.hooks.outlasts):
            self._forget(link, now, with_earlier=False)
        self.tell(now)

    def forget_branch(self, link: LinkId, now: Time) -> None:
        """What came over a link that is gone is needed no longer."""
        self._forget(link, now)
        self.tell(now)

    def link_disowned(self, link: LinkId, now: Time) -> None:
        del now
        self._expect_no_more(link)
        self._neighbours.end(link)

    def tell_interest(self, link: LinkId, now: Time) -> None:
        """Keep a publisher informed of what is wanted from now on: the c_all of quenching."""
        self._neighbours.inform(link)
        self.tell(now)

    def live_again(self, client: LinkId, now: Time) -> None:
        """A client has lost its state: what it has advertised holds for a while (`offers.py`).

        If it does not know that it has to advertise, it may publish anything from now on.
        """
        is_client = self.broker.peers.get(client) is Peer.CLIENT
        if is_client and self.options.by_advertisements and self._advertises(client):
            self._offers.live_again(client, now)
            self._wake_for_earlier(now)

    def _wake_for_earlier(self, now: Time) -> None:
        if self._offers.due != NEVER:
            self.wake_by(max(self._offers.due, now + PAUSE_US))

    def introduced(
        self,
        subscriptions: Sequence[Route],
        advertisements: Sequence[Route],
        link: LinkId,
        now: Time,
    ) -> None:
        """A client announces all its subscriptions and advertisements; earlier ones end."""
        for said, known, change in (
            (subscriptions, self.subscriptions.routes(link), SubscriptionChange),
            (advertisements, self.advertisements.get(link, {}), AdvertisementChange),
        ):
            names = {route.id for route in said}
            removed = tuple(id_ for id_ in known if id_ not in names and _is_said(id_))
            if said or removed:
                self.broker.message_arrived(change(added=tuple(said), removed=removed), link, now)

    def drop(self, ids: Sequence[RouteId], link: LinkId) -> None:
        """End subscriptions that have just come over a link, before neighbours hear of them."""
        self._remove_subscriptions(link, ids)

    def announced_by(self, client: LinkId) -> tuple[tuple[Route, ...], tuple[Route, ...]]:
        """The subscriptions and the advertisements of a client, under the names that it gave."""
        subscriptions = self.subscriptions.routes(client)
        advertisements = self.advertisements.get(client, {})
        return (
            tuple(Route(id_, route.filter) for id_, route in subscriptions.items()),
            tuple(Route(i, r.filter) for i, r in advertisements.items() if _is_said(i)),
        )

    def advertised_by(self, client: LinkId) -> list[RouteId]:
        """The names of what a client may publish, but for what an earlier life has advertised."""
        return self._offers.of_this_life(client)

    def digest_of(self, client: LinkId) -> int:
        """A number that stands for the subscriptions and the advertisements of a client."""
        return digest(*self.announced_by(client))

    def _forget(self, link: LinkId, now: Time, *, with_earlier: bool = True) -> None:
        """Drop everything that came over a link, also in the earlier life of a client or not."""
        forgotten = tuple(self.subscriptions.routes(link))
        self._remove_subscriptions(link, forgotten)
        self._offers.forget(link, with_earlier=with_earlier)
        self._advertisements_changed(link, now)
        if forgotten:
            for changed in self.broker.hooks.subscriptions_changed:
                changed(SubscriptionChange(removed=forgotten), link, now)

    # ---- What changes where

    def _advertisements_changed(self, link: LinkId, now: Time) -> None:
        for changed in self.broker.hooks.advertisements_changed:
            changed(link, now)

    def _remove_subscriptions(self, link: LinkId, ids: Sequence[RouteId]) -> None:
        """Events go to the link no longer; if they are many, neighbours hear of it later."""
        if len(ids) > MANY:
            routes = self.subscriptions.retire(link, ids)
            self._neighbours.leaving.extend((link, route) for route in routes)
            return
        for id_ in ids:
            self._remove_subscription(link, id_)

    def _remove_subscription(self, link: LinkId, id_: RouteId) -> None:
        route = self.subscriptions.remove(link, id_)
        if route is not None:
            self._neighbours.subscription_removed(link, route)

    def tell(self, now: Time, looking: Effort | None = None) -> None:
        """Send each neighbour the difference if its link is up; otherwise it accumulates.

        What takes long goes on when the router wakes; all of it, if nobody relies on it in this
        turn, and `looking` limits how closely differences are looked at.
        """
        is_free = self.deadline >= self._offers.due  # Nothing else is to be done later.
        effort = Effort(STEPS_MAX if is_free else 0)
        self._go_on(effort, Effort() if looking is None else looking, now)

    def wake(self, now: Time) -> None:
        self._neighbours.prepare_some(Effort(STEPS_MAX))
        for link in self._offers.end_earlier(now):
            self._advertisements_changed(link, now)
        self._wake_for_earlier(now)
        self._go_on(Effort(STEPS_MAX), Effort(STEPS_MAX), now)
        for link in self._neighbours.take_unadvertised():
            self._advertisements_changed(link, now)

    def _go_on(self, effort: Effort, looking: Effort, now: Time) -> None:
        left = self._neighbours.let_leave(effort)
        self.subscriptions.sweep(left)
        for link, message in self._neighbours.due(self.broker.up, effort, looking):
            self.broker.send(link, message, now)
        if self._neighbours.waits(self.broker.up):
            self.wake_by(now + PAUSE_US)

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        """Whether neighbours are told all that they have to be."""
        return not self._neighbours.waits(self.broker.up)

    def _name(self) -> RouteId:
        self._named += 1
        return f"{self.broker.id}#{self._named}"

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptRouter:
        del writer
        interest, (publishers, ended) = self._neighbours.keep_interest()
        return KeptRouter(
            subscriptions=self.subscriptions.keep(),
            advertisements={link: dict(routes) for link, routes in self.advertisements.items()},
            neighbours=self._neighbours.keep(),
            advertising=dict(self._advertising),
            interest=interest,
            publishers=publishers,
            names=self._named,
            outdated=self._outdated.keep(),
            leaving=list(self._neighbours.leaving),
            ended=ended,
            ending=list(self._neighbours.ending),
            unadvertised=list(self._neighbours.unadvertised),
            expected_offers=self._offers.keep(),
            preparing=self._neighbours.keep_preparing(),
            earlier_until=self._offers.keep_earlier(),
        )

    def restore(self, kept: KeptRouter, reader: Reader) -> None:
        del reader
        self.subscriptions.restore(kept.subscriptions)
        self.advertisements.update({link: dict(each) for link, each in kept.advertisements.items()})
        self._advertising = dict(kept.advertising)
        self._neighbours.restore_interest(kept.interest, (kept.publishers, kept.ended))
        for link, each in kept.neighbours.items():
            if self.broker.peers[link] is Peer.BROKER:
                self._neighbours.restore_broker(link, each)
            else:
                self._neighbours.restore_publisher(link, each)
        self.broker.awaited |= dict.fromkeys(kept.subscriptions.expected)
        self._neighbours.leaving.extend(kept.leaving)
        self._neighbours.ending.extend(kept.ending)
        self._outdated.restore(kept.outdated)
        self._offers.restore(kept.expected_offers, kept.earlier_until)
        self.broker.awaited |= dict.fromkeys(kept.expected_offers)
        self._neighbours.restore_preparing(kept.preparing)
        self._neighbours.unadvertised |= dict.fromkeys(kept.unadvertised)
        self._named = kept.names  # Last: chains that are made again have used some names.


def _is_said(id_: RouteId) -> bool:
    """Whether a peer has given a name in its present life."""
    return id_ != IMPLICIT and not id_.startswith(EARLIER)
