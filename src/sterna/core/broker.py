"""A broker: links, a routing table, and components that add the rest."""

from collections.abc import Sequence

from sterna.core.component import Component, Handler, overriding
from sterna.core.link import LinkTiming
from sterna.core.messages import Events, Message
from sterna.core.names import NEVER, LinkId, NodeId, Time
from sterna.core.node import Node
from sterna.core.routing.options import RoutingOptions
from sterna.core.routing.router import Router
from sterna.model.event import Event


class Broker(Node):
    """Routes every event to whoever wants it; listing components is how protocols are combined.

    >>> broker = Broker("B1")
    >>> turn = broker.handle(LinkUp(link="ann", peer=Peer.CLIENT), now=0)
    """

    def __init__(
        self,
        id_: NodeId,
        routing: RoutingOptions | None = None,
        components: Sequence[Component] = (),
        *,
        timing: LinkTiming | None = None,
        incarnation: int = 0,
    ) -> None:
        super().__init__(id_, timing=timing, incarnation=incarnation)
        self.router = Router(routing or RoutingOptions())
        self.components = (self.router, *components)
        self._on_message: dict[type[Message], Handler] = {}
        for component in self.components:
            component.broker = self
            for message, handler in component.handlers().items():
                if message in self._on_message:
                    raise ValueError(
                        f"two components of {id_} handle {message.__name__}: list only one of them"
                    )
                self._on_message[message] = handler
        self._at_link_new = overriding(self.components, "link_new")
        self._at_link_up = overriding(self.components, "link_up")
        self._at_link_down = overriding(self.components, "link_down")
        self._at_link_gone = overriding(self.components, "link_gone")
        self._at_events_passing = overriding(self.components, "events_passing")
        self._at_events_leaving = overriding(self.components, "events_leaving")

    def events_arrived(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        for passing in self._at_events_passing:
            passing(events, link, now)
        self.router.route(events, link, now)

    def send_events(self, events: tuple[Event, ...], link: LinkId, now: Time) -> None:
        """Send events over a link, unless a component holds them back."""
        for leaving in self._at_events_leaving:
            events = tuple(leaving(events, link, now))
        if events:
            self.send(link, Events(events=events), now)

    def message_arrived(self, message: Message, link: LinkId, now: Time) -> None:
        handler = self._on_message.get(type(message))
        if handler is not None:  # Else it is for a protocol that this broker does not take part in.
            handler(message, link, now)

    def link_new(self, link: LinkId, now: Time) -> None:
        for hook in self._at_link_new:
            hook(link, now)

    def link_up(self, link: LinkId, now: Time) -> None:
        for hook in self._at_link_up:
            hook(link, now)

    def link_down(self, link: LinkId, now: Time) -> None:
        for hook in self._at_link_down:
            hook(link, now)

    def link_gone(self, link: LinkId, now: Time) -> None:
        for hook in self._at_link_gone:
            hook(link, now)

    def wake(self, now: Time) -> Time:
        for component in self.components:
            if component.deadline <= now:
                component.deadline = NEVER
                component.wake(now)
        return min(component.deadline for component in self.components)
