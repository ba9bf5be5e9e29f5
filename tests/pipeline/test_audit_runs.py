"""The rules of the audit for programs that stop and start, without Spark."""

from typing import Any

import pytest

from sterna.model.delivery import FOREVER
from sterna.pipeline.audit import conduct, publications
from sterna.pipeline.audit.findings import Reach
from tests.pipeline.test_audit_rules import GRACE, asks, row

SUBSCRIBED: dict[str, Any] = {"name": "x", "filter": "a = 1"}


@pytest.mark.spec("PL-5")
def test_a_run_of_a_program_ends_with_its_last_fact() -> None:
    """Between that and the next run it was killed, or closed, at a time that nobody knows."""
    rows = (
        *(row("Seen", 0, published=30), row("Seen", 50, published=90)),
        *(row("RecordBegun", 0), row("Attached", 1), row("Restarted", 50), row("Detached", 50)),
        row("Attached", 52),
    )

    connections = conduct._conduct(rows, None, GRACE)["connections"]

    assert connections == [{"since": 1, "until": 30}, {"since": 52, "until": 90}]


@pytest.mark.spec("PL-5")
def test_what_is_in_force_goes_on_with_a_state_and_ends_without_one() -> None:
    """In another life it has to be asked for again, under the same name or not."""
    before = (row("Seen", 0, published=40), row("Seen", 50, published=90), row("Attached", 0))
    asked = row("Subscribed", 1, **SUBSCRIBED)

    kept = asks(*before, asked, row("Restarted", 50), row("Attached", 51))
    lost = asks(*before, asked, row("RecordBegun", 50), row("Attached", 51))

    assert kept == [("subscription", "a = 1", 1, 6, FOREVER, FOREVER, 85)]
    assert lost == [("subscription", "a = 1", 1, 6, 50, 56, 35)]


def world(**known: Any) -> publications._World:
    """What is known of a publisher."""
    known = {"world": "", "client": "pat", **publications._NOBODY, "settled": None, **known}
    return publications._World([known], GRACE, advertisements=False)


CONNECTIONS = [{"since": 0, "until": 20}, {"since": 50, "until": 90}]


@pytest.mark.spec("PL-5")
def test_what_a_program_had_not_sent_is_gone_with_its_memory() -> None:
    """Nobody is owed it; with a state, it is sent when the program is back."""
    assert world(connections=CONNECTIONS).out("pat", 30) == 55
    assert world(connections=CONNECTIONS, lives=[0, 50]).out("pat", 30) is None
    assert world(connections=CONNECTIONS, lives=[0, 50]).out("pat", 10) == 15


def outs(moment: int, **known: Any) -> list[int | None]:
    """When the events 1 and 2 of a publisher had left it."""
    events: list[Any] = [("pat", seq, 0, {}, b"") for seq in (1, 2)]
    said = publications._Said("", "pat", is_out=False, moment=moment, events=events)
    found = publications._by_event({}, 2)
    starts, ids = found.offsets.to_numpy(), found.values.to_numpy()
    return publications._outs([said], starts, ids, world(**known))


@pytest.mark.spec("PL-5")
def test_a_farewell_vouches_for_the_events_of_its_own_life() -> None:
    """A later life has greater numbers, but has sent nothing of an earlier one."""
    farewells = [{"moment": 70, "last": 9}]

    assert outs(30, farewells=farewells) == [70, 70]
    assert outs(30, farewells=farewells, lives=[0, 50]) == [None, None]
    assert outs(60, farewells=farewells, lives=[0, 50]) == [70, 70]


@pytest.mark.spec("PL-5")
def test_of_what_a_broker_has_accepted_only_that_counts_which_its_publisher_lacks() -> None:
    """All of a publisher without a journal; a life that was killed has lost its last numbers."""
    recorded = [{"first": 3, "last": 5}, {"first": 100, "last": 100}]
    events: list[Any] = [
        *(("pat", seq, 0, {}, b"") for seq in (2, 3, 5, 6, 99, 100, 101)),
        ("ann", 4, 0, {}, b""),
    ]

    news = world(recorded=recorded).news(events)

    assert [event[:2] for event in news] == [
        *(("pat", 2), ("pat", 6), ("pat", 99), ("pat", 101), ("ann", 4))
    ]


@pytest.mark.spec("PL-5")
def test_what_was_published_is_known_as_far_as_all_brokers_of_a_network_tell() -> None:
    """B9 belongs to another network, and does not matter; B4 has no journal."""
    links = [("ann", "B1"), ("B1", "B2"), ("B2", "B3"), ("bob", "B9")]
    ends = {"B1": 100, "B2": 50, "B3": 40, "B9": 7}

    reach = Reach(links, ends)
    assert reach.short_of("ann", 40) == []
    assert reach.short_of("ann", 45) == ["B3"]
    assert reach.short_of("bob", 7) == []
    assert Reach([*links, ("B3", "B4")], ends).short_of("ann", 1) == ["B4"]
    assert (reach.is_known("bob"), reach.is_known("eve")) == (True, False)
