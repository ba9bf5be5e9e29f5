"""What a broker that makes its own links hears and sends as datagrams, and the links it makes.

Datagrams go from the broker's own port (see `Radio`). Links to another broker are made to where it
was heard; of two neighbours, the one whose name comes first makes the link. Clients that look for a
broker by themselves are heard as well.
"""

import logging
import time
from typing import TYPE_CHECKING

from sterna.core.actions import Connect, Disconnect
from sterna.core.adhoc.messages import BrokerHere, ClientListens
from sterna.core.inputs import Heard
from sterna.core.messages import Message
from sterna.core.names import NodeId, Peer
from sterna.net.address import Address
from sterna.net.dialing import Dialler
from sterna.net.radio import Radio, Unlinked

if TYPE_CHECKING:
    from sterna.net.broker.configuration import Configuration
    from sterna.net.broker.driver import BrokerDriver
    from sterna.net.broker.native import NativeDoor
    from sterna.net.broker.sessions import Sessions

log = logging.getLogger("sterna.broker")


class Reach:
    """Sends and receives the datagrams of a broker, and makes the links that the core asks for."""

    def __init__(
        self,
        configuration: "Configuration",
        driver: "BrokerDriver",
        sessions: "Sessions",
        door: "NativeDoor",
    ) -> None:
        candidates = map(Address.from_url, configuration.config.network.neighbours)
        self.radio = Radio(configuration.name, configuration.run, candidates, self, log)
        self._configuration = configuration
        self._driver = driver
        self._sessions = sessions
        self._door = door
        self._diallers: dict[NodeId, Dialler] = {}
        self._unlinked = Unlinked(lambda name: name in sessions.links, self.radio.complain)
        self._serves: BrokerHere | None = None
        """What it has said last of itself, if it serves."""
        self._serving: dict[NodeId, float] = {}
        """When other brokers have said last that they serve, by the monotonic clock."""

    # ---- Beginning and end

    async def open(self, address: Address) -> None:
        """Send and receive at the address where the broker listens; OSError if that fails."""
        await self.radio.open(address)

    def close(self) -> None:
        """Send and receive no more, and make no more links."""
        for dialler in self._diallers.values():
            dialler.stop()
        self._diallers.clear()
        self.radio.close()

    # ---- Datagrams

    def broadcast(self, message: Message) -> None:
        """Send a datagram to all that may be in reach."""
        if isinstance(message, BrokerHere):
            self._serves = None if message.is_leaving else message
        self.radio.broadcast(message, self._address)

    @property
    def _address(self) -> str:
        """Where others reach this broker, if it is not where its datagrams come from."""
        return self._configuration.config.advertised_address or ""

    def ignores(self, name: NodeId, message: Message) -> str:
        """Ignore who cannot be connected, and clients that are named as a broker is."""
        if not message.from_clients:
            return "unlinked" if self._unlinked.is_shunned(name) else ""
        if self._driver.node.peers.get(name) is not Peer.BROKER:
            return ""
        self.radio.complain(f"a client is called {name}, as a broker is; rename one")
        return "namesake"

    def heard(self, name: NodeId, message: Message, *, is_new: bool) -> None:
        """Give the core what a node in reach says."""
        if message.from_clients:
            if is_new and self._serves is not None:  # Before anybody else begins to serve it.
                self.radio.send(self._serves, self._address, name)
            if type(message) is ClientListens:
                return  # Now the radio knows where it is, and there is nothing else in it.
        elif self._driver.node.peers.get(name) is Peer.CLIENT:
            self._door.send_namesake_away(name)
        if isinstance(message, BrokerHere):
            self._serving.pop(name, None)
            if not message.is_leaving:
                self._serving[name] = time.monotonic()
        self._driver.give(Heard(sender=name, message=message))

    def serving(self, within_s: float) -> list[NodeId]:
        """The other brokers in reach that have said within so many seconds that they serve."""
        oldest = time.monotonic() - within_s
        self._serving = {name: at for name, at in self._serving.items() if at > oldest}
        return sorted(self._serving)

    # ---- Links

    def act(self, action: Connect | Disconnect) -> None:
        """Make a link, or make it no more; the other end may be the one to make it."""
        name = action.link
        if isinstance(action, Disconnect):
            self._unlinked.want_no_more(name)
            dialler = self._diallers.pop(name, None)
            if dialler is not None:
                dialler.stop()
            return
        self._unlinked.want(name)
        if name not in self._diallers and self._configuration.name < name:
            self._diallers[name] = Dialler(
                self._door, self._sessions, lambda: self._address_of(name), name
            )

    def _address_of(self, name: NodeId) -> Address | None:
        place = self.radio.places.get(name)
        return None if place is None else place.address
