"""Brokers that move with all that is behind them: in the end, tables are those of a fresh start."""

import pytest

from sterna.core.inputs import Publish, Subscribe
from sterna.model.filters import Filter
from sterna.sim.script import Do, EndLink, Migrate
from tests.scale import CAMPAIGN
from tests.sim.moving import Moving


@pytest.mark.spec("MB-5")
@pytest.mark.parametrize("protocol", ["reversing", "modular"])
def test_after_one_migration_at_a_time_all_ways_are_right(protocol: str) -> None:
    for seed in range(200 * CAMPAIGN):
        run = Moving(seed, protocol)
        for _ in range(8):
            run.subscribe()
        for _ in range(5):
            run.settle()
            run.migrate()
        run.settle()
        assert run.is_right(), f"seed {seed}"


@pytest.mark.spec("MB-5")
def test_whatever_moves_at_the_same_time_all_ways_are_right_in_the_end() -> None:
    for seed in range(600 * CAMPAIGN):
        run = Moving(seed, "reversing")
        for _ in range(run.rng.randint(1, 25)):
            run.rng.choice([run.subscribe, run.cut, run.join, run.migrate])()
            run.rng.choice([run.wait, run.wait, run.wait, run.settle])()
        run.meet()
        assert run.is_right(), f"seed {seed}"


@pytest.mark.spec("MB-5")
def test_whatever_moves_no_event_is_lost_and_none_waits_in_the_end() -> None:
    """Some come twice; clients that roam drop these."""
    for seed in range(300 * CAMPAIGN):
        run = Moving(seed, "reversing")
        for _ in range(8):
            run.subscribe()
        run.settle()
        for _ in range(run.rng.randint(1, 25)):
            run.rng.choice([run.publish, run.cut, run.join, run.migrate])()
            run.publish()
            run.rng.choice([run.wait, run.wait, run.wait, run.settle])()
        run.meet()
        assert run.is_right(), f"seed {seed}"
        assert run.lost_events() == [], f"seed {seed}"
        queues = [each.queue for b in run.brokers for each in run.subscribers(b).values()]
        assert not any(queues), f"seed {seed}"


@pytest.mark.spec("MB-5")
def test_what_was_published_in_another_partition_waits_where_the_way_ends() -> None:
    run = Moving(5, "reversing")
    names = sorted(run.homes)
    run.wanted[names[0]].add("1")
    run.known.add(names[0])
    what = Subscribe(subscription="1", filter=Filter("f = 1"))
    run.simulation.do(Do(client=names[0], what=what))
    run.settle()
    home = run.homes[names[0]]
    link = next(link for link in sorted(run.links, key=sorted) if home in link)
    (beside,) = link - {home}
    run.links.remove(link)
    run.simulation.do(EndLink(a=home, b=beside))
    far = next(n for n in names if run.homes[n] in run.part_of(beside))
    run.simulation.do(Do(client=far, what=Publish(attributes={"f": 1})))
    run.settle()
    assert [len(run.subscribers(b)[names[0]].queue) for b in run.brokers if b == beside] == [1]
    run.links.add(link)
    run.simulation.do(Migrate(broker=home, before=beside, to=beside))
    run.settle()
    assert run.lost_events() == []
    assert run.is_right()


@pytest.mark.spec("MB-5")
def test_the_printed_rule_does_not_converge() -> None:
    """One migration among eight brokers: about one in four ends with wrong tables."""
    wrong = 0
    for seed in range(400):
        run = Moving(seed, "efficient", brokers=8)
        for _ in range(8):
            run.subscribe()
        run.settle()
        run.migrate()
        run.settle()
        wrong += not run.is_right()
    assert 20 < wrong < 200, wrong
