"""What is kept of an MQTT session: in a snapshot, and when it travels to another broker."""

import msgspec

from sterna.core.names import NEVER, NodeId, Time
from sterna.devices.filters import Wish
from sterna.model.event import EventId
from sterna.mqtt.packets import Publish, Version, Will

MESSAGE_BYTES = 64
"""What a message takes besides its topic and its payload."""


Share = tuple[NodeId, int]
"""A group of a shared subscription, and the number of a message there."""


class Shared(msgspec.Struct, frozen=True):
    """A subscription that is shared with others."""

    group: NodeId
    qos: int
    identifier: int | None
    wish: Wish


class Subscribed(msgspec.Struct, frozen=True):
    """A subscription of a session."""

    name: str
    """The name of the client's subscription; it has another one once its filter is another."""
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int | None
    wish: Wish


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A message on its way to a device."""

    publish: Publish
    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()
    until: Time = NEVER
    """When it expires."""
    share: Share | None = None
    """The group that has given it, and its number there."""

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return MESSAGE_BYTES + len(self.publish.topic) + len(self.publish.payload)


class KeptSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session, with what belongs to its present connection if there is one."""

    version: Version
    expiry_s: int
    subscriptions: dict[str, Subscribed]
    """By topic filter."""
    shared: dict[str, Shared]
    """The subscriptions that are shared, by topic filter with the share name in front."""
    names: int
    """How many names were given to subscriptions."""
    received: list[int]
    """The packet identifiers of messages with QoS 2 that were received, and not released yet."""
    inflight: list[tuple[int, Outgoing | None]]
    """What was sent and is not acknowledged, by packet identifier; None if it was received."""
    pending: list[Outgoing]
    next_id: int
    waiting: list[Publish]
    will: Will | None
    is_connected: bool
    receive_maximum: int
    maximum_packet_size: int | None
    wants_problem_information: bool
    aliases: dict[int, str]
    had_retained: list[EventId]
    replaced: dict[str, str] = {}
    """The client's subscriptions that are about to end, by name, with their topic filters."""
