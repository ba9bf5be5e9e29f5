"""LIKE patterns and MQTT topic filters, matched in polynomial time without regular expressions."""

from collections.abc import Callable

StringTest = Callable[[str], bool]

Segment = tuple[str | None, ...]
"""Characters that stand together; None is any one character."""


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
                return f"the escape character {escape} must stand before %, _ or itself"
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
    """What every match starts with, and whether that is all the pattern asks for."""
    first = segments[0]
    literal = first[: first.index(None)] if None in first else first
    complete = len(literal) == len(first) and len(segments) > 1 and not any(segments[1:])
    return "".join(c for c in literal if c is not None), complete


def literal(segment: Segment) -> str | None:
    """The segment as text, if it has no wildcard."""
    return None if None in segment else "".join(c for c in segment if c is not None)


def like_test(segments: list[Segment]) -> StringTest:
    """A compiled pattern.

    The first segment must start the text and the last must end it. What lies between is found from
    the left, each as early as possible: an earlier place never spoils what follows, so nothing is
    ever tried twice.
    """
    first, last = segments[0], segments[-1]
    texts = [literal(segment) for segment in segments]
    if len(segments) == 1:
        if texts[0] is not None:
            return texts[0].__eq__
        return lambda text: len(text) == len(first) and _fits(first, text, 0)
    if len(segments) == 2 and texts[0] is not None and not last:
        return _starts(texts[0])
    if len(segments) == 2 and texts[1] is not None and not first:
        return _ends(texts[1])
    middle = [segment for segment in segments[1:-1] if segment]
    if not first and not last and len(middle) == 1 and None not in middle[0]:
        return _contains("".join(c for c in middle[0] if c is not None))

    def test(text: str) -> bool:
        end = len(text) - len(last)
        position = len(first)
        if position > end or not _fits(first, text, 0) or not _fits(last, text, end):
            return False
        for segment in middle:
            position = _find(segment, text, position, end)
            if position < 0:
                return False
            position += len(segment)
        return True

    return test


def _starts(prefix: str) -> StringTest:
    return lambda text: text.startswith(prefix)


def _ends(suffix: str) -> StringTest:
    return lambda text: text.endswith(suffix)


def _contains(part: str) -> StringTest:
    return lambda text: part in text


def _fits(segment: Segment, text: str, position: int) -> bool:
    return all(
        wanted is None or wanted == text[position + offset] for offset, wanted in enumerate(segment)
    )


def _find(segment: Segment, text: str, start: int, end: int) -> int:
    plain = literal(segment)
    if plain is not None:
        return text.find(plain, start, end)
    for position in range(start, end - len(segment) + 1):
        if _fits(segment, text, position):
            return position
    return -1


# ---- Topics


def topic_problem(topic: str) -> str | None:
    """Why a topic filter is not valid, if it is not."""
    if not topic:
        return "a topic filter is not empty"
    levels = topic.split("/")
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != len(levels) - 1):
            return "# stands alone on the last level of a topic filter"
        if "+" in level and level != "+":
            return "+ stands alone on its level of a topic filter"
    return None


def topic_test(topic: str) -> StringTest:
    """A compiled topic filter; a wildcard on the first level passes over topics starting with $."""
    levels = topic.split("/")
    open_end = levels[-1] == "#"
    fixed = levels[:-1] if open_end else levels
    wanted = [(place, level) for place, level in enumerate(fixed) if level != "+"]
    wild_start = levels[0] in ("+", "#")

    def test(text: str) -> bool:
        if wild_start and text.startswith("$"):
            return False
        found = text.split("/")
        if len(found) < len(fixed) if open_end else len(found) != len(fixed):
            return False
        return all(found[place] == level for place, level in wanted)

    return test


def topic_prefix(topic: str) -> str:
    """What every topic that matches starts with (the levels before the first wildcard)."""
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
