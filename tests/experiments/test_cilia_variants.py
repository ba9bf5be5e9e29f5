"""The experiment on the search for the past: what each variant must find, and what is counted."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sterna.core.history.options import HistoryOptions, Search
from sterna.core.inputs import Publish, Subscribe
from sterna.experiments.cilia_variants import simulation
from sterna.experiments.cilia_variants.claims import ORDERED, cheapest, in_short
from sterna.experiments.cilia_variants.experiment import CiliaVariants
from sterna.experiments.cilia_variants.settings import Measures, Setting, by_variant
from sterna.experiments.cilia_variants.simulation import Watch, gap, lacking, make_script, run
from sterna.experiments.experiment import DeliveryError, Point, summarize
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.sim.script import Do

Results = dict[Setting, dict[Search, Point[Setting, Measures]]]


@pytest.fixture(scope="module")
def points() -> list[Point[Setting, Measures]]:
    """All quick settings. No past had a gap, or there would be an error."""
    experiment = CiliaVariants()
    return [
        summarize(setting, [experiment.measure(setting, seed=1)])
        for setting in experiment.settings(quick=True)
    ]


@pytest.fixture(scope="module")
def results(points: list[Point[Setting, Measures]]) -> Results:
    return by_variant(points)


def values(results: Results, measure: Callable[[Measures], float]) -> list[dict[Search, float]]:
    """What was measured at each place, by variant."""
    return [{s: measure(p.median) for s, p in each.items()} for each in results.values()]


@pytest.mark.spec("PA-2")
def test_each_variant_finds_at_least_what_the_one_before_does(results: Results) -> None:
    for found in values(results, lambda measures: measures.found):
        assert [found[search] for search in ORDERED] == sorted(found[search] for search in ORDERED)
        assert found[Search.NONE] < found[Search.COMPLETE]
    small = next(each for place, each in results.items() if place.buffer == 3)
    assert small[Search.NEAREST].median.found < small[Search.LARGEST].median.found


@pytest.mark.spec("PA-2")
def test_the_complete_algorithm_lacks_nothing_that_publishers_brokers_have(
    results: Results,
) -> None:
    for missing in values(results, lambda measures: measures.lacking):
        assert missing[Search.COMPLETE] == 0
        assert missing[Search.NONE] > 0


@pytest.mark.spec("PA-2")
def test_who_asks_fewer_sends_less(results: Results) -> None:
    for messages in values(results, lambda measures: measures.messages):
        assert messages[Search.NEAREST] <= messages[Search.COMPLETE] <= messages[Search.SEQUENCES]
        everybody = (Search.LARGEST, Search.MERGED, Search.JUNCTIONS, Search.SEQUENCES)
        assert len({messages[search] for search in everybody}) == 1
    for carried in values(results, lambda measures: measures.carried):
        assert carried[Search.COMPLETE] <= carried[Search.SEQUENCES] < carried[Search.JUNCTIONS]
        assert carried[Search.MERGED] == carried[Search.JUNCTIONS]


def test_the_list_of_what_is_known_counts_where_it_is_sent(results: Results) -> None:
    for each in results.values():
        for search, point in each.items():
            listed = point.median.list_bytes
            assert (listed > 0) == search.names_known, (search, listed)
        bare, named = each[Search.JUNCTIONS].median, each[Search.SEQUENCES].median
        assert named.question_bytes == bare.question_bytes + named.list_bytes


def test_without_a_search_there_are_only_the_messages_that_prepare(results: Results) -> None:
    for place, each in results.items():
        alone = each[Search.NONE].median
        assert (alone.messages > 0) == place.prepares
        assert alone.carried == 0


def test_messages_and_bytes_add_up(points: list[Point[Setting, Measures]]) -> None:
    for point in points:
        each = point.median
        assert each.messages == each.questions + each.expects + each.answers
        assert each.bytes == each.question_bytes + each.expect_bytes + each.answer_bytes
        assert each.searches == point.setting.subscribers / 2
        assert each.found <= 10 * each.searches >= each.wanted


def test_all_claims_hold_with_quick_settings(
    points: list[Point[Setting, Measures]], results: Results
) -> None:
    experiment = CiliaVariants()

    assert [claim.paper for claim in experiment.claims(points) if not claim.holds] == []
    summary = experiment.summary(points)
    named = {(each["place"], each["prepares"]): each["variant"] for each in summary["cheapest"]}
    for place, each in results.items():
        best = cheapest(each)
        assert named[in_short(place) or "the usual settings", place.prepares] == best
        assert each[best].median.found >= each[Search.COMPLETE].median.found
    assert {each["net_bytes_saved"] > 0 for each in summary["list"]} == {True}


@pytest.mark.parametrize(
    ("search", "change", "differs", "seen"),
    [
        (Search.NEAREST, {"bytes": 1.0, "found": 60.0}, [], "nearest with the usual"),
        (Search.SEQUENCES, {"found": 1.0}, ["Each ref"], "in this order in 7 of 8 runs"),
        (Search.SEQUENCES, {"bytes": 1e9}, ["Sequence"], "more than it saves with the usual"),
        (Search.COMPLETE, {"bytes": 1e9}, ["Others a"], "more bytes at 1 place"),
        (Search.COMPLETE, {"lacking": 2.0}, ["The comp"], "2 of"),
        (Search.MERGED, {"gapped": 1.0}, ["Past eve"], "a gap after 1 of 288 searches"),
    ],
)
def test_claims_say_where_something_differs(
    points: list[Point[Setting, Measures]],
    search: Search,
    change: dict[str, float],
    differs: list[str],
    seen: str,
) -> None:
    """The results at the usual settings are changed."""
    usual = Setting(search=search, prepares=False, subscribers=12)
    (before,) = (point.median for point in points if point.setting == usual)
    after = summarize(usual, [msgspec.structs.replace(before, **change)])

    claims = CiliaVariants().claims([after if p.setting == usual else p for p in points])

    assert [claim.paper[:8] for claim in claims if not claim.holds] == differs
    assert any(seen in claim.seen for claim in claims), [claim.seen for claim in claims]


@pytest.mark.parametrize("quick", [False, True])
def test_all_settings_are_shown(
    quick: bool, points: list[Point[Setting, Measures]], tmp_path: Path
) -> None:
    """Whatever was measured, each variant has a row at each place, and tables have no holes."""
    experiment = CiliaVariants()
    measured = {point.setting.search: point.measured for point in points}
    settings = experiment.settings(quick=quick)
    shown = [summarize(setting, measured[setting.search]) for setting in settings]

    tables = experiment.tables(shown)
    experiment.draw(shown, tmp_path / "picture")

    for table in tables:
        assert {len(row) for row in table.rows} == {len(table.head)}, table.title
    places = {setting.searched_by(Search.NONE) for setting in settings}
    assert len(tables[-1].rows) == len(places) == (8 if quick else 27)
    assert [len(table.rows) // len(Search) for table in tables[:-2]] == (
        [2, 2, 2] if quick else [6, 4, 4, 3]
    )
    assert (tmp_path / "picture.svg").exists()


def test_a_seed_gives_the_same_run() -> None:
    setting = Setting(search=Search.COMPLETE, prepares=True, subscribers=6)

    assert run(setting, 1) == run(setting, 1)
    assert run(setting, 1) != run(setting, 2)


def test_runs_differ_in_nothing_but_their_settings() -> None:
    """The same subscribers at the same times, and the same events of more publishers."""
    setting = Setting(search=Search.COMPLETE, prepares=True)
    script = make_script(setting, seed=1)
    other = make_script(setting.searched_by(Search.NEAREST), seed=1)

    assert msgspec.structs.replace(other, history=script.history) == script
    assert isinstance(script.history, HistoryOptions)
    more = make_script(msgspec.structs.replace(setting, publishers=9), seed=1)
    for kind in (Publish, Subscribe):
        first, second = (
            [step.what for step in each.steps if isinstance(step, Do)] for each in (script, more)
        )
        assert [w for w in first if isinstance(w, kind)] == [
            w for w in second if isinstance(w, kind)
        ]


def test_a_gap_behind_the_past_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """But without a search a broker believes its own buffer, and gaps are counted."""
    setting = Setting(search=Search.NEAREST, prepares=False, subscribers=2)
    monkeypatch.setattr(simulation, "gap", lambda *_: [event(1)])

    with pytest.raises(DeliveryError, match="a gap behind the past of C2"):
        run(setting, 1)
    assert run(setting.searched_by(Search.NONE), 1).gapped == 1


def event(seq: int) -> Event:
    return Event(publisher="P1", seq=seq, time_us=seq, attributes={"segment": seq % 2})


def test_what_is_a_gap() -> None:
    """Only what matches, and comes after the first past event."""
    watch = Watch()
    watch.published["P1"] = [event(seq) for seq in range(1, 10)]
    watch.past["C1"] = [event(5)]
    watch.delivered["C1"] = {event(seq).id: 0 for seq in (5, 9)}

    assert gap("C1", Filter("segment = 1"), watch) == [event(7)]


def test_what_is_lacking() -> None:
    """Nothing that came as usual, and nothing older than an answer that is full."""
    held = [event(seq) for seq in range(1, 13)]
    got = {event(12).id}

    assert lacking(held, [], got) == held[:-1]
    assert lacking(held, held[2:], got | {each.id for each in held[2:]}) == []
