"""Sends messages that must not overtake the subscriptions that wait for a link."""

from sterna.core.broker import Broker
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message
from sterna.core.names import LinkId, Time
from sterna.core.sizes import NO_LOAD, Load, load


class Courier:
    """Sends to neighbouring brokers, behind what the router sends.

    The router sends nothing while a link is down. What was sent over the link before the router has
    caught up would overtake the subscriptions that it belongs to.
    """

    def __init__(self) -> None:
        self._held: dict[LinkId, list[Message]] = {}
        self._loads: dict[LinkId, Load] = {}

    def __len__(self) -> int:
        return len(self._held)

    def send(self, broker: Broker, link: LinkId, message: Message, now: Time) -> None:
        """Send a message, once the link is up."""
        if link in broker.up:
            broker.send(link, message, now)
        else:
            self._hold(link, message)

    def _hold(self, link: LinkId, message: Message) -> None:
        self._held.setdefault(link, []).append(message)
        self._loads[link] = self.held(link).plus(load(message))

    def held(self, link: LinkId) -> Load:
        """How much waits for a link."""
        return self._loads.get(link, NO_LOAD)

    def link_up(self, broker: Broker, link: LinkId, now: Time) -> None:
        """Send what has waited; the router has sent what comes before it."""
        for message in self.take(link):
            broker.send(link, message, now)

    def take(self, link: LinkId) -> list[Message]:
        """Take what has waited for a link."""
        self._loads.pop(link, None)
        return self._held.pop(link, [])

    def keep(self, writer: Writer) -> dict[LinkId, list[int]]:
        """What a snapshot has to hold."""
        return {link: [writer.message(m) for m in held] for link, held in self._held.items()}

    def restore(self, kept: dict[LinkId, list[int]], reader: Reader) -> None:
        """Hold what a snapshot has held."""
        for link, numbers in kept.items():
            for number in numbers:
                self._hold(link, reader.message(number))
