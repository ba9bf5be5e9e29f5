"""The parts of a search for the past: what is kept of each publisher, and how runs fit together."""

import pytest

from sterna.core.history.coverage import Coverage
from sterna.core.history.messages import Place, Run
from sterna.core.history.published import Published
from sterna.core.history.runs import Runs, latest
from sterna.core.messages import Route
from sterna.model.event import Event
from sterna.model.filters import Filter

pytestmark = pytest.mark.spec("PA-2")


def event(seq: int, publisher: str = "pat", time_us: int | None = None) -> Event:
    time = seq if time_us is None else time_us
    return Event(publisher=publisher, seq=seq, time_us=time, attributes={})


def kept(published: Published) -> dict[str, list[int]]:
    return {publisher: [each.seq for each in own.events] for publisher, own in published.items()}


def are_last(published: Published) -> list[bool]:
    return [own.is_last for _, own in published.items()]


def test_a_loud_publisher_does_not_erase_the_others() -> None:
    """5.2: a broker keeps a minimum of each of its own."""
    published = Published(3, 10)
    published.add("pat", [event(1)], 0)
    for seq in range(1, 100):
        published.add("loud", [event(seq, "loud")], seq)

    assert kept(published) == {"pat": [1], "loud": [97, 98, 99]}
    runs = [own.run(own.first, Place.HERE) for _, own in published.items()]
    assert runs == [Run("pat", 1, 1, Place.HERE), Run("loud", 97, 99, Place.HERE)]


def test_what_a_publisher_has_published_elsewhere_is_no_part_of_a_run() -> None:
    published = Published(10, 10)
    published.add("pat", [event(1), event(2)], 0)
    published.add("pat", [event(5), event(6)], 1)

    assert kept(published) == {"pat": [5, 6]}


def test_who_has_come_back_may_have_published_elsewhere() -> None:
    """Until its next event shows that it has not."""
    published = Published(10, 10)
    published.add("pat", [event(1)], 0)
    assert are_last(published) == [True]

    published.came("pat")
    assert are_last(published) == [False]
    published.add("pat", [event(2)], 1)
    assert are_last(published) == [True]
    assert kept(published) == {"pat": [1, 2]}


def test_publishers_that_were_silent_longest_are_forgotten() -> None:
    published = Published(10, 2)
    for time, publisher in enumerate(("ann", "bob", "ann", "cem")):
        published.add(publisher, [event(time + 1, publisher)], time)
    assert list(kept(published)) == ["ann", "cem"]

    published.expire(3)
    assert list(kept(published)) == ["cem"]


@pytest.mark.spec("LV-6")
def test_what_is_kept_of_publishers_is_bounded_in_bytes() -> None:
    """For each of them, and for all; those that were silent longest are forgotten first."""
    published = Published(100, 100, bytes_max=64_000)
    for publisher in ("loud", *(f"p{number}" for number in range(80))):
        for seq in range(1, 4):
            published.add(publisher, [event(seq, publisher)], seq, 400)

    assert len(published) == 80
    assert kept(published)["p79"] == [2, 3]
    published.configure(100, 100, bytes_max=6_400)
    assert all(len(seqs) == 1 for seqs in kept(published).values())
    assert 0 < len(published) < 20


def runs_of(*runs: tuple[int, int, Place]) -> Runs:
    """Everything between the first and the last number of each, all of it matching."""
    made = Runs()
    for first, last, place in runs:
        made.add([event(seq) for seq in range(first, last + 1)], [Run("pat", first, last, place)])
    return made


@pytest.mark.parametrize(
    ("runs", "first"),
    [
        ([(3, 5, Place.HERE)], 3),
        ([(3, 5, Place.WAY)], 3),
        ([(3, 5, Place.BEFORE)], None),
        ([(3, 5, Place.LEFT)], 3),
        ([(3, 5, Place.HERE), (1, 2, Place.BEFORE)], 1),
        ([(4, 5, Place.HERE), (1, 2, Place.BEFORE)], 4),
        ([(6, 7, Place.HERE), (1, 4, Place.HERE)], 6),  # It has moved, and one does not know yet.
        ([(6, 5, Place.HERE), (1, 4, Place.LEFT)], None),
        ([(4, 7, Place.WAY), (6, 7, Place.HERE), (1, 3, Place.BEFORE)], 1),
    ],
)
def test_runs_that_touch_leave_no_gap(
    runs: list[tuple[int, int, Place]], first: int | None
) -> None:
    found = runs_of(*runs).without_gap().get("pat", [])

    assert [each.seq for each in found][:1] == ([] if first is None else [first])


def test_what_the_asker_has_closes_a_gap() -> None:
    """Of a publisher that has moved, who asks has 4; nobody here knows what was between 3 and 9."""
    there = runs_of((1, 3, Place.BEFORE), (5, 4, Place.WAY))

    assert "pat" not in there.whole()
    assert [each.seq for each in there.whole_with({"pat": (4, 4)})["pat"]] == [1, 2, 3]
    assert "pat" not in there.whole_with({"pat": (9, 9), "other": (1, 4)})


def test_what_is_beyond_a_hole_comes_as_usual() -> None:
    """Event 3 is on its way, and 4 behind it."""
    found = runs_of((1, 2, Place.WAY), (4, 4, Place.HERE)).without_gap()

    assert [each.seq for each in found["pat"]] == [1, 2]


def test_who_has_left_may_have_gone_to_where_nobody_has_answered() -> None:
    assert runs_of((1, 3, Place.LEFT)).without_gap(is_all=False) == {}


@pytest.mark.spec("PA-3")
@pytest.mark.parametrize(
    ("events_max", "since_us", "expected"),
    [
        (2, None, ["bob#1", "ann#3"]),
        (None, 25, ["bob#1", "ann#3"]),
        (1, 25, ["ann#3"]),
        (4, 25, ["bob#1", "ann#3"]),
        (3, None, ["ann#2", "bob#1", "ann#3"]),
        (0, None, []),
    ],
)
def test_bounds_by_count_and_time(
    events_max: int | None, since_us: int | None, expected: list[str]
) -> None:
    """5.5: whichever ends first."""
    ann = [event(seq, "ann", 10 * seq) for seq in (1, 2, 3)]

    found = latest({"ann": ann, "bob": [event(1, "bob", 25)]}, events_max, since_us)

    assert [f"{each.publisher}#{each.seq}" for each in found] == expected


@pytest.mark.spec("PA-3")
def test_a_clock_that_was_set_back_leaves_no_gap() -> None:
    """The last events of a publisher, whatever times they have."""
    ann = [event(1, "ann", 50), event(2, "ann", 90), event(3, "ann", 20), event(4, "ann", 70)]

    assert [each.seq for each in latest({"ann": ann}, 3, None)] == [2, 3, 4]
    assert [each.seq for each in latest({"ann": ann}, None, 60)] == [4]


RED, ANY = Filter("light = 'red'"), Filter("light IS NOT NULL")


def test_a_search_shows_from_when_on_everything_comes() -> None:
    coverage = Coverage()
    number = coverage.begin(RED, "B5", "1")
    assert coverage.since(RED, ["B3"]) is None

    coverage.complete(number, ["B3"], 7)

    assert coverage.since(RED, ["B3"]) == 7
    assert coverage.since(RED, ["B3", "B4"]) is None
    assert coverage.since(ANY, ["B3"]) is None


def test_a_subscription_like_one_that_has_ended_is_another_one() -> None:
    """The search that has ended since was about the first one."""
    coverage = Coverage()
    number = coverage.begin(RED, "B5", "1")
    coverage.changed("B5", (), ["1"])
    coverage.begin(RED, "B5", "1")

    coverage.complete(number, ["B3"], 7)

    assert coverage.since(RED, ["B3"]) is None


def test_a_wider_subscription_takes_the_place_of_another() -> None:
    coverage = Coverage()
    number = coverage.begin(RED, "B5", "1")
    coverage.changed("B5", [Route("2", ANY)], ["1"])

    coverage.complete(number, ["B3"], 7)

    assert coverage.since(RED, ["B3"]) == 7
