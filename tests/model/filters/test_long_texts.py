"""Long texts: patterns need little time for them, can be interrupted, and find the same."""

import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.model.filters import Filter, patterns
from sterna.model.filters.long_texts import LONG, LongTexts, Places, checked
from tests.scale import examples, soon

MB = 900_000


def like(pattern: str, text: str) -> bool:
    """LIKE by definition: the beginnings of the text that the pattern so far matches."""
    reached = {0}
    for wanted in pattern:
        if wanted == "%":
            reached = set(range(min(reached, default=len(text) + 1), len(text) + 1))
        else:
            reached = {
                place + 1 for place in reached if place < len(text) and wanted in ("_", text[place])
            }
    return len(text) in reached


repetitive = st.builds(
    lambda part, times, tail: part * times + tail,
    st.text("aab", min_size=1, max_size=3),
    st.integers(1, 60),
    st.text("abé😀", max_size=5),
)


@given(st.text("aab%__é😀", max_size=9), repetitive)
@examples(2_000)
@pytest.mark.spec("MOD-2", "MOD-3")
def test_texts_where_a_pattern_almost_fits_everywhere(pattern: str, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "TRIES_MAX", 0)
        eager = patterns.like_test(patterns.like_segments(f"%{pattern}%", None))
    usual = patterns.like_test(patterns.like_segments(f"%{pattern}%", None))

    assert eager(text) == usual(text) == like(f"%{pattern}%", text)


@pytest.mark.spec("MOD-2")
def test_the_first_place_from_any_start() -> None:
    for text in ("abaabbab", "aaaaaaab", "éa😀aéa\ud800b", "b" * 70 + "a" + "b" * 200 + "aa"):
        places = Places(text)
        for segment in product(("a", "b", "é", None), ("b", "😀", "\ud800", None), ("a", None)):
            if segment == (None, None, None):
                continue
            fitting = [
                place
                for place in range(len(text) - 2)
                if all(c in (None, text[place + n]) for n, c in enumerate(segment))
            ]
            for start in range(len(text) + 1):
                # What hangs over the end of the text is for the caller to notice.
                found = places.find(segment, start, LongTexts())
                first = next((place for place in fitting if place >= start), len(text) - 2)
                assert found == first or (first == len(text) - 2 and not 0 <= found < first)


@given(
    st.lists(st.text("aab_é😀", max_size=6), min_size=2, max_size=4).map("%".join),
    repetitive,
    st.integers(0, 3),
)
@examples(300)
@pytest.mark.spec("MOD-2")
def test_what_is_interrupted_goes_on_and_ends(pattern: str, part: str, patience: int) -> None:
    text = part * (LONG // len(part) + 1)
    asked = 0

    def is_time_up() -> bool:
        nonlocal asked
        asked += 1
        return asked % (patience + 1) == 0

    filter_ = Filter(f"x LIKE '{pattern}' OR x LIKE '%b_{pattern}' OR NOT x MATCHES '+/{part}/#'")
    work = checked(filter_.matches, {"x": text}, LongTexts(is_time_up))
    verdict = None
    for _ in range(500):
        try:
            next(work)
        except StopIteration as ended:
            verdict = ended.value
            break
    assert verdict == filter_.matches({"x": text})


def test_verdicts_are_found_once() -> None:
    """Patterns that say the same share them, whoever has compiled them."""
    known = LongTexts()
    text = "ab" * LONG
    for _ in range(2):
        assert Filter("x LIKE '%a_a%' AND x LIKE '%ab%' AND x MATCHES '#'").matches(
            {"x": text}, known
        )
    assert len(known._verdicts) == 3
    key = ("LIKE %ab%", text)
    known._verdicts[key] = False
    assert not Filter("x LIKE '%ab%'").matches({"x": text}, known)
    assert Filter("x LIKE '%!%ab%' ESCAPE '!' OR x LIKE '%ab_%'").matches({"x": text}, known)


ALPHABET = "".join(map(chr, range(200, 300)))

HOSTILE = [
    ("%" + "a_" * 506 + "b%", "a" * MB),
    ("%" + "a" + "_a" * 505 + "_c%", "ab" * (MB // 2)),
    ("%" + "%".join(["a_b"] * 250) + "%", "a" * MB),
    ("%" + "%".join(["a_c", "b_d"] * 125) + "%", "abacbd" * (MB // 6)),
    ("%" + "é_" * 506 + "😀%", "é" * MB),
    ("%" + ALPHABET + "_x%", ALPHABET * (MB // len(ALPHABET))),
]


@pytest.mark.spec("MOD-3")
@pytest.mark.parametrize(("pattern", "text"), HOSTILE)
def test_a_hostile_pattern_and_a_long_text_are_soon_done(pattern: str, text: str) -> None:
    with soon(5):
        Filter(f"x LIKE '{pattern}'").matches({"x": text})


@pytest.mark.spec("MOD-3")
@pytest.mark.parametrize(("pattern", "text"), HOSTILE)
def test_a_hostile_pattern_can_be_interrupted_often(pattern: str, text: str) -> None:
    """No stretch of it takes long: by processor time, so a busy machine fails no test."""
    filter_ = Filter(f"x LIKE '{pattern}'")
    longest, began = 0.0, time.thread_time()
    for _ in checked(filter_.matches, {"x": text}, LongTexts(lambda: True)):
        longest = max(longest, time.thread_time() - began)
        began = time.thread_time()
    assert max(longest, time.thread_time() - began) < 0.2


@pytest.mark.spec("MOD-3")
def test_many_patterns_share_what_is_known_of_a_text() -> None:
    letters = product("abcdefghijklm", repeat=3)
    filters = [Filter("x LIKE '%{}_{}%_{}%'".format(*next(letters))) for _ in range(2_000)]
    known = LongTexts()
    event = {"x": "a" * MB}
    with soon(5):
        assert sum(filter_.matches(event, known) for filter_ in filters) == 1


@pytest.mark.spec("MOD-3")
def test_a_topic_of_many_levels_is_not_split_for_each_filter() -> None:
    filters = [Filter(f"x MATCHES 'a/{number}/+/#'") for number in range(1_000)]
    event = {"x": "a/7" + "/" * MB}
    with soon(5):
        assert [number for number, each in enumerate(filters) if each.matches(event)] == [7]
