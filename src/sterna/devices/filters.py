"""Topic filters as filters."""

from functools import lru_cache

from sterna.model.filters import Filter, FilterError
from sterna.mqtt.packets import ReasonCode

WHERE = "where"
"""The user property of SUBSCRIBE that holds a content filter."""


class FilterRefusedError(Exception):
    """There can be no such subscription."""

    def __init__(self, reason_code: ReasonCode, what: str) -> None:
        super().__init__(what)
        self.reason_code = reason_code


@lru_cache(maxsize=4096)
def filter_of(topic_filter: str, where: str = "") -> Filter:
    """The filter of a subscription; FilterRefusedError if it can have none."""
    quoted = topic_filter.replace("'", "''")
    text = f"topic MATCHES '{quoted}'"
    if where:
        try:
            Filter(where)  # By itself, so that its parentheses do not close ours.
        except FilterError as error:
            raise FilterRefusedError(ReasonCode.TOPIC_FILTER_INVALID, str(error)) from None
        text = f"{text} AND ({where})"
    try:
        return Filter(text)
    except FilterError as error:
        raise FilterRefusedError(ReasonCode.TOPIC_FILTER_INVALID, str(error)) from None
