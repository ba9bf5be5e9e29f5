"""The clients inside a broker: each begins a life above all earlier ones of its name."""

from typing import TYPE_CHECKING

from sterna.core.assembly import client_settings, make_client
from sterna.core.client import Client
from sterna.core.link import LinkTiming
from sterna.core.lives import NOTHING_KNOWN, first_seq, incarnation
from sterna.core.names import NodeId, Time
from sterna.core.settings import Settings
from sterna.wire.snapshots import restore_node

if TYPE_CHECKING:
    from sterna.devices.hosting import Devices

INSIDE = LinkTiming(resend_us=None, ack_delay_us=0)
"""Between a broker and a client inside it, nothing gets lost."""


class Clients:
    """Makes them."""

    def __init__(self, devices: "Devices") -> None:
        self.lives: dict[NodeId, int] = {}
        """Those that were made within the last tick, with their incarnations."""
        self._devices = devices
        self._settings: tuple[Settings, Settings] | None = None

    @property
    def settings(self) -> Settings:
        """The settings of clients, which are the same for all of them."""
        broker_settings = self._devices.broker.settings
        if self._settings is None or self._settings[0] is not broker_settings:
            self._settings = broker_settings, client_settings(broker_settings)
        return self._settings[1]

    def new(self, name: NodeId, now: Time) -> Client:
        """A client that begins a life, above all earlier ones that are known."""
        earlier, lives = self._devices.broker.earlier(name, now), self.lives
        number = max(lives.pop(name, 0) + 1, incarnation(now, earlier))
        lives[name] = number
        tick = incarnation(now, NOTHING_KNOWN)
        while lives[oldest := next(iter(lives))] < tick and oldest != name:
            del lives[oldest]
        seq = first_seq(now, earlier)
        return make_client(name, self.settings, timing=INSIDE, incarnation=number, seq=seq)

    def restored(self, name: NodeId, state: bytes, settings: Settings | None = None) -> Client:
        """A client that goes on, with the settings that it had."""
        return restore_node(state, make_client(name, settings or self.settings, timing=INSIDE))
