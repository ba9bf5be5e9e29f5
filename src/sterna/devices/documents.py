"""JSON objects in payloads, which may come from anybody."""

import re
from typing import Any

import msgspec

NESTED_MAX = 64
"""An object with more objects and lists within each other is not read: how deep the decoder gets
depends on who calls it, and a broker that reads its log has to find the same as before."""

_TEXT_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def object_in(payload: bytes) -> dict[str, Any] | None:
    """The JSON object that a payload is; None if it is none, or too deep."""
    if payload.lstrip(b" \t\r\n")[:1] != b"{" or _is_deep(payload):
        return None
    try:
        found = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return found if type(found) is dict else None


def _is_deep(payload: bytes) -> bool:
    if payload.count(b"{") + payload.count(b"[") <= NESTED_MAX:
        return False
    depth = 0
    for found in _TEXT_OR_BRACKET.finditer(payload):
        what = found[0]
        if what in (b"{", b"["):
            depth += 1
            if depth > NESTED_MAX:
                return True
        elif what in (b"}", b"]"):
            depth -= 1
    return False
