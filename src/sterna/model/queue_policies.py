"""Queue policies: what is kept of the events that wait for a client, as its subscription says.

(Huang and Garcia-Molina, 4.3: an event broker "can purge old events from the queue if it knows that
the subscription is time-sensitive. Or it may keep only the more important events".)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from sterna.errors import SternaError
from sterna.model.duration import parse_duration
from sterna.model.event import Scalar
from sterna.model.filters.errors import FilterError
from sterna.model.filters.logic import compute, is_number
from sterna.model.filters.parser import parse_value
from sterna.model.filters.tree import Value

CHARACTERS_MAX = 500
"""The longest text of a queue policy."""

COUNT_MAX = 1_000_000_000
"""The greatest number of events in `ring(n)`."""

SECONDS_MAX = 10 * 365 * 86_400
"""The longest time in `ttl(time)`."""

FORMS = "write ttl(30s), last_per(attribute), max(expression), min(expression) or ring(100)"


class PolicyError(SternaError, ValueError):
    """A text that is no queue policy: what is wrong with it, and what to write."""


class PolicyKind(StrEnum):
    """What a policy goes by."""

    TTL = "ttl"
    """Events are kept for a time."""
    LAST_PER = "last_per"
    """The last event of each key is kept."""
    MAX = "max"
    """The event with the greatest value is kept."""
    MIN = "min"
    """The event with the least value is kept."""
    RING = "ring"
    """So many events are kept, the last ones."""


@dataclass(frozen=True)
class QueuePolicy:
    """A policy as brokers apply it."""

    text: str
    """As the client has written it."""
    kind: PolicyKind
    ttl_us: int = 0
    """How long events are kept, for `ttl`."""
    count: int = 0
    """How many events are kept, for `ring`."""
    expression: Value | None = None
    """The key, or the value to compare, for the others."""

    def value(self, attributes: Mapping[str, Scalar | None]) -> Scalar | None:
        """The key of an event, or its value; None if it has none, and is kept."""
        if self.expression is None:
            return None
        value = compute(self.expression, attributes)
        if value is None or value != value:  # NaN is no value. # noqa: PLR0124
            return None
        return value if self.kind is PolicyKind.LAST_PER or is_number(value) else None


def parse_policy(text: str) -> QueuePolicy:
    """The policy that a text describes; PolicyError if it describes none."""
    if len(text) > CHARACTERS_MAX:
        raise _error(text, f"{CHARACTERS_MAX} characters are the limit")
    return _parsed(text)


def policy_or_none(text: str) -> QueuePolicy | None:
    """The same for what another node has sent; None if nobody here knows such a policy."""
    try:
        return parse_policy(text)
    except PolicyError:
        return None


@lru_cache(maxsize=1_024)
def _parsed(text: str) -> QueuePolicy:
    form = _FORM.fullmatch(text)
    if form is None:
        raise _error(text, "it is not of the form name(…)")
    name, inside = form[1].lower(), form[2].strip()
    if name not in [*PolicyKind]:
        raise _error(text, f"there is none of the name {form[1]}")
    kind = PolicyKind(name)
    if kind is PolicyKind.TTL:
        return QueuePolicy(text, kind, ttl_us=_microseconds(text, inside))
    if kind is PolicyKind.RING:
        return QueuePolicy(text, kind, count=_count(text, inside))
    return QueuePolicy(text, kind, expression=_expression(text, inside, form.start(2)))


def _error(text: str, problem: str) -> PolicyError:
    shown = text if len(text) <= CHARACTERS_MAX else text[:40] + "…"
    return PolicyError(f"{shown!r} is no queue policy: {problem}; {FORMS}")


_FORM = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)


def _microseconds(text: str, inside: str) -> int:
    try:
        seconds = parse_duration(inside)
    except (ValueError, OverflowError) as error:
        raise _error(text, str(error)) from None
    if not 1e-6 <= seconds <= SECONDS_MAX:
        raise _error(text, "a time is from 1 microsecond to ten years")
    return round(seconds * 1e6)


def _count(text: str, inside: str) -> int:
    if not (inside.isascii() and inside.isdigit() and len(inside) <= len(str(COUNT_MAX))):
        raise _error(text, f"a number of events is written 100, not {inside!r}")
    if not 1 <= int(inside) <= COUNT_MAX:
        raise _error(text, f"a ring has from 1 to {COUNT_MAX:,} events")
    return int(inside)


def _expression(text: str, inside: str, start: int) -> Value:
    try:
        return parse_value(inside)
    except FilterError as error:
        start += text[start:].find(inside)
        column = start + error.position + 1
        raise _error(text, f"column {column}: {error.problem}") from None
