"""Our own routing on a network that makes its own tree: what is lost on the way goes on."""

import pytest

from sterna.core import facts
from sterna.core.handover.options import Handover
from sterna.core.inputs import Attach, Detach, Publish
from sterna.core.keeping import Reader, Writer
from sterna.core.overlay.branch_parts import BranchCutOff, BranchReached, OrderWaited
from sterna.core.overlay.branches import Branches
from sterna.core.overlay.doubts import in_order
from sterna.model.event import Event
from tests.scale import many_seeds
from tests.sim.changing import BEAT_US, CALM, Changing

pytestmark = pytest.mark.spec("MB-4")

FETCHING = (Handover.STANDARD, Handover.PREFETCHING, Handover.LOGGING)
LATE_MAX = 0.01
"""In so many runs at most, events come after later ones, when nobody waits for them any longer."""
FOUND = (42, 54, 66, 125, 137, 178, 211, 215, 235, 252, 258, 277, 625, 1000345, 1000447)
"""Runs that have gone wrong once."""


def check(run: Changing) -> bool:
    """Whether each event that was wanted was delivered, once and in order.

    One may have come too late to be delivered in order, where clients have stopped waiting for it.
    """
    delivered, repeated = run.delivered(), run.repeated()
    published = len(run.published())
    for fact in run.facts.all:  # Each is kept once, however often it has come.
        assert not isinstance(fact, BranchCutOff) or fact.events <= published, (run.seed, fact)
    stopped = any(isinstance(f, OrderWaited) and not f.is_over for f in run.facts.all)
    is_whole = True
    for client, owed in run.owed().items():
        got = delivered[client]
        assert len(set(got)) == len(got), (run.seed, client)
        last: dict[str, int] = {}
        for id_ in got:
            assert id_.seq > last.get(id_.publisher, 0), (run.seed, client, id_)
            last[id_.publisher] = id_.seq
        lost = owed - set(got)
        assert lost <= repeated[client], (run.seed, client, sorted(lost - repeated[client]))
        assert not lost or stopped, (run.seed, client, sorted(lost))
        is_whole &= not lost
    return is_whole


@pytest.mark.parametrize("part", range(2))
def test_nothing_is_lost_whatever_links_come_and_go(part: int) -> None:
    runs, late, reached = 0, 0, 0
    for seed in (*FOUND[part::2], *many_seeds(160)[part::2]):
        handover = [*FETCHING, Handover.HOME, Handover.RELOCATION][seed % 5]
        run = Changing(seed, handover=handover)
        run.walk(60)
        run.heal()
        runs, late = runs + 1, late + (not check(run))
        reached += sum(isinstance(fact, BranchReached) and fact.events for fact in run.facts.all)
    assert late <= max(1, LATE_MAX * runs)
    assert reached > runs


def test_clients_that_roam_while_the_network_is_whole_lose_nothing() -> None:
    runs, late, moved = 0, 0, 0
    for seed in many_seeds(60):
        run = Changing(seed, handover=FETCHING[seed % 3], moves=True)
        run.walk(40)
        run.heal()
        runs, late = runs + 1, late + (not check(run))
        moved += sum(isinstance(fact, facts.HandoverFinished) for fact in run.facts.all)
    assert late <= max(1, LATE_MAX * runs)
    assert moved > runs


class Wandering(Changing):
    """Clients move at any time, wherever the network is in parts."""

    def move(self) -> None:
        client = self.rng.choice([*self.subscribers, *self.publishers])
        if self.rng.random() < 0.3:
            self.do(client, Detach())
            self.wait(self.rng.choice([0, 1, 3]))
        self.do(client, Attach(broker=self.rng.choice(self.brokers)))


@pytest.mark.spec("MB-7")
def test_wherever_clients_move_all_get_in_the_end_what_they_want_and_nothing_else() -> None:
    """What is published once the network is whole and quiet comes to all who want it, once."""
    handovers = [*FETCHING, Handover.HOME, Handover.RELOCATION]
    for seed in many_seeds(30):
        run = Wandering(seed, handover=handovers[seed % 5], moves=True)
        run.walk(60)
        run.heal()
        run.wait(4 * CALM)  # Brokers that ask for a client elsewhere have given up.
        before = len(run.facts.all)
        for publisher in run.publishers:
            for number in (1, 2, 3):
                run.do(publisher, Publish(attributes={"f": number}))
        run.wait(2 * CALM)
        news = run.facts.all[before:]
        published = [e for fact in news if isinstance(fact, facts.Published) for e in fact.events]
        assert len(published) == 3 * len(run.publishers)
        came = [
            (fact.at, event.id)
            for fact in news
            if isinstance(fact, facts.Delivered | facts.Stray | facts.Repeated)
            for event in fact.events
        ]
        wanted = [
            (client, event.id)
            for client, filter_ in run.wanted.items()
            for event in published
            if filter_.matches(event.attributes)
        ]
        assert sorted(came) == sorted(wanted), f"seed {seed}"


def test_without_it_events_are_lost() -> None:
    lost = 0
    for seed in range(10):
        run = Changing(seed, protocols=("election", "overlay", "post"))
        run.walk(60)
        run.heal()
        lost += bool(run.problems())
    assert lost > 5


@pytest.mark.parametrize("seed", [549, 558])
def test_a_link_that_comes_back_brings_advertisements_that_are_known(seed: int) -> None:
    run = Changing(
        seed, handover=[*FETCHING, Handover.HOME, Handover.RELOCATION][seed % 5], advertises=True
    )
    run.walk(60)
    run.heal()

    assert check(run)


def test_routing_by_advertisements_loses_some() -> None:
    """Subscriptions go only where something is advertised. So what was kept comes to a part of the
    branch that does not know what the brokers between it and the publisher want.
    """
    run = Changing(1564, handover=Handover.PREFETCHING, advertises=True)
    run.walk(60)
    run.heal()

    assert run.problems() != []


@pytest.mark.parametrize("seed", [88, 99])
def test_relocation_needs_a_tree_that_stays(seed: int) -> None:
    """A request for relocation goes the way that events went, by trails. If that way has changed
    since, it ends nowhere: a network that makes its own tree has one of the other protocols.
    """
    run = Changing(seed, handover=Handover.RELOCATION, moves=True)
    run.walk(60)
    run.heal()

    assert run.problems() != []


@pytest.mark.parametrize("handover", [*FETCHING, Handover.RELOCATION, Handover.HOME])
@pytest.mark.parametrize(("seconds", "is_whole"), [(5, True), (15, False)])
def test_a_client_that_moves_while_its_old_broker_is_out_of_reach(
    handover: Handover, seconds: int, is_whole: bool
) -> None:
    """Its new broker asks for ten seconds; then it begins anew, and the client states that."""
    run = Changing(7, handover=handover, brokers=3)
    client, publisher = run.subscribers[0], run.publishers[0]
    run.join()
    run.wait(CALM)
    run.do(client, Attach(broker="B1"))
    run.do(publisher, Attach(broker="B3"))
    run.wait(4)
    run.do(client, Detach())
    run.wait(1)
    for number in (1, 2, 3):
        run.do(publisher, Publish(attributes={"f": number}))
    run.wait(2)
    for other in ("B2", "B3"):
        run.set_reach(("B1", other), up=False)
    run.wait(4)
    run.do(client, Attach(broker="B2"))
    for _ in range(seconds):
        run.do(publisher, Publish(attributes={"f": 1}))
        run.wait(1_000_000 / BEAT_US)
    for other in ("B2", "B3"):
        run.set_reach(("B1", other), up=True)
    run.wait(2 * CALM)

    assert (run.problems() == []) == is_whole
    assert any(isinstance(fact, facts.Forgotten) for fact in run.facts.all) != is_whole


def test_a_link_that_is_gone_is_stated_and_made_up_for() -> None:
    run = Changing(3, brokers=2)
    before = len(run.facts.all)

    run.set_reach(("B1", "B2"), up=False)
    run.wait(4)
    for _ in range(20):
        run.publish()
    run.heal()

    news = run.facts.all[before:]
    assert {fact.at for fact in news if isinstance(fact, BranchCutOff)} == {"B1", "B2"}
    assert {fact.at for fact in news if isinstance(fact, BranchReached)} == {"B1", "B2"}
    assert run.problems() == []
    for broker in run.brokers:
        assert run.branches(broker).cuts == {}
        assert not run.simulation.network.hosts[broker].node.is_unsure  # type: ignore[attr-defined]


def test_what_is_kept_is_bounded_and_what_is_dropped_is_counted() -> None:
    """If a part does not come back in time, all that was published for it is stated as given up."""
    options = {"branches": {"events_max": 5, "keep_us": 20_000_000}}
    run = Changing(3, brokers=2, options=options)
    run.set_reach(("B1", "B2"), up=False)
    run.wait(4)
    for _ in range(40):
        run.publish()
        run.wait(0.1)
    run.wait(60)

    got = run.delivered()
    kept = {  # Once at each broker, however many clients want it at the other one.
        (run.home_of(id_.publisher), id_)
        for client, owed in run.owed().items()
        for id_ in owed - set(got[client])
    }
    given_up = run.given_up()
    for broker in run.brokers:
        assert given_up[broker] == sum(home == broker for home, _ in kept)
        assert run.branches(broker).cuts == {}
    assert len(kept) > 5


def test_events_are_sorted_by_their_publishers() -> None:
    events = [
        Event(publisher=publisher, seq=seq, attributes={}, time_us=0)
        for publisher, seq in (("a", 3), ("b", 1), ("a", 1), ("c", 7), ("a", 2), ("b", 2))
    ]

    ids = [(event.publisher, event.seq) for event in in_order(events)]

    assert ids == [("a", 1), ("b", 1), ("a", 2), ("c", 7), ("a", 3), ("b", 2)]


def test_a_snapshot_keeps_what_is_kept() -> None:
    run = Changing(3, brokers=2)
    run.set_reach(("B1", "B2"), up=False)
    run.wait(4)
    for _ in range(10):
        run.publish()
    run.wait(0.1)
    for broker in run.brokers:
        before, restored, writer = run.branches(broker), Branches(), Writer()
        restored.node = before.node
        kept = before.keep(writer)
        restored.restore(kept, Reader(writer.events, writer.messages))

        assert restored.cuts == before.cuts
        assert list(before.cuts) == [other for other in run.brokers if other != broker]
        assert restored.keep(Writer()) == kept
    assert any(len(cut.kept) for b in run.brokers for cut in run.branches(b).cuts.values())
