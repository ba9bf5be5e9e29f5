"""Topic filters with a filter for the content behind them, as EMQX writes it.

`sensor/+/temperature?location=roomA&value>25`: conditions about user properties, all of which have
to be true. With `=` the value is the rest as it is; the other operators compare numbers.
"""

import re
from functools import lru_cache

from sterna.devices.faces import value_of
from sterna.model.event import Scalar
from sterna.model.filters import Filter, FilterError
from sterna.mqtt.topics import why_no_topic_filter

_CONDITION = re.compile(r"([^=<>!]+)(>=|<=|=|>|<)(.+)", re.DOTALL)


@lru_cache(maxsize=4096)
def split_query(text: str) -> tuple[str, str] | None:
    """The filter for the content and the topic filter before it; None if it is a topic filter."""
    topics, mark, query = text.partition("?")
    if not mark or why_no_topic_filter(topics) is not None:
        return None
    conditions = [_condition(each) for each in query.split("&")]
    where = " AND ".join(each for each in conditions if each is not None)
    if None in conditions or not _is_filter(where):
        return None
    return where, topics


def _condition(text: str) -> str | None:
    """A condition in the filter language; None if it is none."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        return None
    name, operator, written = found[1].strip(), found[2], found[3]
    value = value_of(written if operator == "=" else written.strip())
    if operator != "=" and type(value) not in (int, float):
        return None
    quoted = name.replace('"', '""')
    return f'"{quoted}" {operator} {_literal(value)}'


def _literal(value: Scalar) -> str:
    if type(value) is str:
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    return repr(value).upper()


def _is_filter(text: str) -> bool:
    try:
        Filter(text)
    except FilterError:
        return False
    return True
