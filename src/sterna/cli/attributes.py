"""Attributes of an event as they are typed on a command line or read as JSON."""

import json
import math
from collections.abc import Iterable

from sterna.model.event import Scalar, plain_attributes


def parse_assignments(assignments: Iterable[str]) -> dict[str, Scalar]:
    """`name=value …` as attributes.

    A value is read as an integer, a float, true or false where it looks like one, and as a string
    otherwise; quotes make it a string in any case.
    """
    attributes: dict[str, object] = {}
    for assignment in assignments:
        name, equals, written = assignment.partition("=")
        if not equals or not name:
            raise ValueError(f"expected name=value, found {assignment!r}")
        name = name.strip()
        if name in attributes:
            raise ValueError(
                f"{name} is given twice, the second time as {assignment!r}; give it once"
            )
        attributes[name] = _value(written.strip())
    return plain_attributes(attributes)


def parse_json(text: str) -> dict[str, Scalar]:
    """A JSON object as attributes."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from None
    except RecursionError:
        raise ValueError("not an event: nested too deeply") from None
    if not isinstance(document, dict):
        raise ValueError('an event is a JSON object, such as {"speed": 60}')
    try:
        return plain_attributes(document)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _value(written: str) -> Scalar | None:
    if len(written) >= 2 and written[0] == written[-1] and written[0] in "'\"":
        return written[1:-1]
    word = written.lower()
    if word in ("true", "false"):
        return word == "true"
    if word == "null":
        return None
    if word.lstrip("+-") in ("nan", "inf", "infinity"):
        return float(word)
    for kind in (int, float):
        try:
            number = kind(written)
        except ValueError:
            continue
        if "_" in written:
            break
        if isinstance(number, float) and math.isinf(number):
            raise ValueError(f"{written} is outside the range of 64-bit floats")
        return number
    return written
