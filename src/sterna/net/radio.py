"""A node's datagrams: it sends them to all that may be in reach, and hears who is.

They go to each candidate, and to everybody else that was heard. So where a datagram comes from is
where connections to its sender are made, unless the sender announces another address; a node that
comes back elsewhere is found by its next datagram.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from socket import AF_UNSPEC, IPPROTO_UDP, SOCK_DGRAM
from typing import Any, NamedTuple, Protocol

from sterna.core.messages import Message
from sterna.core.names import NodeId
from sterna.net.address import Address, AddressError
from sterna.net.admission import NAME_CHARACTERS_MAX
from sterna.wire.codec import MalformedError
from sterna.wire.datagrams import decode_datagram, encode_datagram

FORGET_S = 60.0
"""A node that is no candidate and is not heard for so long is sent nothing more."""

PLACES_MAX = 1_000
"""Of how many nodes the addresses are remembered."""

PER_SECOND_MAX = 2_000
"""So many datagrams are taken in a second: those of many nodes, and no flood."""

RESOLVE_S = 10.0
"""How often the names of hosts among the candidates are looked up."""

UNLINKED_S = 5.0
"""A broker that is heard, and with which there is no link although there should be one, counts as
out of reach after so long: datagrams pass, and connections do not."""

SHUNNED_S = 30.0
"""So long; then it is tried again."""

COMPLAIN_S = 60.0
"""How often the same complaint is logged at most."""

SocketAddress = tuple[Any, ...]
"""An address as sockets of its family have it: host, port, and perhaps more."""


class Place(NamedTuple):
    """Where a node was heard last."""

    address: Address
    """Where connections to it are made."""
    source: SocketAddress
    """Where its datagrams come from."""
    run: str
    heard_s: float
    """When, by the monotonic clock."""


class Listener(Protocol):
    """Whose radio it is."""

    def ignores(self, name: NodeId, message: Message) -> str:
        """Why a message does not count as heard, in a word for `datagrams`; empty if it does."""

    def heard(self, name: NodeId, message: Message, *, is_new: bool) -> None:
        """A node in reach has sent a datagram; it `is_new` if it was not heard lately."""


class Radio:
    """Sends and receives the datagrams of one node."""

    def __init__(
        self,
        name: NodeId,
        run: str,
        candidates: Iterable[Address],
        listener: Listener,
        log: logging.Logger,
    ) -> None:
        self.datagrams: Counter[str] = Counter()
        """How many datagrams were `sent` and `heard`. Others are ignored: `malformed`, from a
        `namesake`, more than it takes (`flood`), or what the listener does not want.
        """
        self.places: dict[NodeId, Place] = {}
        """Where nodes were heard, those heard last at the end."""
        self._name = name
        self._run = run
        self._candidates = list(candidates)
        self._listener = listener
        self._log = log
        self._transport: asyncio.DatagramTransport | None = None
        self._found: dict[Address, SocketAddress] = {}
        """What the system knows the candidates as."""
        self._family = AF_UNSPEC
        self._resolving: asyncio.Task[None] | None = None
        self._second = 0
        self._in_second = 0
        self._complained: dict[str, float] = {}

    # ---- Beginning and end

    async def open(self, address: Address) -> None:
        """Send and receive at an address of this machine; OSError if that fails."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(self), local_addr=(address.host, address.port)
        )
        self._family = self._transport.get_extra_info("socket").family
        named = [each for each in self._candidates if not _is_number(each)]
        await self._resolve(each for each in self._candidates if each not in named)
        if named:
            self._resolving = asyncio.create_task(self._keep_resolving(named))

    def close(self) -> None:
        """Send and receive no more."""
        if self._resolving is not None:
            self._resolving.cancel()
            self._resolving = None
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    async def _keep_resolving(self, candidates: Sequence[Address]) -> None:
        """Look up candidates by name, for that may mean another address than before."""
        while True:
            await self._resolve(candidates)
            await asyncio.sleep(RESOLVE_S)

    async def _resolve(self, candidates: Iterable[Address]) -> None:
        loop = asyncio.get_running_loop()
        for host, port in candidates:
            try:
                found = await loop.getaddrinfo(
                    host, port, family=self._family, type=SOCK_DGRAM, proto=IPPROTO_UDP
                )
            except OSError as error:
                self.complain(f"cannot find {host}, which is no candidate meanwhile: {error}")
                continue
            self._found[Address(host, port)] = found[0][4]

    # ---- Sending

    def broadcast(self, message: Message, address: str = "") -> None:
        """Send a datagram to every candidate, and to every other node that was heard.

        With an `address`, connections to this node are made there, and not where it comes from.
        """
        self._send(message, address, self._targets)

    def send(self, message: Message, address: str, to: NodeId) -> None:
        """Send a datagram to a node that was heard."""
        place = self.places.get(to)
        if place is not None:
            self._send(message, address, lambda: [place.source])

    def _send(
        self, message: Message, address: str, targets: Callable[[], Iterable[SocketAddress]]
    ) -> None:
        if self._transport is None:
            return
        try:
            data = encode_datagram(self._name, self._run, address, message)
        except ValueError as error:
            self.complain(f"cannot send datagrams: {error}")
            return
        for target in targets():
            self._transport.sendto(data, target)
            self.datagrams["sent"] += 1

    def _targets(self) -> Iterator[SocketAddress]:
        latest = time.monotonic() - FORGET_S
        while self.places and next(iter(self.places.values())).heard_s < latest:
            del self.places[next(iter(self.places))]
        sources = (place.source for place in self.places.values())
        yield from dict.fromkeys((*self._found.values(), *sources))

    # ---- Receiving

    def received(self, data: bytes, source: SocketAddress) -> None:
        """Pass on what a node in reach says; ignore and count anything else."""
        if self._is_flood():
            self.datagrams["flood"] += 1
            return
        try:
            said, message = decode_datagram(data)
            address = Address.parse(said.address) if said.address else Address(*source[:2])
            if not said.node.isprintable() or len(said.node) > NAME_CHARACTERS_MAX:
                raise MalformedError("a name has printable characters")
        except (MalformedError, AddressError) as problem:
            self.datagrams["malformed"] += 1
            self.complain(f"a datagram from {source[0]} is ignored: {problem}")
            return
        name = said.node
        if name == self._name:
            if said.run != self._run:  # Else the list of candidates has this one.
                self.datagrams["namesake"] += 1
                self.complain(f"there are two called {name}; rename one: {address}")
            return
        ignored = self._listener.ignores(name, message)
        if ignored:
            self.datagrams[ignored] += 1
            return
        self.datagrams["heard"] += 1
        before = self.places.pop(name, None)
        self.places[name] = Place(address, source, said.run, time.monotonic())
        if len(self.places) > PLACES_MAX:
            del self.places[next(iter(self.places))]
        self._listener.heard(name, message, is_new=before is None or before.source != source)

    def _is_flood(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        return self._in_second > PER_SECOND_MAX

    def complain(self, problem: str) -> None:
        """Log a problem, but not each time."""
        now = time.monotonic()
        if self._complained.get(problem, -COMPLAIN_S) + COMPLAIN_S > now:
            return
        if len(self._complained) > PLACES_MAX:
            self._complained.clear()
        self._complained[problem] = now
        self._log.warning("%s", problem)


class Unlinked:
    """The brokers that are heard and cannot be connected: for a while they are out of reach."""

    def __init__(
        self, is_linked: Callable[[NodeId], bool], complain: Callable[[str], None]
    ) -> None:
        self._is_linked = is_linked
        self._complain = complain
        self._wanted: dict[NodeId, float] = {}
        """The brokers to be linked with, and since when there should be a link and is none."""
        self._shunned: dict[NodeId, float] = {}
        """Until when which brokers count as out of reach."""

    def want(self, name: NodeId) -> None:
        """There should be a link with a broker."""
        self._wanted.setdefault(name, time.monotonic())

    def want_no_more(self, name: NodeId) -> None:
        """There need not be one."""
        self._wanted.pop(name, None)

    def is_shunned(self, name: NodeId) -> bool:
        """Whether there is no link with a broker that is heard, and none can be made."""
        now = time.monotonic()
        if self._shunned.get(name, now) > now:
            return True
        self._shunned.pop(name, None)
        if name in self._wanted and self._is_linked(name):
            self._wanted[name] = now
        if self._wanted.get(name, now) + UNLINKED_S > now:
            return False
        self._shunned[name] = now + SHUNNED_S
        self._complain(
            f"{name} sends heartbeats, and cannot be connected: it counts as out of reach for "
            f"{SHUNNED_S:g} s; let connections pass where datagrams do (TCP and UDP)"
        )
        return True


def _is_number(address: Address) -> bool:
    with suppress(ValueError):
        return bool(ip_address(address.host))
    return False


class _Datagrams(asyncio.DatagramProtocol):
    """What comes in, as asyncio hands it over."""

    def __init__(self, radio: Radio) -> None:
        self._radio = radio

    def datagram_received(self, data: bytes, addr: SocketAddress) -> None:
        self._radio.received(data, addr)

    def error_received(self, exc: Exception) -> None:
        """Nobody is there: candidates need not be."""
