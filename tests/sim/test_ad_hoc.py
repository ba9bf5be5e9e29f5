"""Devices alone: clients find a broker, or one of the devices becomes one; brokers meet."""

from collections import Counter, defaultdict
from random import Random
from typing import TypeVar

import pytest

from sterna.core import facts
from sterna.core.adhoc.messages import LeaseEnded, ServingBegan, ServingEnded
from sterna.core.adhoc.serving import Serving
from sterna.core.broker import Broker
from sterna.core.client import Client
from sterna.core.facts import Fact
from sterna.core.handover.options import HandoverOptions
from sterna.core.inputs import Publish, Subscribe, Unsubscribe
from sterna.core.keeping import Reader, Writer
from sterna.core.mobile.simple import SimpleRouting
from sterna.core.names import LocalProtocolError
from sterna.core.overlay.electing import Electing
from sterna.core.routing.options import RoutingOptions
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Die, Do, LinkModel, Pause, Reach, Script, Slow, Wait
from sterna.sim.topology import Topology, line
from tests.scale import many_seeds
from tests.sim.overlay import Facts

pytestmark = pytest.mark.spec("RE-4")

F = TypeVar("F", bound=Fact)
BEAT_US = 500_000
CALM = 24
"""So many beats after the last change all is as it should be."""
FOUND = (2000032,)
"""A run in which two devices between two networks took turns, and did not join them."""

Edge = tuple[str, str]


class Accepting(Facts):
    """Keeps all facts, and to whom events were owed when a broker took them."""

    def __init__(self, devices: "Devices") -> None:
        super().__init__()
        self.devices = devices
        self.owed: dict[str, set[EventId]] = defaultdict(set)

    def fact(self, fact: Fact) -> None:
        super().fact(fact)
        if isinstance(fact, facts.Accepted):
            for name, each in self.devices.tables(fact.at).subscribers.items():
                self.owed[name].update(
                    event.id
                    for event in fact.events
                    if any(filter_.matches(event.attributes) for filter_ in each.filters.values())
                )


class Devices:
    """Devices, each with a client; who is in reach of whom changes."""

    def __init__(
        self, count: int, reach: set[Edge], *, meeting: str = "merge", lease_us: int = 60_000_000,
        link: LinkModel | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self.brokers = [f"D{number}" for number in range(1, count + 1)]
        self.reach = set(reach)
        self.dead: set[str] = set()
        self.wanted: dict[str, set[int]] = {self.client(broker): set() for broker in self.brokers}
        self.published: list[tuple[EventId, int, int]] = []
        script = Script(
            topology=Topology(tuple(self.brokers), (), reach=tuple(sorted(self.reach))),
            clients={self.client(broker): broker for broker in self.brokers},
            steps=tuple(Crash(broker=broker, us=0) for broker in self.brokers),  # They log.
            protocols=("election", "reversing", "ad-hoc"),
            options={"ad-hoc": {"meeting": meeting, "lease_us": lease_us}},
            handover=HandoverOptions(protocol="phoenix"),
            routing=RoutingOptions(announces=False),
            link=link or LinkModel(latency_us=2_000),
            on_devices=True,
            seed=seed,
        )
        self.facts = Accepting(self)
        self.simulation = Simulation(script, [self.facts], judged=False)
        self.network = self.simulation.network

    @staticmethod
    def client(broker: str) -> str:
        return f"c{broker[1:]}"

    def wait(self, beats: float) -> None:
        self.simulation.do(Wait(us=int(beats * BEAT_US)))

    def set_reach(self, a: str, b: str, *, up: bool) -> None:
        a, b = sorted((a, b))
        (self.reach.add if up else self.reach.discard)((a, b))
        self.simulation.do(Reach(a=a, b=b, up=up))

    def die(self, broker: str) -> None:
        self.dead.add(broker)
        self.simulation.do(Die(broker=broker))

    def subscribe(self, client: str, number: int) -> None:
        self.wanted[client].add(number)
        what = Subscribe(subscription=str(number), filter=Filter(f"f = {number}"))
        self.simulation.do(Do(client=client, what=what))

    def unsubscribe(self, client: str, number: int) -> None:
        self.wanted[client].remove(number)
        self.simulation.do(Do(client=client, what=Unsubscribe(subscription=str(number))))

    def publish(self, client: str, number: int) -> None:
        self.simulation.do(Do(client=client, what=Publish(attributes={"f": number})))

    # ---- What there is

    @property
    def living(self) -> list[str]:
        return [broker for broker in self.brokers if broker not in self.dead]

    def serving(self) -> list[str]:
        return [broker for broker in self.living if not self.part(broker).is_asleep]

    def node(self, broker: str) -> Broker:
        node = self.network.hosts[broker].node
        assert isinstance(node, Broker)
        return node

    def part(self, broker: str) -> Serving:
        part = self.node(broker).part("ad-hoc")
        assert isinstance(part, Serving)
        return part

    def reigns(self) -> set[object]:
        """The networks that there are."""
        found: set[object] = set()
        for broker in self.serving():
            electing = self.node(broker).part("election")
            assert isinstance(electing, Electing)
            assert electing.election is not None
            found.add(electing.election.reign)
        return found

    def broker_of(self, client: str) -> str | None:
        """The broker that a client is connected to."""
        node = self.network.hosts[client].node
        assert isinstance(node, Client)
        return node.link if node.link in node.up else None

    def hears(self, broker: str) -> list[str]:
        """The devices in reach of one, and itself."""
        return [b for b in self.living if b == broker or tuple(sorted((b, broker))) in self.reach]

    def delivered(self, client: str) -> list[EventId]:
        return [
            event.id
            for fact in self.of(facts.Delivered)
            for event in fact.events
            if fact.at == client
        ]

    def of(self, kind: type[F]) -> list[F]:
        return [fact for fact in self.facts.all if isinstance(fact, kind)]

    def components(self) -> list[set[str]]:
        left, found = list(self.living), []
        while left:
            part, to_visit = {left[0]}, [left[0]]
            while to_visit:
                for other in self.hears(to_visit.pop()):
                    if other not in part:
                        part.add(other)
                        to_visit.append(other)
            left = [broker for broker in left if broker not in part]
            found.append(part)
        return found

    # ---- What must hold

    def check(self) -> None:
        """Each client that wants something has a broker in reach; all know what it wants."""
        for broker in self.living:
            client = self.client(broker)
            if self.wanted[client]:
                mine = self.broker_of(client)
                assert mine in self.serving(), client
                assert mine in self.hears(broker), client
                for other in self.serving():
                    if any({other, mine} <= part for part in self.components()):
                        each = self.tables(other).subscribers[client]
                        assert not each.is_lost
                        assert {int(id_.split("/")[1]) for id_ in each.filters} == self.wanted[
                            client
                        ]

    def tables(self, broker: str) -> SimpleRouting:
        part = self.node(broker).part("reversing")
        assert isinstance(part, SimpleRouting)
        return part

    def unexplained(self) -> list[tuple[str, EventId]]:
        """What clients were owed and did not get, nor count as too late; or got in disorder."""
        late = {(fact.at, e.id) for fact in self.of(facts.Purged) for e in fact.events}
        found = []
        for client in sorted({self.client(broker) for broker in self.living}):
            got = self.delivered(client)
            last: Counter[str] = Counter()
            for id_ in got:
                if id_.seq <= last[id_.publisher]:
                    found.append((client, id_))
                last[id_.publisher] = id_.seq
            found += [
                (client, id_)
                for id_ in sorted(self.facts.owed[client] - {*got})
                if (client, id_) not in late
            ]
        return found


def everyone(count: int) -> set[Edge]:
    names = [f"D{number}" for number in range(1, count + 1)]
    return {(a, b) for a in names for b in names if a < b}


def test_a_publisher_that_finds_no_broker_has_one_elected_and_others_find_it() -> None:
    devices = Devices(5, everyone(5))
    devices.wait(4)
    assert devices.serving() == []

    devices.publish("c3", 1)
    assert devices.broker_of("c3") is None
    devices.wait(4)
    assert len(devices.serving()) == 1
    (broker,) = devices.serving()
    assert devices.broker_of("c3") == broker
    assert [(fact.at, fact.client) for fact in devices.of(ServingBegan)] == [(broker, "c3")]

    devices.subscribe("c1", 2)
    devices.wait(2)
    assert devices.broker_of("c1") == broker
    devices.publish("c3", 2)
    devices.wait(2)
    assert devices.delivered("c1") == [EventId("c3", 2)]
    assert devices.serving() == [broker]


def test_a_publisher_whose_broker_dies_before_it_confirms_finds_another_one() -> None:
    """Also if it has nothing else to say."""
    devices = Devices(3, everyone(3))
    devices.publish("c1", 1)
    devices.wait(4)
    broker = devices.broker_of("c1")
    assert broker is not None
    if broker == "D1":  # Its own device would die with the client.
        publisher = "c2"
        devices.publish("c2", 1)
        devices.wait(2)
    else:
        publisher = "c1"
    devices.publish(publisher, 2)
    devices.die(broker)
    devices.wait(10)
    assert devices.broker_of(publisher) in devices.serving()
    assert devices.network.hosts[publisher].node.is_settled
    accepted = [e for fact in devices.of(facts.Accepted) for e in fact.events]
    assert [e.id.seq for e in accepted if e.publisher == publisher][-1] == 2


def random_devices(seed: int, *, lease_us: int = 600_000_000) -> tuple[Devices, Random]:
    rng = Random(f"ad-hoc {seed}")  # noqa: S311 - reproducible.
    count = rng.randint(1, 8)
    names = [f"D{number}" for number in range(1, count + 1)]
    share = rng.choice([0.2, 0.5, 1])
    reach = {(a, b) for a in names for b in names if a < b and rng.random() < share}
    devices = Devices(
        count,
        reach,
        meeting=rng.choice(["merge", "cooperate"]),
        lease_us=lease_us,
        link=LinkModel(latency_us=2_000, jitter_us=rng.choice([0, 5_000])),
        seed=seed,
    )
    return devices, rng


def move(devices: Devices, rng: Random) -> None:
    """Two devices come into reach of each other, or get out of it."""
    if len(devices.living) > 1:
        a, b = sorted(rng.sample(devices.living, 2))
        devices.set_reach(a, b, up=(a, b) not in devices.reach)


def heal(devices: Devices) -> None:
    """All devices that live reach each other, most of them over others."""
    for a, b in zip(devices.living, devices.living[1:], strict=False):
        if tuple(sorted((a, b))) not in devices.reach:
            devices.set_reach(a, b, up=True)
    devices.wait(CALM)


def test_whatever_devices_move_what_is_wanted_comes_once_and_in_order() -> None:
    """Or counts as too late. Devices restart from their logs and pause; none dies."""
    for seed in many_seeds(100):
        devices, rng = random_devices(seed)
        for broker in devices.brokers:
            for number in rng.sample([1, 2, 3], rng.randint(1, 2)):
                devices.subscribe(devices.client(broker), number)
        heal(devices)
        for _ in range(rng.randint(1, 12)):
            what = rng.choice(["move", "move", "move", "pause", "restart"])
            if what == "move":
                move(devices, rng)
            elif what == "pause":
                us = rng.randint(0, 4 * BEAT_US)
                devices.simulation.do(Pause(broker=rng.choice(devices.brokers), us=us))
            else:
                us = rng.randint(0, 4 * BEAT_US)
                devices.simulation.do(Crash(broker=rng.choice(devices.brokers), us=us))
            for _ in range(3):
                devices.publish(rng.choice(sorted(devices.wanted)), rng.randint(1, 3))
                devices.wait(rng.choice([0, 0.01, 0.3, 1, 3, 6]))
        heal(devices)
        devices.check()
        assert len(devices.reigns()) == 1, f"seed {seed}"
        assert devices.unexplained() == [], f"seed {seed}"


def test_whatever_devices_die_and_forget_all_know_what_is_wanted_in_the_end() -> None:
    """Leases are short, datagrams get lost; who is gone for good is forgotten by all."""
    for seed in (*FOUND, *many_seeds(100)):
        devices, rng = random_devices(seed, lease_us=6 * BEAT_US)
        for broker in devices.brokers:
            devices.subscribe(devices.client(broker), 1)
        devices.wait(rng.randint(0, 10))
        devices.network.model = LinkModel(latency_us=2_000, loss=rng.choice([0, 0.2]))
        for _ in range(rng.randint(1, 12)):
            what, broker = rng.randrange(8), rng.choice(devices.living)
            client, number = devices.client(broker), rng.randint(1, 3)
            if what == 0 and len(devices.living) > 1:
                devices.die(broker)
            elif what == 1:
                us, forgets = rng.randint(0, 8 * BEAT_US), rng.random() < 0.5
                devices.simulation.do(Crash(broker=broker, us=us, forgets=forgets))
            elif what == 2:
                devices.simulation.do(Pause(broker=broker, us=rng.randint(0, 8 * BEAT_US)))
            elif what == 3 and number != 1 and number not in devices.wanted[client]:
                devices.subscribe(client, number)
            elif what == 4 and number != 1 and number in devices.wanted[client]:
                devices.unsubscribe(client, number)
            else:
                move(devices, rng)
            devices.wait(rng.choice([0, 0.1, 1, 3, 10]))
        devices.network.model = LinkModel(latency_us=2_000)
        devices.wait(8)
        heal(devices)
        devices.check()
        assert len(devices.reigns()) == 1, f"seed {seed}"
        gone = {devices.client(broker) for broker in devices.dead}
        for broker in devices.serving():
            for name, each in devices.tables(broker).subscribers.items():
                assert not (name in gone and (each.filters or each.queue)), f"seed {seed}"


def test_two_brokers_that_meet_merge_into_one() -> None:
    """D1 and D2 are a network, D3 and D4 another one; then all reach each other."""
    devices = Devices(4, {("D1", "D2"), ("D3", "D4")})
    for client in ("c1", "c3"):
        devices.subscribe(client, 1)
        devices.publish(client, 2)
    devices.wait(8)
    assert len(devices.serving()) == 2

    for a, b in everyone(4) - devices.reach:
        devices.set_reach(a, b, up=True)
    devices.wait(8)
    (broker,) = devices.serving()
    assert {devices.broker_of("c1"), devices.broker_of("c3")} == {broker}
    assert len(devices.of(ServingEnded)) == 1
    devices.publish("c4", 1)
    devices.publish("c2", 1)
    devices.wait(4)
    both = {EventId("c4", 1), EventId("c2", 1)}
    assert set(devices.delivered("c1")) == set(devices.delivered("c3")) == both


def test_what_the_broker_that_yields_has_kept_follows_its_clients() -> None:
    """c4 is out of reach while its broker takes an event for it, and yields."""
    devices = Devices(5, {("D1", "D2"), ("D3", "D4"), ("D3", "D5"), ("D4", "D5")})
    devices.subscribe("c1", 1)
    devices.wait(8)  # So it began first: the other one yields.
    for client in ("c3", "c4", "c5"):
        devices.subscribe(client, 1)
    devices.wait(16)
    assert len(devices.serving()) == 2
    (old,) = {devices.broker_of("c3"), devices.broker_of("c4"), devices.broker_of("c5")}
    assert old is not None
    away, other = [broker for broker in ("D3", "D4", "D5") if broker != old]
    for broker in (old, other):
        devices.set_reach(away, broker, up=False)
    devices.publish(devices.client(other), 1)
    devices.wait(8)
    for a in ("D1", "D2"):
        for b in (old, other):
            devices.set_reach(a, b, up=True)
    devices.wait(CALM)
    devices.set_reach("D1", away, up=True)
    devices.set_reach("D2", away, up=True)
    devices.wait(CALM)
    devices.check()
    assert devices.delivered(devices.client(away)) == [EventId(devices.client(other), 1)]
    assert old not in devices.serving()


def test_two_brokers_that_meet_cooperate_as_neighbours() -> None:
    devices = Devices(4, {("D1", "D2"), ("D3", "D4")}, meeting="cooperate")
    for client in ("c1", "c3"):
        devices.subscribe(client, 1)
        devices.publish(client, 2)
    devices.wait(8)
    before = devices.serving()
    for a, b in everyone(4) - devices.reach:
        devices.set_reach(a, b, up=True)
    devices.wait(CALM)
    assert devices.serving() == before
    assert len(devices.reigns()) == 1
    assert len({devices.broker_of("c1"), devices.broker_of("c3")}) == 2
    devices.publish("c4", 1)
    devices.wait(4)
    assert devices.delivered("c1") == devices.delivered("c3") == [EventId("c4", 1)]


@pytest.mark.parametrize("meeting", ["merge", "cooperate"])
def test_clients_that_do_not_reach_a_common_broker_are_joined_by_devices_between(
    meeting: str,
) -> None:
    """D1 and D4 serve; D2 and D3 lie between, and hear one of them each."""
    devices = Devices(4, {("D1", "D2"), ("D3", "D4")}, meeting=meeting)
    for client in ("c1", "c4"):
        devices.subscribe(client, 1)
    devices.wait(8)
    assert len(devices.reigns()) == 2
    for client in ("c2", "c3"):
        devices.subscribe(client, 2)
    devices.wait(2)
    devices.set_reach("D2", "D3", up=True)
    devices.wait(CALM)
    assert len(devices.reigns()) == 1
    devices.check()
    devices.publish("c1", 1)
    devices.wait(2)
    assert devices.delivered("c4") == [EventId("c1", 1)]


def test_when_the_broker_is_lost_another_one_is_elected_and_nothing_is_lost() -> None:
    """Whoever notices first that the broker is out of reach: events wait for the subscriptions."""
    for seed in range(10):
        devices = Devices(5, everyone(5), seed=seed, link=LinkModel(loss=0.1, jitter_us=5_000))
        for number in range(1, 5):
            devices.subscribe(f"c{number}", 1)
        devices.publish("c5", 1)
        devices.wait(8)
        lost = devices.serving()[0]
        devices.die(lost)
        publisher = "c4" if lost == "D5" else "c5"
        for _ in range(12):
            devices.publish(publisher, 1)
            devices.wait(1)
        devices.wait(CALM)
        devices.check()
        assert len(devices.serving()) == 1
        for broker in devices.living:
            client = devices.client(broker)
            if devices.wanted[client]:
                got = {id_ for id_ in devices.delivered(client) if id_.publisher == publisher}
                assert len(got) == 12 + (publisher == "c5"), (seed, client)
        assert devices.unexplained() == []


def test_a_subscriber_that_is_gone_for_longer_than_its_lease_is_forgotten() -> None:
    devices = Devices(3, everyone(3), lease_us=10 * BEAT_US)
    for client in ("c1", "c2", "c3"):
        devices.subscribe(client, 1)
    devices.wait(20)
    assert devices.of(LeaseEnded) == []  # All of them renew it.
    (broker,) = devices.serving()
    gone = next(b for b in devices.brokers if b != broker)
    client = devices.client(gone)
    for other in devices.brokers:
        if other != gone:
            devices.set_reach(gone, other, up=False)
    devices.wait(8)
    assert devices.tables(broker).subscribers[client].filters
    devices.wait(8)
    assert [(fact.at, fact.client) for fact in devices.of(LeaseEnded)] == [(broker, client)]
    assert not devices.tables(broker).subscribers[client].filters

    devices.publish(devices.client(broker), 1)
    devices.wait(2)
    for other in devices.brokers:
        if other != gone:
            devices.set_reach(gone, other, up=True)
    devices.wait(CALM)
    devices.check()
    devices.publish(devices.client(broker), 1)
    devices.wait(2)
    assert devices.delivered(client) == [EventId(devices.client(broker), 2)]


def test_what_waits_for_a_subscriber_that_died_with_its_broker_ends_with_its_lease() -> None:
    devices = Devices(2, set(), meeting="cooperate", lease_us=10 * BEAT_US)
    devices.subscribe("c1", 1)
    devices.subscribe("c2", 2)
    devices.wait(8)
    devices.set_reach("D1", "D2", up=True)
    devices.wait(8)
    assert devices.serving() == ["D1", "D2"]
    devices.die("D1")
    devices.publish("c2", 1)
    devices.wait(6)
    assert len(devices.tables("D2").subscribers["c1"].queue) == 1
    devices.wait(10)
    assert list(devices.tables("D2").subscribers) == ["c2"]
    dropped = [fact for fact in devices.of(facts.Discarded) if fact.client == "c1"]
    assert [event.id for fact in dropped for event in fact.events] == [EventId("c2", 1)]


def test_a_broker_stays_awake_until_all_is_confirmed() -> None:
    """D1 keeps an event for c2, and sends it when D2 is back; but that one is gone again at once.

    D1 has no clients any more: c3, its publisher, has left for good.
    """
    devices = Devices(3, {("D1", "D3")}, meeting="cooperate", lease_us=60 * BEAT_US)
    devices.simulation.do(Pause(broker="D3", us=8 * BEAT_US))
    devices.publish("c3", 2)
    devices.wait(9)
    devices.subscribe("c2", 1)
    devices.wait(8)
    devices.set_reach("D1", "D2", up=True)
    devices.wait(15)
    assert devices.serving() == ["D1", "D2"]
    devices.set_reach("D1", "D2", up=False)
    devices.wait(4)
    devices.publish("c3", 1)
    devices.wait(1)
    devices.set_reach("D1", "D3", up=False)
    while "c3" in devices.node("D1").peers:
        devices.wait(1)
    mine = devices.tables("D1").subscribers["c2"]
    assert len(mine.queue) == 1

    devices.simulation.do(Slow(a="D1", b="D2", latency_us=100_000))
    devices.set_reach("D1", "D2", up=True)
    while mine.is_lost or mine.queue:
        devices.wait(0.02)
    devices.set_reach("D1", "D2", up=False)
    devices.wait(6)
    assert not devices.part("D1").is_asleep
    devices.set_reach("D1", "D2", up=True)
    devices.wait(CALM)
    assert devices.delivered("c2") == [EventId("c3", 2)]


def test_ad_hoc_needs_an_election_and_tables_of_subscribers() -> None:
    for protocols in (("ad-hoc",), ("ad-hoc", "reversing"), ("ad-hoc", "election")):
        script = Script(topology=line(2), clients={}, steps=(), protocols=protocols)
        with pytest.raises(LocalProtocolError, match="list the protocols election and reversing"):
            Simulation(script)
    both = ("ad-hoc", "reversing", "election")
    script = Script(topology=line(2), clients={}, steps=(), protocols=both)
    with pytest.raises(LocalProtocolError, match="set the handover protocol phoenix"):
        Simulation(script)


def test_clients_on_devices_need_to_be_in_reach_of_something() -> None:
    with pytest.raises(ValueError, match="nobody says who is in whose reach"):
        Script(topology=line(2), clients={}, steps=(), on_devices=True)


def test_a_snapshot_has_all_that_a_serving_broker_knows() -> None:
    devices = Devices(3, {("D1", "D2"), ("D2", "D3")})
    devices.subscribe("c1", 1)
    devices.publish("c3", 1)
    held = 0
    for _ in range(40):
        devices.wait(0.3)
        for broker in devices.brokers:
            before, writer = devices.part(broker), Writer()
            kept = before.keep(writer)
            again = Serving(before.options)
            again.restore(kept, Reader(writer.events, writer.messages))
            assert again.keep(Writer()) == kept
            assert again.is_asleep == before.is_asleep
            held += bool(kept.held)
    assert held
