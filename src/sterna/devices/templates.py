"""Topics for events without one: a template such as `vehicles/{id}` makes them from attributes.

A placeholder takes a whole level. So a topic filter says which attributes an event has to have, and
the event is routed by that like any other: brokers do not carry what nobody wants.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from sterna.devices.faces import OWN, TOPIC, text_of, value_of
from sterna.model.event import INT_MAX, INT_MIN, Scalar
from sterna.mqtt.topics import TEXT_BYTES_MAX

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_UNSENDABLE = re.compile(r"[/+#\0]")


def why_no_template(text: str) -> str | None:
    """What is wrong with a template; None if nothing is."""
    levels = text.split("/")
    placeholders = [_name(level) for level in levels]
    if not any(placeholders):
        return "it has no placeholder, such as {id}: all events would have the same topic"
    for level, name in zip(levels, placeholders, strict=True):
        if name is None and ("{" in level or "}" in level):
            return f"{level!r} is no level: a placeholder {{NAME}} stands alone between slashes"
        if name is None and _UNSENDABLE.search(level):
            return f"{level!r} has +, # or a NUL in it, which no topic has"
        if name is not None and (name == TOPIC or name.startswith(OWN)):
            return f"{{{name}}} is what only events with a topic have"
    if levels[0].startswith("$"):
        return "topics that begin with $ are those of brokers"
    return None


@lru_cache(maxsize=4096)
def where(template: str, topic_filter: str) -> str | None:
    """The filter for events that get a topic which matches; None if none can."""
    levels, wanted = template.split("/"), topic_filter.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        if len(wanted) > len(levels):
            return None
        wanted += ["+"] * (len(levels) - len(wanted))
    if len(wanted) != len(levels):
        return None
    tests = [f"{TOPIC} IS NULL"]
    for level, want in zip(levels, wanted, strict=True):
        name = _name(level)
        if name is None:
            if want not in ("+", level):
                return None
        elif want == "+":
            tests.append(f"{_quoted(name)} IS NOT NULL")
        else:
            tests.append(_is(name, want))
    return " AND ".join(tests)


def topic_by(template: str, attributes: Mapping[str, Scalar]) -> str | None:
    """The topic of an event without one; None if it lacks an attribute, or has an unfit one."""
    return _topic(_parsed(template), attributes) if template else None


def _topic(levels: Sequence[tuple[str, bool]], attributes: Mapping[str, Scalar]) -> str | None:
    found = []
    for text, is_placeholder in levels:
        if not is_placeholder:
            found.append(text)
            continue
        value = attributes.get(text)
        level = "" if value is None else _level(value)
        if not level or _UNSENDABLE.search(level) or (not found and level.startswith("$")):
            return None
        found.append(level)
    topic = "/".join(found)
    return topic if len(topic.encode()) <= TEXT_BYTES_MAX else None


def _level(value: Scalar) -> str:
    """A value in a topic; numbers that are equal have the same text."""
    if type(value) is float and value.is_integer() and INT_MIN <= value <= INT_MAX:
        return str(int(value))
    return text_of(value)


def _is(name: str, text: str) -> str:
    """The filter for attributes that are a text in a topic."""
    quoted = text.replace("'", "''")
    tests = [f"{_quoted(name)} = '{quoted}'"]
    value = value_of(text)
    if type(value) is not str and _level(value) == text:
        literal = text.upper() if type(value) is bool else repr(value)
        tests.append(f"{_quoted(name)} = {literal}")
    return f"({' OR '.join(tests)})"


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


@lru_cache(maxsize=16)
def _parsed(template: str) -> tuple[tuple[str, bool], ...]:
    """The levels, and which of them are placeholders."""
    named = ((level, _name(level)) for level in template.split("/"))
    return tuple((level, False) if name is None else (name, True) for level, name in named)


def _name(level: str) -> str | None:
    found = _PLACEHOLDER.fullmatch(level)
    return None if found is None else found[1]
