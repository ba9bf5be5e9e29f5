"""A client that looks for a broker by itself. (Huang and Garcia-Molina, 3.1)

It notes which brokers it hears, and goes to the nearest one when it has something to say: a
subscription, or an event. It stays there until the broker is silent, or wants it to go to another
one that the client hears as well. If it hears none, it says so, and one of the devices in reach
begins to serve. What a broker knows of it is a lease, which the client renews.
"""

from typing import NamedTuple, Self

from sterna.core.actions import Broadcast
from sterna.core.adhoc.messages import BrokerHere, ClientHere, LeaseRenewed
from sterna.core.adhoc.options import NAME, AdHocOptions
from sterna.core.component import ClientComponent
from sterna.core.names import LinkId, NodeId, Time
from sterna.core.settings import Settings


class Found(NamedTuple):
    """What a broker has said last, and when."""

    said: BrokerHere
    time: Time


class Seeking(ClientComponent):
    """The client's part."""

    name = NAME
    handles = (BrokerHere,)
    deadline = 0  # It begins as soon as the client does.

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.options_of(cls.name, AdHocOptions))

    def __init__(self, options: AdHocOptions | None = None) -> None:
        self.options = options or AdHocOptions()
        self.heard: dict[NodeId, Found] = {}
        """The brokers in reach."""
        self._alone_since: Time | None = None
        """Since when it has looked for a broker in vain."""
        self._renewed: Time = 0
        self._says_at: Time = 0

    def configure(self, settings: Settings, now: Time) -> None:
        del now
        self.options = settings.options_of(self.name, AdHocOptions)

    def begin(self, now: Time) -> None:
        self.wake(now)

    def on_broker_here(self, message: BrokerHere, link: LinkId, now: Time) -> None:
        """A broker in reach serves, or has ended."""
        if message.broker != link:
            return  # Nobody speaks for others.
        if message.is_leaving:
            self.heard.pop(message.broker, None)
        else:
            self.heard[message.broker] = Found(message, now)
        self._choose(now)

    def link_up(self, link: LinkId, now: Time) -> None:
        """The broker has its lease anew; the devices around need not serve."""
        del link
        self._renewed = now
        self._say(now)

    def wake(self, now: Time) -> None:
        self._choose(now)
        if self._says_at <= now:
            self._say(now)
            self._says_at = now + self.options.beat_us
        self._renew(now)
        self.wake_by(self._says_at)

    @property
    def _broker(self) -> Found | None:
        """What the client's broker has said, if it is in reach."""
        return self.heard.get(self.client.link or "")

    @property
    def needs_broker(self) -> bool:
        """Whether the client has something to say to a broker."""
        client = self.client
        return bool(client.subscriptions) or client.accepted < client.published

    def _choose(self, now: Time) -> None:
        """Go to another broker if this one is out of reach, or wants the client to go."""
        for broker in [b for b, found in self.heard.items() if self._is_silent(found, now)]:
            del self.heard[broker]
        mine = self._broker
        if not mine.said.yields if mine is not None else not self.needs_broker:
            self._alone_since = None
            return
        others = [f.said for f in self.heard.values() if mine is None or not f.said.yields]
        best = min(others, key=lambda said: (said.yields, said.hops, said.broker), default=None)
        if best is not None:
            self.client.come_to(best.broker, now)
        if best is not None or mine is not None:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now

    def _is_silent(self, found: Found, now: Time) -> bool:
        return found.time + self.options.silent_us <= now

    def _say(self, now: Time) -> None:
        """Tell all in reach in which network this client is, or that it finds none."""
        mine = self._broker
        if mine is not None and self.client.link in self.client.up:
            self._broadcast(ClientHere(client=self.client.id, reign=mine.said.reign))
        elif self._alone_since is not None and self._alone_since + self.options.beat_us <= now:
            self._broadcast(ClientHere(client=self.client.id))

    def _broadcast(self, message: ClientHere) -> None:
        self.client.act(Broadcast(message))

    def _renew(self, now: Time) -> None:
        if self._renewed + self.options.renew_us <= now and self.client.is_welcome:
            self._renewed = now
            self.client.tell(LeaseRenewed(), now)
