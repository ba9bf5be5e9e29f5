"""LIKE patterns and MQTT topic filters, matched in polynomial time without regular expressions."""

from typing import Protocol

from sterna.model.filters.long_texts import LONG, LongTexts, Segment


class StringTest(Protocol):
    """A compiled pattern: whether it matches a text, given what is known of long texts."""

    def __call__(self, text: str, known: LongTexts | None = None, /) -> bool: ...


TRIES_MAX = 64
"""How many runs are compared at places where a segment only almost fits, before all places are
looked at together. Most texts need fewer."""


# ---- LIKE


def like_problem(pattern: str, escape: str | None) -> str | None:
    """Why a pattern is not valid, if it is not."""
    if escape is None:
        return None
    if len(escape) != 1:
        return "ESCAPE takes a single character"
    position = 0
    while position < len(pattern):
        if pattern[position] == escape:
            position += 1
            if position == len(pattern) or pattern[position] not in ("%", "_", escape):
                return f"the escape character {escape} must be followed by %, _ or itself"
        position += 1
    return None


def like_segments(pattern: str, escape: str | None) -> list[Segment]:
    """The pattern cut at every `%`: a pattern without any is a single segment."""
    segments: list[Segment] = []
    current: list[str | None] = []
    escaped = False
    for character in pattern:
        if escaped:
            current.append(character)
            escaped = False
        elif character == escape:
            escaped = True
        elif character == "%":
            segments.append(tuple(current))
            current = []
        else:
            current.append(None if character == "_" else character)
    segments.append(tuple(current))
    return segments


def like_prefix(segments: list[Segment]) -> tuple[str, bool]:
    """The beginning that every match has, and whether the pattern asks for no more."""
    first = segments[0]
    literal = first[: first.index(None)] if None in first else first
    complete = len(literal) == len(first) and len(segments) > 1 and not any(segments[1:])
    return "".join(c for c in literal if c is not None), complete


def like_part(segments: list[Segment]) -> str | None:
    """The text that a pattern asks for anywhere, if it asks for nothing else."""
    match [literal(segment) for segment in segments]:
        case ["", str(part), ""]:
            return part
    return None


def literal(segment: Segment) -> str | None:
    """The segment as text, if it has no wildcard."""
    return None if None in segment else "".join(c for c in segment if c is not None)


def like_test(segments: list[Segment]) -> StringTest:
    """A compiled pattern.

    The first segment must start the text and the last must end it. What lies between is found from
    the left, each as early as possible: an earlier place never spoils what follows, so nothing is
    ever tried twice.
    """
    match [literal(segment) for segment in segments]:
        case [str(whole)]:
            return lambda text, _=None: text == whole
        case [str(prefix), ""]:
            return lambda text, _=None: text.startswith(prefix)
        case ["", str(suffix)]:
            return lambda text, _=None: text.endswith(suffix)
        case ["", str(part), ""]:
            return _containing(part, _key(segments))
    if len(segments) == 1:
        only = _Runs(segments[0])
        return lambda text, _=None: len(text) == only.length and only.fits(text, 0)
    first, *middle, last = (_Runs(segment) for segment in segments)
    return _anchored(first, [runs for runs in middle if runs.length], last, _key(segments))


def _key(segments: list[Segment]) -> str:
    """The pattern as text, the same for the same segments."""
    return "LIKE " + "%".join(
        "".join("_" if c is None else "\\" + c if c in "%_\\" else c for c in segment)
        for segment in segments
    )


class _Runs:
    """A segment as the texts between its one-character wildcards, with their positions."""

    def __init__(self, segment: Segment) -> None:
        self.length = len(segment)
        self.runs: list[tuple[int, str]] = []
        self._segment = segment
        start = 0
        for place, character in enumerate((*segment, None)):
            if character is None:
                text = literal(segment[start:place])
                if text:
                    self.runs.append((start, text))
                start = place + 1
        self._tries = TRIES_MAX // (len(self.runs) + 1) + 1

    def fits(self, text: str, position: int) -> bool:
        for place, run in self.runs:  # noqa: SIM110 - all() costs twice as much.
            if not text.startswith(run, position + place):
                return False
        return True

    def find(self, text: str, start: int, end: int, known: LongTexts | None) -> int:
        """The first position where the segment fits between start and end; -1 if there is none."""
        last = end - self.length
        if not self.runs:
            return start if start <= last else -1
        offset, run = self.runs[0]
        tries = self._tries
        while start <= last:
            start = text.find(run, start + offset, last + offset + len(run)) - offset
            if start < 0:
                return -1
            if len(self.runs) == 1 or self.fits(text, start):
                return start
            start += 1
            tries -= 1
            if not tries:
                return self._find_slowly(text, start, last, known)
        return -1

    def _find_slowly(self, text: str, start: int, last: int, known: LongTexts | None) -> int:
        """Find it in a time that does not depend on how often it almost fits."""
        known = known or LongTexts()
        found = known.places(text).find(self._segment, start, known)
        return found if found <= last else -1


def _containing(part: str, key: str) -> StringTest:
    def test(text: str, known: LongTexts | None = None, *, is_new: bool = False) -> bool:
        if len(text) >= LONG and known is not None and not is_new:
            return known.verdict(text, key, test)
        return part in text

    return test


def _anchored(first: _Runs, middle: list[_Runs], last: _Runs, key: str) -> StringTest:
    def test(text: str, known: LongTexts | None = None, *, is_new: bool = False) -> bool:
        if len(text) >= LONG and known is not None and not is_new:
            return known.verdict(text, key, test)
        position, end = first.length, len(text) - last.length
        if position > end or not first.fits(text, 0) or not last.fits(text, end):
            return False
        for runs in middle:
            position = runs.find(text, position, end, known)
            if position < 0:
                return False
            position += runs.length
        return True

    return test


# ---- Topics


def topic_problem(topic: str) -> str | None:
    """Why a topic filter is not valid, if it is not."""
    if not topic:
        return "a topic filter is not empty"
    levels = topic.split("/")
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != len(levels) - 1):
            return "# must be alone on the last level of a topic filter"
        if "+" in level and level != "+":
            return "+ must be alone on its level of a topic filter"
    return None


def topic_test(topic: str) -> StringTest:
    """A compiled topic filter; a wildcard on the first level passes over topics starting with $."""
    levels = topic.split("/")
    open_end = levels[-1] == "#"
    fixed = levels[:-1] if open_end else levels
    wanted = [(place, level) for place, level in enumerate(fixed) if level != "+"]
    wild_start = levels[0] in ("+", "#")
    key = f"MATCHES {topic}"
    if all(level != "+" for level in fixed) and fixed:
        return _below("/".join(fixed), key) if open_end else _being(topic)

    def test(text: str, known: LongTexts | None = None, *, is_new: bool = False) -> bool:
        if len(text) >= LONG and known is not None and not is_new:
            return known.verdict(text, key, test)
        if wild_start and text.startswith("$"):
            return False
        found = text.split("/", len(fixed))  # Whatever is left has a level too many.
        if len(found) < len(fixed) if open_end else len(found) != len(fixed):
            return False
        return all(found[place] == level for place, level in wanted)

    return test


def _being(topic: str) -> StringTest:
    def test(text: str, known: LongTexts | None = None, *, is_new: bool = False) -> bool:
        del known, is_new
        return text == topic

    return test


def _below(topic: str, key: str) -> StringTest:
    """For a topic and all that are below it."""
    below = topic + "/"

    def test(text: str, known: LongTexts | None = None, *, is_new: bool = False) -> bool:
        if len(text) >= LONG and known is not None and not is_new:
            return known.verdict(text, key, test)
        return text.startswith(below) or text == topic

    return test


def topic_prefix(topic: str) -> str:
    """The beginning of every topic that matches (the levels before the first wildcard)."""
    levels = topic.split("/")
    literals = levels[: next(i for i, level in enumerate(levels) if level in ("+", "#"))]
    prefix = "/".join(literals)
    # `a/#` matches `a` itself, so only another wildcard asks for the separator.
    return prefix + "/" if literals and levels[len(literals)] == "+" else prefix


def topic_covers(wide: str, narrow: str) -> bool:
    """Whether every topic that matches `narrow` matches `wide`; False when not sure."""
    a, b = wide.split("/"), narrow.split("/")
    if a[0] in ("+", "#") and b[0].startswith("$"):
        return False
    for place, level in enumerate(a):
        if level == "#":
            return True
        if place == len(b) or b[place] == "#":
            return False
        if level not in ("+", b[place]):
            return False
    return len(a) == len(b)


def topics_overlap(one: str, other: str) -> bool:
    """Whether some topic matches both."""
    a, b = one.split("/"), other.split("/")
    for wild, plain in ((a, b), (b, a)):
        if wild[0] in ("+", "#") and plain[0].startswith("$"):
            return False
    for place in range(max(len(a), len(b))):
        x = a[place] if place < len(a) else None
        y = b[place] if place < len(b) else None
        if "#" in (x, y):
            return True
        if x is None or y is None:
            return False
        if x != y and "+" not in (x, y):
            return False
    return True
