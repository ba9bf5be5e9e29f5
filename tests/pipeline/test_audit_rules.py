"""The rules of the audit, without Spark: who was there when, and what was asked for how long."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.model.delivery import FOREVER
from sterna.model.filters import Filter
from sterna.pipeline.audit import conduct, wanted
from sterna.pipeline.audit.presence import Presence, connections_of
from tests.scale import examples

GRACE = 5


@st.composite
def stretches(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Connections one after the other, the last of them perhaps for ever."""
    ends = sorted(draw(st.sets(st.integers(0, 60), max_size=8)))
    found = [pair for number, pair in enumerate(pairwise(ends)) if number % 2 == 0]
    lasts: bool = draw(st.booleans())
    if found and lasts:
        found[-1] = (found[-1][0], FOREVER)
    return found


def settled_moments() -> st.SearchStrategy[list[int]]:
    return st.sets(st.integers(0, 70), max_size=8).map(sorted)


@pytest.mark.spec("PL-5")
@given(stretches(), settled_moments(), st.integers(0, 70))
@examples(200)
def test_with_moments_of_calm_the_first_one_in_a_connection_counts(
    connections: list[tuple[int, int]], settled: list[int], moment: int
) -> None:
    """As in the oracle: a client that is there at the end gets what is still on its way."""
    presence = Presence(connections, settled=settled)
    connections = connections or [(0, FOREVER)]  # Nobody says that it was not there.
    there = [each for each in settled if any(a <= each < b for a, b in connections)]
    stays = connections[-1][1] == FOREVER

    later = [each for each in there if each >= moment]
    assert presence.after(moment) == (later[0] if later else FOREVER if stays else None)
    earlier = [each for each in there if each <= moment]
    assert presence.before(moment) == (earlier[-1] if earlier else None)
    assert presence.before(FOREVER) == (FOREVER if stays else there[-1] if there else None)


@pytest.mark.spec("PL-5")
@given(stretches(), st.integers(0, 70), st.integers(0, 70))
@examples(300)
def test_without_them_a_whole_grace_period_in_one_connection_counts(
    connections: list[tuple[int, int]], moment: int, end: int
) -> None:
    """All that was on its way at a moment has come by the end, if such a period lies between."""
    connections = [(since, min(until, 60)) for since, until in connections]
    presence = Presence(connections, grace=GRACE)
    periods = [
        (start, start + GRACE)
        for since, until in connections
        for start in range(since, until - GRACE + 1)
    ]

    calm = [stop for start, stop in periods if start >= moment]
    assert presence.after(moment) == (min(calm) if calm else None)
    before = presence.before(end)
    is_calm = any(start >= moment and stop <= end for start, stop in periods)
    assert is_calm == (before is not None and moment <= before)


def test_a_journal_that_begins_in_a_connection_or_ends_in_one() -> None:
    """What was removed from its beginning began somewhere; what has not ended lasts."""
    links = [(5, False), (7, True), (8, True), (9, False), (9, False), (20, True)]

    assert connections_of(links) == [(0, 5), (7, 9), (20, FOREVER)]
    assert connections_of([]) == []


def row(kind: str, moment: int, **more: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("name", "filter", "published", "publishers", "seqs"))
    told = {"world": "", "client": "ann", "kind": kind, "moment": moment, "link": "B1"}
    return {**told, **empty, **more}


def asks(*rows: dict[str, Any], settled: list[int] | None = None) -> list[tuple[Any, ...]]:
    found = conduct._conduct(rows, settled, GRACE)["asks"]
    names = ("role", "filter", "asked", "settled", "ended", "forgotten", "lasted")
    return [tuple(ask[name] for name in names) for ask in found]


@pytest.mark.spec("PL-5")
def test_a_subscription_that_follows_its_client_means_something_else_each_time() -> None:
    """What it says where the client is, is owed; what it may say anywhere, may come in vain."""
    rows = (
        row("Attached", 0),
        row("Subscribed", 1, name="x", filter="a IN myloc"),
        row("Adapted", 1, name="x", filter="a = 'here'"),
        row("Adapted", 10, name="x", filter="a = 'there'"),
        row("Unsubscribed", 20, name="x"),
    )

    assert sorted(asks(*rows, settled=[5, 15, 25])) == [
        ("following", "a IN myloc", 1, 5, 20, 25, 15),
        ("subscription", "a = 'here'", 1, 5, 10, 15, 5),
        ("subscription", "a = 'there'", 10, 15, 20, 25, 15),
    ]


@pytest.mark.spec("PL-5")
def test_who_was_forgotten_has_to_be_learnt_anew() -> None:
    """Until the network has settled again, nothing is owed to it."""
    rows = (
        row("ClientForgotten", 30),
        row("Attached", 0),
        row("Subscribed", 1, name="x", filter="a = 1"),
    )

    assert asks(*rows, settled=[10, 40]) == [
        ("subscription", "a = 1", 1, 10, 30, 40, 10),
        ("subscription", "a = 1", 30, 40, FOREVER, FOREVER, FOREVER),
    ]


@pytest.mark.spec("PL-5")
def test_by_clocks_a_connection_lasts_until_the_last_sign_of_life() -> None:
    """A client that was killed says nothing; it must not be taken for one that lost events."""
    rows = (
        row("Seen", 0, published=50),
        row("Attached", 0),
        row("Subscribed", 10, name="x", filter="a = 1"),
    )

    assert asks(*rows) == [("subscription", "a = 1", 10, 15, FOREVER, FOREVER, 45)]


def test_dollars_and_myloc_in_texts_do_not_make_a_filter_depend_on_its_client() -> None:
    for text in ("a = '$price'", "a = 'myloc'", "a = 1", "a IN myloc(2)", "a < $limit"):
        assert conduct._is_bound(text) == Filter(text).is_bound


def test_filters_are_told_apart_by_world_and_meaning() -> None:
    ids = {
        conduct.filter_id(world, text, role)
        for world in ("", "simulation-1")
        for text in ("a = 1", "a = 2")
        for role in (conduct.SUBSCRIPTION, conduct.FOLLOWING)
    }

    assert len(ids) == 8
    same = conduct.filter_id("", "a = 1", conduct.OFFER)
    assert same == conduct.filter_id("", "a = 1", conduct.SUBSCRIPTION)


def test_matches_by_filter_become_matches_by_event() -> None:
    starts, ids = wanted.by_event({7: [0, 2], -3: [2], 5: []}, 4)

    assert (starts.tolist(), ids.tolist()) == ([0, 1, 1, 3, 3], [7, 7, -3])
    starts, ids = wanted.by_event({}, 2)
    assert (starts.tolist(), ids.tolist()) == ([0, 0, 0], [])


@st.composite
def wishes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Subscriptions of a few clients with a few filters, that last for a while or for ever."""
    found = []
    for number in range(draw(st.integers(0, 12))):
        asked = draw(st.integers(0, 30))
        ended = draw(st.one_of(st.just(FOREVER), st.integers(asked, asked + 12)))
        moments = {"asked": asked, "settled": asked, "ended": ended, "forgotten": ended}
        id_ = draw(st.integers(-2, 2))
        wish = {"role": conduct.SUBSCRIPTION, "filter_id": id_, "filter": f"x = {id_}"}
        found.append({"client": f"c{number}", "lasted": None, **wish, **moments})
    return found


@pytest.mark.spec("PL-5")
@given(wishes(), st.lists(st.tuples(st.integers(0, 40), st.sets(st.integers(-3, 3)))))
@examples(200)
def test_each_event_meets_the_subscriptions_that_were_in_force(
    asks: list[dict[str, Any]], events: list[tuple[int, set[int]]]
) -> None:
    """Whatever else was asked for before and after that, with the same filter."""
    asked = wanted.Asked(asks)
    matched = [(place, id_) for place, (_, ids) in enumerate(events) for id_ in sorted(ids)]
    whose, ids = np.array(matched, np.int64).reshape(-1, 2).T
    moments = np.array([moment for moment, _ in events], np.int64)

    found = [
        (int(event), asked.clients[int(place)].as_py())
        for some in asked.candidates(whose, ids, moments)
        for event, place in zip(*some, strict=True)
        if asks_at(asked, place, moments[event])
    ]

    assert sorted(found) == sorted(
        (place, ask["client"])
        for place, id_ in matched
        for ask in asks
        if ask["filter_id"] == id_ and ask["asked"] <= events[place][0] <= ask["ended"]
    )


def asks_at(asked: wanted.Asked, place: int, moment: int) -> bool:
    span = asked.lifetimes(np.array([place]))
    return bool(span.asked[0] <= moment <= span.ended[0])
