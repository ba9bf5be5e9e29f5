"""What a subscription of a device asks for: topics, content, the past, and what is kept.

A user property `where` of SUBSCRIBE is a filter for the content, `past` asks for events from before
(`10`, `5m`), and `keep` is a queue policy for what waits while the device is away. Whoever can send
no user properties writes the filter in front of the topic filter: `$where(price < 3)/cars/#`.
In 5.0 it may also stand behind it as in EMQX: `cars/#?price<3`.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from sterna.core.names import Time
from sterna.devices import templates
from sterna.devices.emqx import split_query
from sterna.model.duration import parse_duration
from sterna.model.filters import Filter, FilterError
from sterna.model.queue_policies import PolicyError, parse_policy
from sterna.mqtt.packets import MqttError, ReasonCode, Version
from sterna.mqtt.topics import why_no_topic_filter

WHERE, PAST, KEEP = "where", "past", "keep"

IN_FRONT = "$where("
"""How a topic filter begins that has a filter for the content in front."""


class Wish(msgspec.Struct, frozen=True):
    """What a subscription asks for, besides how it is sent."""

    topics: str
    """The topic filter, without what may be in front of it."""
    where: str = ""
    keep: str = ""
    past_events_max: int | None = None
    past_us: Time | None = None
    template: str = ""
    """The template for topics of events without one, as it was when it subscribed."""

    @property
    def filter(self) -> Filter:
        """The filter of the client's subscription."""
        return _filter_of(self.topics, self.where, self.template)

    def is_like(self, other: "Wish") -> bool:
        """Whether the subscription of another wish does for this one."""
        mine = self.where, self.keep, self.template
        return mine == (other.where, other.keep, other.template)


def wish_of(
    topic_filter: str,
    properties: Mapping[str, str],
    template: str = "",
    version: Version = Version.V5,
) -> Wish:
    """What a SUBSCRIBE asks for; MqttError if it cannot have that."""
    where, topics = split(topic_filter, version)
    for each in (where, properties.get(WHERE, "")):
        _check(each)
    if where and properties.get(WHERE):
        where = f"({where}) AND ({properties[WHERE]})"
    where = where or properties.get(WHERE, "")
    keep = properties.get(KEEP, "")
    events_max, past_us = _past(properties.get(PAST, ""))
    try:
        if keep:
            parse_policy(keep)
    except PolicyError as error:
        raise _refused(str(error)) from None
    wish = Wish(topics, where, keep, events_max, past_us, template)
    if wish.filter.variables:
        raise _refused("a filter of an MQTT client cannot use $variables")
    return wish


def split(topic_filter: str, version: Version = Version.V5) -> tuple[str, str]:
    """The filter for the content, which may be empty, and the topic filter without it."""
    if not topic_filter.startswith(IN_FRONT):
        found = split_query(topic_filter) if version is Version.V5 else None
        return found or ("", topic_filter)
    end = _closing(topic_filter, len(IN_FRONT))
    return topic_filter[len(IN_FRONT) : end], topic_filter[end + 2 :]


def why_no_filter(text: str, version: Version) -> str | None:
    """What is wrong with the topic filter of a device; None if nothing is."""
    if not text.startswith(IN_FRONT):
        is_query = version is Version.V5 and split_query(text) is not None
        return None if is_query else why_no_topic_filter(text, version)
    end = _closing(text, len(IN_FRONT))
    if end < 0 or text[end + 1 : end + 2] != "/":
        return "a filter in front of a topic filter is written $where(FILTER)/TOPIC FILTER"
    return why_no_topic_filter(text[end + 2 :], version)


def _closing(text: str, start: int) -> int:
    """Where the parenthesis is closed before `start`; -1 if it is not."""
    depth, quote = 1, ""
    for at in range(start, len(text)):
        char = text[at]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
            if not depth:
                return at
    return -1


def _past(text: str) -> tuple[int | None, Time | None]:
    """How many events from before, and from how long before."""
    if not text:
        return None, None
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text), None
    try:
        return None, round(parse_duration(text) * 1e6)
    except ValueError as error:
        raise _refused(f"past: a number of events, or {error}") from None


def _check(where: str) -> None:
    """Read a filter by itself, so that its parentheses do not close those around it."""
    try:
        if where:
            Filter(where)
    except FilterError as error:
        raise _refused(str(error)) from None


@lru_cache(maxsize=4096)
def _filter_of(topics: str, where: str, template: str) -> Filter:
    quoted = topics.replace("'", "''")
    text = f"topic MATCHES '{quoted}'"
    others = templates.where(template, topics) if template else None
    if others is not None:
        text = f"({text} OR ({others}))"
    try:
        return Filter(f"{text} AND ({where})" if where else text)
    except FilterError as error:
        raise _refused(str(error)) from None


def _refused(what: str) -> MqttError:
    return MqttError(ReasonCode.TOPIC_FILTER_INVALID, what)
