"""What a protocol adds to a broker or a client."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sterna.core.depot import PageId
from sterna.core.facts import Fact
from sterna.core.lives import NOTHING_KNOWN, Earlier
from sterna.core.messages import Message, SubscriptionChange
from sterna.core.names import NEVER, LinkId, NodeId, RouteId, Time
from sterna.core.routing.foresight import Foresight
from sterna.core.sizes import NO_LOAD, Load
from sterna.model.event import Event
from sterna.model.filters import Filter

if TYPE_CHECKING:
    from sterna.core.broker import Broker
    from sterna.core.client import Client
    from sterna.core.inputs import Input, LinkUp
    from sterna.core.keeping import Reader, Writer
    from sterna.core.node import Node, Turn
    from sterna.core.settings import Settings


class Component:
    """One protocol at one node: the messages it handles, and the moments it is called at.

    For each message type in `handles` it has a method `on_…(message, link, now)`, named after the
    type. It overrides the hooks that it needs; see `docs/how-to/components.md`.
    """

    name: ClassVar[str] = ""
    """The name under which its node finds it and a snapshot keeps its state. A broker's part and
    a client's part of a protocol may have the same name."""
    handles: ClassVar[tuple[type[Message], ...]] = ()
    facts: ClassVar[tuple[type[Fact], ...]] = ()
    """The facts it states beyond those that Sterna has already."""
    version: ClassVar[int] = 1
    """The version of `Kept`; counted up when an older release could not read it."""
    Kept: ClassVar[Any] = None
    """The record of what it keeps across a restart; None if it keeps nothing."""
    older: ClassVar[dict[int, tuple[Any, Callable[[Any], Any]]]] = {}
    """For each older version, its record and how that becomes a record of the next version."""

    node: "Node"
    """The node where it works; set before anything else happens."""

    deadline: Time = NEVER
    """When it wants to be woken; see `wake_by`."""

    is_settled: bool = True
    """Set to False while it keeps something that will go on by itself, so that the network does not
    count as settled."""

    # ---- Life

    @classmethod
    def make(cls, settings: "Settings") -> Self:
        """Make a component from the settings."""
        del settings
        return cls()

    def configure(self, settings: "Settings", now: Time) -> None:
        """The settings have changed; what it holds stays valid."""

    def begin(self, now: Time) -> None:
        """The settings have added it to a node that is at work already."""

    def resume(self, now: Time) -> None:
        """The settings have added it again before it had come to its end."""

    @property
    def is_ending(self) -> bool:
        """Whether the settings have removed it, and it has something left to do."""
        return self in self.node.arrangement.ending

    def end(self, now: Time) -> bool:
        """The settings have removed it: hand over or finish what it holds.

        Whether it may go now. If not, it stays, is asked again from time to time, and should take
        on nothing new.
        """
        del now
        return True

    def keep(self, writer: "Writer") -> Any:
        """What a snapshot has to hold: a `Kept` record of plain data, filters, and the numbers that
        the writer gives for events and messages.
        """

    def restore(self, kept: Any, reader: "Reader") -> None:
        """Go on with what a snapshot has held, exactly as the one that was kept would have."""

    @property
    def broker(self) -> "Broker":
        """The node where it works, if that is a broker."""
        return self.node  # type: ignore[return-value] # A cast would be called each time.

    @property
    def client(self) -> "Client":
        """The node where it works, if that is a client."""
        return self.node  # type: ignore[return-value]

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

    def link_made(self, given: "LinkUp", now: Time) -> None:
        """There is a connection over a link; if both ends agree, `link_up` follows."""

    def link_new(self, link: LinkId, now: Time) -> None:
        """A link is up for the first time, or its other end has lost its state."""

    def link_reset(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """The other end has lost its state and did not confirm these; `link_new` follows."""

    def link_up(self, link: LinkId, now: Time) -> None:
        """A link is up (again)."""

    def link_down(self, link: LinkId, now: Time) -> None:
        """A link is lost; it may come back."""

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """A link is lost for good, and with it what the other end has not confirmed."""

    def wake(self, now: Time) -> None:
        """The deadline has come."""


class BrokerComponent(Component):
    """A broker's part of a protocol."""

    def inputs(self) -> "dict[type[Input], Callable[[Any, Time], None]]":
        """The inputs that it takes from the driver, beyond those of every broker."""
        return {}

    def exchange(self, turn: "Turn", now: Time) -> None:
        """A turn is over, and may be added to: for clients that are inside the broker.

        What goes to them is in the turn like what goes to others, and is to be taken out.
        """

    def events_arriving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        """Events have come over a link; return those that are to be routed."""
        del link, now
        return events

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        """Events have come over a link and are about to be routed."""

    def events_leaving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        """Events are about to go out over a link; return those that may go now."""
        del link, now
        return events

    def subscriptions_changed(self, change: SubscriptionChange, link: LinkId, now: Time) -> None:
        """A neighbour or client has subscribed or unsubscribed, and the table has it."""

    def advertisements_changed(self, link: LinkId, now: Time) -> None:
        """A neighbour or client has advertised or unadvertised, and the table has it."""

    def link_disowned(self, link: LinkId, now: Time) -> None:
        """A client is elsewhere, and has no link here; what it announced stays.

        Nothing can be sent to it, not even later.
        """

    def is_kept_elsewhere(self, link: LinkId) -> bool:
        """Whether another broker keeps what a client has subscribed to, and loses it with it."""
        del link
        return False

    def goes_elsewhere(self, message: Message, link: LinkId, now: Time) -> bool:
        """Whether a message from a client, or to it, is for another broker, and was sent there."""
        del message, link, now
        return False

    def is_elsewhere(self, client: NodeId) -> bool:
        """Whether a client that was here may be, or may have been since, at another broker."""
        del client
        return False

    def client_moved(self, client: NodeId, now: Time) -> None:
        """A client has moved, and this broker lies between where it was and where it is."""

    def moving_changed(self, link: LinkId, now: Time) -> None:
        """The subscriptions with `myloc` that came over a link have changed, or where they are."""

    def terms_changed(self, client: NodeId, now: Time) -> None:
        """The terms of a client's subscriptions have changed; see `Agreements.of`."""

    def migrated(self, before: LinkId, to: LinkId, now: Time) -> None:
        """The broker has moved: another one is the next hop to the rest of the network."""

    def restarted(self, now: Time) -> None:
        """The broker begins its work, new or from its log; see `Restarted`."""

    def overlay_changed(self, now: Time) -> None:
        """There are other brokers than before, or other ways to them."""

    def archive_changed(self, *, is_there: bool, now: Time) -> None:
        """There is an archive of events now, or none any more."""

    def looked_up(self, question: int, events: Sequence[Event], now: Time) -> None:
        """The archive has answered a `LookUp`."""

    def keeps(self, link: LinkId) -> bool:
        """Whether what came over a link stays valid although its other end has lost its state."""
        del link
        return False

    def outlasts(self, link: LinkId) -> bool:
        """Whether what came over a link stays in the table although the link is gone.

        Whoever says so takes what would be sent there; see `events_leaving`.
        """
        del link
        return False

    def sleeps(self) -> bool:
        """Whether the broker takes no part in the network for now."""
        return False

    def order_restored(self, now: Time) -> None:
        """Nothing comes on another way any more: the broker is not `is_unsure` any longer."""

    def exact(self, link: LinkId) -> Sequence[tuple[RouteId, Filter]]:
        """The filters of a client beyond the routes that it has announced, exactly, by name."""
        del link
        return ()

    def claimed(self, link: LinkId) -> Sequence[tuple[str, Collection[RouteId]]]:
        """The names that a client has announced to this component, by kind; see `Claim`."""
        del link
        return ()

    def kept(self, link: LinkId) -> Load:
        """How much it keeps for the other end of a link, besides what was sent there."""
        del link
        return NO_LOAD

    def hosted(self) -> Iterable[NodeId]:
        """The clients for which it keeps something, though they have no link here."""
        return ()

    def keep_less(self, bytes_max: int, now: Time) -> None:
        """Keep no more than about so many bytes of memory for all clients that are away."""

    def discard_spilled(self, bytes_: int, now: Time) -> bool:
        """Discard about so many bytes of what is kept in pages for clients that are away.

        Whether there was something.
        """
        del bytes_, now
        return False

    def to_spill(self, client: LinkId, bytes_max: int) -> Sequence[tuple[int, Event]]:
        """The oldest events in memory that it keeps for a client, with numbers of its own.

        About so many bytes of memory. They may be written to a page; then `spilled` is called.
        """
        del client, bytes_max
        return ()

    def still_kept(self, client: LinkId, events: Sequence[tuple[int, Event]]) -> Collection[int]:
        """Of events that could be spilled, the numbers of those that are still kept in memory."""
        del client, events
        return ()

    def spilled(self, client: LinkId, number: int, page: PageId, place: int) -> None:
        """One of these events is in a page, and need not be in memory any more."""

    def pages(self) -> Iterable[PageId]:
        """The pages that it refers to."""
        return ()

    def forget_away(self, client: LinkId, now: Time) -> bool:
        """There are too many clients that are away: forget this one now, if it `keeps` it.

        Whether it did; if not, the broker forgets others meanwhile, and asks again later.
        """
        del client, now
        return False

    def earlier(self, client: LinkId, now: Time) -> Earlier:
        """What it knows of the lives that a client had so far."""
        del client, now
        return NOTHING_KNOWN

    def foresees(self, message: Message, foresight: Foresight) -> Iterable[None]:
        """Find out what takes long about a message before it is handled.

        It yields whenever the time of `foresight.texts` is up.
        """
        del message, foresight
        return ()

    def frames_received(self, link: LinkId, now: Time) -> None:
        """Frames have come over a link and were handled: they may have confirmed something.

        It is called once after `broker.awaited` was given the link.
        """


class ClientComponent(Component):
    """A client's part of a protocol."""

    def introduces(self) -> bool:
        """Whether it introduces the client to a new broker itself."""
        return False

    def introduction(self) -> tuple[Message, ...]:
        """What is sent to a new broker besides subscriptions and advertisements."""
        return ()

    def introduction_sent(self, now: Time) -> None:
        """The client's subscriptions and advertisements were sent to the broker."""

    def left(self, now: Time) -> None:
        """The client has left for good; if it comes back, it is a new client."""

    def unsubscribed(self, name: str, now: Time) -> None:
        """The application has ended a subscription."""

    def moved(self, now: Time) -> None:
        """The client is at another location, and has told its broker if it could."""

    def delivering(
        self, events: Sequence[Event], subscriptions: Sequence[tuple[str, ...]], now: Time, *,
        anywhere: bool, overtakes: bool,
    ) -> "Found | None":  # fmt: skip
        """Events are about to go to the application; return those that may go now, if not all.

        They may have been kept for a place where the client was then (`anywhere`); and earlier ones
        of their publishers may follow (`overtakes`).
        """

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
