"""A broker's numbers: what is counted, how it is shown, and that the manual names all of it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from sterna.core import facts
from sterna.core.history.facts import PastFound
from sterna.core.presubscribing.facts import VirtualEnded
from sterna.model.event import Event
from sterna.net import metrics as module
from sterna.net.metrics import ElectionGauges, Gauges, Metrics

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

pytestmark = pytest.mark.spec("LV-6")

EVENTS = tuple(Event(publisher="p", seq=seq, time_us=0) for seq in range(1, 6))


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """What a Prometheus server reads."""
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def make(gauges: Callable[[], Gauges] = Gauges) -> Metrics:
    return Metrics("b1", gauges)


def test_facts_and_their_events_are_counted_by_kind() -> None:
    """A batch is one fact and many events; what is forwarded counts for each link."""
    metrics = make()
    metrics.facts([facts.Accepted(at="b", time=1, link="c", events=EVENTS)] * 2)
    metrics.facts([facts.Forwarded(at="b", time=1, source="c", to={"x": EVENTS, "y": EVENTS[:2]})])
    metrics.facts([facts.Detached(at="b", time=1, link="c")])

    seen = samples(metrics)

    assert seen["sterna_facts_total", ("Accepted",)] == 2
    assert seen["sterna_events_total", ("Accepted",)] == 10
    assert seen["sterna_events_total", ("Forwarded",)] == 7
    assert seen["sterna_facts_total", ("Detached",)] == 1
    assert ("sterna_events_total", ("Detached",)) not in seen


def test_a_handover_lasts_from_arrival_until_all_has_come() -> None:
    """By the facts' own times, for each client; one that ends twice counts once."""
    metrics = make()
    metrics.facts([facts.HandoverStarted(at="b", time=1_000_000, client="c1")])
    metrics.facts([facts.HandoverStarted(at="b", time=1_000_000, client="c2")])
    for _ in range(2):
        metrics.facts(
            [facts.HandoverFinished(at="b", time=1_020_000, client="c1", replayed=3, held=1)]
        )

    seen = samples(metrics)

    assert seen["sterna_handover_seconds_count", ()] == 1
    assert seen["sterna_handover_seconds_sum", ()] == pytest.approx(0.02)
    assert seen["sterna_handover_seconds_bucket", ("0.01",)] == 0
    assert seen["sterna_handover_seconds_bucket", ("0.03",)] == 1
    assert seen["sterna_handover_replayed_events_total", ()] == 6


def test_handovers_that_never_end_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: beyond the limit the oldest beginning goes."""
    monkeypatch.setattr(module, "UNFINISHED_MAX", 2)
    metrics = make()
    for client in ("c1", "c2", "c3"):
        metrics.facts([facts.HandoverStarted(at="b", time=0, client=client)])
    for client in ("c1", "c2", "c3"):
        metrics.facts([facts.HandoverFinished(at="b", time=1, client=client, replayed=0, held=0)])

    assert samples(metrics)["sterna_handover_seconds_count", ()] == 2


@pytest.mark.spec("PA-5")
def test_the_past_is_counted_by_where_it_was_found() -> None:
    """How far away and for how long, only if other brokers were asked."""
    metrics = make()
    found = PastFound(at="b", time=9, client="c", subscription="c/1", here=2, neighbours=0)
    far = replace(found, here=1, neighbours=5, archived=3, virtual=7, away=4, search_us=20_000)
    metrics.facts([found, far])

    seen = samples(metrics)

    where = ("here", "virtual", "neighbours", "archive")
    assert [seen["sterna_past_events_total", (w,)] for w in where] == [3, 7, 5, 3]
    assert seen["sterna_past_search_seconds_count", ()] == 1
    assert seen["sterna_past_search_seconds_sum", ()] == pytest.approx(0.02)
    assert seen["sterna_past_search_links_bucket", ("3",)] == 0
    assert seen["sterna_past_search_links_bucket", ("4",)] == 1


@pytest.mark.spec("PA-1")
def test_what_became_of_events_of_virtual_clients_is_counted() -> None:
    metrics = make()
    ended = VirtualEnded(
        at="b",
        time=9,
        client="car",
        subscription="car/1",
        place="center",
        came=10,
        repeated=1,
        handed=2,
        dropped=3,
        unused=4,
    )
    metrics.facts([ended, replace(ended, dropped=7)])

    seen = samples(metrics)

    ends = ("handed", "dropped", "unused")
    assert [seen["sterna_virtual_events_total", (end,)] for end in ends] == [4, 10, 8]


def test_bytes_frames_commits_and_ends_are_counted() -> None:
    metrics = make()
    metrics.received(100, 2)
    metrics.received(50, 1)
    metrics.sent(7, 1)
    metrics.commit(0.001, 40)
    metrics.commit(100.0, 2)
    metrics.released(0.0002)
    metrics.closed("slow consumer")

    seen = samples(metrics)

    assert seen["sterna_received_bytes_total", ()] == 150
    assert seen["sterna_received_frames_total", ()] == 3
    assert seen["sterna_sent_bytes_total", ()] == 7
    assert seen["sterna_sent_frames_total", ()] == 1
    assert seen["sterna_committed_inputs_total", ()] == 42
    assert seen["sterna_commit_seconds_bucket", ("0.001",)] == 1, "bounds belong to their bucket"
    assert seen["sterna_commit_seconds_bucket", ("30.0",)] == 1
    assert seen["sterna_commit_seconds_bucket", ("+Inf",)] == 2
    assert seen["sterna_release_seconds_bucket", ("0.0003",)] == 1
    assert seen["sterna_connections_closed_total", ("slow consumer",)] == 1


def test_gauges_are_asked_when_somebody_looks() -> None:
    """Gauges are never older than the request."""
    depth = 1
    metrics = make(
        lambda: Gauges(queue_events=depth, connections={"client": 4, "broker": 1}, is_ready=True)
    )
    assert samples(metrics)["sterna_queue_events", ()] == 1
    depth = 5

    seen = samples(metrics)

    assert seen["sterna_queue_events", ()] == 5
    assert seen["sterna_connections", ("client",)] == 4
    assert seen["sterna_ready", ()] == 1
    assert seen["sterna_info", ("b1", "0.1.0")] == 1


def test_the_manual_names_every_metric() -> None:
    """No metric without its line in the manual, and none there that is not exposed."""
    place = ElectionGauges(
        is_leader=True, hops=0, round=7, brokers=1, in_reach=0, cut_off=0, kept_events=0
    )
    text = make(lambda: Gauges(election=place, serves=True)).text().decode()
    exposed = re.findall(r"^# TYPE (\S+) (\S+)", text, re.MULTILINE)
    said = re.findall(r"^\| `([a-z_]+)[^`]*` \| (\w+) \|", PAGE.read_text("utf-8"), re.MULTILINE)

    assert sorted(said) == sorted(exposed)
