"""LIKE patterns and topic filters against definitions that are obviously right and slow."""

from itertools import product
from random import Random

import pytest
from hypothesis import given

from sterna.model.filters import patterns
from tests.scale import examples
from tests.strategies import BATCH, batches, text_of, topic


def some_text(random: Random) -> str:
    return text_of(random, "aab_%é😀", 8)


def like_pattern(random: Random) -> str:
    return text_of(random, "aab%%__é😀", 7)


def some_path(random: Random) -> str:
    return "/".join(random.choices(("a", "b", "", "$a", "c"), k=random.randint(1, 4)))


def like(pattern: str, text: str) -> bool:
    """LIKE by definition: try every length for every `%`."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(pattern[1:], text[n:]) for n in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and like(pattern[1:], text[1:])


@given(batches(like_pattern, some_text))
@examples(3_000 // BATCH)
@pytest.mark.spec("MOD-2", "MOD-3")
def test_like_by_definition(batch: list[tuple[str, str]]) -> None:
    for pattern, text in batch:
        test = patterns.like_test(patterns.like_segments(pattern, None))

        assert test(text) == like(pattern, text), (pattern, text)


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


@given(batches(some_text, some_text))
@examples(500 // BATCH)
@pytest.mark.spec("MOD-2")
def test_an_escaped_text_matches_only_itself(batch: list[tuple[str, str]]) -> None:
    for wanted, text in batch:
        pattern = wanted.replace("%", "!%").replace("_", "!_")
        test = patterns.like_test(patterns.like_segments(pattern, "!"))

        assert test(wanted), wanted
        assert test(text) == (text == wanted), (wanted, text)


def matches(levels: list[str], path: list[str]) -> bool:
    """MQTT 5, section 4.7, level by level."""
    if not levels:
        return not path
    if levels == ["#"]:
        return True
    return bool(path) and levels[0] in ("+", path[0]) and matches(levels[1:], path[1:])


def topic_matches(wanted: str, path: str) -> bool:
    if wanted[0] in "+#" and path.startswith("$"):
        return False
    return matches(wanted.split("/"), path.split("/"))


@given(batches(topic, some_path))
@examples(3_000 // BATCH)
@pytest.mark.spec("MOD-2")
def test_topics_by_definition(batch: list[tuple[str, str]]) -> None:
    for wanted, path in batch:
        assert patterns.topic_test(wanted)(path) == topic_matches(wanted, path), (wanted, path)


def instance(wanted: str, levels: list[str]) -> str:
    """A topic that the filter matches, if `$` does not forbid it."""
    chosen = iter(levels)
    fixed = [next(chosen) if level == "+" else level for level in wanted.split("/")]
    return "/".join(fixed[:-1] + list(chosen) if fixed[-1] == "#" else fixed)


def filling(random: Random) -> list[str]:
    return random.choices(("a", "b", "$a"), k=random.randint(4, 6))


@given(batches(topic, topic, filling))
@examples(3_000 // BATCH)
@pytest.mark.spec("MOD-4")
def test_topic_covering_and_overlap_are_sound(batch: list[tuple[str, str, list[str]]]) -> None:
    for wide, narrow, levels in batch:
        path = instance(narrow, levels)
        in_wide, in_narrow = topic_matches(wide, path), topic_matches(narrow, path)
        if patterns.topic_covers(wide, narrow):
            assert in_wide or not in_narrow, (wide, narrow, path)
        if not patterns.topics_overlap(wide, narrow):
            assert not (in_wide and in_narrow), (wide, narrow, path)
