"""What each neighbour is told: the filters from all *other* links, reduced by the strategy.

A neighbouring broker has a chain of its own. Publishers that quench share one, for they all hear
the same: what is wanted anywhere.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import cast

from sterna.core.messages import Message, Route
from sterna.core.names import LinkId, RouteId
from sterna.core.routing.advertisements import AdvertisementGate
from sterna.core.routing.announcements import (
    FEW_TOLD,
    PRESUMED,
    Announcement,
    KeptNeighbour,
    Neighbour,
)
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.routing.preparing import (
    Advertised,
    Filling,
    KeptPreparations,
    Leavable,
    Preparations,
)
from sterna.core.routing.stages import (
    Chain,
    Difference,
    Effort,
    Everything,
    Fan,
    NameRoute,
    Nothing,
)
from sterna.core.routing.strategies import KeptStage, difference, stages
from sterna.core.routing.table import RoutingTable
from sterna.model.filters import Filter

STEPS_MAX = 50
"""How many steps are done in one turn of what may take several."""


class Neighbours:
    """The chains from what a broker knows to what its neighbours are told."""

    def __init__(
        self,
        options: RoutingOptions,
        subscriptions: RoutingTable,
        advertisements: Mapping[LinkId, Mapping[RouteId, Route]],
        name: NameRoute,
    ) -> None:
        self._options = options
        self._subscriptions = subscriptions
        self._advertisements = advertisements
        self._name = name
        self._told: dict[LinkId, Neighbour] = {}
        self._interest: Chain | None = None
        """The chain that publishers share; None until one asks."""
        self._publishers = Fan()
        self.leaving: deque[tuple[LinkId, Route]] = deque()
        """Subscriptions that have ended together with many others, with the links that they came
        from. They are in the chains still, and leave them a few at a time."""
        self.ending: deque[tuple[LinkId, Route]] = deque()
        """Advertisements that have ended in the same way."""
        self.unadvertised: dict[LinkId, None] = {}
        """The neighbours of which some of these have left."""
        self._preparing = Preparations()

    def __contains__(self, link: LinkId) -> bool:
        return link in self._told

    def __getitem__(self, link: LinkId) -> Neighbour:
        return self._told[link]

    def gate(self, link: LinkId) -> AdvertisementGate | None:
        """What admits subscriptions to a neighbour, if something does."""
        return self._told[link].gate if link in self._told else None

    # ---- Who is told

    def begin(self, link: LinkId) -> None:
        """Start to tell a neighbouring broker what is known already."""
        if link in self._preparing:
            neighbour = self._told[link] = self._preparing.take(link)
            if neighbour.gate is not None:
                for route in self._advertisements.get(link, {}).values():  # If it is known still.
                    neighbour.gate.advertise(route)
                if PRESUMED in neighbour.gate:
                    neighbour.gate.unadvertise(PRESUMED)  # What it has admitted is looked at later.
            return
        neighbour = self._told[link] = self._made(link)
        for route in self._wanted(link):
            neighbour.subscriptions.chain.add(route)
        if neighbour.advertisements is not None:
            for route in self._offered(link):
                neighbour.advertisements.chain.add(route)
        if neighbour.gate is not None:
            for route in self._advertisements.get(link, {}).values():
                neighbour.gate.advertise(route)

    def _wanted(self, link: LinkId | None = None) -> Iterator[Route]:
        """All that is wanted, but not by the other end of a link."""
        for source in self._subscriptions.links():
            if source != link:
                yield from self._subscriptions.routes(source).values()
        yield from (route for source, route in self._unannounced() if source != link)

    def _offered(self, link: LinkId) -> Iterator[Route]:
        """All that is advertised, but not by the other end of a link."""
        for source, routes in self._advertisements.items():
            if source != link:
                yield from routes.values()
        yield from (route for source, route in self.ending if source != link)

    def begin_again(self, link: LinkId) -> None:
        """Tell a neighbouring broker in another way what it was told so far."""
        before = self._told.pop(link)
        self.begin(link)
        after = self._told[link]
        after.subscriptions.difference.follow(before.subscriptions.difference)
        if before.advertisements is not None:
            # It may route by advertisements still: if none are sent now, anything may come.
            offers = after.advertisements or self._offering_everything()
            self._told[link] = after._replace(advertisements=offers)
            offers.difference.follow(before.advertisements.difference)

    def forgot(self, link: LinkId) -> None:
        """A neighbour has forgotten all that it was told."""
        neighbour = self._told[link]
        neighbour.subscriptions.difference.forget()
        if neighbour.advertisements is not None:
            neighbour.advertisements.difference.forget()

    def end(self, link: LinkId) -> None:
        """There is nobody to tell any more."""
        self._preparing.drop(link)
        gone = self._told.pop(link, None)
        if gone is not None and self._is_publisher(gone):
            self._publishers.leave(gone.subscriptions.difference)

    def inform(self, link: LinkId) -> None:
        """From now on a publisher hears what is wanted: the c_all of quenching."""
        if self._interest is None:
            self._share_interest()
        if link not in self._told:
            told = difference(Strategy.MERGING)
            self._publishers.join(told)
            self._told[link] = Neighbour(Announcement(cast("Chain", self._interest), told))

    def configure(self, options: RoutingOptions, brokers: Iterable[LinkId]) -> None:
        """Reduce in another way: neighbours will be told the difference, so there is no gap."""
        self._options = options
        self._preparing.clear()
        for link in brokers:
            self.begin_again(link)
        if self._interest is not None:
            self._share_interest()

    # ---- Who will be told

    def prepare(self, link: LinkId, *, advertises: bool) -> None:
        """Begin to prepare what a neighbouring broker is told once its link stands."""
        if link in self._told or link in self._preparing:
            return
        neighbour = self._made(link)
        if neighbour.gate is not None and not advertises:
            neighbour.gate.advertise(PRESUMED)
        self._preparing.begin(link, neighbour, self._wanted(link), self._offered(link))

    def prepare_interest(self) -> None:
        """Begin to prepare what the first publisher is told that asks what is wanted."""
        if self._interest is None and self._preparing.interest is None:
            self._publishers = Fan()
            wanted = [*self._wanted(), *self._subscriptions.widest()]
            self._preparing.interest = Filling(self._interest_chain(), wanted)

    def arrived(self, link: LinkId) -> None:
        """It has advertised what was expected: all that it has to be told then comes out."""
        gate = self.gate(link)
        if gate is not None and gate.is_expecting:
            gate.arrive()
            self._told[link].subscriptions.chain.flush(Effort())

    def prepare_some(self, effort: Effort) -> None:
        """Go on with what is being prepared."""
        self._preparing.go_on(effort)
        for neighbour in self._told.values():
            chain, gate = neighbour.subscriptions.chain, neighbour.gate
            if chain.has_new or (gate is not None and gate.is_expecting):
                chain.flush(effort)

    def is_preparing(self, link: LinkId, up: Collection[LinkId]) -> bool:
        """Whether something is left to do before the next message of a link can be handled."""
        gate = self.gate(link)
        if gate is not None and gate.is_expecting:
            return self._told[link].subscriptions.chain.waits
        return self._preparing.waits_for(link) or any(
            told.chain.has_new or (other in up and told.difference.is_unlooked)
            for other, (told, *_) in self._told.items()
        )

    def many_come(self) -> None:
        """Many subscriptions are about to come in this turn, and nobody relies on them yet.

        If many neighbours are told, they hear of them in several turns.
        """
        if len(self._told) <= FEW_TOLD:
            return
        for neighbour in self._told.values():
            if neighbour.subscriptions.chain is not self._interest:
                neighbour.subscriptions.chain.many_come()

    def all_have_come(self) -> None:
        """Somebody relies on them from now on."""
        for neighbour in self._told.values():
            if neighbour.subscriptions.chain.has_new:
                neighbour.subscriptions.chain.flush(Effort())

    def takes_long(self, subscriptions: int) -> bool:
        """Whether it takes long to compare so many for all who are told."""
        return len(self._told) > FEW_TOLD and subscriptions > 0

    @property
    def has_interest(self) -> bool:
        """Whether a publisher was told what is wanted."""
        return self._interest is not None

    # ---- What they are told

    def subscription_added(self, link: LinkId, route: Route) -> None:
        """Somebody at the end of a link has subscribed."""
        for chain in self._concerned(link):
            chain.add(route)

    def _unannounced(self) -> Iterator[tuple[LinkId, Route]]:
        """What is in the chains although nobody has announced it: it has ended, or is expected."""
        yield from self.leaving
        for link, routes in self._subscriptions.expected.items():
            yield from ((link, route) for route in routes.values())

    def let_leave(self, effort: Effort) -> int:
        """Take some of those that have ended out of the chains; return how many subscriptions.

        What they covered waits until all have left: it would find another one that leaves.
        """
        before = len(self.leaving)
        self._let_go(self.leaving, self._concerned, effort)
        left = before - len(self.leaving)
        if self.ending and effort:
            self.unadvertised |= dict.fromkeys(self._let_go(self.ending, self._listening, effort))
        if self.leaving or self.ending:
            effort.steps = 0
        return left

    def _let_go(
        self,
        leaving: deque[tuple[LinkId, Route]],
        concerned: Callable[[LinkId], Sequence[Leavable]],
        effort: Effort,
    ) -> list[LinkId]:
        """Have some leave where they are; return the links that they came from."""
        many_go: dict[LinkId, Sequence[Leavable]] = {}
        while leaving and effort:
            link, route = leaving.popleft()
            if link not in many_go:
                many_go[link] = concerned(link)
                for each in many_go[link]:
                    each.many_go()
            for each in many_go[link]:
                each.remove(route)
            effort.steps -= max(1, len(many_go[link]))
        return list(many_go)

    def take_unadvertised(self) -> list[LinkId]:
        """The neighbours that have advertised less since this was asked, once all is done."""
        if self.ending:
            return []
        links, self.unadvertised = self.unadvertised, {}
        return [link for link in links if self.gate(link) is not None]

    def subscription_removed(self, link: LinkId, route: Route) -> None:
        """Somebody at the end of a link has unsubscribed."""
        for chain in self._concerned(link):
            chain.remove(route)

    def _concerned(self, link: LinkId) -> list[Chain | Filling]:
        """The chains that filters from a link go into: all other brokers', and the publishers'."""
        chains: list[Chain | Filling] = [
            neighbour.subscriptions.chain
            for other, neighbour in self._told.items()
            if other != link and neighbour.subscriptions.chain is not self._interest
        ]
        chains += self._preparing.wanting(link)
        shared = self._interest or self._preparing.interest
        return chains if shared is None else [*chains, shared]

    def interest_added(self, route: Route) -> None:
        """Something is wanted that only publishers hear of."""
        shared = self._interest or self._preparing.interest
        if shared is not None:
            shared.add(route)

    def interest_removed(self, route: Route) -> None:
        """It is wanted no more."""
        shared = self._interest or self._preparing.interest
        if shared is not None:
            shared.remove(route)

    def advertisement_added(self, link: LinkId, route: Route, *, expected: bool = False) -> None:
        """Somebody at the end of a link has advertised, or is expected to."""
        for other, neighbour in self._told.items():
            if other == link and neighbour.gate is not None:
                gate = neighbour.gate
                (gate.expect if expected else gate.advertise)(route)
                neighbour.subscriptions.difference.look_again()
            if other != link and neighbour.advertisements is not None:
                neighbour.advertisements.chain.add(route)
        for filling in self._preparing.offering(link):
            filling.add(route)

    def advertisement_removed(self, link: LinkId, route: Route) -> None:
        """Somebody at the end of a link has unadvertised."""
        for each in self._listening(link):
            each.remove(route)

    def _listening(self, link: LinkId) -> list[Leavable]:
        """Where advertisements that came over a link are known."""
        gate = self.gate(link)
        chains = [
            neighbour.advertisements.chain
            for other, neighbour in self._told.items()
            if other != link and neighbour.advertisements is not None
        ]
        gates = [] if gate is None else [Advertised(gate)]
        return [*gates, *chains, *self._preparing.offering(link)]

    def must_hear(self, link: LinkId, filter_: Filter) -> bool:
        """Whether a neighbour has to know a filter for its events to come here."""
        neighbour = self._told[link]
        if neighbour.gate is not None:
            return neighbour.gate.overlaps(filter_)
        return not neighbour.sends_everything

    def sources(self, filter_: Filter) -> list[LinkId]:
        """The links over which events that match a filter may come."""
        return [
            link
            for link, neighbour in self._told.items()
            if neighbour.gate is None or neighbour.gate.overlaps(filter_)
        ]

    def due(
        self, up: Collection[LinkId], effort: Effort, looking: Effort
    ) -> Iterator[tuple[LinkId, Message]]:
        """The difference for each neighbour whose link is up; for the others it accumulates.

        `looking` is for finding out whether a difference matters. What it does not suffice for is
        found out in later turns, so nobody may rely on it before.
        """
        for link, neighbour in self._told.items():
            due = neighbour.due(is_up=link in up, effort=effort, looking=looking)
            yield from ((link, message) for message in due)
        if self._interest is not None and not self._interest.waits:
            self._publishers.forget_ended()

    def waits(self, up: Collection[LinkId]) -> bool:
        """Whether something is left to do in later turns."""
        return (
            bool(self.leaving or self.ending or self.unadvertised)
            or any(each.waits(is_up=link in up) for link, each in self._told.items())
            or self._preparing.waits
        )

    # ---- Chains

    def _made(self, link: LinkId, *, begins: bool = True) -> Neighbour:
        """What a neighbouring broker is told, as the options have it."""
        options = self._options
        strategy = options.strategy
        advertising = options.by_advertisements
        upwards = options.hierarchical and link == options.parent
        downwards = options.hierarchical and not upwards
        gate = AdvertisementGate() if advertising and not upwards else None
        reduction = stages(strategy, self._name, members_max=options.merge_members_max)
        if downwards and not advertising:
            reduction = [Everything(self._name)]  # All events come up.
        if not options.announces:
            reduction = [Nothing()]
        sends_everything = any(isinstance(stage, Everything) for stage in reduction)
        if gate is not None:
            reduction = [gate, *reduction]
        end = difference(strategy, gate)
        advertisements = None
        if advertising and not downwards:
            offers = difference(strategy)
            offering = stages(strategy, self._name, members_max=options.merge_members_max)
            advertisements = Announcement(Chain(offering, offers, begins=begins), offers)
        told = Announcement(Chain(reduction, end, begins=begins), end)
        return Neighbour(told, advertisements, gate, sends_everything)

    def _offering_everything(self) -> Announcement:
        offers = Difference()
        return Announcement(Chain([Everything(self._name)], offers), offers)

    def _share_interest(self) -> None:
        """Begin to reduce for publishers what is wanted, or begin again with other options."""
        publishers = [link for link, each in self._told.items() if self._is_publisher(each)]
        self._interest = self._preparing.take_interest()
        if self._interest is None:
            self._publishers = Fan()
            self._interest = self._interest_chain()
            for route in (*self._wanted(), *self._subscriptions.widest()):
                self._interest.add(route)
            self._interest.flush(Effort(STEPS_MAX))
        for link in publishers:
            before, told = self._told[link].subscriptions, difference(Strategy.MERGING)
            self._publishers.join(told)
            told.follow(before.difference)
            self._told[link] = Neighbour(Announcement(self._interest, told))

    def _interest_chain(self, *, begins: bool = True) -> Chain:
        reduction = stages(
            Strategy.MERGING, self._name, members_max=self._options.interest_members_max
        )
        return Chain(reduction, self._publishers, begins=begins)

    def _is_publisher(self, neighbour: Neighbour) -> bool:
        return neighbour.subscriptions.chain is self._interest

    # ---- Snapshots

    def keep(self) -> dict[LinkId, KeptNeighbour]:
        """What a snapshot has to hold of each neighbour."""
        return {link: self._kept(each) for link, each in self._told.items()}

    def keep_preparing(self) -> KeptPreparations:
        """What it has to hold of what is being prepared."""
        return self._preparing.keep()

    def keep_interest(self) -> tuple[list[KeptStage] | None, tuple[list[Route], list[Route]]]:
        """What it has to hold of what publishers share: the chain, and what comes out of it."""
        interest = None if self._interest is None else self._interest.keep()
        return interest, self._publishers.keep()

    def _kept(self, neighbour: Neighbour) -> KeptNeighbour:
        told, offers = neighbour.subscriptions, neighbour.advertisements
        return KeptNeighbour(
            subscriptions=[] if self._is_publisher(neighbour) else told.chain.keep(),
            difference=told.difference.keep(),
            advertisements=[] if offers is None else offers.chain.keep(),
            offers=None if offers is None else offers.difference.keep(),
        )

    def restore_interest(
        self, interest: list[KeptStage] | None, publishers: tuple[list[Route], list[Route]]
    ) -> None:
        """Go on with what a snapshot has held of what publishers share; call this first."""
        self._publishers.restore(publishers)
        if interest is not None:
            self._interest = self._interest_chain(begins=False)
            self._interest.restore(interest)

    def restore_publisher(self, link: LinkId, kept: KeptNeighbour) -> None:
        """Go on with what a publisher was told."""
        told = difference(Strategy.MERGING)
        told.restore(kept.difference)
        self._publishers.rejoin(told)
        self._told[link] = Neighbour(Announcement(cast("Chain", self._interest), told))

    def restore_broker(self, link: LinkId, kept: KeptNeighbour) -> None:
        """Go on with what a neighbouring broker was told."""
        neighbour = self._made(link, begins=False)
        neighbour.subscriptions.chain.restore(kept.subscriptions)
        neighbour.subscriptions.difference.restore(kept.difference)
        if kept.offers is not None:
            offers = neighbour.advertisements or self._offering_everything()
            offers.chain.restore(kept.advertisements)
            offers.difference.restore(kept.offers)
            neighbour = neighbour._replace(advertisements=offers)
        self._told[link] = neighbour

    def restore_preparing(self, kept: KeptPreparations) -> None:
        """Go on with what was being prepared."""
        self._preparing.restore(
            kept,
            lambda link: self._made(link, begins=False),
            lambda: self._interest_chain(begins=False),
        )
