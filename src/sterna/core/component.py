"""What a protocol adds to a broker or a client."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sterna.core.messages import Message, SubscriptionChange
from sterna.core.names import NEVER, LinkId, RouteId, Time
from sterna.model.event import Event
from sterna.model.filters import Filter

if TYPE_CHECKING:
    from sterna.core.broker import Broker
    from sterna.core.client import Client
    from sterna.core.node import Node


class Component:
    """One protocol at one node: the messages it handles, and the moments it wants to hear of.

    For each message type in `handles` it has a method `on_…(message, link, now)`, named after the
    type. Whatever else it wants to know, it overrides; see `docs/how-to/components.md`.
    """

    handles: ClassVar[tuple[type[Message], ...]] = ()

    node: "Node"
    """Where it works; set before anything else happens."""

    deadline: Time = NEVER
    """When it wants to be woken; see `wake_by`."""

    is_settled: bool = True
    """Set to False while it keeps something that will go on by itself, so that nobody thinks the
    network has come to rest."""

    @property
    def broker(self) -> "Broker":
        """Where it works, if that is a broker."""
        return cast("Broker", self.node)

    @property
    def client(self) -> "Client":
        """Where it works, if that is a client."""
        return cast("Client", self.node)

    def wake_by(self, time: Time) -> None:
        """Have `wake` called at a time, or earlier if that was asked for already."""
        self.deadline = min(self.deadline, time)
        self.node.deadline = min(self.node.deadline, time)

    def handlers(self) -> dict[type[Message], "Handler"]:
        """The method for each message type it handles."""
        found = {}
        for message in self.handles:
            handler = getattr(self, handler_name(message), None)
            if handler is None:
                raise TypeError(
                    f"{type(self).__name__} handles {message.__name__} "
                    f"but has no method {handler_name(message)}"
                )
            found[message] = handler
        return found

    # ---- Moments

    def link_new(self, link: LinkId, now: Time) -> None:
        """A link stands for the first time, or its other end has forgotten everything."""

    def link_reset(self, link: LinkId, unconfirmed: list[Message], now: Time) -> None:
        """The other end has forgotten everything, and did not confirm these; `link_new` follows."""

    def link_up(self, link: LinkId, now: Time) -> None:
        """A link stands (again)."""

    def link_down(self, link: LinkId, now: Time) -> None:
        """A link is lost; it may come back."""

    def link_gone(self, link: LinkId, unconfirmed: list[Message], now: Time) -> None:
        """A link is lost for good, and with it what the other end has not confirmed."""

    def wake(self, now: Time) -> None:
        """The deadline has come."""

    # ---- Moments at a broker

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        """Events have come over a link and are about to be routed."""

    def events_leaving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        """Events are about to go out over a link; return those that shall go now."""
        del link, now
        return events

    def subscriptions_changed(self, change: SubscriptionChange, link: LinkId, now: Time) -> None:
        """A neighbour or client has subscribed or unsubscribed, and the table has it."""

    def advertisements_changed(self, link: LinkId, now: Time) -> None:
        """A neighbour or client has advertised or unadvertised, and the table has it."""

    def archive_changed(self, *, is_there: bool, now: Time) -> None:
        """There is an archive of events now, or none any more."""

    def looked_up(self, question: int, events: Sequence[Event], now: Time) -> None:
        """The archive has answered a `LookUp`."""

    def keeps(self, link: LinkId) -> bool:
        """Whether what was heard over a link holds although its other end has forgotten it."""
        del link
        return False

    def exact(self, link: LinkId) -> Sequence[tuple[RouteId, Filter]]:
        """What a client wants beyond the routes it has announced, exactly, by name."""
        del link
        return ()

    # ---- Moments at a client

    def introduces(self) -> bool:
        """Whether it tells a new broker itself what the client wants and offers."""
        return False

    def introduction(self) -> tuple[Message, ...]:
        """What a new broker has to be told besides subscriptions and advertisements."""
        return ()

    def introduction_said(self, now: Time) -> None:
        """The broker has been told what the client wants and offers."""

    def left(self, now: Time) -> None:
        """The client has left for good; if it comes back, it is a new one."""

    def delivering(
        self, events: Sequence[Event], subscriptions: Sequence[tuple[str, ...]], now: Time, *,
        anywhere: bool,
    ) -> "Found | None":  # fmt: skip
        """Events are about to go to the application; return those that shall go now, if not all."""

    def may_publish(self) -> bool:
        """Whether events can go out now; when that changes, call `client.flush`."""
        return True

    def events_arriving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        """Events have come from the broker; return those that the application may get."""
        del link, now
        return events


Found = Sequence[tuple[Event, tuple[str, ...]]]
"""Events with the subscriptions that want them."""

Handler = Callable[[Any, LinkId, Time], None]


def handler_name(message: type[Message]) -> str:
    """`on_subscription_change` for a SubscriptionChange."""
    return "on_" + re.sub(r"(?<!^)(?=[A-Z])", "_", message.__name__).lower()


def overriding(components: Sequence[Component], hook: str) -> tuple[Any, ...]:
    """The hook of each component that has one of its own."""
    return tuple(
        getattr(component, hook)
        for component in components
        if getattr(type(component), hook) is not getattr(Component, hook)
    )
