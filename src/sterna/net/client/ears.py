"""What a client hears of brokers in reach, and says to them, where it looks for one by itself."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address

from sterna.core.adhoc.messages import BrokerHere, ClientListens
from sterna.core.messages import Message
from sterna.core.names import NodeId
from sterna.errors import SternaError
from sterna.net.address import Address
from sterna.net.client.life import Life
from sterna.net.radio import Radio, Unlinked

PRESENT_S = 0.5
"""A client that has said nothing for so long says that it listens: brokers that come anew, or come
back, have to know where it is."""

log = logging.getLogger("sterna.client")


class Ears:
    """The datagrams of a client, from `open` to `close`; before and after, nobody is in reach."""

    def __init__(
        self,
        life: Life,
        run: str,
        heard: Callable[[NodeId, Message], None],
        is_linked: Callable[[NodeId], bool],
    ) -> None:
        self._life = life
        self._run = run
        self._heard = heard
        self._candidates: dict[Address, None] = {}
        self._radio: Radio | None = None
        self._unlinked = Unlinked(is_linked, self._complain)
        self._working: asyncio.Task[None] | None = None
        self._is_silent = True
        """Whether it has said nothing since it was looked after."""
        self.is_open = False
        """Whether it hears what is sent now."""

    @property
    def is_on(self) -> bool:
        """Whether it is open, or about to be."""
        return self._radio is not None

    def learn(self, candidates: Iterable[Address]) -> None:
        """Say what there is to say also to these addresses."""
        new = [each for each in dict.fromkeys(candidates) if each not in self._candidates]
        self._candidates |= dict.fromkeys(new)
        if new and self._radio is not None:  # They may be reached from another address of ours.
            places = self._radio.places
            self.close()
            self.open()
            self._radio.places |= places

    def open(self) -> None:
        """Begin to hear and to be heard."""
        self._radio = Radio(self._life.name, self._run, self._candidates, self, log)
        self._working = asyncio.create_task(self._work(self._radio))

    async def _work(self, radio: Radio) -> None:
        try:
            await radio.open(_any_port(self._candidates))
        except OSError as error:
            self._life.fail(SternaError(f"{self._life.name} cannot hear brokers (UDP): {error}"))
            return
        self.is_open = True
        self._life.changed()
        while True:
            if self._is_silent:
                self.broadcast(ClientListens(client=self._life.name))
            self._is_silent = True
            await asyncio.sleep(PRESENT_S)

    def close(self) -> None:
        """Hear nothing more."""
        radio, self._radio, self.is_open = self._radio, None, False
        if self._working is not None:
            self._working.cancel()
            self._working = None
        if radio is not None:
            radio.close()

    def broadcast(self, message: Message) -> None:
        """Say something to all that may be in reach."""
        if self._radio is not None:
            self._is_silent = False
            self._radio.broadcast(message)

    def address_of(self, broker: NodeId | None) -> Address | None:
        """Where a broker is that was heard."""
        place = None if self._radio is None else self._radio.places.get(broker or "")
        return None if place is None else place.address

    def want(self, broker: NodeId) -> None:
        """There should be a connection to a broker; if none can be made, ignore it for a while."""
        self._unlinked.want(broker)

    def want_no_more(self, broker: NodeId) -> None:
        """There need not be one."""
        self._unlinked.want_no_more(broker)

    # ---- Called by the radio

    def ignores(self, name: NodeId, message: Message) -> str:
        """Ignore what brokers say to each other, and those that cannot be connected."""
        if type(message) is not BrokerHere:
            return "others"
        return "unlinked" if self._unlinked.is_shunned(name) else ""

    def heard(self, name: NodeId, message: Message, *, is_new: bool) -> None:
        """A broker in reach says that it serves."""
        del is_new
        self._heard(name, message)

    def _complain(self, problem: str) -> None:
        if self._radio is not None:
            self._radio.complain(problem)


def _any_port(candidates: Iterable[Address]) -> Address:
    """Where to hear them: on this machine alone if all of them are there."""
    hosts = [each.host for each in candidates]
    is_6 = any(":" in host for host in hosts)
    if all(map(_is_loopback, hosts)):
        return Address("::1" if is_6 else "127.0.0.1", 0)
    return Address("::" if is_6 else "0.0.0.0", 0)  # noqa: S104 - brokers elsewhere answer.


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False
