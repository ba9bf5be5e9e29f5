"""The oracle finds every wrong delivery, and only those."""

import pytest

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.model.delivery import Fault, Lifetime, is_allowed, is_explained, is_owed
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.sim.oracle import Oracle

X = Filter("x > 0")


def event(seq: int, x: int = 1) -> Event:
    return Event(publisher="pat", seq=seq, time_us=0, attributes={"x": x})


def subscribed(time: int) -> Fact:
    return facts.Subscribed(at="ann", time=time, subscription="1", filter=X)


def unsubscribed(time: int) -> Fact:
    return facts.Unsubscribed(at="ann", time=time, subscription="1")


def settled(time: int) -> Fact:
    return facts.Settled(at="", time=time)


def published(time: int, *events: Event) -> Fact:
    return facts.Published(at="pat", time=time, events=events)


def delivered(time: int, *events: Event) -> Fact:
    return facts.Delivered(at="ann", time=time, events=events)


def findings(*stated: Fact, advertisements: bool = False) -> list[tuple[Fault, int]]:
    oracle = Oracle(advertisements=advertisements)
    for fact in stated:
        oracle.fact(fact)
    return [(finding.fault, finding.event.seq) for finding in oracle.findings()]


START = (subscribed(0), settled(10))


def test_a_right_run_has_no_findings() -> None:
    assert not findings(
        *START, published(20, event(1), event(2)), delivered(30, event(1), event(2)), settled(40)
    )


def test_a_lost_event_is_found() -> None:
    run = (*START, published(20, event(1), event(2)), delivered(30, event(2)), settled(40))

    assert findings(*run) == [(Fault.LOST, 1)]


def test_a_duplicate_is_found() -> None:
    run = (*START, published(20, event(1)), delivered(30, event(1), event(1)), settled(40))

    assert findings(*run) == [(Fault.DUPLICATED, 1)]


def test_a_wrong_order_is_found() -> None:
    run = (*START, published(20, event(1), event(2)), delivered(30, event(2), event(1)))

    assert findings(*run) == [(Fault.REORDERED, 1)]


def test_what_was_never_asked_for_is_found() -> None:
    run = (*START, published(20, event(1, x=0)), delivered(30, event(1, x=0)), settled(40))

    assert findings(*run) == [(Fault.UNASKED, 1)]


def test_what_comes_before_a_subscription_was_never_asked_for() -> None:
    run = (published(0, event(1)), delivered(5, event(1)), subscribed(6))

    assert findings(*run) == [(Fault.UNASKED, 1)]


def test_what_is_sent_to_a_client_that_never_asked_is_found_though_it_ignores_it() -> None:
    stray = facts.Stray(at="ann", time=30, events=(event(1, x=0),))
    late = facts.Stray(at="ann", time=50, events=(event(2),))
    run = (*START, published(20, event(1, x=0), event(2)), stray, unsubscribed(40), late)

    assert findings(*run) == [(Fault.UNASKED, 1)]


def test_what_is_sent_long_after_a_subscription_has_ended_is_found() -> None:
    """Some broker has not forgotten it."""
    stray = facts.Stray(at="ann", time=50, events=(event(1),))
    run = (*START, unsubscribed(20), settled(30), published(40, event(1)), stray)

    assert findings(*run) == [(Fault.UNASKED, 1)]


def test_what_nobody_published_so_is_found() -> None:
    other = Event(publisher="pat", seq=1, time_us=0, attributes={"x": 7})

    assert findings(*START, delivered(30, event(1))) == [(Fault.UNPUBLISHED, 1)]
    changed = findings(*START, published(20, event(1)), delivered(30, other), settled(40))
    assert changed == [(Fault.UNPUBLISHED, 1)]
    early = findings(*START, delivered(19, event(1)), published(20, event(1)), settled(40))
    assert early == [(Fault.UNPUBLISHED, 1)]


def test_of_two_things_at_one_time_the_first_counts_as_earlier() -> None:
    assert findings(published(5, event(1)), subscribed(5), settled(5)) == []
    run = (*START, published(20, event(1)), settled(20), unsubscribed(30), settled(40))
    assert findings(*run) == [(Fault.LOST, 1)]


@pytest.mark.parametrize(
    ("asked", "ended", "owed"),
    [
        (0, None, True),
        (15, None, False),  # Not settled when the event was published.
        (0, 25, False),  # Ended before everything had arrived.
        (0, 45, True),
    ],
)
def test_an_event_is_owed_to_settled_subscriptions_that_last(
    asked: int, ended: int | None, owed: bool
) -> None:
    run = sorted(
        [
            subscribed(asked),
            settled(10),
            published(20, event(1)),
            settled(40),
            *([unsubscribed(ended)] if ended is not None else []),
        ],
        key=lambda fact: fact.time,
    )

    assert findings(*run) == ([(Fault.LOST, 1)] if owed else [])


def test_where_advertisements_count_an_event_is_owed_only_if_one_was_settled() -> None:
    offer = facts.Advertised(at="pat", time=0, advertisement="1", filter=Filter("x = 1"))
    run = (subscribed(0), settled(10), published(20, event(1), event(2, x=2)), settled(40))

    assert findings(*run, advertisements=True) == []
    assert findings(offer, *run, advertisements=True) == [(Fault.LOST, 1)]


def test_what_a_full_buffer_discarded_was_counted_not_lost() -> None:
    purged = facts.Purged(at="pat", time=21, events=(event(1),))

    assert not findings(*START, published(20, event(1)), purged, settled(40))


def test_what_was_discarded_for_one_client_is_still_owed_to_others() -> None:
    purged = facts.Purged(at="bob", time=21, events=(event(1),))

    run = (*START, published(20, event(1)), purged, settled(40))
    assert findings(*run) == [(Fault.LOST, 1)]


def test_a_finding_tells_the_path_of_the_event() -> None:
    oracle = Oracle()
    hop = facts.Forwarded(at="B1", time=21, source="pat", to={"B2": (event(1),)})
    for fact in (*START, published(20, event(1)), hop, settled(40)):
        oracle.fact(fact)

    (finding,) = oracle.findings()
    assert str(finding) == "lost: event pat #1 for ann (B1 → B2)"
    assert oracle.owed() == 1


def test_the_rules_compare_moments_only() -> None:
    """They work on columns of a table as they do here."""
    span = Lifetime(asked=5, settled=10, ended=50, forgotten=60)

    assert is_owed(span, published=10, calm=50)
    assert not is_owed(span, published=9, calm=50)
    assert not is_owed(span, published=10, calm=51)
    assert is_allowed(span, delivered=5)
    assert not is_allowed(span, delivered=4)
    assert not is_allowed(span, delivered=51)
    assert is_explained(span, published=60, arrived=99)
    assert not is_explained(span, published=61, arrived=99)
    assert not is_explained(span, published=0, arrived=4)
