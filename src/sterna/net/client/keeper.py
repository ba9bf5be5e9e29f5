"""Keeps a client connected to a broker, as its core wants it: handshake, link, and loss.

The core says which broker it wants (`Connect`) and when it wants none (`Disconnect`). It knows
brokers by their names, and an address does not tell the name; so the client dials first, hears in
the handshake who is there, and has its core attach to that broker.
"""

import asyncio
import logging
from collections.abc import Sequence

from sterna.core.inputs import Attach, Detach, LinkDown, LinkUp, Received
from sterna.core.names import LinkId, Peer
from sterna.errors import ClosedError, SternaError
from sterna.net.address import Address
from sterna.net.client.connections import Changes, Connected, Lost, Moved
from sterna.net.client.driver import ClientDriver
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
        """The broker it is connected to, or was last."""
        self.welcomed_by: str | None = None
        """The broker that took and gave events last."""
        self.connection: Connection | None = None
        self.frame_bytes_max = 2**20
        """The longest frame that the broker accepts."""
        self.is_welcome = False
        """Whether the broker takes and gives events just now."""
        self.is_paused = False
        """Whether the broker has to wait until the application has taken its events."""
        self._life = life
        self._driver = driver
        self._changes = changes
        self._search = Search(self, life, transport)
        self._address = Address("", 0)
        """Where the connection leads."""
        self._wanted: LinkId | None = None
        """The broker that the core wants to be connected to."""
        self._greeted: LinkId | None = None
        """The broker at the other end of the connection, once it has said its name."""
        self._features: tuple[str, ...] = ()
        """What both that broker and this client can do beyond the version of the protocol."""
        self._is_linked = False
        """Whether the core knows of the connection."""
        self._early: list[tuple[bytes, Sequence[memoryview]]] = []
        """Frames that came before the core knew of the connection."""
        self._reason: str | None = None
        """Why the client ended the connection, if it did."""
        self._is_flushing = False

    # ---- What the application wants

    @property
    def is_looking(self) -> bool:
        """Whether it wants a broker to take and give events, and none does."""
        return self._search.is_on and not self.is_welcome

    def keep(self, addresses: Sequence[Address]) -> None:
        """Connect to one of these addresses, and again whenever that connection is lost."""
        if not self._search.is_on:
            self._search.addresses = addresses
            self._search.start()

    async def welcome(self) -> None:
        """Wait until a broker takes and gives events."""
        while not self.is_welcome:
            self._life.check()
            await self._life.change()

    async def let_go(self) -> None:
        """End the connection, and look for no other one; the core says so, if it has a broker."""
        if self._search.is_on or self.connection is not None:
            if self._driver.link is not None:
                self._driver.give(Detach())
            else:
                self._hang_up()
        while self._search.is_on or self.connection is not None:
            await self._life.change()

    def end(self) -> None:
        """The client is over: a broker that has to be told nothing more is left at once."""
        self._search.stop()
        failure = self._life.failure
        self._not_welcome("the client is closed" if failure is None else str(failure))
        if self.connection is not None:
            if failure is None:
                self.connection.close()
            else:
                self.connection.abort()

    # ---- What the core wants

    def connect(self, link: LinkId) -> None:
        """The core wants a connection to a broker, until it says otherwise."""
        self._wanted = link
        connection = self.connection
        if self._greeted == link and connection is not None and not connection.is_over:
            # Later: the turn in which the core asks for it is not over yet.
            asyncio.get_running_loop().call_soon(self._link_up, connection)
        else:
            self._search.start()

    def disconnect(self, link: LinkId) -> None:
        """The core wants no connection to a broker any more."""
        if self._wanted == link:
            self._wanted = None
        if self._greeted in {None, link}:  # Else it has turned elsewhere already.
            self._hang_up()

    def node_changed(self) -> None:
        """The core has taken an input, and may be welcome at its broker now."""
        if not self.is_welcome and self._greeted is not None and self._driver.is_welcome:
            broker, before = self._greeted, self.welcomed_by
            self.is_welcome, self.welcomed_by = True, broker
            self._changes.tell(Connected(broker, self._address.url))
            if before is not None and before != broker:
                self._changes.tell(Moved(before, broker))
            self._life.changed()

    def abort(self, reason: str) -> None:
        """Break the connection, and look for a broker anew; what was said is said again."""
        if self.connection is not None:
            self._reason = reason
            self.connection.abort()

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
        """Read nothing more, until `resume`."""
        if not self.is_paused and self.connection is not None:
            self.is_paused = True
            self.connection.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.is_paused:
            self.is_paused = False
            if self.connection is not None:
                self.connection.resume_reading()

    def _hang_up(self) -> None:
        self._search.stop()
        if self.connection is not None:
            is_closing = self._life.is_closing
            self._reason = "the client is closed" if is_closing else "the client has detached"
            self.connection.close()
        self._life.changed()

    # ---- What a connection tells its owner

    def dialled(self, connection: Connection, address: Address) -> None:
        """A connection stands, and the other side has to hear who this is."""
        self.connection, self._address = connection, address
        self.is_paused = False
        self._reason = None
        connection.say(_hello(self._life.name, self._driver.digest))

    def connected(self, connection: Connection) -> None:
        """A socket stands; `dialled` comes next."""

    def control_arrived(self, connection: Connection, said: Control) -> None:
        """Shake hands, answer, or go away."""
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
                        broker=self._greeted or self._address.url,
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
            raise SternaError(f"{said.node} is no broker")
        self.frame_bytes_max = said.frame_bytes_max
        if said.settings is not None:
            self._driver.configure(known_settings(said))
        self.broker = self._greeted = said.node
        if self._wanted != said.node:
            self._driver.give(Attach(broker=said.node))
        elif self.connection is not None:
            self._link_up(self.connection)

    def _link_up(self, connection: Connection) -> None:
        """Tell the core of the connection that it wants, and what came over it meanwhile."""
        broker = self._greeted
        if connection is not self.connection or broker is None or broker != self._wanted:
            return
        if not self._is_linked:
            self._is_linked = True
            self._driver.give(LinkUp(link=broker, peer=Peer.BROKER, features=self._features))
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
            self._driver.give(Received(link=self._greeted, frames=frames), raw)
        else:
            self._early.append((raw, bodies))

    def malformed(self, connection: Connection, problem: MalformedError) -> None:
        """Hang up on somebody who speaks another language."""
        log.warning("%s does not speak our language: %s", connection.address, problem)
        if connection is self.connection:
            self.abort(str(problem))
        else:
            connection.abort()

    def lost(self, connection: Connection) -> None:
        """Tell the core that its connection is over; the task looks for another one."""
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
        """The broker takes less than there is; what waits is bounded by the window."""

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
