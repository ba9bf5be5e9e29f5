"""What goes to a part of the network that is cut off waits, and goes on when there is a way again.

A tree that changes loses links, and what was on its way over them. So the brokers at the ends of a
link that is gone keep what was not confirmed, and go on to keep whatever is wanted in the *branch*
behind it: its subscriptions stay in the table. When brokers of that branch are reachable again, by
whatever way, the *end* of the link has the nearest of them (if the neighbour itself is back, it
alone) say when it can go on:

1. The end asks (`BranchAsked`).
2. The broker answers (`BranchReady`). The answer follows the subscriptions of the branch over each
   link, as all messages by name do: now whatever is published comes there as usual.
3. The end sends what it has kept (`KeptForBranch`), and the broker routes it to all links. What has
   been there before, clients drop as repeated.
4. The broker tells all others that this was all (`BranchServed`), behind what it has routed. An end
   that expects something itself, from other branches, has this wait until that has come.

What a neighbour has confirmed may be lost with it, or be kept where nobody can reach it. So for a
while, brokers remember what they have sent, and it counts as kept when the link is gone.

**Order.** What is published meanwhile may come before what was kept, and then clients would take
the latter for repeated. So a broker has its own clients wait while it has `doubts`, for a bounded
time, and then puts what has come in the order of its publishers' numbers. News of the overlay goes
the way that events go, so it knows in time. What it does not wait for any longer comes too late if
a client has got a later event of the same publisher.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Self, cast

from sterna.core.component import BrokerComponent
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Events, Message
from sterna.core.names import LinkId, NodeId, Peer, Time
from sterna.core.overlay.branch_parts import (
    BranchAsked,
    BranchCutOff,
    BranchGivenUp,
    BranchOptions,
    BranchReached,
    BranchReady,
    BranchServed,
    Cut,
    KeptBranches,
    KeptCut,
    KeptForBranch,
    OrderWaited,
    Recent,
)
from sterna.core.overlay.doubts import Doubts, tree
from sterna.core.overlay.members import Members
from sterna.core.overlay.messages import OverlayLink
from sterna.core.overlay.recents import Recents
from sterna.core.protocol import Protocol
from sterna.core.routing.router import PAUSE_US
from sterna.core.settings import Settings
from sterna.core.sizes import batches
from sterna.model.event import Event, EventId

ASK_AGAIN_US = 1_000_000
"""A broker that has not served its branch after so long is asked again."""

PASSED_MAX = 10_000
"""How many events are remembered that have been over a link, so that none goes there twice."""

NOWHERE = ""
"""What has been kept comes over no link, and may be wanted over any."""

SEEN_MAX = 1_000
"""How many announcements are remembered, so that each is passed on once."""


class Branches(BrokerComponent):
    """Keeps what goes to branches that are cut off, and has clients wait where order is unsure."""

    name = "branches"
    handles = (BranchAsked, BranchReady, KeptForBranch, BranchServed)
    facts = (BranchCutOff, BranchReached, BranchGivenUp, OrderWaited)
    version = 2  # Version 1 does not say what was sent again.
    Kept = KeptBranches
    older = {1: (KeptBranches, lambda kept: kept)}  # noqa: RUF012 - a constant.

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.options_of(cls.name, BranchOptions))

    def __init__(self, options: BranchOptions | None = None) -> None:
        self.options = options or BranchOptions()
        self.cuts: dict[LinkId, Cut] = {}
        self._recents = Recents()
        self._pending: list[BranchAsked] = []
        """Questions to answer when all neighbours are told what they have to be."""
        self._seen: dict[tuple[NodeId, NodeId, int], None] = {}
        self._passed: dict[LinkId, dict[EventId, None]] = {}
        """The last events that were over each link to a broker. Some come again, over other links:
        what was kept, and while there is a ring, what is in it."""
        self._number = 0
        self._doubts: Doubts | None = None

    def configure(self, settings: Settings, now: Time) -> None:
        del now
        self.options = settings.options_of(self.name, BranchOptions)

    def begin(self, now: Time) -> None:
        """Know the links that there are: some of them may end at once."""
        self.doubts.compare(self.members.links(), self.members.brokers(), now)

    def end(self, now: Time) -> bool:
        for neighbour in list(self.cuts):
            self._give_up(neighbour, now)
        self.doubts.clear()
        self._look_at_order(now)
        return True

    @property
    def doubts(self) -> Doubts:
        """The links that are gone, as far as clients have to wait for them."""
        if self._doubts is None:
            self._doubts = Doubts(self.broker.id)
        return self._doubts

    @property
    def members(self) -> Members:
        """The broker's view of the overlay."""
        return cast("Members", self.broker.part(Members.name))

    # ---- What is kept

    def outlasts(self, link: LinkId) -> bool:
        if self.broker.peers[link] is not Peer.BROKER or self.is_ending:
            return False
        return link in self.broker.known or link in self.cuts

    def keeps(self, link: LinkId) -> bool:
        return link in self.cuts

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        if self.outlasts(link) and link in self.broker.known:  # Else the two ends have never met.
            self._cut_off(link, unconfirmed, now)

    def link_reset(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """The other end has forgotten the link; what it had not confirmed goes there again."""
        if self.broker.peers[link] is Peer.BROKER:
            self._cut_off(link, unconfirmed, now)

    def _cut_off(self, link: LinkId, unconfirmed: Iterable[Message], now: Time) -> None:
        self._passed.pop(link, None)
        sent = [e for each in unconfirmed if isinstance(each, Events) for e in each.events]
        recent = {event.id: event for event in self._recents.take(link, now)}
        new = {event.id: event for event in sent if event.id not in recent}
        events = [*new.values(), *recent.values()]
        cut = self.cuts.get(link)
        if cut is None:
            cut = self.cuts[link] = Cut(now)
            self.broker.state(
                BranchCutOff(at=self.broker.id, time=now, neighbour=link, events=len(events))
            )
        cut.since, cut.is_open = now, False
        beyond = dict.fromkeys((*cut.beyond, *self.members.beyond(link)))
        cut.beyond = (*beyond, *(lost for lost, _ in self.doubts.lost if lost not in beyond))
        cut.behind = self._behind(link, cut.beyond)
        cut.asked.clear()
        cut.served.clear()
        cut.sent.clear()
        cut.finishing.clear()
        self._keep(link, cut, events, now)
        self.wake_by(now + self.options.keep_us)

    def _behind(self, link: LinkId, beyond: Iterable[OverlayLink]) -> frozenset[NodeId]:
        """The brokers that links lead to, and the neighbour itself."""
        others = [each for each in beyond if self.broker.id not in (each.a, each.b)]
        return frozenset(tree(others, link))

    def _keep(self, link: LinkId, cut: Cut, events: Sequence[Event], now: Time) -> None:
        new = {event.id: event for event in events if event.id not in cut.had}
        cut.kept.extend(new.values())
        cut.came += len(new)
        cut.had |= dict.fromkeys(new)
        over = len(cut.kept) - self.options.events_max
        if over > 0:
            for _ in range(over):
                cut.had.pop(cut.kept.popleft().id, None)
            self.broker.state(
                BranchGivenUp(at=self.broker.id, time=now, neighbour=link, events=over)
            )

    def events_arriving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        del now
        if self.broker.peers[link] is Peer.BROKER:
            self._pass_over(link, events)
        return events

    def _pass_over(self, link: LinkId, events: Sequence[Event]) -> Sequence[Event]:
        """Those of some events that have not been over a link, in any direction; now they are."""
        passed = self._passed.setdefault(link, {})
        new = [event for event in events if event.id not in passed]
        passed |= dict.fromkeys(event.id for event in new)
        for _ in range(len(passed) - PASSED_MAX):
            del passed[next(iter(passed))]
        return new

    def events_leaving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        cut = self.cuts.get(link)
        if cut is not None and not (cut.is_open and link in self.broker.known):
            self._keep(link, cut, events, now)
            return ()
        if self.broker.peers.get(link) is Peer.BROKER:
            events = self._pass_over(link, events)
            self._remember(link, events, now)
        return events

    def _remember(self, link: LinkId, events: Sequence[Event], now: Time) -> None:
        """The neighbour may be lost with what it has confirmed, or without a way on.

        If a link behind it is gone, that is so until what was kept there has come.
        """
        recent_us = self.options.recent_us
        since = min((lost.since for lost in self.doubts.lost.values()), default=now) - recent_us
        self._recents.remember(link, events, now, recent_us=recent_us, since=since)

    # ---- Who gets it

    def overlay_changed(self, now: Time) -> None:
        members = self.members
        if self.doubts.compare(members.links(), members.brokers(), now):
            self._passed.clear()  # What has been over a link may be wanted there now.
        for neighbour, cut in list(self.cuts.items()):
            self._look_for(neighbour, cut, now)
        self._look_at_order(now)

    def _look_for(self, neighbour: NodeId, cut: Cut, now: Time) -> None:
        """Ask the nearest brokers of a branch that can be reached, or be done with it."""
        edge, is_whole = self._edge(neighbour, cut)
        for broker in [each for each in cut.asked if each not in edge]:
            del cut.asked[broker]
        for broker in edge:
            asked_at = cut.asked.get(broker)
            if broker in cut.served or (asked_at is not None and now < asked_at + ASK_AGAIN_US):
                continue
            self._number += 1
            cut.number, cut.asked[broker] = self._number, now
            cut.sent.pop(broker, None)
            cut.finishing.pop(broker, None)
            asked = BranchAsked(
                to=broker, sender=self.broker.id, neighbour=neighbour, number=cut.number
            )
            self.broker.post.send(asked, now)
            self.wake_by(now + ASK_AGAIN_US)
        if is_whole and all(broker in cut.served for broker in edge):
            self._end(neighbour, now)

    def _edge(self, neighbour: NodeId, cut: Cut) -> tuple[list[NodeId], bool]:
        """The nearest brokers of a branch that can be reached, and whether these are all ways."""
        beside: dict[NodeId, list[NodeId]] = {}
        for link in cut.beyond:
            beside.setdefault(link.a, []).append(link.b)
            beside.setdefault(link.b, []).append(link.a)
        edge, is_whole = [], True
        visited, to_visit = {neighbour: None, self.broker.id: None}, deque([neighbour])
        while to_visit:
            broker = to_visit.popleft()
            if self.members.way_to(broker) is not None:
                edge.append(broker)
                continue
            is_whole = False
            for other in beside.get(broker, ()):
                if other not in visited:
                    visited[other] = None
                    to_visit.append(other)
        return edge, is_whole

    def on_branch_asked(self, message: BranchAsked, _link: LinkId, now: Time) -> None:
        """A broker has kept something for this branch."""
        self._pending.append(message)
        self._answer(now)

    def _answer(self, now: Time) -> None:
        if not self._pending:
            return
        if not self.broker.router.is_settled:
            self.wake_by(now + PAUSE_US)
            return
        pending, self._pending = self._pending, []
        for asked in pending:
            ready = BranchReady(
                to=asked.sender,
                sender=self.broker.id,
                neighbour=asked.neighbour,
                number=asked.number,
            )
            self.broker.post.send(ready, now)

    def on_branch_ready(self, message: BranchReady, _link: LinkId, now: Time) -> None:
        """Send what is kept; from now on, events come there as usual."""
        neighbour, by = message.neighbour, message.sender
        cut = self.cuts.get(neighbour)
        if cut is None or by not in cut.asked:
            return
        self._send_kept(neighbour, cut, by, now)
        cut.is_open = by == neighbour

    def _send_kept(self, neighbour: NodeId, cut: Cut, to: NodeId, now: Time) -> None:
        """Send a broker of the branch what it has not been sent."""
        new = min(len(cut.kept), cut.came - cut.sent.get(to, 0))
        events = list(islice(cut.kept, len(cut.kept) - new, None))
        is_all = not self.doubts.expects_from_others(cut.behind)
        groups = list(batches(events)) or [()]
        for place, group in enumerate(groups, 1):
            kept = KeptForBranch(
                to=to,
                sender=self.broker.id,
                neighbour=neighbour,
                number=cut.number,
                events=tuple(group),
                is_last=is_all and place == len(groups),
            )
            self.broker.post.send(kept, now)
        link = self.members.way_to(to)
        if link is not None:
            self._remember(link, events, now)
        cut.asked[to], cut.sent[to] = now, cut.came
        if is_all:
            cut.finishing[to] = None

    def _finish(self, now: Time) -> None:
        """Tell branches that they have all, where that has just become known."""
        for neighbour, cut in self.cuts.items():
            waiting = [each for each in cut.sent if each in cut.asked and each not in cut.finishing]
            if waiting and not self.doubts.expects_from_others(cut.behind):
                for broker in waiting:
                    self._number += 1
                    cut.number = self._number
                    self._send_kept(neighbour, cut, broker, now)

    def on_kept_for_branch(self, message: KeptForBranch, _link: LinkId, now: Time) -> None:
        """What was kept for this branch: it may be wanted anywhere."""
        if message.events:
            self.broker.router.route(message.events, NOWHERE, now)
        if message.is_last:
            end, here = message.sender, self.broker.id
            link = OverlayLink(*sorted((end, message.neighbour)))
            served = BranchServed(link=link, end=end, by=here, number=message.number)
            self.on_branch_served(served, here, now)

    def on_branch_served(self, message: BranchServed, link: LinkId, now: Time) -> None:
        """A broker has routed what was kept."""
        seen = message.end, message.by, message.number
        if seen in self._seen:
            return
        self._seen[seen] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        for other in self.broker.known:
            if other != link and self.broker.peers[other] is Peer.BROKER:
                self.broker.send(other, message, now)
        if message.end == self.broker.id:
            self._served(message, now)
        self.doubts.served(message.link, message.end, message.by)
        self._look_at_order(now)

    def _served(self, message: BranchServed, now: Time) -> None:
        """A broker of a branch has got what was kept for it."""
        (neighbour,) = {message.link.a, message.link.b} - {self.broker.id}
        cut = self.cuts.get(neighbour)
        if cut is None or message.by not in cut.asked:
            return
        if cut.came > cut.sent.get(message.by, 0):  # From others that kept something, too.
            self._number += 1
            cut.number = self._number
            self._send_kept(neighbour, cut, message.by, now)
            return
        del cut.asked[message.by]
        cut.served[message.by] = None
        self.broker.state(
            BranchReached(
                at=self.broker.id,
                time=now,
                neighbour=neighbour,
                by=message.by,
                events=len(cut.kept),
            )
        )
        self._look_for(neighbour, cut, now)

    def _end(self, neighbour: NodeId, now: Time) -> None:
        """There is nothing left to keep for a branch."""
        del self.cuts[neighbour]
        if neighbour not in self.broker.known:
            self.broker.router.forget_branch(neighbour, now)

    def _give_up(self, neighbour: NodeId, now: Time) -> None:
        events = len(self.cuts[neighbour].kept)
        self.broker.state(
            BranchGivenUp(at=self.broker.id, time=now, neighbour=neighbour, events=events)
        )
        self._end(neighbour, now)

    # ---- Order

    def _look_at_order(self, now: Time) -> None:
        """Have clients wait, or wait no more."""
        doubts = self.doubts
        until, has_all = doubts.look(
            lambda broker: self.members.way_to(broker) is not None,
            now,
            patience_us=self.options.patience_us,
            keep_us=self.options.keep_us,
        )
        self._finish(now)
        if until is not None:
            self.wake_by(until)
            if doubts.waits_since is None:
                doubts.waits_since = now
            self.broker.is_unsure = True
        elif doubts.waits_since is not None:
            waited_us, doubts.waits_since = now - doubts.waits_since, None
            self.broker.is_unsure = False
            self.broker.state(
                OrderWaited(at=self.broker.id, time=now, waited_us=waited_us, is_over=has_all)
            )
            for restored in self.broker.hooks.order_restored:
                restored(now)

    # ---- Time

    def wake(self, now: Time) -> None:
        self._answer(now)
        for neighbour, cut in list(self.cuts.items()):
            if cut.since + self.options.keep_us <= now:
                self._give_up(neighbour, now)
            else:
                self.wake_by(cut.since + self.options.keep_us)
                self._look_for(neighbour, cut, now)
                if cut.asked:
                    self.wake_by(min(cut.asked.values()) + ASK_AGAIN_US)
        self._look_at_order(now)

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        """Whether nobody waits, as far as that depends on brokers in reach."""
        return self.doubts.waits_since is None and not any(cut.asked for cut in self.cuts.values())

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptBranches:
        recents, taken = self._recents.keep()
        return KeptBranches(
            cuts={link: _kept(cut, writer) for link, cut in self.cuts.items()},
            recent={
                link: [(each.time, writer.event(each.event)) for each in recent]
                for link, recent in recents.items()
            },
            taken=taken,
            doubts=self.doubts.keep(),
            pending=[writer.message(asked) for asked in self._pending],
            seen=list(self._seen),
            passed={link: list(passed) for link, passed in self._passed.items()},
            number=self._number,
        )

    def restore(self, kept: KeptBranches, reader: Reader) -> None:
        for link, each in kept.cuts.items():
            kept_events = [reader.event(number) for number in each.kept]
            self.cuts[link] = Cut(
                since=each.since,
                beyond=each.beyond,
                kept=deque(kept_events),
                had=dict.fromkeys(event.id for event in kept_events),
                number=each.number,
                asked=dict(each.asked),
                served=dict.fromkeys(each.served),
                is_open=each.is_open,
                came=each.came,
                sent=dict(each.sent),
                behind=self._behind(link, each.beyond),
                finishing=dict.fromkeys(each.finishing),
            )
        for link, each_recent in kept.recent.items():
            self._recents.restore(
                link, [Recent(time, reader.event(number)) for time, number in each_recent]
            )
        self._recents.restore_taken(kept.taken)
        self.doubts.restore(kept.doubts)
        self._pending = [reader.message(number, BranchAsked) for number in kept.pending]
        self._seen = dict.fromkeys(kept.seen)
        self._passed = {link: dict.fromkeys(passed) for link, passed in kept.passed.items()}
        self._number = kept.number
        self.broker.is_unsure = kept.doubts.waits_since is not None


def _kept(cut: Cut, writer: Writer) -> KeptCut:
    return KeptCut(
        since=cut.since,
        beyond=cut.beyond,
        kept=[writer.event(event) for event in cut.kept],
        number=cut.number,
        asked=dict(cut.asked),
        served=list(cut.served),
        is_open=cut.is_open,
        came=cut.came,
        sent=dict(cut.sent),
        finishing=list(cut.finishing),
    )


BRANCHES = Protocol(name="branches", broker=Branches, needs=("overlay", "post"))
