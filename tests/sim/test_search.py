"""Searches for the past in random networks: whatever is delivered as past has no gap up to what
follows, none twice, in order, no more than was asked for; and each variant finds what it promises.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sterna.core.actions import Action, Deliver
from sterna.core.history import search as module
from sterna.core.history.options import HistoryOptions, Search
from sterna.core.history.recent import Recent
from sterna.core.inputs import (
    Publish,
    Subscribe,
)
from sterna.core.names import Time
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import (
    Crash,
    Do,
    Doing,
    Script,
)
from sterna.sim.topology import random_tree
from tests.scale import examples
from tests.sim.searched import FILTERS, SEARCHES, Searched


@pytest.mark.spec("PA-2", "PA-3", "PM-4")
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("faults", [False, True], ids=["", "faults"])
@pytest.mark.parametrize("moves", [False, True], ids=["", "moves"])
def test_the_past_has_no_gap(search: Search, faults: bool, moves: bool) -> None:
    """Subscribers and publishers may move to other brokers, also before their past has come."""
    seen: Counter[str] = Counter()

    @examples(42, long=3)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        run = Searched(seed, search, faults=faults, moves=moves)
        run.start()
        run.walk(40)
        run.check()
        seen.update(runs=1, past=sum(len(wish.past) for wish in run.wishes.values()))
        seen.update(held=run.holds.held)

    runs()
    assert seen["past"] > seen["runs"]
    assert seen["held"] > 0


@pytest.mark.spec("PA-2", "PA-3")
@pytest.mark.parametrize("search", SEARCHES)
def test_clocks_that_differ_make_no_gap(search: Search) -> None:
    """Clocks decide which events are the last ones, and how far back a time goes."""
    seen: Counter[str] = Counter()

    @examples(15)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        run = Searched(
            seed, search, faults=seed % 3 == 0, moves=seed % 2 == 0, clocks_differ_us=10_000_000
        )
        run.start()
        run.walk(20)
        run.set_clocks()  # They are set again meanwhile, some of them back.
        run.walk(20)
        run.check()
        seen.update(runs=1, past=sum(len(wish.past) for wish in run.wishes.values()))

    runs()
    assert seen["past"] > seen["runs"]


@pytest.mark.spec("PA-2", "LV-6")
@pytest.mark.parametrize("search", SEARCHES)
def test_limits_make_no_gaps(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that are cut and come in parts, questions that say less, searches that end early."""
    limits = {
        "ANSWER_EVENTS_MAX": 6,
        "ANSWER_BYTES_MAX": 300,
        "FOUND_BYTES_MAX": 20_000,
        "KNOWN_MAX": 1,
        "PART_BYTES_MAX": 100,
        "PART_RUNS_MAX": 1,
        "PASSING_MAX": 3,
        "PREPARED_MAX": 1,
        "SEARCHES_MAX": 5,
        "SEARCHES_PER_CLIENT_MAX": 2,
    }
    for name, limit in limits.items():
        monkeypatch.setattr(module, name, limit)
    seen: Counter[str] = Counter()

    @examples(42, long=3)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        run = Searched(seed, search, faults=seed % 2 == 0, moves=seed % 3 == 0)
        run.start()
        run.walk(40)
        run.check()
        seen.update(runs=1, past=sum(len(wish.past) for wish in run.wishes.values()))

    runs()
    assert seen["past"] > seen["runs"] / 2


@pytest.mark.spec("PA-5")
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("trouble", ["", "a broker is down", "an archive never answers"])
def test_the_nth_event_is_there_no_later_than_without_a_past(search: Search, trouble: str) -> None:
    seen: Counter[str] = Counter()

    @examples(25)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        plain, past = (times_of(seed, search, trouble, past=past) for past in (False, True))
        for name, (events_max, came) in past.items():
            _, came_plainly = plain[name]
            if len(came_plainly) >= events_max:
                assert came[events_max - 1] <= came_plainly[events_max - 1]
                seen.update(compared=1, earlier=came[events_max - 1] < came_plainly[events_max - 1])
        seen.update(runs=1)

    runs()
    assert seen["compared"] > seen["runs"] / 2
    assert seen["earlier"] > 0


def times_of(
    seed: int, search: Search, trouble: str, *, past: bool
) -> dict[str, tuple[int, list[Time]]]:
    """How many events each subscriber asks for, and when each of its events came."""
    rng = Random(seed)  # noqa: S311 - reproducible.
    topology = random_tree(rng.randint(2, 6), seed)
    subscribers = [f"s{number}" for number in range(8)]
    clients = {name: rng.choice(topology.brokers) for name in ("p1", "p2", *subscribers)}
    down = rng.choice(topology.brokers) if trouble == "a broker is down" else None
    script = Script(
        topology=topology,
        clients=clients,
        steps=tuple(Crash(broker=each, us=0) for each in topology.brokers),
        latencies=tuple((a, b, rng.randint(0, 30_000)) for a, b in topology.links),
        protocols=("past", "search"),
        history=HistoryOptions(search=search, events_max=rng.choice([0, 10])),
        seed=seed,
    )
    simulation = Simulation(script)
    network, came = simulation.network, defaultdict[str, list[Time]](list)
    for host in network.hosts.values():
        recent = host.node.part("past")
        if isinstance(recent, Recent):
            recent.has_archive = trouble == "an archive never answers"
    wanted: dict[str, int] = {}
    for client in subscribers:
        node = network.hosts[client].node

        def listen(
            action: Action, act: Callable[[Action], None] = node.act, name: str = client
        ) -> None:
            act(action)
            if isinstance(action, Deliver):
                came[name] += [network.kernel.now] * len(action.events)

        node.act = listen  # type: ignore[method-assign]
    now: Time = 1_000_000
    network.run(now)
    for number in range(60):
        now += rng.choice([0, 1_000, 10_000, 50_000])
        network.run(now)
        if rng.random() < 0.8 or len(wanted) == len(subscribers):
            attributes: dict[str, Any] = {"kind": rng.choice("xyz"), "zone": rng.randint(0, 2)}
            what: Doing = Publish(attributes=attributes)
            simulation.do(Do(client=rng.choice(["p1", "p2"]), what=what))
        else:
            client, events_max = subscribers[len(wanted)], rng.choice([1, 2, 4, 10])
            wanted[client] = events_max
            what = Subscribe(
                subscription="1",
                filter=rng.choice(FILTERS),
                past_events_max=events_max if past else None,
            )
            simulation.do(Do(client=client, what=what))
        if number == 30 and down is not None:
            simulation.do(Crash(broker=down, us=60_000_000))
    network.run(now + 120_000_000)
    return {name: (events_max, came[name]) for name, events_max in wanted.items()}


@pytest.mark.spec("PA-2")
@pytest.mark.parametrize("trouble", ["", "faults", "moves"])
def test_each_variant_finds_at_least_as_much_as_the_one_before(trouble: str) -> None:
    """The last one finds exactly the latest events that any broker on the way to publishers has, as
    far as that one knows that nothing is missing between them.

    Where publishers have moved, those that send less because of what others have may find less; or
    more, for what is not sent again leaves room in an answer for earlier events.
    """
    seen: Counter[str] = Counter()

    @examples(30, long=10)
    @example(304, 10)
    @example(302, 3)
    @example(368782, 3)
    @given(st.integers(0, 2**32), st.sampled_from([1, 3, 10, 1000]))
    def runs(seed: int, events_max: int) -> None:
        filter_ = FILTERS[seed % len(FILTERS)]
        faults, moves = trouble == "faults", trouble == "moves"
        walked = {
            each: Searched(seed, Search.COMPLETE, faults=faults, moves=moves) for each in SEARCHES
        }
        for run in walked.values():
            run.start()
            run.walk(30)
        complete = walked[Search.COMPLETE]
        held = complete.held(filter_, events_max)
        known = complete.known(filter_, events_max)
        found = {each: run.ask(each, filter_, events_max) for each, run in walked.items()}
        counts = {search: len(found[search]) for search in SEARCHES}
        most = max(counts.values())
        assert counts[Search.MERGED] == counts[Search.JUNCTIONS], found
        assert most <= len(held), found
        if not moves:
            assert counts[Search.MERGED] == most, found
            assert [*counts.values()] == sorted(counts.values()), found
            assert found[Search.COMPLETE] == known
            seen.update(all_of_it=known == held)
        seen.update(runs=1, nearest=counts[Search.NEAREST], complete=counts[Search.COMPLETE])

    runs()
    assert seen["complete"] >= seen["nearest"] > 0
    assert seen["all_of_it"] > seen["runs"] / 2 or trouble == "moves"


@pytest.mark.spec("PA-2")
@pytest.mark.parametrize(("seed", "filter_"), [(455, FILTERS[0]), (478, FILTERS[3])])
def test_what_the_asker_has_joins_what_a_publisher_left_behind(seed: int, filter_: Filter) -> None:
    """A broker has events of before a move; those after it are known to who asks."""
    found = []
    for search in (Search.JUNCTIONS, Search.COMPLETE):
        run = Searched(seed * 7919 + 13, Search.COMPLETE, faults=False, moves=True)
        run.start()
        run.walk(30)
        found.append(run.ask(search, filter_, 1000))

    assert found[0] == found[1] != []
