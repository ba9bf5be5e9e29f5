"""Brokers that make their own tree, whatever comes into reach, gets out of it, and crashes."""

from collections.abc import Iterable
from random import Random

import pytest

from sterna.core.actions import Disconnect
from sterna.core.overlay.electing import Electing
from sterna.core.overlay.election import Beat, Election, ElectionTiming, Reign
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Die, LinkModel, Pause, Reach, Script, Wait
from sterna.sim.topology import Topology
from tests.scale import CAMPAIGN, many_seeds
from tests.sim.overlay import Facts

Edge = frozenset[str]
BEAT_US = ElectionTiming().beat_us
ROUNDS = 3
"""So many rounds after the last change all is as it should be, whatever happened before."""
FOUND = (5752, 10911, 11222)
"""Runs in which both ends of a link lose their state, and with it what the link was for."""
OUTAGE = 4
"""So many rounds a broker is down or paused at most."""


class Field:
    """Brokers that may hear each other, and what they have made of it."""

    def __init__(self, brokers: int, reach: Iterable[Edge], *, link: LinkModel, seed: int) -> None:
        self.brokers = [f"B{number}" for number in range(1, brokers + 1)]
        self.reach = set(reach)
        self.dead: set[str] = set()
        pairs = tuple((a, b) for a, b in map(sorted, sorted(map(sorted, self.reach))))
        script = Script(
            topology=Topology(tuple(self.brokers), (), reach=pairs),
            clients={},
            steps=tuple(Crash(broker=broker, us=0) for broker in self.brokers),  # They log.
            protocols=("election",),
            link=link,
            seed=seed,
        )
        self.facts = Facts()
        self.simulation = Simulation(script, [self.facts])
        self.network = self.simulation.network

    def wait(self, rounds: float) -> None:
        self.simulation.do(Wait(us=int(rounds * BEAT_US)))

    def set_reach(self, edge: Edge, *, up: bool) -> None:
        a, b = sorted(edge)
        (self.reach.add if up else self.reach.discard)(edge)
        self.simulation.do(Reach(a=a, b=b, up=up))

    def die(self, broker: str) -> None:
        self.dead.add(broker)
        self.simulation.do(Die(broker=broker))

    def of(self, broker: str) -> Election:
        electing = self.network.hosts[broker].node.part("election")
        assert isinstance(electing, Electing)
        assert electing.election is not None
        return electing.election

    def components(self) -> list[set[str]]:
        """The brokers that can reach each other, over any others."""
        left, found = [b for b in self.brokers if b not in self.dead], []
        while left:
            part, to_visit = {left[0]}, [left[0]]
            while to_visit:
                here = to_visit.pop()
                beside = [b for b in left if b not in part and frozenset((here, b)) in self.reach]
                part.update(beside)
                to_visit += beside
            left = [b for b in left if b not in part]
            found.append(part)
        return found

    def edges(self) -> set[Edge]:
        """The links of the tree, by what brokers know."""
        return {
            frozenset((broker, hop))
            for broker in self.brokers
            if broker not in self.dead and (hop := self.of(broker).next_hop) is not None
        }

    def links(self) -> set[Edge]:
        """The links that both ends use."""
        ends = [
            (broker, link)
            for broker in self.brokers
            if broker not in self.dead
            for link in self.network.hosts[broker].node.up
            if link not in self.dead
        ]
        return {frozenset(end) for end in ends if end[::-1] in ends}

    def check(self) -> None:
        """Each partition has one leader and a tree that spans it, of links that are up."""
        for part in self.components():
            leaders = {self.of(broker).leader for broker in part}
            assert len(leaders) == 1, (part, leaders)
            assert leaders <= part
            edges = {edge for edge in self.edges() if edge & part}
            assert edges <= self.reach
            assert len(edges) == len(part) - 1
            for broker in part:
                assert self.of(broker).next_hop is not None or broker in leaders
        assert self.links() == self.edges()


def random_reach(rng: Random, names: list[str]) -> set[Edge]:
    pairs = [frozenset((a, b)) for place, a in enumerate(names) for b in names[:place]]
    share = rng.uniform(0.1, 0.6)
    return {pair for pair in pairs if rng.random() < share}


def random_field(seed: int, *, loss: float = 0.0) -> tuple[Field, Random]:
    rng = Random(seed)  # noqa: S311 - reproducible.
    brokers = rng.randint(1, 12)
    names = [f"B{number}" for number in range(1, brokers + 1)]
    link = LinkModel(latency_us=2_000, jitter_us=rng.choice([0, 5_000]), loss=loss)
    return Field(brokers, random_reach(rng, names), link=link, seed=seed), rng


def change(field: Field, rng: Random) -> None:
    names = [broker for broker in field.brokers if broker not in field.dead]
    a, b = rng.choice(field.brokers), rng.choice(field.brokers)
    match rng.randrange(8):
        case 0 if len(names) > 1:
            field.die(rng.choice(names))
        case 1 if names:
            us = rng.randint(0, OUTAGE * BEAT_US)
            field.simulation.do(Crash(broker=rng.choice(names), us=us, forgets=rng.random() < 0.5))
        case 2 if names:
            field.simulation.do(
                Pause(broker=rng.choice(names), us=rng.randint(0, OUTAGE * BEAT_US))
            )
        case _ if a != b:
            edge = frozenset((a, b))
            field.set_reach(edge, up=edge not in field.reach)
        case _:
            pass


@pytest.mark.spec("MB-1")
@pytest.mark.parametrize("part", range(4))
def test_each_partition_has_one_leader_and_a_tree(part: int) -> None:
    for seed in (*FOUND[part::4], *many_seeds(240)[part::4]):
        field, rng = random_field(seed, loss=0.0 if seed % 3 else 0.05)
        for _ in range(rng.randint(0, 12)):
            field.wait(rng.uniform(0, 3))
            change(field, rng)
        field.network.model = LinkModel(latency_us=2_000)
        field.wait(OUTAGE + ROUNDS)
        try:
            field.check()
        except AssertionError as wrong:
            raise AssertionError(f"seed {seed}") from wrong


def branch(field: Field, top: str) -> set[str]:
    """A broker and all that are behind it."""
    return {broker for broker in field.brokers if top in field.of(broker).path}


@pytest.mark.spec("MB-1")
def test_a_link_that_is_lost_changes_only_the_branch_behind_it() -> None:
    changed = removed = 0
    for seed in many_seeds(120):
        field, rng = random_field(seed)
        field.wait(ROUNDS)
        field.check()
        before, leaders = field.edges(), [field.of(broker).leader for broker in field.brokers]
        if not field.reach:
            continue
        edge = rng.choice(sorted(field.reach, key=sorted))
        behind: set[str] = set()
        if edge in before:
            behind = min((branch(field, end) for end in edge), key=len)
        field.set_reach(edge, up=False)
        field.wait(ROUNDS)
        field.check()
        after = field.edges()
        assert {each for each in before ^ after if not each & behind} == set(), seed
        for broker, leader in zip(field.brokers, leaders, strict=True):
            assert broker in behind or field.of(broker).leader == leader
        removed += edge in before
        changed += len((before ^ after) - {edge})
    assert removed > 20 * CAMPAIGN
    assert changed < 2 * removed  # Mostly, one link takes the place of the one that is lost.


@pytest.mark.spec("MB-1")
def test_a_link_that_is_new_changes_nothing_unless_it_joins_two_partitions() -> None:
    joined = 0
    for seed in many_seeds(120):
        field, rng = random_field(seed)
        pairs = [frozenset((a, b)) for n, a in enumerate(field.brokers) for b in field.brokers[:n]]
        new = [pair for pair in pairs if pair not in field.reach]
        if not new:
            continue
        field.wait(ROUNDS)
        before, parts = field.edges(), len(field.components())
        edge = rng.choice(new)
        field.set_reach(edge, up=True)
        field.wait(ROUNDS)
        field.check()
        joins = len(field.components()) < parts
        assert field.edges() == before | ({edge} if joins else set()), seed
        joined += joins
    assert joined > 5 * CAMPAIGN


@pytest.mark.spec("MB-1")
def test_a_broker_that_comes_later_or_comes_back_changes_no_leader() -> None:
    field = Field(3, [frozenset(("B1", "B2"))], link=LinkModel(), seed=1)
    field.wait(ROUNDS)
    assert [field.of(broker).leader for broker in field.brokers] == ["B1", "B1", "B3"]
    field.simulation.do(Crash(broker="B1", us=ROUNDS * BEAT_US, forgets=True))
    field.wait(ROUNDS)
    assert field.of("B2").leader == "B2"
    field.wait(ROUNDS)
    assert field.of("B1").leader == "B2"
    field.set_reach(frozenset(("B3", "B1")), up=True)
    field.wait(ROUNDS)
    assert {field.of(broker).leader for broker in field.brokers} == {"B3"}  # It began first.
    assert field.of("B2").path == ("B3", "B1", "B2")


@pytest.mark.spec("MB-1")
def test_a_leader_that_comes_back_with_its_log_changes_no_leader() -> None:
    """However long it was away: it begins anew, and its old links are gone at both ends."""
    for rounds in (0.2, 1, 3, 6):
        field = Field(3, triangle(), link=LinkModel(latency_us=2_000), seed=1)
        field.wait(ROUNDS)
        assert {field.of(broker).leader for broker in field.brokers} == {"B1"}
        field.simulation.do(Crash(broker="B1", us=int(rounds * BEAT_US)))
        field.wait(rounds + ROUNDS)
        field.check()
        # If others have not missed it yet, its second reign begins before theirs.
        leads = {field.of(broker).leader for broker in field.brokers} == {"B1"}
        assert leads == (rounds < 1.6)


def triangle() -> list[Edge]:
    return [frozenset(pair) for pair in (("B1", "B2"), ("B2", "B3"), ("B1", "B3"))]


@pytest.mark.spec("MB-1")
def test_what_others_say_of_a_leader_that_is_lost_is_old() -> None:
    """B1 has died. B3 has not noticed yet, and B2 does not follow it back."""
    timing = ElectionTiming()
    alone = Election("B2", timing, 0)
    first, late = Reign(-1, "B1"), timing.beat_us * 4
    alone.hear(Beat(reign=first, round=7, path=("B1",)), 10)
    alone.wake(alone.deadline)
    assert alone.leader == "B1"  # It has waited whether others hear of B1.
    alone.wake(late)
    assert alone.leader == "B2"
    alone.hear(Beat(reign=first, round=7, path=("B1", "B3")), late + 1)
    alone.wake(late + timing.meeting_us + 1)
    assert alone.leader == "B2"
    alone.hear(Beat(reign=first, round=8, path=("B1", "B3")), late + timing.meeting_us + 2)
    alone.wake(late + 2 * timing.meeting_us + 2)
    assert alone.path == ("B1", "B3", "B2")


@pytest.mark.spec("MB-1")
def test_nobody_follows_a_broker_that_is_behind_it() -> None:
    """B2 has lost its state. B3 is behind it, and still brings rounds of B1."""
    timing = ElectionTiming()
    restarted = Election("B2", timing, 0)
    restarted.hear(Beat(reign=Reign(-1, "B1"), round=7, path=("B1", "B2", "B3")), 10)
    restarted.wake(timing.meeting_us * 2)
    assert restarted.leader == "B2"
    assert list(restarted.neighbours) == ["B3"]


@pytest.mark.spec("MB-1")
def test_a_link_that_the_other_end_has_given_up_is_made_again() -> None:
    field = Field(2, [frozenset(("B1", "B2"))], link=LinkModel(), seed=1)
    field.wait(ROUNDS)
    field.network._act(field.network.hosts["B1"], Disconnect("B2"))
    assert field.links() == set()
    field.wait(1)
    field.check()


@pytest.mark.spec("MB-1")
def test_a_network_that_loses_most_beats_is_whole_when_it_does_not() -> None:
    for seed in many_seeds(40):
        field, _ = random_field(seed, loss=0.6)
        field.wait(20)
        field.network.model = LinkModel(latency_us=2_000)
        field.wait(ROUNDS + 1)  # Some do not know the last round yet.
        field.check()


@pytest.mark.spec("MB-1")
def test_both_ends_of_a_link_give_it_up_within_three_rounds() -> None:
    """The one that is behind first, as it hears nothing new; the other one soon after, whenever in
    a round the link was lost.
    """
    for share in (0.01, 0.3, 0.5, 0.7, 0.99):
        field = Field(2, [frozenset(("B1", "B2"))], link=LinkModel(latency_us=2_000), seed=1)
        field.wait(4 + share)
        field.set_reach(frozenset(("B1", "B2")), up=False)
        field.wait(1.75)
        assert list(field.of("B2").neighbours) == []
        field.wait(2.55 - 1.75)
        assert list(field.of("B1").neighbours) == []


def test_an_election_goes_on_after_a_restart() -> None:
    """What a snapshot holds of it is all of it."""
    field, _ = random_field(3)
    field.wait(ROUNDS)
    for broker in field.brokers:
        election = field.of(broker)
        again = Election(broker, ElectionTiming(), 0)
        again.restore(election.keep())
        assert again.keep() == election.keep()
        assert again.deadline == election.deadline
        assert again.beats == []
