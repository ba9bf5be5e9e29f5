"""Brokers that know the whole overlay: whatever links come, go, break or close a ring."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.component import Component
from sterna.core.overlay.members import Members
from sterna.core.overlay.messages import OverlayLink
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Drop, LinkModel, Pause, Script
from sterna.sim.topology import Topology, from_parents, line
from tests.scale import examples
from tests.sim.overlay import Facts

Link = tuple[str, str]


class Brokers:
    """An overlay of brokers that keep each other informed, and what its links really are."""

    def __init__(self, topology: Topology, *, loss: float = 0.0) -> None:
        self.facts = Facts()
        crashing = tuple(Crash(broker=broker, us=0) for broker in topology.brokers)  # They log.
        link = LinkModel(jitter_us=2_000, loss=loss, duplication=loss)
        script = Script(topology=topology, clients={}, steps=crashing, link=link)
        self.simulation = Simulation(script, [self.facts], components=members)
        self.network = self.simulation.network
        self.links = {link_of(a, b) for a, b in topology.links}

    def connect(self, a: str, b: str) -> None:
        self.network.connect(a, b)
        self.links.add(link_of(a, b))

    def end(self, a: str, b: str) -> None:
        self.network.end(a, b)
        self.links.remove(link_of(a, b))

    def settle(self) -> None:
        self.network.settle()

    def cut(self) -> set[Link]:
        """The links that brokers have cut because of a ring, and that are gone therefore."""
        found = [fact for fact in self.facts.all if isinstance(fact, facts.RingFound)]
        cut = {link_of(fact.at, fact.link) for fact in found}
        self.links -= cut
        return cut

    def picture(self, broker: str) -> Members:
        components = self.network.hosts[broker].node.components
        return next(each for each in components if isinstance(each, Members))

    def check(self) -> None:
        """Every broker knows the links of all that it can reach, and no others."""
        for broker in self.simulation.script.topology.brokers:
            reached = part_of(broker, self.links)
            picture = self.picture(broker)
            known = sorted(OverlayLink(*each) for each in self.links if each[0] in reached)
            assert picture.links() == known, broker
            assert picture.brokers() == sorted(reached)
            for other in self.simulation.script.topology.brokers:
                way = picture.way_to(other)
                if other not in reached or other == broker:
                    assert way is None
                else:
                    assert way is not None
                    beyond = self.links - {link_of(broker, way)}
                    assert other in part_of(way, beyond)
                    assert broker not in part_of(way, beyond)


def members(_broker: str) -> list[Component]:
    return [Members()]


def link_of(a: str, b: str) -> Link:
    return (a, b) if a < b else (b, a)


def part_of(broker: str, links: Iterable[Link]) -> set[str]:
    """The brokers that links connect with one, and that one."""
    part, before = {broker}, 0
    while len(part) > before:
        before = len(part)
        part |= {end for link in links if part & set(link) for end in link}
    return part


trees = st.integers(1, 9).flatmap(
    lambda count: st.tuples(*(st.integers(0, child - 1) for child in range(1, count))).map(
        lambda parents: from_parents(list(parents))
    )
)


@pytest.mark.spec("LV-6")
def test_every_broker_knows_every_link_whatever_happens() -> None:
    """Links come and go, connections break, brokers pause, crash and lose their memory."""
    seen: Counter[str] = Counter()

    @examples(150)
    @given(trees, st.sampled_from((0.0, 0.1)), st.data())
    def runs(topology: Topology, loss: float, data: st.DataObject) -> None:
        run = Brokers(topology, loss=loss)
        some = st.sampled_from(topology.brokers)
        for _ in range(data.draw(st.integers(0, 10))):
            what = data.draw(st.sampled_from(("settle", "end", "join", "drop", "pause", "crash")))
            broker, links = data.draw(some), sorted(run.links)
            us = data.draw(st.integers(1_000, 300_000))
            match what:
                case "settle":
                    run.settle()
                    run.check()
                case "end" if links:
                    run.settle()  # No broker is down.
                    run.end(*data.draw(st.sampled_from(links)))
                case "join":
                    run.settle()  # Else it might be heard of before the end of another link.
                    strangers = sorted(set(topology.brokers) - part_of(broker, run.links))
                    if strangers:
                        run.connect(broker, data.draw(st.sampled_from(strangers)))
                case "drop" if links:
                    a, b = data.draw(st.sampled_from(links))
                    run.simulation.do(Drop(a=a, b=b, us=us))
                case "pause":
                    run.simulation.do(Pause(broker=broker, us=us))
                case "crash":
                    run.simulation.do(Crash(broker=broker, us=us, forgets=data.draw(st.booleans())))
                case _:
                    continue
            seen.update([what])
            run.network.run(run.network.kernel.now + data.draw(st.integers(0, 20_000)))
        run.settle()
        run.check()
        assert run.cut() == set()

    runs()
    assert all(seen[what] > 20 for what in ("end", "join", "drop", "pause", "crash")), seen


@pytest.mark.spec("LV-6")
def test_a_ring_is_cut_at_its_greatest_link() -> None:
    """Or several rings at once, each at one link: all brokers stay connected."""
    seen: Counter[str] = Counter()

    @examples(150)
    @given(trees, st.integers(1, 3), st.booleans(), st.data())
    def runs(topology: Topology, rings: int, settled: bool, data: st.DataObject) -> None:
        assume(len(topology.brokers) > 2)
        run = Brokers(topology)
        if settled:
            run.settle()
        some = st.sampled_from(topology.brokers)
        for _ in range(rings):
            a, b = data.draw(some), data.draw(some)
            if a != b and link_of(a, b) not in run.links:
                run.connect(a, b)
                seen.update(rings=1)
        before = set(run.links)
        run.settle()

        assert run.cut() == too_many(before)
        assert part_of("B1", run.links) == set(topology.brokers)
        run.check()

    runs()
    assert seen["rings"] > 100


def too_many(links: set[Link]) -> set[Link]:
    """The links whose ends smaller links connect as well."""
    return {
        link
        for link in links
        if link[1] in part_of(link[0], {each for each in links if each < link})
    }


@pytest.mark.spec("LV-6")
def test_a_network_of_two_brokers_is_one_link() -> None:
    run = Brokers(line(2))
    run.settle()
    assert run.picture("B1").links() == [OverlayLink("B1", "B2")]
    assert run.picture("B2").way_to("B1") == "B1"
    assert run.picture("B2").way_to("B7") is None


@pytest.mark.spec("LV-6")
def test_what_a_broker_without_a_memory_does_not_tell_has_ended() -> None:
    run = Brokers(line(3))
    run.settle()
    run.simulation.do(Crash(broker="B2", us=10_000, forgets=True))
    run.end("B2", "B3")
    run.settle()
    run.check()


@pytest.mark.spec("LV-6")
def test_only_what_has_changed_is_told() -> None:
    """A link at the end of a long line costs one message over each other link."""
    run = Brokers(line(10))
    run.settle()
    before = run.simulation.outcome().messages["OverlayChange"]
    run.end("B9", "B10")
    run.settle()
    assert run.simulation.outcome().messages["OverlayChange"] == before + 8
