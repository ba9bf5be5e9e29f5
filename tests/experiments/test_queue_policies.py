"""The experiment on queue policies: every event is delivered or purged, and every byte counted."""

import pytest

from sterna.experiments.experiment import DeliveryError, Point, summarize
from sterna.experiments.queue_policies import (
    ALL,
    POLICIES,
    SENSORS,
    Measures,
    QueuePolicies,
    Setting,
    Watch,
    check,
)
from sterna.model.event import EventId


@pytest.fixture(scope="module")
def points() -> list[Point[Setting, Measures]]:
    """All quick settings. The oracle has judged them, or there would be an error."""
    experiment = QueuePolicies()
    return [
        summarize(setting, [experiment.measure(setting, seed=1)])
        for setting in experiment.settings(quick=True)
    ]


@pytest.mark.spec("RE-3")
def test_policies_save_bytes_the_longer_a_client_is_away(
    points: list[Point[Setting, Measures]],
) -> None:
    found = {(point.setting.policy, point.setting.away_s): point.median for point in points}

    assert all(each.delivered + each.purged == each.waited for each in found.values())
    assert [found[policy, 60].delivered for policy in POLICIES] == [300, 100, 149, SENSORS, 1]
    assert found[ALL, 60].client_bytes > 5 * found[ALL, 10].client_bytes
    for policy in ("last_per(sensor)", "max(level)"):
        assert found[policy, 60].client_bytes < 1.3 * found[policy, 10].client_bytes
        assert found[policy, 60].brokers_bytes < found[ALL, 60].brokers_bytes / 5
    experiment = QueuePolicies()
    (claim,) = experiment.claims(points)
    assert claim.holds
    assert "last_per(sensor)" in claim.seen
    assert experiment.summary(points)["client_bytes"][ALL]["10"] == found[ALL, 10].client_bytes
    assert [table.head for table in experiment.tables(points)] == [("policy", "10", "60")] * 3


def test_an_event_that_is_neither_delivered_nor_purged_is_an_error() -> None:
    watch = Watch()
    watch.published = {EventId("town", n) for n in (1, 2, 3)}
    watch.delivered, watch.purged = {EventId("town", 1)}, {EventId("town", n) for n in (1, 2)}

    with pytest.raises(DeliveryError) as raised:
        check(watch, "a run")

    assert raised.value.findings == [
        "neither delivered nor purged: town #3",
        "delivered and purged: town #1",
    ]
