"""Roaming clients: what naive handover loses and repeats, and what relocation takes."""

from collections.abc import Sequence

import pytest

from sterna.core.handover.options import Handover
from sterna.core.routing.options import Strategy
from sterna.experiments import fiege_figure_2, handover_latency
from sterna.experiments.experiment import Point, summarize
from sterna.experiments.fiege_figure_2 import FiegeFigure2, expected
from sterna.experiments.handover_latency import HandoverLatency, expected_ms

Handovers = Sequence[Point[fiege_figure_2.Setting, fiege_figure_2.Measures]]
Latencies = Sequence[Point[handover_latency.Setting, handover_latency.Measures]]


@pytest.fixture(scope="module")
def handovers() -> Handovers:
    experiment = FiegeFigure2()
    return [
        summarize(setting, [experiment.measure(setting, seed=1)])
        for setting in experiment.settings(quick=True)
    ]


@pytest.fixture(scope="module")
def latencies() -> Latencies:
    """All strategies, with and without advertisements. The oracle has judged them."""
    experiment = HandoverLatency()
    return [
        summarize(setting, [experiment.measure(setting, seed=1)])
        for setting in experiment.settings(quick=True)
    ]


@pytest.mark.spec("PM-1")
def test_naive_handover_loses_and_repeats_even_with_flooding_and_no_break(
    handovers: Handovers,
) -> None:
    """Fiege, Fig. 2."""
    naive = [
        point.median
        for point in handovers
        if point.setting.protocol == Handover.NAIVE
        and point.setting.strategy is Strategy.FLOODING
        and point.setting.away_ms == 0
    ]

    assert naive
    assert all(each.missed > 0 and each.duplicated > 0 for each in naive)


@pytest.mark.spec("PM-4")
def test_relocation_loses_and_repeats_nothing_of_the_same(handovers: Handovers) -> None:
    kept = [p.median for p in handovers if p.setting.protocol == Handover.RELOCATION]

    assert len(kept) == len(handovers) / 2
    assert all((each.missed, each.duplicated, each.reordered) == (0, 0, 0) for each in kept)


@pytest.mark.spec("PM-1")
def test_what_naive_handover_costs_follows_from_the_lengths_of_the_paths(
    handovers: Handovers,
) -> None:
    for point in handovers:
        if point.setting.protocol == Handover.NAIVE:
            missed, duplicated = expected(point.setting)
            # Events come at any time, so that numbers differ at random: here by 4 deviations.
            for found, mean in (
                (point.median.missed_per_move, missed),
                (point.median.duplicated_per_move, duplicated),
            ):
                assert found == pytest.approx(mean, abs=4 * (mean / point.setting.moves) ** 0.5)


def test_the_longer_the_way_the_more_is_lost_and_repeated() -> None:
    def costs(hops: int, away_ms: int) -> tuple[float, float]:
        return expected(
            fiege_figure_2.Setting(
                protocol=Handover.NAIVE, strategy=Strategy.FLOODING, away_ms=away_ms, hops=hops,
                rate=100, moves=1,
            )
        )  # fmt: skip

    assert costs(hops=1, away_ms=0) == (1.0, 1.0)  # 100 per second, for 10 ms, of one producer.
    assert costs(hops=4, away_ms=0) == (4.0, 4.0)
    assert costs(hops=4, away_ms=40) == (8.0, 0.0)
    assert costs(hops=4, away_ms=100) == pytest.approx((20.0, 0.0))


@pytest.mark.spec("PM-5")
def test_handover_latency_is_a_round_trip_with_every_strategy(latencies: Latencies) -> None:
    measured = {(p.setting.strategy, p.setting.advertisements) for p in latencies}
    assert len(measured) == 2 * len(Strategy) - 1  # Flooding has no use for advertisements.

    for point in latencies:
        assert point.median.to_replayed_ms == expected_ms(point.setting.hops)
        assert point.median.to_live_ms >= point.median.to_replayed_ms
        assert point.median.replayed > 0


@pytest.mark.spec("PM-5")
def test_a_handover_takes_a_request_and_a_replay_on_each_hop(latencies: Latencies) -> None:
    for point in latencies:
        hops, median = point.setting.hops, point.median
        assert (median.requests, median.replays) == (hops, hops)
        others = median.control_messages - 2 * hops
        assert others == median.subscription_changes
        if point.setting.strategy is Strategy.FLOODING:
            assert others == 0


def test_naive_handover_has_live_events_sooner_and_says_so(latencies: Latencies) -> None:
    for point in latencies:
        assert point.median.naive_to_live_ms < point.median.to_live_ms


def test_the_claims_say_what_was_measured(handovers: Handovers, latencies: Latencies) -> None:
    for experiment, points in ((FiegeFigure2(), handovers), (HandoverLatency(), latencies)):
        claims = experiment.claims(points)  # type: ignore[arg-type]

        assert all(claim.holds for claim in claims), claims
        assert experiment.tables(points)  # type: ignore[arg-type]
