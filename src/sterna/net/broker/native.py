"""The door for peers that speak Sterna's own protocol: clients, other brokers and observers."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from ipaddress import ip_address

from msgspec import Raw
from msgspec.structs import replace

from sterna.core.inputs import Input, LinkDown, LinkUp
from sterna.core.link import Frame
from sterna.core.lives import Earlier
from sterna.core.names import NodeId, Peer
from sterna.devices.inputs import PREFIX
from sterna.net.address import Address
from sterna.net.admission import NAME_CHARACTERS_MAX, RefusedError
from sterna.net.broker.doors import Change, Parts
from sterna.net.broker.observing import Observers
from sterna.net.broker.reading import Reading
from sterna.net.broker.sessions import Session
from sterna.net.broker.transport import Listening, Tcp, Transport
from sterna.net.connection import Connection
from sterna.net.dialing import FRAME_BYTES_MAX
from sterna.wire.codec import Bodies, MalformedError, encode
from sterna.wire.frames import (
    SETTINGS,
    Ask,
    Control,
    Hello,
    Ping,
    Pong,
    Refusal,
    Role,
    agree,
    control,
    encoded_settings,
)

log = logging.getLogger("sterna.broker")

FIRST_A_HELLO = "the first frame has to be a Hello of a broker or a client"

SIGN_OF_LIFE_S = 1.0
"""How many seconds a broker has for a sign of life when another one of its name comes."""

RENAME = "if there are two, rename one (`name`)"

REASON_CHARACTERS_MAX = 300
"""How much of a peer's reason for a refusal is logged."""

INFORMING_BYTES = 2**20
"""About how many bytes of new settings are sent to clients in one turn of the loop."""


class NativeSession(Connection):
    """A connection as a session: the core's frames go over it as they are."""

    features: tuple[str, ...] = ()
    """The optional features of the protocol that the other side supports."""
    run: str = ""
    """Which start of its node the other side is, if it says so."""
    attempt: int = 0
    """Which connection of that run it is, if a client has made it."""
    expected: NodeId = ""
    """The broker that this one has dialled, if it is to be no other."""

    def down(self) -> Input:
        """What the core is given when the session is over."""
        return LinkDown(link=self.peer)

    @property
    def is_local(self) -> bool:
        """Whether the other side is on this machine."""
        try:
            address = ip_address(self.host)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback

    def encode(self, frame: Frame, bodies: Bodies) -> tuple[bytes, ...]:
        """Make a frame ready for `put`."""
        return encode(frame, bodies)

    def probe(self) -> None:
        """Send a ping."""
        self.say(Ping())

    def refuse(self, reason: str, *, final: bool = False) -> None:
        """Send the reason for which the broker ends the connection, and close it."""
        self.say(Refusal(reason=reason, final=final))
        self.close()


class NativeDoor:
    """Owns the connections of native peers, from the first byte to the last."""

    def __init__(
        self, parts: Parts, observers: Observers, *, transport: Transport | None = None
    ) -> None:
        self.transport: Transport = transport or Tcp()
        self.address = Address("", 0)
        """The address of this broker for others, once it listens."""
        self._configuration = parts.configuration
        self._driver = parts.driver
        self._sessions = parts.sessions
        self._pausing = parts.pausing
        self._limits = parts.limits
        self._budget = parts.budget
        self._observers = observers
        self._reading = Reading(parts)
        self._loop = asyncio.get_running_loop()
        self._listening: Listening | None = None
        self._is_closed = False
        self._strangers: dict[Connection, asyncio.TimerHandle] = {}
        """Connections whose handshake is unfinished, with their deadlines."""
        self._greetings: dict[bool, bytes] = {}
        """The encoded handshake frame, with settings (True) and without."""
        self._settings: Raw | None = None
        """The encoded settings for clients."""
        self._sessions.when_over(self._forget)

    # ---- Opening and closing

    @property
    def strangers(self) -> int:
        """How many connections have an unfinished handshake."""
        return len(self._strangers)

    @property
    def strangers_bytes(self) -> int:
        """How many bytes these have sent that are not complete frames."""
        return sum(stranger.unfinished_bytes for stranger in self._strangers)

    async def open(self) -> None:
        """Listen."""
        config = self._configuration.config
        self._listening = await self.transport.listen(Address.parse(config.listen), self.session)
        self.address = (
            self._listening.address
            if config.advertised_address is None
            else Address.parse(config.advertised_address)
        )

    def close(self) -> None:
        """Accept no more connections."""
        self._is_closed = True
        if self._listening is not None:
            self._listening.close()

    @property
    def is_drained(self) -> bool:
        """Whether nothing has to go elsewhere: clients look for another broker by themselves."""
        return True

    def turn_away(self, reason: str) -> None:
        """Refuse the peers whose handshake is unfinished."""
        for stranger in list(self._strangers):
            stranger.say(Refusal(reason=reason))
            stranger.close()

    def abort(self) -> None:
        """End the connections whose handshake is unfinished."""
        for stranger in list(self._strangers):
            stranger.abort()

    def session(self) -> NativeSession:
        """Make the session of a connection that a peer opens to this broker."""
        limits = self._configuration.limits
        return NativeSession(
            self,
            limits.handshake_bytes_max,
            write_bytes_max=limits.queue_bytes_per_client_max // 4,
        )

    def dialled_session(self, expected: NodeId = "") -> NativeSession:
        """Make the session of a connection that this broker opens to a neighbour."""
        session = NativeSession(self, FRAME_BYTES_MAX)
        session.expected = expected
        return session

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return 0 if self._listening is None else self._listening.address.port

    def configure(self, change: Change) -> None:
        """Send clients the new settings, and have neighbours reconnect if they must know them."""
        self._reading.configure()
        self._greetings.clear()
        self._settings = None
        native = [
            (session, role)
            for session, role in self._sessions.roles.items()
            if isinstance(session, NativeSession)
        ]
        is_news = change.is_digest_new or "limits.frame_bytes_max" in change.keys
        to_inform: deque[NativeSession] = deque()
        for session, role in native:
            if role is not Role.BROKER:
                self._configure_guest(session)
                if role is Role.CLIENT and is_news and SETTINGS in session.features:
                    to_inform.append(session)
            elif change.is_advertising_new:
                session.close()  # The next handshake announces it.
        if to_inform:
            self._inform(to_inform, with_settings=change.is_digest_new)

    def _configure_guest(self, session: NativeSession) -> None:
        limits = self._configuration.limits
        session.limit_writing(limits.queue_bytes_per_client_max // 4)
        # What is on its way may be as long as was allowed when it was sent.
        splitter = session.splitter
        splitter.frame_bytes_max = max(splitter.frame_bytes_max, limits.frame_bytes_max)

    def _inform(self, clients: deque[NativeSession], *, with_settings: bool) -> None:
        """Send clients what they have to know now: to some of them in each turn of the loop."""
        greeting = self._greeting(with_settings=with_settings)
        for _ in range(1 + INFORMING_BYTES // len(greeting)):
            if not clients:
                return
            session = clients.popleft()
            if not session.is_over:
                session.say_encoded(greeting)
        self._loop.call_soon(lambda: self._inform(clients, with_settings=with_settings))

    # ---- Called by connections

    def connected(self, connection: Connection) -> None:
        """Give a new peer time for its handshake."""
        limits = self._configuration.limits
        if self.strangers + len(self._sessions.roles) >= self._limits.connections_max:
            self._refuse(connection, "too many connections (connections_max); try again later")
            return
        if self._is_closed:
            self._refuse(connection, self._shutting_down)
            return
        self._strangers[connection] = self._loop.call_later(
            limits.handshake_s,
            lambda: self._refuse(connection, f"no Hello within {limits.handshake_s:g} s"),
        )

    def control_arrived(self, connection: Connection, said: Control) -> None:
        """Do the handshake, answer, or end the connection."""
        session = _session(connection)
        role = self._sessions.roles.get(session)
        match said:
            case Hello() if role is None:
                try:
                    self._greeted(session, said)
                except (MalformedError, RefusedError) as problem:
                    self._refuse(session, str(problem), final=True)
            case Refusal():
                who, extra = session.peer or session.address, {"host": session.host}
                reason = said.reason[:REASON_CHARACTERS_MAX]
                log.warning("%s refuses: %s", who, reason, extra=extra)
                session.close()
            case _ if role is None:
                self._refuse(session, FIRST_A_HELLO, final=True)
            case Ping():
                session.say(Pong())
            case Pong():
                pass
            case Ask():
                self._observers.asked(session, said)
            case _:
                self._refuse(session, f"{type(said).__name__} makes no sense here", final=True)

    def frames_arrived(
        self, connection: Connection, raw: bytes, bodies: Sequence[memoryview]
    ) -> None:
        """Read the link frames of peers whose handshake is finished."""
        session = _session(connection)
        if self._sessions.is_linked(session):
            self._reading.arrived(session, raw, bodies)
        else:
            self._refuse(session, FIRST_A_HELLO, final=True)

    def unfinished(self, connection: Connection, size_bytes: int) -> None:
        """Count them."""
        del connection
        self._budget.unfinished(size_bytes)

    def malformed(self, connection: Connection, problem: MalformedError) -> None:
        """Refuse a peer that does not speak the protocol."""
        self._refuse(connection, str(problem), final=True)

    def lost(self, connection: Connection) -> None:
        """Forget a connection that is over."""
        self._sessions.lost(_session(connection))

    def congested(self, connection: Connection, *, is_full: bool) -> None:
        """Have the limits checked."""
        self._limits.congested(_session(connection), is_full=is_full)

    # ---- The handshake

    def hello(self) -> Hello:
        """The handshake frame of this broker."""
        return self._configuration.hello(self.address.url)

    def _greeting(self, *, with_settings: bool, earlier: Earlier | None = None) -> bytes:
        """The encoded handshake frame, with what is known of a client's earlier lives.

        Settings may be large, so they are encoded once for all.
        """
        if earlier is not None:
            if with_settings and self._settings is None:
                self._settings = encoded_settings(self.hello())
            settings = self._settings if with_settings else None
            return control(replace(self.hello(), settings=settings, earlier=earlier))
        found = self._greetings.get(with_settings)
        if found is None:
            hello = self.hello()
            found = control(hello if with_settings else replace(hello, settings=None))
            self._greetings[with_settings] = found
        return found

    def _greeted(self, session: NativeSession, said: Hello) -> None:
        if not 0 < len(said.node) <= NAME_CHARACTERS_MAX or not said.node.isprintable():
            raise RefusedError(f"a name has 1 to {NAME_CHARACTERS_MAX} printable characters")
        if said.node.startswith(PREFIX):
            raise RefusedError(f"names that begin with {PREFIX} are those of MQTT clients")
        _, session.features = agree(self.hello(), said)
        if said.role is Role.CLIENT and self._only_asks(said):
            said = replace(said, role=Role.OBSERVER)
        if self._is_closed:
            self._refuse(session, self._shutting_down)
            return
        is_dialled = session.peer != ""  # Else the peer is not known yet.
        if said.role is Role.BROKER:
            self._check_neighbour(said, is_dialled=is_dialled)
            if session.expected not in {"", said.node}:
                raise RefusedError(f"{session.expected} was heard here, and this is {said.node}")
            if self._has_twin(said):
                self._refuse(session, f"a broker called {said.node} is connected already; {RENAME}")
                return
            session.splitter.frame_bytes_max = FRAME_BYTES_MAX
        else:
            if said.role is Role.CLIENT and self._is_broker(said.node):
                raise RefusedError(_named_like_a_broker(said.node))
            if self._budget.is_used_up and said.role is Role.CLIENT and self._is_new(said.node):
                self._refuse(session, "no memory for more clients (memory_bytes_max)")
                return
            if said.role is Role.CLIENT and self._is_overtaken(said):
                self._refuse(session, "a later connection of the same client is here already")
                return
            session.splitter.frame_bytes_max = self._configuration.limits.frame_bytes_max
        session.run, session.attempt = said.run, said.attempt
        self._forget(session)
        self._sessions.add(session, said.role)
        session.peer = said.node
        if not is_dialled:
            knows = said.role is Role.BROKER or said.digest == self._configuration.digest
            earlier = self._earlier(said) if said.role is Role.CLIENT else None
            session.say_encoded(self._greeting(with_settings=not knows, earlier=earlier))
        if said.role is not Role.OBSERVER:
            self._link(session, said)

    def _only_asks(self, said: Hello) -> bool:
        """Whether a client is told the settings and no more, for it need not mean this broker.

        Where clients look for a broker by themselves, they come back to the one that they choose.
        """
        configuration = self._configuration
        return configuration.clients_seek and said.digest != configuration.digest

    def _earlier(self, said: Hello) -> Earlier | None:
        """What is known of the lives of a client that connects; None if nothing is."""
        known = self._driver.node.earlier(said.node, self._driver.engine.clock.now())
        return known if known.visit else None

    def _link(self, session: NativeSession, said: Hello) -> None:
        peer = Peer.BROKER if said.role is Role.BROKER else Peer.CLIENT
        if peer is Peer.BROKER and self._driver.node.peers.get(said.node) is Peer.CLIENT:
            self.send_namesake_away(said.node)
        advertises = said.advertises
        if peer is Peer.CLIENT:
            # It was asked to.
            advertises = self._configuration.settings.routing.by_advertisements
        name, features = session.peer, session.features
        up = LinkUp(link=name, peer=peer, advertises=advertises, features=features)
        self._sessions.link(session, up)
        session.changed.set()
        self._pausing.linked(session)

    def send_namesake_away(self, name: NodeId) -> None:
        """End a client that is named as a broker is.

        Links have the names of peers, and the network needs the broker.
        """
        self._sessions.send_away(name, _named_like_a_broker(name))

    def _is_broker(self, name: NodeId) -> bool:
        """Whether a name is that of a broker: of this network, or of a neighbour that is away."""
        driver = self._driver
        return driver.node.peers.get(name) is Peer.BROKER or name in driver.members.brokers()

    def _is_new(self, name: NodeId) -> bool:
        """Whether nothing waits here for a client."""
        return name not in self._driver.node.peers

    def _check_neighbour(self, said: Hello, *, is_dialled: bool) -> None:
        name = self._configuration.name
        if said.node == name:
            raise RefusedError(f"two brokers are called {said.node}; rename one (`name`)")
        if not is_dialled and not self._configuration.config.network.accept_brokers:
            raise RefusedError("this broker accepts no other brokers (accept_brokers)")
        if said.digest != self._configuration.digest and SETTINGS not in said.features:
            raise RefusedError(
                f"{said.node} has other settings in [network], [places] or limits of what is kept, "
                "and is of a release whose brokers need the same; upgrade it first"
            )
        if self._configuration.config.network.elects:
            return  # The core refuses links that have no place in the tree.
        way = self._driver.members.way_to(said.node)
        if way is not None and way != said.node:
            raise RefusedError(
                f"{said.node} is connected to {name} by way of {way} already; "
                "another link would close a ring"
            )

    def _has_twin(self, said: Hello) -> bool:
        """Whether another broker of this name is connected, and gives signs of life.

        If it is only the end of a connection that has broken unnoticed, it gives way soon.
        """
        first = self._sessions.links.get(said.node)
        if not isinstance(first, NativeSession) or self._sessions.roles.get(first) is Role.CLIENT:
            return False
        if first.run in {"", said.run} or not said.run:
            return False
        first.heard = False
        first.probe()
        self._loop.call_later(SIGN_OF_LIFE_S, self._end_if_silent, first)
        return True

    def _is_overtaken(self, said: Hello) -> bool:
        """Whether the client has left this connection, and made another that arrived earlier."""
        first = self._sessions.links.get(said.node)
        if not isinstance(first, NativeSession) or not said.run:
            return False
        return first.run == said.run and first.attempt > said.attempt

    def _end_if_silent(self, session: NativeSession) -> None:
        if not (session.heard or session.is_over) and self._pausing.reads(session):
            session.abort()

    @property
    def _shutting_down(self) -> str:
        return f"{self._configuration.name} is shutting down"

    def _refuse(self, connection: Connection, reason: str, *, final: bool = False) -> None:
        self._sessions.refuse(_session(connection), reason, final=final)

    def _forget(self, session: Session) -> None:
        timer = self._strangers.pop(session, None)  # type: ignore[call-overload]
        if timer is not None:
            timer.cancel()


def _named_like_a_broker(name: NodeId) -> str:
    return f"{name} is the name of a broker; choose another one"


def _session(connection: Connection) -> NativeSession:
    """A connection of this door, as the session that the door has made of it."""
    assert isinstance(connection, NativeSession)  # noqa: S101 - for the type checker.
    return connection
