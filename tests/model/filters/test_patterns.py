"""LIKE patterns and topic filters against definitions that are obviously right and slow."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.model.filters import patterns
from tests.scale import examples
from tests.strategies import topics

texts = st.text(alphabet="aab_%é😀", max_size=8)
paths = st.lists(st.sampled_from(["a", "b", "", "$a", "c"]), min_size=1, max_size=4).map("/".join)


def like(pattern: str, text: str) -> bool:
    """LIKE by definition: try every length for every `%`."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(pattern[1:], text[n:]) for n in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and like(pattern[1:], text[1:])


@given(st.text(alphabet="aab%%__é😀", max_size=7), texts)
@examples(3_000)
@pytest.mark.spec("MOD-2", "MOD-3")
def test_like_by_definition(pattern: str, text: str) -> None:
    test = patterns.like_test(patterns.like_segments(pattern, None))

    assert test(text) == like(pattern, text)


@pytest.mark.spec("MOD-2")
def test_like_finds_a_segment_wherever_it_is() -> None:
    """Every pattern of one segment of three against every text of up to six letters."""
    for segment in product("ab_", repeat=3):
        for pattern in (f"%{''.join(segment)}%", f"a%{''.join(segment)}%b"):
            test = patterns.like_test(patterns.like_segments(pattern, None))
            for length in range(7):
                for letters in product("ab", repeat=length):
                    text = "".join(letters)
                    assert test(text) == like(pattern, text), (pattern, text)


@given(texts, texts)
@examples(500)
@pytest.mark.spec("MOD-2")
def test_an_escaped_text_matches_only_itself(wanted: str, text: str) -> None:
    pattern = wanted.replace("%", "!%").replace("_", "!_")
    test = patterns.like_test(patterns.like_segments(pattern, "!"))

    assert test(wanted)
    assert test(text) == (text == wanted)


def matches(levels: list[str], path: list[str]) -> bool:
    """MQTT 5, section 4.7, level by level."""
    if not levels:
        return not path
    if levels == ["#"]:
        return True
    return bool(path) and levels[0] in ("+", path[0]) and matches(levels[1:], path[1:])


def topic_matches(topic: str, path: str) -> bool:
    if topic[0] in "+#" and path.startswith("$"):
        return False
    return matches(topic.split("/"), path.split("/"))


@given(topics(), paths)
@examples(3_000)
@pytest.mark.spec("MOD-2")
def test_topics_by_definition(topic: str, path: str) -> None:
    assert patterns.topic_test(topic)(path) == topic_matches(topic, path)


def instance(topic: str, levels: list[str]) -> str:
    """A topic that the filter matches, if `$` does not forbid it."""
    chosen = iter(levels)
    fixed = [next(chosen) if level == "+" else level for level in topic.split("/")]
    return "/".join(fixed[:-1] + list(chosen) if fixed[-1] == "#" else fixed)


fillings = st.lists(st.sampled_from(["a", "b", "$a"]), min_size=4, max_size=6)


@given(topics(), topics(), fillings)
@examples(3_000)
@pytest.mark.spec("MOD-4")
def test_topic_covering_and_overlap_are_sound(wide: str, narrow: str, levels: list[str]) -> None:
    path = instance(narrow, levels)
    in_wide, in_narrow = topic_matches(wide, path), topic_matches(narrow, path)
    if patterns.topic_covers(wide, narrow):
        assert in_wide or not in_narrow
    if not patterns.topics_overlap(wide, narrow):
        assert not (in_wide and in_narrow)
