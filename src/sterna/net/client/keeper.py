"""Keeps a client connected to a broker, as its core asks: handshake, link, and loss.

The core asks for a certain broker (`Connect`) or for none (`Disconnect`). It knows brokers by name,
and an address does not contain the name. So the client dials first, learns the name of the broker
in the handshake, and has its core attach to that broker.

Among devices alone, the core looks for a broker by itself, by datagrams (`Ears`). The client dials
any address of its list then only to ask for the settings, and the brokers that the core wants where
they were heard.
"""

import asyncio
import logging
import secrets
from collections.abc import Sequence

from msgspec.structs import replace

from sterna.core.inputs import Attach, Detach, Heard, LinkDown, LinkUp, Received, TimePassed
from sterna.core.lives import NOTHING_KNOWN
from sterna.core.messages import Message
from sterna.core.names import LinkId, NodeId, Peer
from sterna.errors import ClosedError, SternaError
from sterna.net.address import Address
from sterna.net.client.connections import Changes, Connected, Lost, Moved
from sterna.net.client.driver import ClientDriver
from sterna.net.client.ears import Ears
from sterna.net.client.life import Life
from sterna.net.client.search import Search
from sterna.net.client.transport import Transport
from sterna.net.connection import Connection
from sterna.wire.codec import MalformedError, decode
from sterna.wire.frames import (
    FEATURES,
    VERSION,
    Control,
    Hello,
    Ping,
    Pong,
    Refusal,
    Role,
    agree,
    known_settings,
)

log = logging.getLogger("sterna.client")


class Keeper:
    """Keeps a client connected to one broker of a list, as long as its core wants that."""

    def __init__(
        self, life: Life, driver: ClientDriver, transport: Transport, changes: Changes
    ) -> None:
        self.broker: str | None = None
        """The broker that the client is connected to, or was connected to last."""
        self.welcomed_by: str | None = None
        """The last broker that accepted and delivered events."""
        self.connection: Connection | None = None
        self.frame_bytes_max = 2**20
        """The longest frame that the broker accepts."""
        self.is_welcome = False
        """Whether the broker accepts and delivers events now."""
        self.is_paused = False
        """Whether the client does not read until the application has taken its events."""
        self._life = life
        self._driver = driver
        self._changes = changes
        self._search = Search(self, life, transport)
        self.address = Address("", 0)
        """The address that the connection leads to."""
        self._wanted: LinkId | None = None
        """The broker that the core wants to be connected to."""
        self._greeted: LinkId | None = None
        """The broker at the other end of the connection, once the handshake is finished."""
        self._features: tuple[str, ...] = ()
        """The optional features of the protocol that both that broker and this client support."""
        self._earlier = NOTHING_KNOWN
        """What that broker knew of this client's lives when the connection was made."""
        self._is_linked = False
        """Whether the core knows of the connection."""
        self._early: list[tuple[bytes, Sequence[memoryview]]] = []
        """Frames that arrived before the core knew of the connection."""
        self._reason: str | None = None
        """Why the client ended the connection, if it did."""
        self._is_flushing = False
        self._run = secrets.token_hex(8)
        self._attempts = 0
        """How many connections were made."""
        self._asks = False
        """Whether this connection is only to learn the settings."""
        self._ears = Ears(life, self._run, self._heard, lambda broker: self._greeted == broker)

    # ---- For the application

    def told(self, now: Connected | None) -> str:
        """Where the client is, for people to read."""
        if self._life.failure is not None:
            return f"failed: {self._life.failure}"
        if self._life.is_closed:
            return "closed"
        if now is not None:
            return f"connected to {now.broker} at {now.address}"
        state = "not connected"
        if self.is_looking:
            state = "looks for a broker"
        elif self.is_listening:
            state = "needs no broker now"
        return state if self.broker is None else f"{state}, last at {self.broker}"

    @property
    def is_looking(self) -> bool:
        """Whether it looks for a broker, and none accepts and delivers events yet."""
        seeks = self._ears.is_on and self._driver.needs_broker
        return (self._search.is_on or seeks) and not self.is_welcome

    @property
    def is_listening(self) -> bool:
        """Whether the core looks for a broker by itself, when it needs one."""
        return self._ears.is_open

    @property
    def whereabouts(self) -> str:
        """Where the client is, for people to read."""
        if self.is_welcome:
            return f"{self._life.name} is at {self.broker}"
        if self._ears.is_on:
            return f"{self._life.name} looks for a broker among the devices in reach"
        if not self._search.is_on:
            return f"{self._life.name} is detached"
        tried = ", ".join(address.url for address in self._search.addresses)
        return f"{self._life.name} looks for a broker at {tried}"

    def keep(self, addresses: Sequence[Address]) -> None:
        """Connect to one of these addresses, and again whenever that connection is lost."""
        self._ears.learn(addresses)
        if self._driver.seeks:
            self._listen()
        if not (self._search.is_on or (self._driver.seeks and self.connection is not None)):
            self._search.addresses = addresses
            self._search.start()

    async def welcome(self) -> None:
        """Wait until a broker accepts and delivers events, or the core can look for one."""
        while not (self.is_welcome or self.is_listening):
            self._life.check()
            await self._life.change()

    async def let_go(self) -> None:
        """End the connection and look for no other one; if the core is attached, it detaches."""
        self._ears.close()
        if self._search.is_on or self.connection is not None:
            if self._driver.link is not None:
                self._driver.give(Detach())
            else:
                self._hang_up()
        while self._search.is_on or self.connection is not None:
            await self._life.change()

    async def hurry(self) -> None:
        """Do not wait until all is sent over a connection that ends; it goes over the next one."""
        ending = self.connection
        if ending is not None and ending.is_over:
            ending.abort()
            while self.connection is ending:
                await self._life.change()

    def end(self) -> None:
        """End the connection and the search, because the client has ended."""
        self._search.stop()
        self._ears.close()
        failure = self._life.failure
        self._not_welcome("the client is closed" if failure is None else str(failure))
        if self.connection is not None:
            if failure is None:
                self.connection.close()
            else:
                self.connection.abort()

    # ---- For the core

    def connect(self, link: LinkId) -> None:
        """Keep a connection to a broker, which the core asks for."""
        self._wanted = link
        connection = self.connection
        if self._greeted == link and connection is not None and not connection.is_over:
            # Not at once: the turn in which the core asks for it is not over yet.
            asyncio.get_running_loop().call_soon(self._link_up, connection)
        elif self._driver.seeks:
            self._ears.want(link)
            self._look()
        else:
            self._search.start()

    def disconnect(self, link: LinkId) -> None:
        """End the connection to a broker, which the core no longer wants."""
        if self._wanted == link:
            self._wanted = None
        self._ears.want_no_more(link)
        if self._greeted in {None, link}:  # Else it is connected elsewhere already.
            self._hang_up()

    def node_changed(self) -> None:
        """The core has had an input; its broker may accept and deliver events now."""
        if not self.is_welcome and self._greeted is not None and self._driver.is_welcome:
            broker, before = self._greeted, self.welcomed_by
            self.is_welcome, self.welcomed_by = True, broker
            self._changes.tell(Connected(broker, self.address.url))
            if before is not None and before != broker:
                self._changes.tell(Moved(before, broker))
            self._life.changed()

    def abort(self, reason: str) -> None:
        """Abort the connection and look for a broker again; what was not acknowledged is resent."""
        if self.connection is not None:
            self._reason = reason
            self.connection.abort()

    def broadcast(self, message: Message) -> None:
        """Say something to all brokers in reach."""
        self._ears.broadcast(message)

    # ---- Among devices alone

    def _listen(self) -> None:
        """Have the core find a broker by itself from now on."""
        if not self._ears.is_on:
            self._ears.open()
            self._driver.give(TimePassed())  # Its clock begins.
            link = self._driver.link
            if link is not None:  # It is where it was, unless it hears otherwise.
                self._driver.give(Attach(broker=link))

    def _heard(self, broker: NodeId, message: Message) -> None:
        """A broker in reach says that it serves."""
        self._driver.give(Heard(sender=broker, message=message))
        if broker == self._wanted and self._greeted is None:
            self._look()

    def _look(self) -> None:
        """Connect to the broker that the core wants, where that was heard."""
        address = self._ears.address_of(self._wanted)
        if address is None:
            return  # Until it is heard.
        if self.connection is not None and (self.connection.is_over or self.address != address):
            self.connection.abort()
        self._search.look(address)

    def _asked(self, connection: Connection, said: Hello) -> None:
        """A broker has told the settings, or is another one than was heard."""
        asked = self._asks or self._wanted is None
        connection.abort()
        if asked:
            self._search.stop()
            self._look()
        elif said.settings is None:
            log.info("%s was heard here, and this is %s", self._wanted, said.node)

    # ---- Frames

    def flush_soon(self) -> None:
        """Send what was put into the connection, together with all that follows in this turn."""
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send it now."""
        self._is_flushing = False
        if self.connection is not None:
            self.connection.flush()

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if not self.is_paused and self.connection is not None:
            self.is_paused = True
            self.connection.pause_reading()

    def resume(self) -> None:
        """Continue to read."""
        if self.is_paused:
            self.is_paused = False
            if self.connection is not None:
                self.connection.resume_reading()

    def _hang_up(self) -> None:
        self._search.stop()
        if self.connection is not None:
            is_closing = self._life.is_closing
            is_elsewhere = self._ears.is_on and not is_closing
            left = "goes to another broker" if is_elsewhere else "has detached"
            self._reason = "the client is closed" if is_closing else f"the client {left}"
            self.connection.close()
        self._life.changed()

    # ---- Callbacks of connections

    def dialled(self, connection: Connection, address: Address) -> None:
        """A connection is established: begin the handshake."""
        self.connection, self.address = connection, address
        self.is_paused = False
        self._reason = None
        self._attempts += 1
        seeks = self._driver.seeks
        self._asks = seeks and address != self._ears.address_of(self._wanted)
        hello = _hello(self._life.name, "" if self._asks else self._driver.digest)
        connection.say(replace(hello, run=self._run, attempt=self._attempts))

    def connected(self, connection: Connection) -> None:
        """A socket is connected; `dialled` follows."""

    def control_arrived(self, connection: Connection, said: Control) -> None:
        """Finish the handshake, answer a ping, or accept a refusal."""
        is_current = connection is self.connection
        match said:
            case Hello() if is_current:
                try:
                    _, self._features = agree(_hello(""), said)
                    self._greet(said)
                except SternaError as problem:
                    self._life.fail(problem)
            case Ping():
                connection.say(Pong())
            case Refusal() if said.final and is_current:
                self._life.fail(
                    ClosedError(
                        f"the broker refuses {self._life.name}: {said.reason}",
                        broker=self._greeted or self.address.url,
                    )
                )
            case Refusal():
                if is_current:
                    self._reason = said.reason
                connection.close()
            case _:
                pass

    def _greet(self, said: Hello) -> None:
        if said.role is not Role.BROKER:
            raise SternaError(f"{said.node} is not a broker")
        self.frame_bytes_max = said.frame_bytes_max
        if said.settings is not None:
            self._driver.configure(known_settings(said), said.earlier)
        if self._driver.seeks and not self._is_linked and self.connection is not None:
            self._ears.learn(map(Address.from_url, said.candidates))
            self._listen()
            if self._asks or said.settings is not None or said.node != self._wanted:
                self._asked(self.connection, said)
                return
        if not self._driver.seeks:
            self._ears.close()  # The network has changed.
        self.broker = self._greeted = said.node
        self._earlier = said.earlier
        if self._wanted != said.node:
            self._driver.give(Attach(broker=said.node))
        elif self.connection is not None:
            self._link_up(self.connection)

    def _link_up(self, connection: Connection) -> None:
        """Give the core the connection that it wants, and the frames that have arrived over it."""
        broker = self._greeted
        if connection is not self.connection or broker is None or broker != self._wanted:
            return
        if not self._is_linked:
            self._is_linked = True
            self._driver.give(
                LinkUp(
                    link=broker,
                    peer=Peer.BROKER,
                    features=self._features,
                    earlier=self._earlier,
                )
            )
            early, self._early = self._early, []
            try:
                for raw, bodies in early:
                    self.frames_arrived(connection, raw, bodies)
            except MalformedError as problem:
                self.malformed(connection, problem)

    def frames_arrived(
        self, connection: Connection, raw: bytes, bodies: Sequence[memoryview]
    ) -> None:
        """Pass frames of the link on to the core."""
        if connection is not self.connection or self._greeted is None:
            return
        if self._is_linked:
            frames = tuple([decode(body) for body in bodies])
            self._driver.give(Received(link=self._greeted, frames=frames, size=len(raw)), raw)
        else:
            self._early.append((raw, bodies))

    def unfinished(self, connection: Connection, size_bytes: int) -> None:
        """A client trusts its broker to send the rest."""

    def malformed(self, connection: Connection, problem: MalformedError) -> None:
        """Abort a connection over which malformed data arrived."""
        log.warning("%s sent malformed data: %s", connection.address, problem)
        if connection is self.connection:
            self.abort(str(problem))
        else:
            connection.abort()

    def lost(self, connection: Connection) -> None:
        """Inform the core that its connection is lost; the search looks for another one."""
        if connection is not self.connection:
            return
        broker, was_linked = self._greeted, self._is_linked
        self.connection = self._greeted = None
        self._is_linked = False
        self._early = []
        if was_linked and broker is not None:
            self._driver.give(LinkDown(link=broker))
        self._not_welcome(self._reason or _reason(connection))
        self._life.changed()

    def congested(self, connection: Connection, *, is_full: bool) -> None:
        """Do nothing: the window bounds what waits for a slow broker."""

    def _not_welcome(self, reason: str) -> None:
        if self.is_welcome and self.broker is not None:
            self.is_welcome = False
            self._changes.tell(Lost(self.broker, reason))


def _hello(name: str, digest: str = "") -> Hello:
    return Hello(
        versions=(VERSION, VERSION),
        role=Role.CLIENT,
        node=name,
        features=FEATURES,
        digest=digest,
    )


def _reason(connection: Connection) -> str:
    if connection.error is None:
        return "the broker has closed the connection"
    return f"the connection broke: {connection.error}"
