"""The brokers in reach of one that makes its own links: datagrams to all of them, links to some.

Datagrams go from the broker's own port to every candidate of its configuration, and to every other
broker that it has heard. So where a datagram comes from is where links to that broker are made,
unless that broker announces another address; a broker that comes back elsewhere is found by its
next datagram. Of two neighbours, the one whose name comes first makes the link.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from socket import IPPROTO_UDP, SOCK_DGRAM
from typing import TYPE_CHECKING, NamedTuple

from sterna.core.actions import Connect, Disconnect
from sterna.core.inputs import Heard
from sterna.core.messages import Message
from sterna.core.names import NodeId, Peer
from sterna.net.address import Address, AddressError
from sterna.net.admission import NAME_CHARACTERS_MAX
from sterna.net.dialing import Dialler
from sterna.wire.codec import MalformedError
from sterna.wire.datagrams import decode_datagram, encode_datagram

if TYPE_CHECKING:
    from sterna.net.broker.configuration import Configuration
    from sterna.net.broker.driver import BrokerDriver
    from sterna.net.broker.native import NativeDoor
    from sterna.net.broker.sessions import Sessions

log = logging.getLogger("sterna.broker")

FORGET_S = 60.0
"""A broker that is no candidate and is not heard for so long is sent nothing more."""

PLACES_MAX = 1_000
"""Of how many brokers the addresses are remembered."""

PER_SECOND_MAX = 2_000
"""So many datagrams are taken in a second: the heartbeats of many brokers, and no flood."""

RESOLVE_S = 10.0
"""How often the names of hosts among the candidates are looked up."""

COMPLAIN_S = 60.0
"""How often the same complaint is logged at most."""

SocketAddress = tuple[str, int]


class Place(NamedTuple):
    """Where a broker was heard last."""

    address: Address
    """Where links to it are made."""
    source: SocketAddress
    """Where its datagrams come from."""
    run: str
    heard_s: float
    """When, by the monotonic clock."""


class Reach:
    """Sends and receives the datagrams of a broker, and makes the links that the core asks for."""

    def __init__(
        self,
        configuration: "Configuration",
        driver: "BrokerDriver",
        sessions: "Sessions",
        door: "NativeDoor",
    ) -> None:
        self.datagrams: Counter[str] = Counter()
        """How many datagrams were `sent`, `heard`, and ignored: `malformed`, from a `namesake`, or
        more than the broker takes (`flood`)."""
        self.places: dict[NodeId, Place] = {}
        """Where brokers were heard, those heard last at the end."""
        self._configuration = configuration
        self._driver = driver
        self._sessions = sessions
        self._door = door
        self._transport: asyncio.DatagramTransport | None = None
        urls = configuration.config.network.neighbours
        self._candidates = [Address.from_url(url) for url in urls]
        self._found: dict[Address, SocketAddress] = {}
        """What the system knows the candidates as."""
        self._resolving: asyncio.Task[None] | None = None
        self._diallers: dict[NodeId, Dialler] = {}
        self._second = 0
        self._in_second = 0
        self._complained: dict[str, float] = {}

    # ---- Beginning and end

    async def open(self, address: Address) -> None:
        """Send and receive at the address where the broker listens; OSError if that fails."""
        loop = asyncio.get_running_loop()
        await self._resolve()
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(self), local_addr=(address.host, address.port)
        )
        if any(not _is_number(each) for each in self._candidates):
            self._resolving = asyncio.create_task(self._keep_resolving())

    def close(self) -> None:
        """Send and receive no more, and make no more links."""
        if self._resolving is not None:
            self._resolving.cancel()
        for dialler in self._diallers.values():
            dialler.stop()
        self._diallers.clear()
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    async def _keep_resolving(self) -> None:
        while True:
            await asyncio.sleep(RESOLVE_S)
            await self._resolve()

    async def _resolve(self) -> None:
        """Look up the candidates, for a name may mean another address than before."""
        loop = asyncio.get_running_loop()
        for candidate in self._candidates:
            try:
                found = await loop.getaddrinfo(
                    candidate.host, candidate.port, type=SOCK_DGRAM, proto=IPPROTO_UDP
                )
            except OSError:
                self._complain(f"cannot find {candidate.host}: it is no candidate until then")
                continue
            self._found[candidate] = found[0][4][:2]  # type: ignore[assignment]

    # ---- Datagrams

    def broadcast(self, message: Message) -> None:
        """Send a datagram to every candidate, and to every other broker that was heard."""
        if self._transport is None:
            return
        configuration, config = self._configuration, self._configuration.config
        address = config.advertised_address or ""
        try:
            data = encode_datagram(configuration.name, configuration.run, address, message)
        except ValueError as error:
            self._complain(f"cannot send heartbeats: {error}")
            return
        for target in self._targets():
            self._transport.sendto(data, target)
            self.datagrams["sent"] += 1

    def _targets(self) -> Iterator[SocketAddress]:
        latest = time.monotonic() - FORGET_S
        while self.places and next(iter(self.places.values())).heard_s < latest:
            del self.places[next(iter(self.places))]
        sources = (place.source for place in self.places.values())
        yield from dict.fromkeys((*self._found.values(), *sources))

    def received(self, data: bytes, source: SocketAddress) -> None:
        """Give the core what a broker in reach says; ignore and count anything else."""
        if self._is_flood():
            self.datagrams["flood"] += 1
            return
        try:
            said, message = decode_datagram(data)
            address = Address.parse(said.address) if said.address else Address(*source)
            if not said.node.isprintable() or len(said.node) > NAME_CHARACTERS_MAX:
                raise MalformedError("a name has printable characters")
        except (MalformedError, AddressError) as problem:
            self.datagrams["malformed"] += 1
            self._complain(f"a datagram from {source[0]} is ignored: {problem}")
            return
        name, now = said.node, time.monotonic()
        if name == self._configuration.name:
            if said.run != self._configuration.run:  # Else the list of candidates has this one.
                self.datagrams["namesake"] += 1
                self._complain(f"two brokers are called {name}; rename one (`name`): {address}")
            return
        self.datagrams["heard"] += 1
        self.places.pop(name, None)
        self.places[name] = Place(address, source, said.run, now)
        if len(self.places) > PLACES_MAX:
            del self.places[next(iter(self.places))]
        if self._driver.node.peers.get(name) is Peer.CLIENT:
            self._door.send_namesake_away(name)
        self._driver.give(Heard(sender=name, message=message))

    def _is_flood(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        return self._in_second > PER_SECOND_MAX

    def _complain(self, problem: str) -> None:
        """Log a problem, but not each time."""
        now = time.monotonic()
        if self._complained.get(problem, -COMPLAIN_S) + COMPLAIN_S > now:
            return
        if len(self._complained) > PLACES_MAX:
            self._complained.clear()
        self._complained[problem] = now
        log.warning("%s", problem)

    # ---- Links

    def act(self, action: Connect | Disconnect) -> None:
        """Make a link, or make it no more; the other end may be the one to make it."""
        name = action.link
        if isinstance(action, Disconnect):
            dialler = self._diallers.pop(name, None)
            if dialler is not None:
                dialler.stop()
        elif name not in self._diallers and self._configuration.name < name:
            self._diallers[name] = Dialler(
                self._door, self._sessions, lambda: self._address_of(name), name
            )

    def _address_of(self, name: NodeId) -> Address | None:
        place = self.places.get(name)
        return None if place is None else place.address


def _is_number(address: Address) -> bool:
    with suppress(ValueError):
        return bool(ip_address(address.host))
    return False


class _Datagrams(asyncio.DatagramProtocol):
    """What comes in, as asyncio hands it over."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._reach.received(data, addr[:2])

    def error_received(self, exc: Exception) -> None:
        """Nobody is there: candidates need not be."""
