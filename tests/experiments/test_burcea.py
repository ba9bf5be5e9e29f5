"""Burcea's experiments: scenarios by the tables, counting by hand, and the model beside a run."""

from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.core.handover.messages import Replay
from sterna.core.messages import Events, SubscriptionChange
from sterna.core.routing.options import Strategy
from sterna.experiments.burcea import settings as scenarios
from sterna.experiments.burcea.city import (
    KINDS,
    LEAVES,
    WANTED,
    WIDTH_KM,
    Ends,
    broker,
    downtown,
    hops,
    leaf_at,
    position,
    subscription,
    topology,
)
from sterna.experiments.burcea.counting import total
from sterna.experiments.burcea.journeys import Move, People, Publisher, Subscriber, people
from sterna.experiments.burcea.measuring import measures
from sterna.experiments.burcea.model import Change, Model, subscription_cost, t4_us
from sterna.experiments.burcea.settings import HOUR_US, MINUTE_US, Scenario, Setting
from sterna.experiments.burcea.simulation import run, simulate
from sterna.experiments.burcea.still import still
from sterna.experiments.experiment import DeliveryError, summarize
from sterna.experiments.registry import EXPERIMENTS
from sterna.experiments.report import Report

MANY = 800
"""So many subscribers that shares come out as they should."""
seeds = st.integers(1, 10_000)


def commute(**given: object) -> Setting:
    return scenarios.commute("relocation", MANY, **given)


# ---- The city


def test_the_city_has_64_leaves_of_a_hierarchy_of_85_brokers() -> None:
    assert len(topology().brokers) == 85
    assert len({broker(leaf) for leaf in range(LEAVES)}) == LEAVES
    assert leaf_at(0.0) == 0
    assert leaf_at(WIDTH_KM) == LEAVES - 1
    assert [len(downtown(number)) for number in (10, 20, 30)] == [10, 20, 30]
    assert all(inner.start + inner.stop == LEAVES for inner in map(downtown, (10, 20, 30)))


def test_leaves_of_one_parent_are_two_hops_apart_and_the_ends_six() -> None:
    assert [hops(0, leaf) for leaf in (0, 1, 3, 4, 15, 16, 63)] == [0, 2, 2, 4, 4, 6, 6]


def test_the_subscriptions_match_1_3_9_and_all_events() -> None:
    assert Counter(map(len, WANTED)) == {1: 27, 3: 9, 9: 3, KINDS: 1}
    for number, wanted in enumerate(WANTED):
        matching = [
            kind for kind in range(KINDS + 2) if subscription(number).matches({"kind": kind})
        ]
        assert matching == list(wanted)


@given(st.floats(-500, 500), st.sampled_from(Ends))
def test_nobody_leaves_the_city(km: float, ends: Ends) -> None:
    here = position(km, ends)

    assert 0 <= here <= WIDTH_KM
    assert position(here, ends) == pytest.approx(here)
    if 0 <= km <= WIDTH_KM:
        assert here == km


# ---- The scenarios


@pytest.mark.spec("DO-7")
@settings(max_examples=10)
@given(seeds)
def test_commuters_follow_table_3(seed: int) -> None:
    setting = commute()

    everybody = people(setting, seed)

    assert len(everybody.publishers) == 100
    assert {each.leaf for each in everybody.publishers} <= set(downtown(10))
    assert all(1 <= each.kind <= KINDS for each in everybody.publishers)
    home_downtown = 0
    for each in everybody.subscribers:
        (move,) = each.moves
        assert each.leaf in downtown(20)
        assert setting.at(16) <= move.leaves_us <= setting.at(18)
        minutes = (move.arrives_us - move.leaves_us) / MINUTE_US
        if move.leaf in downtown(30):
            home_downtown += 1
            assert 15 <= minutes <= 45
        else:
            assert 45 <= minutes <= 90
    assert home_downtown / MANY == pytest.approx(0.4, abs=0.08)
    wanted = Counter(len(WANTED[each.subscription]) for each in everybody.subscribers)
    assert wanted[1] / MANY == pytest.approx(27 / 40, abs=0.08)


@pytest.mark.spec("DO-7")
@settings(max_examples=10)
@given(seeds, st.sampled_from(Ends))
def test_roaming_subscribers_follow_section_5_2_3(seed: int, ends: Ends) -> None:
    setting = scenarios.random("relocation", 200, ends=ends, hours=4)

    everybody = people(setting, seed)

    leaves = {each.leaf for each in everybody.subscribers}
    assert len(leaves) > LEAVES / 2
    for each in everybody.subscribers:
        assert each.subscription < KINDS
        stays = [0, *(move.arrives_us for move in each.moves)]
        for since, move in zip(stays, each.moves, strict=False):
            assert 10 <= (move.leaves_us - since) / MINUTE_US <= 30
            assert 10 <= (move.arrives_us - move.leaves_us) / MINUTE_US <= 30
        for move, leaf in zip(each.moves, [each.leaf, *(m.leaf for m in each.moves)], strict=False):
            assert 0 <= move.leaf < LEAVES
            hours = (move.arrives_us - move.leaves_us) / HOUR_US
            if ends is Ends.STOP and 0 < move.leaf < LEAVES - 1:
                driven = [speed * hours / 0.5 for speed in (5, 50, 100)]
                assert min(abs(abs(move.leaf - leaf) - each) for each in driven) <= 1


@pytest.mark.spec("DO-7")
@settings(max_examples=10)
@given(seeds, st.sampled_from(Ends))
def test_pervasive_journeys_are_the_random_ones_through_every_leaf(seed: int, ends: Ends) -> None:
    others = scenarios.random("relocation", 30, ends=ends, hours=3)
    setting = msgspec.structs.replace(others, scenario=Scenario.PERVASIVE)
    roaming = people(others, seed).subscribers

    for each, other in zip(people(setting, seed).subscribers, roaming, strict=True):
        assert (each.leaf, each.subscription) == (other.leaf, other.subscription)
        way = [each.leaf, *(move.leaf for move in each.moves)]
        assert all(abs(a - b) == 1 for a, b in pairwise(way))
        assert all(move.arrives_us - move.leaves_us == 100_000 for move in each.moves)
        assert all(a.arrives_us < b.leaves_us for a, b in pairwise(each.moves))
        for journey in other.moves:
            before = [move.leaf for move in each.moves if move.leaves_us <= journey.arrives_us]
            assert ([each.leaf, *before])[-1] == journey.leaf


@given(seeds)
@settings(max_examples=5)
def test_journeys_are_the_same_for_every_strategy_and_more_subscribers(seed: int) -> None:
    few, many = (scenarios.random("relocation", count) for count in (20, 40))
    other = msgspec.structs.replace(few, strategy="naive", log_events=5)

    assert people(few, seed) == people(other, seed)
    assert people(few, seed).subscribers == people(many, seed).subscribers[:20]


@given(seeds, st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=10)
def test_some_subscribers_want_the_same_and_nobody_else_does(seed: int, locality: float) -> None:
    setting = scenarios.random("relocation", 100, locality=locality)

    wanted = [each.subscription for each in people(setting, seed).subscribers]

    alike = round(100 * locality)
    assert len(set(wanted[:alike])) <= 1
    assert not set(wanted[:alike]) & set(wanted[alike:])
    assert len({each.leaf for each in people(setting, seed).subscribers}) > 30


# ---- Counting


def one_move(**others: object) -> tuple[Setting, People]:
    """A publisher at leaf 0; its subscriber goes from leaf 1 to leaf 63 and misses ten events."""
    setting = scenarios.random("relocation", 1, hours=0.5, publishers=1, **others)
    move = Move(round(10.5 * MINUTE_US), round(20.5 * MINUTE_US), 63)
    return setting, People(
        (Publisher("p0", 0, 5, 0),),
        (Subscriber("s0", 4, 1, (move,)),),
    )


@pytest.mark.spec("DO-8")
def test_messages_are_counted_as_by_hand() -> None:
    """30 events go up three links; 21 of them are published before the subscriber is back."""
    setting, everybody = one_move()

    done = simulate(setting, everybody, 1)

    inner, outer = done.tally.inner.by_kind, done.tally.outer.by_kind
    assert sum(inner[Events].hops) == 30 * 3 + 21 * 1 + 9 * 3
    assert inner[Events].messages == 30  # Each to one border broker.
    assert inner[Events].hops == [10 * 4, 10 * 4, 4 + 9 * 6]
    assert sum(inner[SubscriptionChange].hops) == 3 + 3
    assert inner[SubscriptionChange].messages == 2
    assert sum(inner[Replay].hops) == 10 * 6
    assert inner[Replay].messages == inner[Replay].events == 10
    assert sum(outer[Events].hops) == 30 + 11 + 9
    found = measures(done)
    assert found.moves == 1
    assert found.way == 6
    assert found.events_per_move == 10
    assert found.still == 30 * 4
    assert found.overhead == total(done.tally.inner.transfer()) / 120
    assert found.own_overhead == total(done.tally.inner.transfer()) / 138
    assert found.away_share == 1


def test_bytes_are_counted_if_asked_for() -> None:
    setting, everybody = one_move(count_bytes=True, payload_bytes=500)

    done = simulate(setting, everybody, 1)

    replay = done.tally.inner.by_kind[Replay]
    assert 60 * 500 < replay.bytes < 60 * 600
    assert measures(done).byte_overhead == pytest.approx(60 / 138, rel=0.1)


def test_the_first_events_after_a_move_are_timed() -> None:
    """There and back over six links of 10 ms, and what the client's own link takes."""
    setting, everybody = one_move()

    found = measures(simulate(setting, everybody, 1))

    assert 120 <= found.replayed_ms == found.complete_ms <= 180
    assert found.live_delay_ms == 80
    assert found.live_ms == pytest.approx(30_000 + 80)


LINK_MS, HOPS = 10, 6
"""The latency of a link, and how many lie between the subscriber's old broker and its new one."""


@pytest.mark.spec("PM-5", "DO-8")
@pytest.mark.parametrize(
    ("strategy", "subscriptions", "messages"),
    [
        ("standard", "broker", 4),  # Ask, subscriptions, ask, events.
        ("logging", "broker", 4),  # The identities come right behind the subscriptions.
        ("standard", "device", 2),
        ("logging", "device", 4),
        ("home", "broker", 2),  # Registration, events.
        ("relocation", "broker", 2),
        ("prefetching", "broker", 0),  # All is there.
    ],
)
def test_t4_is_a_count_of_messages_from_broker_to_broker(
    strategy: str, subscriptions: str, messages: int
) -> None:
    """From the arrival to the first replayed event, to the last, and to the first live one."""
    setting, everybody = one_move(subscriptions=subscriptions)
    setting = msgspec.structs.replace(setting, strategy=strategy)

    found = measures(simulate(setting, everybody, 1))

    expected = (3 + messages * HOPS) * LINK_MS  # Handshake, arrival, and what is replayed.
    assert found.replayed_ms == found.complete_ms == expected
    detour = 2 if strategy == "home" else 0  # Leaf 1 is two hops from the publisher's leaf 0.
    assert found.live_delay_ms == (2 + detour + HOPS) * LINK_MS
    assert found.live_ms == 30_000 + found.live_delay_ms


@pytest.mark.spec("PM-5", "DO-8")
def test_on_narrow_links_logging_is_faster_if_the_log_helps_and_slower_if_not() -> None:
    """3.2.2: with somebody at the new broker who wanted the same, and with nobody."""
    setting, (publishers, subscribers) = _narrow_move()
    neighbour = Subscriber("s1", 4, 63, (Move(25 * MINUTE_US, 26 * MINUTE_US, 7),))

    def t4_ms(strategy: str, *others: Subscriber) -> float:
        everybody = People(publishers, (*subscribers, *others))
        done = simulate(msgspec.structs.replace(setting, strategy=strategy), everybody, 1)
        stay = next(each for each in done.deliveries.stays if each.replayed == 10)
        assert stay.complete_us is not None
        return stay.complete_us / 1_000

    assert t4_ms("logging", neighbour) < t4_ms("standard", neighbour) / 2
    assert t4_ms("logging") > t4_ms("standard")


def _narrow_move() -> tuple[Setting, tuple[tuple[Publisher, ...], tuple[Subscriber, ...]]]:
    setting, everybody = one_move(kbytes_per_s=20, payload_bytes=2_000)
    return setting, (everybody.publishers, everybody.subscribers)


@pytest.mark.parametrize("advertisements", [False, True])
def test_regular_messages_without_moves_need_no_simulation(advertisements: bool) -> None:
    setting = scenarios.commute(
        "relocation", 30, hours=0.1, publishers=20, advertisements=advertisements
    )

    done = run(setting, 3)

    unmoved = still(setting, done.everybody)
    assert total(done.tally.inner.regular()) == unmoved.hops
    assert done.tally.inner.by_kind[Events].messages == unmoved.messages
    assert sum(done.tally.outer.by_kind[Events].hops) == unmoved.client_hops
    assert not done.tally.inner.transfer()


def test_a_wrong_run_names_its_setting_and_its_seed() -> None:
    """Naive handover loses what happens while nobody is there."""
    setting, everybody = one_move()
    naive = msgspec.structs.replace(setting, strategy="naive")

    with pytest.raises(DeliveryError) as wrong:
        simulate(naive, everybody, 17)

    assert "strategy naive" in str(wrong.value)
    assert "seed 17" in str(wrong.value)
    assert "s0 got #22 of p0 after #11" in wrong.value.findings[0]


# ---- The model


@pytest.mark.spec("DO-9")
def test_the_model_counts_the_events_of_a_move() -> None:
    setting, everybody = one_move()

    model = Model(setting, everybody)

    (change,) = model.changes
    assert change.t3_us == 10 * MINUTE_US
    assert t4_us(change, setting) == (3 + 3 * 6) * 10_000
    assert model.events() == pytest.approx(10, rel=0.001)
    counted = measures(simulate(setting, everybody, 1)).events_per_move
    assert model.events() == pytest.approx(counted, rel=0.01)


@pytest.mark.spec("DO-9")
def test_home_brokers_forward_all_that_happens_while_their_clients_are_elsewhere() -> None:
    setting, everybody = one_move()
    home = msgspec.structs.replace(setting, strategy="home")

    assert Model(home, everybody).events() == pytest.approx(30 - 10.5)


@pytest.mark.spec("DO-9")
def test_logs_hold_what_others_wanted_at_the_time() -> None:
    setting, everybody = one_move()
    setting = msgspec.structs.replace(setting, strategy="logging")
    move = Move(15 * MINUTE_US, 16 * MINUTE_US, 7)
    neighbour = Subscriber("s1", 4, 63, (move,))
    with_neighbour = People(everybody.publishers, (*everybody.subscribers, neighbour))

    model = Model(setting, with_neighbour)

    assert model.logged()[0] == pytest.approx(16 - 10.5)
    small = Model(msgspec.structs.replace(setting, log_events=0), with_neighbour)
    assert small.logged()[0] == 0


@pytest.mark.spec("DO-9")
def test_the_equations_are_within_five_percent_where_all_their_terms_are_known() -> None:
    """With small settings; the experiment has the full ones."""
    experiment = EXPERIMENTS["burcea-model"]
    points = [
        summarize(small, [experiment.measure(small, 1)])
        for setting in experiment.settings(quick=True)
        for small in [msgspec.structs.replace(setting, subscribers=20, publishers=10, hours=1.0)]
    ]

    claims = experiment.claims(points)

    assert {claim.paper.split(" (")[0] for claim in claims} == {"Eq. 1", "Eq. 2", "Eqs. 3-5"}
    assert len(claims) == 3 * len(points)
    assert [claim for claim in claims if not claim.holds] == []
    unknown = [claim for claim in claims if "logged_events is estimated" in claim.seen]
    assert len(unknown) == 1


def test_equation_2_adds_what_both_brokers_have_to_say() -> None:
    assert subscription_cost([(1, 1), (0, 1), (0, 0)]) == 3 + 2 + 1
    assert isinstance(Change(one_move()[1].subscribers[0], 0, 1, 0, 5).t3_us, int)


# ---- The experiments

SMALL = {"publishers": 4}


@pytest.mark.spec("DO-8")
@pytest.mark.parametrize(
    "name",
    ["burcea-commute", "burcea-random", "burcea-pervasive", "burcea-covering", "burcea-model"],
)
def test_experiments_run(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    experiment = EXPERIMENTS[name]
    points = []
    for setting in experiment.settings(quick=True):
        small = msgspec.structs.replace(setting, subscribers=setting.subscribers // 4, **SMALL)
        points.append(summarize(small, [experiment.measure(small, 1)]))

    assert experiment.claims(points)
    assert all(table.rows for table in experiment.tables(points))
    files, _ = Report(experiment, points, "a test").write(tmp_path_factory.mktemp("written"))
    assert len(files) > 2


@pytest.mark.spec("DO-7")
def test_the_published_settings_are_those_of_table_2() -> None:
    for name in ("burcea-commute", "burcea-random", "burcea-pervasive"):
        found = EXPERIMENTS[name].settings(quick=False)
        assert {each.subscribers for each in found} >= {200, 400, 600, 800}
        assert {each.publishers for each in found} == {100}
        assert found[0].routing is Strategy.SIMPLE
        assert found[0].log_events == 1_000
