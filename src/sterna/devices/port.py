"""What the session of a device wants of its client, and of the broker behind that."""

from collections.abc import Sequence
from typing import Protocol

from sterna.core.names import NodeId, Time
from sterna.devices.filters import Wish
from sterna.devices.kept import Share
from sterna.model.event import Event, Scalar
from sterna.mqtt.packets import Publish

Publication = tuple[dict[str, Scalar], bytes]
"""The attributes and the payload of an event."""


class Port(Protocol):
    """What a session wants of its client."""

    @property
    def may_publish(self) -> bool:
        """Whether events go out at once."""
        ...

    def publish(self, events: Sequence[Publication], now: Time) -> None:
        """Publish events."""
        ...

    def subscribe(self, name: str, wish: Wish, now: Time) -> None:
        """Subscribe; MqttError if that is not possible here and now."""
        ...

    def unsubscribe(self, name: str, now: Time) -> None:
        """End a subscription."""
        ...

    def confirm(self, name: str, now: Time) -> None:
        """Ask whether all brokers know a subscription: `Session.known` is called when they do."""
        ...

    def join(self, group: NodeId, wish: Wish, *, is_active: bool) -> None:
        """Be a member of a group, connected or not."""
        ...

    def leave_group(self, group: NodeId) -> None:
        """Be no member any more."""
        ...

    def ended(self, share: Share, *, is_done: bool) -> None:
        """Be done with a message of a group, or give it back."""
        ...

    def move(self, message: Publish, now: Time) -> str:
        """Be where a message tells that the device is; why it is refused, if it is."""
        ...

    def ignored(self, what: str) -> None:
        """Count something in a message that is not used; the device gets no error."""
        ...

    def may_retain(self, topic: str) -> bool:
        """Whether there is room for a retained message of a topic."""
        ...

    def retained(self, wish: Wish, now: Time) -> Sequence[Event]:
        """The retained messages that match a filter."""
        ...
