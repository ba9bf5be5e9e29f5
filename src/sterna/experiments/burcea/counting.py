"""What goes over links in a run, in the paper's messages: by kind, over time, and in bytes.

A transferred event is one message, however many share a frame, and so is a regular one in a batch.
A message without events is one. A change of subscriptions is one for each that is added or removed.
Each link that a message goes over is a hop.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import get_args

import msgspec

from sterna.core.frames import Data, Frame
from sterna.core.messages import AdvertisementChange, Events, Message, SubscriptionChange
from sterna.core.names import Peer, Time
from sterna.experiments.burcea.city import topology
from sterna.experiments.burcea.script import START_US
from sterna.experiments.burcea.settings import BUCKET_MINUTES, MINUTE_US, Setting
from sterna.model.event import Event
from sterna.sim.network import Fate, Observer, Pipe
from sterna.wire.codec import size

BUCKET_US: Time = BUCKET_MINUTES * MINUTE_US

CHANGES = (SubscriptionChange, AdvertisementChange)


@dataclass(slots=True)
class Count:
    """How much of one kind of message there was."""

    hops: list[int]
    """Messages by the time when they were sent; each link that one goes over counts."""
    messages: int = 0
    """Messages between border brokers, each once. An event that is sent to several of them by
    multicast counts for each."""
    events: int = 0
    """The events in these; a message may have none, and is one nevertheless."""
    bytes: int = 0
    """Over all links."""


@dataclass(slots=True)
class Way:
    """What is known of one direction of a connection."""

    counts: dict[type[Message], Count]
    from_leaf: bool
    to_leaf: bool


@dataclass
class Traffic:
    """What went over links of one sort, by kind of message."""

    by_kind: dict[type[Message], Count] = field(default_factory=dict)

    def regular(self) -> list[Count]:
        """The events that were delivered by multicast."""
        return [count for kind, count in self.by_kind.items() if kind is Events]

    def transfer(self) -> list[Count]:
        """All messages but those: what it takes to hand clients over."""
        return [count for _, count in self.transfer_by_kind()]

    def transfer_by_kind(self) -> list[tuple[type[Message], Count]]:
        """The same, with the kind of message."""
        return [(kind, count) for kind, count in self.by_kind.items() if kind is not Events]

    def of_subscriptions(self) -> list[Count]:
        """What it takes to bring subscriptions to another broker, without the events."""
        return [
            count
            for kind, count in self.by_kind.items()
            if kind in CHANGES
            or ("subscriptions" in kind.__struct_fields__ and not has_events(kind))
        ]


class Tally(Observer):
    """Counts what is sent while a run lasts, not before and not after."""

    def __init__(self, setting: Setting) -> None:
        self.inner = Traffic()
        """Between brokers."""
        self.outer = Traffic()
        """Between clients and brokers, both directions."""
        self._end_us = START_US + setting.length_us
        self._buckets = -(-setting.length_us // BUCKET_US)
        self._ways: dict[Pipe, Way] = {}
        self._leaves = frozenset(topology().leaves())
        self._counts_bytes = setting.count_bytes

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        if type(frame) is not Data or fate.again or not START_US <= now < self._end_us:
            return
        message = frame.message
        kind = type(message)
        way = self._ways.get(pipe)
        if way is None:
            way = self._ways[pipe] = self._way(pipe)
        count = way.counts.get(kind)
        if count is None:
            count = way.counts[kind] = Count([0] * self._buckets)
        bucket = (now - START_US) // BUCKET_US
        if kind is Events:
            number = len(message.events)  # type: ignore[attr-defined] # It has them.
            if way.to_leaf:
                count.messages += number
                count.events += number
        else:
            number = messages_in(message)
            sender = getattr(message, "sender", None)
            if way.from_leaf if sender is None else sender == pipe.source.node.id:
                count.messages += number
                count.events += events_in(message)
        count.hops[bucket] += number
        if self._counts_bytes:
            count.bytes += size(frame)

    def _way(self, pipe: Pipe) -> Way:
        ends = (pipe.source, pipe.target)
        traffic = self.inner if all(end.peer is Peer.BROKER for end in ends) else self.outer
        from_leaf, to_leaf = (end.node.id in self._leaves for end in ends)
        return Way(traffic.by_kind, from_leaf, to_leaf)


@cache
def has_events(kind: type[Message]) -> bool:
    """Whether messages of a kind carry events, not only their identities."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return Event in get_args(types.get("events"))


def messages_in(message: Message) -> int:
    """How many of the paper's messages a message is."""
    if isinstance(message, CHANGES):
        return len(message.added) + len(message.removed)
    return events_in(message) or 1


def events_in(message: Message) -> int:
    """How many events a message carries."""
    return len(message.events) if has_events(type(message)) else 0  # type: ignore[attr-defined]


def total(counts: Iterable[Count]) -> int:
    """All hops."""
    return sum(sum(count.hops) for count in counts)


def over_time(counts: Iterable[Count], setting: Setting) -> list[int]:
    """The hops in each bucket of time."""
    buckets = -(-setting.length_us // BUCKET_US)
    return [sum(hops) for hops in zip(*(c.hops for c in counts), [0] * buckets, strict=True)]
