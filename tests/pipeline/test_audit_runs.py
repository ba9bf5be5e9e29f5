"""The rules of the audit for programs that stop and start, without Spark."""

from typing import Any

import pytest

from sterna.model.delivery import FOREVER
from sterna.pipeline.audit import conduct, wanted
from sterna.pipeline.audit.entries import Sessions
from sterna.pipeline.audit.findings import Reach
from sterna.pipeline.audit.publishers import NOBODY, Publishers
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


FORGOTTEN = (
    *(row("Seen", 0, published=40), row("Seen", 50, published=90)),
    *(row("RecordBegun", 0), row("Attached", 0), row("Subscribed", 1, **SUBSCRIBED)),
    *(row("Restarted", 50), row("Attached", 51), row("Forgotten", 60)),
)
"""While a client was away, a program without its state and without a journal has run."""


@pytest.mark.spec("PL-5")
def test_what_was_published_before_a_client_learns_that_it_was_forgotten_is_not_owed() -> None:
    """Its broker may take longer than the grace period to find that out."""
    assert asks(*FORGOTTEN) == [
        ("subscription", "a = 1", 1, 6, 60, 65, 35),
        ("subscription", "a = 1", 60, 65, FOREVER, FOREVER, 85),
    ]


@pytest.mark.spec("PL-5")
def test_what_waited_at_a_client_that_was_forgotten_is_not_owed() -> None:
    """Who got events of the later program takes those for repeated ones; a farewell is no proof."""
    known = conduct._conduct((*FORGOTTEN, row("Left", 80, published=9)), None, GRACE)

    assert outs(30, **known) == [35, 35]
    assert outs(39, **known) == [None, None]
    assert outs(70, **known) == [75, 75]


@pytest.mark.spec("PL-5")
def test_a_simulation_knows_better_than_its_clients_when_they_were_forgotten() -> None:
    assert asks(*FORGOTTEN, settled=[10, 55, 70]) == [
        ("subscription", "a = 1", 1, 10, FOREVER, FOREVER, FOREVER)
    ]


def publishers(**known: Any) -> Publishers:
    """What is known of a publisher."""
    known = {"world": "", "client": "pat", **NOBODY, "settled": None, **known}
    return Publishers([known], GRACE, advertisements=False)


CONNECTIONS = [{"since": 0, "until": 20}, {"since": 50, "until": 90}]


@pytest.mark.spec("PL-5")
def test_what_a_program_had_not_sent_is_gone_with_its_memory() -> None:
    """Nobody is owed it; with a state, it is sent when the program is back."""
    assert publishers(connections=CONNECTIONS)["pat"].out(30) == 55
    reborn = publishers(connections=CONNECTIONS, lives=[0, 50])["pat"]
    assert reborn.out(30) is None
    assert reborn.out(10) == 15


def outs(moment: int, **known: Any) -> list[int | None]:
    """When the events 1 and 2 of a publisher had left it."""
    events: list[Any] = [("pat", seq, 0, {}, b"") for seq in (1, 2)]
    said = wanted._Said("pat", is_out=False, moment=moment, events=events)
    starts, ids = wanted.by_event({}, 2)
    return wanted.outs_of([said], starts, ids, wanted.Asked([]), publishers(**known))


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
    known = publishers(recorded=recorded)

    lacking = [seq for seq in (2, 3, 5, 6, 99, 100, 101) if not known["pat"].has_recorded(seq)]

    assert lacking == [2, 6, 99, 101]
    assert not known["ann"].has_recorded(4)


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


@pytest.mark.spec("PL-5")
def test_a_journal_has_all_that_was_sent_in_a_connection_of_a_run_that_it_has() -> None:
    """Not at its ends, where clocks differ, nor before journals said where runs begin."""
    rows = (
        *(row("Seen", 0, published=40), row("Seen", 50, published=90)),
        *(row("Attached", 1), row("Detached", 40), row("Restarted", 50)),
        *(row("Attached", 52), row("Detached", 60), row("Attached", 61), row("Attached", 70)),
    )

    sessions = conduct._conduct(rows, None, GRACE)["sessions"]

    assert [(each["since"], each["until"], each["begun"]) for each in sessions] == [
        (75, 85, 50),
    ]
    assert {each["broker"] for each in sessions} == {conduct.name_id("B1")}


@pytest.mark.spec("PL-5")
def test_what_a_journal_must_have_is_what_its_run_has_published() -> None:
    """At that broker, in that time, with a greater number than the first event of the run."""
    session = {"broker": 7, "since": 20, "until": 40, "begun": 10}
    journal = Sessions([session], [{"moment": 5, "first": 1}, {"moment": 15, "first": 100}])

    assert journal.must_have(101, 7, 30)
    assert not journal.must_have(100, 7, 30)
    assert not journal.must_have(101, 8, 30)
    assert not any(journal.must_have(101, 7, moment) for moment in (19, 41))
    assert not Sessions([session], [{"moment": 5, "first": 1}]).must_have(101, 7, 30)
    assert not Sessions([session], [{"moment": 50, "first": 1}]).must_have(101, 7, 30)


class Counted(int):
    """A moment that counts how often one is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) > int(other)

    def __ge__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) >= int(other)


def comparisons(runs: int) -> int:
    """How often moments are compared to find out when the events of so many runs were out."""
    starts = [Counted(100 * run) for run in range(runs)]
    Counted.compared = 0
    publisher = publishers(
        connections=[{"since": start, "until": Counted(start + 50)} for start in starts],
        lives=starts,
        farewells=[{"moment": Counted(start + 60), "last": 9} for start in starts],
        oblivions=[{"moment": Counted(start + 70), "heard": 9} for start in starts],
        recorded=[{"first": start, "last": Counted(start + 9)} for start in starts],
    )["pat"]
    for start in starts:
        assert publisher.out(start + 10) == start + 15
        assert publisher.out(start + 55) is None or start == starts[-1]
        assert publisher.farewells(start + 10) == [(start + 60, 9)]
        assert publisher.heard(start + 10) == 9
        assert publisher.has_recorded(start + 5)
    return Counted.compared


@pytest.mark.spec("PL-5")
def test_the_run_of_an_event_is_found_without_a_look_at_all_others() -> None:
    """Twice as many runs are hardly more than twice as many comparisons."""
    assert comparisons(400) < 2.5 * comparisons(200)
