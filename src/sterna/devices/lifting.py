"""Lifts the members of a JSON object in the payload of a message to attributes."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from sterna.devices.documents import object_in
from sterna.devices.faces import OWN, PROPERTIES, TOPIC
from sterna.devices.options import Lift
from sterna.model.event import INT_MAX, INT_MIN, Scalar
from sterna.model.filters.patterns import StringTest, topic_test
from sterna.mqtt.packets import Publish, Will


def lift(found: dict[str, Scalar], message: Publish | Will, rules: Sequence[Lift]) -> bool:
    """Add what is lifted to the attributes of a message; False if a rule wants it and cannot."""
    rule = next((each for each in rules if _test(each.topics)(message.topic)), None)
    if rule is None or not message.payload:
        return True
    members = _members(message.payload, rule)
    if members is None:
        return False
    added = False
    for name, value in members.items():
        if name not in found:
            found[name] = value
            added = True
    if added:  # Subscribers get the user properties that were sent, and no others.
        properties = msgspec.json.encode(message.user_properties).decode()
        found.setdefault(PROPERTIES, properties)
    return True


def _members(payload: bytes, rule: Lift) -> dict[str, Scalar] | None:
    """The attributes in a payload; None if it is no object, or more than the rule takes."""
    if len(payload) > rule.bytes_max:
        return None
    document = object_in(payload)
    if document is None:
        return None
    members: dict[str, Scalar] = {}
    for name, value in _flat(document.items(), "", rule.depth_max):
        members.setdefault(name, value)
        if len(members) > rule.attributes_max:
            return None
    return members


def _flat(
    items: Iterable[tuple[str, Any]], prefix: str, depth: int
) -> Iterator[tuple[str, Scalar]]:
    """The members that can be attributes, with dotted names if they are in other objects."""
    for key, value in items:
        name = prefix + key
        if isinstance(value, dict):
            if depth > 1:
                yield from _flat(value.items(), f"{name}.", depth - 1)
            continue
        scalar = _scalar(value)
        if scalar is not None and key and name != TOPIC and not name.startswith(OWN):
            yield name, scalar


def _scalar(value: Any) -> Scalar | None:
    """A value as an attribute has it; None for lists, null and what is too large a number."""
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        try:
            return float(value)
        except OverflowError:
            return None
    return value if isinstance(value, bool | int | float | str) else None


@lru_cache(maxsize=256)
def _test(topics: str) -> StringTest:
    return topic_test(topics)
