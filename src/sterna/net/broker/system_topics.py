"""What a broker tells MQTT clients about itself: the topics that begin with `$SYS/`.

It goes straight to the connections of the clients that subscribe to it here: it is no event, other
brokers do not have it, and it is not in the log.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import sterna
from sterna.devices.faces import TOPIC
from sterna.devices.hosting import Devices
from sterna.devices.kept import Subscribed
from sterna.mqtt.encoder import encode
from sterna.mqtt.packets import Publish, Version

SYSTEM = "$SYS/"
"""How the topic filters begin that ask for it."""


class Listener(Protocol):
    """The connection of a client."""

    peer: str
    maximum_packet_size: int | None
    is_over: bool

    @property
    def version(self) -> Version:
        """The version that the client speaks."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """How many bytes the client has not taken yet."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes."""
        ...


class SystemTopics:
    """Tells clients that subscribe to it how the broker is."""

    def __init__(self, devices: Callable[[], Devices], now: Callable[[], float]) -> None:
        self.received = 0
        """How many packets have come from MQTT clients."""
        self.sent = 0
        """How many packets went to MQTT clients."""
        self._devices = devices
        self._now = now
        self._began = self._told_at = now()

    def tell_all(self, listeners: Iterable[Listener], interval_s: float) -> None:
        """Tell all that ask for it, if it is time."""
        now = self._now()
        if not interval_s or now < self._told_at + interval_s:
            return
        self._told_at = now
        values: dict[str, str] = {}
        for listener in listeners:
            wanted = self._wanted(listener)
            if wanted:
                values = values or self.values()
                self._tell(listener, wanted, values, retain=False)

    def tell(self, listener: Listener) -> None:
        """Tell one that has just subscribed, as if it were retained."""
        wanted = self._wanted(listener)
        if wanted:
            self._tell(listener, wanted, self.values(), retain=True)

    def values(self) -> dict[str, str]:
        """The topics and what they say."""
        devices = self._devices()
        found = devices.devices.values()
        return {
            "$SYS/broker/version": f"sterna version {sterna.__version__}",
            "$SYS/broker/uptime": f"{int(self._now() - self._began)} seconds",
            "$SYS/broker/clients/connected": str(sum(each.session.is_connected for each in found)),
            "$SYS/broker/clients/total": str(len(found)),
            "$SYS/broker/messages/received": str(self.received),
            "$SYS/broker/messages/sent": str(self.sent),
            "$SYS/broker/subscriptions/count": str(
                sum(each.session.subscriptions.count for each in found)
            ),
            "$SYS/broker/retained messages/count": str(len(devices.retained_messages)),
        }

    def _wanted(self, listener: Listener) -> list[Subscribed]:
        device = self._devices().devices.get(listener.peer)
        if device is None or listener.is_over:
            return []
        subscriptions = device.session.subscriptions.own.values()
        return [each for each in subscriptions if each.wish.topics.startswith(SYSTEM)]

    def _tell(
        self, listener: Listener, wanted: list[Subscribed], values: dict[str, str], *, retain: bool
    ) -> None:
        """Send a client what it asks for, unless it takes nothing at present."""
        if listener.waiting_bytes:
            return
        limit = listener.maximum_packet_size
        for publish in self._messages(wanted, values, retain=retain):
            data = encode(publish, listener.version)
            if limit is None or len(data) <= limit:
                listener.write(data)
                self.sent += 1

    def _messages(
        self, wanted: list[Subscribed], values: dict[str, str], *, retain: bool
    ) -> Iterator[Publish]:
        for topic, value in values.items():
            found = [each for each in wanted if each.wish.filter.matches({TOPIC: topic})]
            if found:
                identifiers = [each.identifier for each in found]
                yield Publish(
                    topic,
                    value.encode(),
                    retain=retain,
                    subscription_identifiers=tuple(
                        [each for each in identifiers if each is not None]
                    ),
                )
