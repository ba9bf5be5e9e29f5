"""A network of brokers that move, of subscribers that move, and of what is wrong with either."""

from collections import defaultdict
from random import Random

from sterna.core import facts
from sterna.core.broker import Broker
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, Detach, Publish, Subscribe, TimePassed, Unsubscribe
from sterna.core.mobile.reversing import Reversing
from sterna.core.mobile.simple import SimpleRouting, Subscriber
from sterna.core.routing.options import RoutingOptions
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Do, EndLink, LinkModel, Migrate, Script
from sterna.sim.topology import random_tree
from tests.sim.overlay import Facts


class Moving:
    """A tree of brokers whose links end and are made, with a subscriber at most of them.

    Without a protocol, it is our usual routing.
    """

    def __init__(
        self, seed: int, protocol: str, *, brokers: int = 12, roams: bool = False,
        one_by_one: bool = False, patience_us: int = 500_000, queue_max: int = 10_000,
    ) -> None:  # fmt: skip
        self.one_by_one = one_by_one
        crashes = roams or not protocol  # Then they keep logs.
        rng = self.rng = Random(seed)  # noqa: S311 - reproducible.
        topology = random_tree(rng.randint(2, brokers), seed)
        self.protocol = protocol
        self.brokers = topology.brokers
        self.links = {frozenset(link) for link in topology.links}
        self.homes = {f"s{b[1:]}": b for b in self.brokers if rng.random() < 0.8}
        self.away: set[str] = set()
        """The subscribers that are at no broker."""
        self.down: dict[str, int] = {}
        """The brokers that have crashed, and when they are back."""
        self.wanted: dict[str, set[str]] = {name: set() for name in self.homes}
        self.known: set[str] = set()
        """The subscribers that have ever subscribed."""
        self.lost: dict[str, str] = {}
        """The last neighbour that a broker has lost."""
        script = Script(
            topology=topology,
            clients=self.homes,
            steps=tuple(Crash(broker=broker, us=0) for broker in self.brokers if crashes),
            handover=HandoverOptions(
                protocol="phoenix" if roams else Handover.NONE, cache_events_max=queue_max
            ),
            options={"ordering": {"patience_us": patience_us}},
            routing=RoutingOptions(announces=not protocol),
            link=LinkModel(jitter_us=rng.choice([0, 5_000])),
            protocols=(protocol,) if protocol else (),
            seed=seed,
        )
        self.facts = Facts()
        self.simulation = Simulation(script, [self.facts])
        self.settle()

    def settle(self) -> None:
        self.simulation.settle()

    def publish(self) -> None:
        if self.homes:
            event = Publish(attributes={"f": self.rng.randint(1, 3)})
            self.simulation.do(Do(client=self.rng.choice(sorted(self.homes)), what=event))

    def wait(self) -> None:
        """Long enough for some messages, but not for all, unless one thing happens at a time."""
        if self.one_by_one:
            self.settle()
            return
        self.simulation.network.run(
            self.simulation.network.kernel.now + self.rng.choice([0, 500, 1_500, 6_000])
        )

    @property
    def now(self) -> int:
        return self.simulation.network.kernel.now

    def roam(self) -> None:
        """A subscriber comes to any broker, which may be where it was."""
        if self.homes:
            name = self.rng.choice(sorted(self.homes))
            self.homes[name] = self.rng.choice(self.brokers)
            self.away.discard(name)
            self.simulation.do(Do(client=name, what=Attach(broker=self.homes[name])))

    def vanish(self) -> None:
        """A subscriber loses its connection."""
        present = sorted(set(self.homes) - self.away)
        if present:
            name = self.rng.choice(present)
            self.away.add(name)
            self.simulation.do(Do(client=name, what=Detach()))

    def come_back(self) -> None:
        """All subscribers are somewhere."""
        for name in sorted(self.away):
            self.homes[name] = self.rng.choice(self.brokers)
            self.simulation.do(Do(client=name, what=Attach(broker=self.homes[name])))
            self.wait()
        self.away.clear()

    def crash(self, *, forgets: bool | None = None) -> None:
        """A broker crashes and is back after a while; its links may be gone by then.

        With the modular protocol they are, for only a broker that moves gets a table.
        """
        broker = self.rng.choice(self.brokers)
        if self.down.get(broker, 0) > self.now:
            return
        if self.protocol == "modular" or self.rng.random() < 0.5:
            for link in sorted((link for link in self.links if broker in link), key=sorted):
                self._cut(link)
                self.wait()
        us = self.rng.choice([500, 3_000, 20_000])
        forgets = self.rng.random() < 0.5 if forgets is None else forgets
        self.down[broker] = self.now + us
        self.simulation.do(Crash(broker=broker, us=us, forgets=forgets))

    def anything(
        self, steps: int, *, publishes: bool = False, subscribes: bool | None = None
    ) -> None:
        """Change the network and what clients do, again and again.

        If events are published, no broker forgets anything, and nobody subscribes unless that is
        asked for: then it is clear who has to get them.
        """
        what = [self.cut, self.join, self.migrate, self.roam, self.vanish]
        what += [self.publish, self._restart] if publishes else [self.crash]
        if subscribes or (subscribes is None and not publishes):
            what.append(self.subscribe)
        for _ in range(steps):
            self.rng.choice(what)()
            if publishes:
                self.publish()
            self.rng.choice([self.wait, self.wait, self.wait, self.settle])()

    def _restart(self) -> None:
        self.crash(forgets=False)

    def forget_lost(self) -> None:
        """A broker where the way to a subscriber was lost has all in its part forget that one."""
        lost = [
            (broker, name)
            for broker in self.brokers
            if self.down.get(broker, 0) <= self.now
            for name, each in self.subscribers(broker).items()
            if each.is_lost and each.time
        ]
        if lost:
            broker, name = self.rng.choice(lost)
            host = self.simulation.network.hosts[broker]
            part = host.node.part(self.protocol)
            assert isinstance(part, Reversing)
            part.forget_subscriber(name, self.now)
            self.simulation.network.give(broker, TimePassed())  # It sends what it has to.

    def part_of(self, broker: str) -> set[str]:
        part, to_visit = {broker}, [broker]
        while to_visit:
            here = to_visit.pop()
            for link in self.links:
                if here in link and not link <= part:
                    (other,) = link - {here}
                    part.add(other)
                    to_visit.append(other)
        return part

    def subscribe(self) -> None:
        if self.wanted:
            name = self.rng.choice(sorted(self.wanted))
            number = str(self.rng.randint(1, 3))
            held = self.wanted[name]
            if number in held:
                held.remove(number)
                self.simulation.do(Do(client=name, what=Unsubscribe(subscription=number)))
            else:
                held.add(number)
                self.known.add(name)
                what = Subscribe(subscription=number, filter=Filter(f"f = {number}"))
                self.simulation.do(Do(client=name, what=what))

    def cut(self) -> None:
        if self.links:
            self._cut(self.rng.choice(sorted(self.links, key=sorted)))

    def _cut(self, link: frozenset[str]) -> None:
        self.links.remove(link)
        a, b = sorted(link)
        self.lost[a], self.lost[b] = b, a
        self.simulation.do(EndLink(a=a, b=b))

    def join(self) -> None:
        """Any broker of one partition is linked to any of another."""
        mover = self.rng.choice(self.brokers)
        part = self.part_of(mover)
        others = [b for b in self.brokers if b not in part and self.down.get(b, 0) <= self.now]
        if others and self.down.get(mover, 0) <= self.now:
            to = self.rng.choice(others)
            before = self.lost.get(mover, to)
            if frozenset((mover, before)) in self.links:
                before = to
            self.links.add(frozenset((mover, to)))
            self.simulation.do(Migrate(broker=mover, before=before, to=to))

    def migrate(self) -> None:
        """A broker loses its link in one direction, and is linked to another broker there."""
        if self.links:
            self.cut()
            if self.one_by_one:
                self.settle()
            self.join()

    def meet(self, *, publishes: bool = True) -> None:
        """In the end, all brokers are one partition, and all subscribers are there."""
        while len(self.part_of(self.brokers[0])) < len(self.brokers):
            self.join()
            if publishes:
                self.publish()
            self.wait()
        self.come_back()
        self.settle()

    def subscribers(self, broker: str) -> dict[str, Subscriber]:
        part = self.simulation.network.hosts[broker].node.part(self.protocol)
        assert isinstance(part, SimpleRouting)
        return part.subscribers

    def lost_events(self) -> list[tuple[str, EventId]]:
        """The events that a subscriber wanted all the time, and has not got, nor counted."""
        published: list[Event] = []
        got: dict[str, set[EventId]] = defaultdict(set)
        for fact in self.facts.all:
            if isinstance(fact, facts.Published):
                published += fact.events
            elif isinstance(fact, facts.Delivered | facts.Purged):
                got[fact.at].update(event.id for event in fact.events)
        return [
            (name, event.id)
            for name, numbers in self.wanted.items()
            for event in published
            if str(event.attributes["f"]) in numbers and event.id not in got[name]
        ]

    def discarded(self) -> set[tuple[str, EventId]]:
        """What brokers have stated to keep no longer, as too much for a queue, and for whom."""
        return {
            (fact.client, event.id)
            for fact in self.facts.all
            if isinstance(fact, facts.Discarded)
            for event in fact.events
        }

    def is_right(self) -> bool:
        """Whether all brokers know what all subscribers want, and the way to each."""
        for broker in self.brokers:
            subscribers = self.subscribers(broker) if self.protocol else {}
            for name in self.known if self.protocol else ():
                each = subscribers.get(name)
                filters = set() if each is None else {id_.split("/")[1] for id_ in each.filters}
                if filters != self.wanted[name]:
                    return False
                if filters and (each is None or each.next_hop != self.way(broker, name)):
                    return False
            if not self._routes(broker):
                return False
        return True

    def _routes(self, broker: str) -> bool:
        """Whether events are routed as the tables say."""
        node = self.simulation.network.hosts[broker].node
        assert isinstance(node, Broker)
        for number in (1, 2, 3):
            event = Event(publisher="p", seq=1, time_us=0, attributes={"f": number})
            links = node.router.subscriptions.match([event])
            wanting = {name for name in self.known if str(number) in self.wanted[name]}
            if set(links) != {self.way(broker, name) for name in wanting}:
                return False
        return True

    def waiting(self) -> list[tuple[str, str]]:
        """At which broker events wait, and for whom."""
        return [
            (broker, name)
            for broker in self.brokers
            for name, each in self.subscribers(broker).items()
            if each.queue
        ]

    def miscounted(self) -> list[tuple[str, EventId]]:
        """What counts as too late for a client that has got it, or counts twice."""
        got: set[tuple[str, EventId]] = set()
        late: list[tuple[str, EventId]] = []
        for fact in self.facts.all:
            if isinstance(fact, facts.Delivered | facts.Purged):
                each = [(fact.at, event.id) for event in fact.events]
                late += each if isinstance(fact, facts.Purged) else ()
                got.update(each if isinstance(fact, facts.Delivered) else ())
        return [each for each in late if each in got or late.count(each) > 1]

    def out_of_order(self) -> list[tuple[str, EventId]]:
        """What an application got twice, or after a later event of the same publisher."""
        last: dict[tuple[str, str], int] = defaultdict(int)
        wrong = []
        for fact in self.facts.all:
            if isinstance(fact, facts.Delivered):
                for event in fact.events:
                    if event.seq <= last[fact.at, event.publisher]:
                        wrong.append((fact.at, event.id))
                    last[fact.at, event.publisher] = event.seq
        return wrong

    def way(self, broker: str, subscriber: str) -> str:
        """The next hop from a broker to a subscriber."""
        home = self.homes[subscriber]
        if broker == home:
            return subscriber
        link = next(
            link for link in self.links if broker in link and home in self._behind(link, broker)
        )
        (other,) = link - {broker}
        return other

    def _behind(self, link: frozenset[str], broker: str) -> set[str]:
        self.links.remove(link)
        (other,) = link - {broker}
        part = self.part_of(other)
        self.links.add(link)
        return part
