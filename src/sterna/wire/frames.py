"""What goes over a connection: frames with their length before them, and the handshake.

    length (4 bytes, big-endian) | MessagePack

The first frame of each side is a `Hello`. Then link frames follow (see `codec.py`), and now and
then a `Ping`. A broker that ends the connection gives the reason in a `Refusal`.
"""

from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any

import msgspec

from sterna.core.assembly import client_settings
from sterna.core.catalogue import LIVE
from sterna.core.confirming.messages import CONFIRMING
from sterna.core.history.messages import SEARCH
from sterna.core.history.options import HistoryOptions
from sterna.core.lives import NOTHING_KNOWN, Earlier
from sterna.core.protocol import named
from sterna.core.settings import Settings
from sterna.core.terms.messages import TERMS
from sterna.model.ranges import INT_MAX
from sterna.wire.codec import LENGTH_BYTES, MalformedError, to_json

VERSION = 1
"""The version of the protocol. Both sides announce theirs, and use the highest common one."""

SETTINGS = "settings"
"""The feature of brokers whose settings may differ and change, and of clients that follow them."""

FEATURES: tuple[str, ...] = (SETTINGS, CONFIRMING, SEARCH, TERMS)
"""Features beyond the version, which the sides use if both announce them."""


Natural = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]


class Role(StrEnum):
    """What kind of node or program the sender is."""

    BROKER = "broker"
    CLIENT = "client"
    OBSERVER = "observer"
    """A program that asks questions, and is no node of the network."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=10):
    """The first frame of each side."""

    versions: tuple[int, int]
    """The lowest and the highest version that the sender speaks."""
    role: Role
    node: str
    features: tuple[str, ...] = ()
    address: str = ""
    """Where a broker can be reached."""
    settings: Settings | None = None
    """What a broker's clients have to know of its settings; None if they have them."""
    digest: str = ""
    """A digest of the sender's settings. Two sides with the same digest need not send them."""
    frame_bytes_max: Natural = 0
    """The longest frame that a broker accepts."""
    advertises: bool | None = None
    """Whether a broker routes by advertisements; None if it does not announce that."""
    run: str = ""
    """Different for each start of the sender: two nodes may have the same name by mistake."""
    earlier: Earlier = NOTHING_KNOWN
    """What a broker knows of earlier lives of the client that it greets."""
    attempt: Natural = 0
    """Which connection of its run a client makes: they may arrive in another order."""
    candidates: tuple[str, ...] = ()
    """The addresses where a client may find other brokers, in a network of devices alone."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=11):
    """The last frame of a broker that closes the connection."""

    reason: str
    final: bool = False
    """Whether it makes no sense to try again."""


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Asks the other side to send anything, as a sign of life."""


class Pong(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The answer to a Ping."""


class Ask(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=14):
    """Observer -> broker: a question about the broker."""

    what: str
    """`status`, `topology`, `queues`, `clients` (some at a time), `journal` (which positions there
    are), `facts` (of some of these positions), `reload` (read the configuration again) or `kick`
    (send a client away)."""
    start: Natural = 0
    """The first position of the facts, or of the clients."""
    end: Natural = 0
    """The position after the last of the facts."""
    client: str = ""
    """The client to send away."""
    details: bool = False
    """Whether the asker understands more about the `journal` than that of release 0.1 does."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=15):
    """Broker -> observer: the answer to an Ask."""

    what: str
    answer: Any


Control = Hello | Refusal | Ping | Pong | Ask | Answer


def digest(settings: Settings) -> str:
    """A short text that is equal for equal settings, as far as other nodes have to know them."""
    parts: dict[str, object] = {"routing": settings.routing, "client": settings.client}
    parts |= {"handover": settings.handover, "places": settings.places}
    more = [name for name in settings.protocols if name not in LIVE]
    if more or settings.options:
        parts |= {"protocols": more, "options": settings.options}
    if settings.history.hold_us != HistoryOptions().hold_us:  # Older releases do not know it.
        parts |= {"hold_us": settings.history.hold_us}
    return sha256(to_json(parts)).hexdigest()


def known_settings(hello: Hello) -> Settings:
    """The settings that a broker has sent; it does not decide which modules are imported here."""
    settings = msgspec.structs.replace(hello.settings or Settings(), modules={})
    return live_settings(settings if SETTINGS in hello.features else client_settings(settings))


def live_settings(settings: Settings) -> Settings:
    """The settings of a client, with all protocols that every live client takes part in.

    Brokers of older releases do not list all of them, and those of release 0.1 list none.
    """
    missing = [name for name in LIVE if name not in settings.protocols and named(name).client]
    return msgspec.structs.replace(settings, protocols=(*settings.protocols, *missing))


def frame(body: bytes) -> bytes:
    """A body with its length before it."""
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def encoded_settings(hello: Hello) -> msgspec.Raw:
    """The settings of a handshake frame as they are encoded; they can stand for them in others."""
    return msgspec.Raw(_encoder.encode(hello.settings))


def control(said: Control) -> bytes:
    """A control frame, ready to be sent."""
    return frame(_encoder.encode(said))


def is_control(body: memoryview) -> bool:
    """Whether a frame belongs to the connection itself; all others belong to the link."""
    return len(body) > 1 and body[0] & 0xF0 == _FIXARRAY and body[1] >= _FIRST_CONTROL_TAG


def decode_control(body: memoryview) -> Control:
    """A control frame; MalformedError if it is none."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise MalformedError(f"not a control frame of this protocol: {error}") from None


def agree(ours: Hello, theirs: Hello) -> tuple[int, tuple[str, ...]]:
    """The version and the features that both sides speak; MalformedError if there is no version."""
    lowest = max(ours.versions[0], theirs.versions[0])
    highest = min(ours.versions[1], theirs.versions[1])
    if lowest > highest:
        raise MalformedError(
            f"{theirs.node} speaks versions {theirs.versions[0]} to {theirs.versions[1]} of the "
            f"protocol, and this is {ours.versions[0]} to {ours.versions[1]}: upgrade the older one"
        )
    return highest, tuple(name for name in ours.features if name in theirs.features)


class Splitter:
    """Splits incoming bytes into frames."""

    __slots__ = ("_missing", "_parts", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._parts: list[bytes] = []
        """The parts of an incomplete frame that have arrived."""
        self._missing = 0
        """How many bytes of that frame are still missing, at least."""

    @property
    def rest(self) -> int:
        """How many bytes of an incomplete frame have arrived."""
        return sum(map(len, self._parts)) if self._parts else 0

    def clear(self) -> None:
        """Forget what has arrived of an incomplete frame."""
        self._parts.clear()

    def feed(self, data: bytes) -> tuple[bytes, Sequence[memoryview]]:
        """All complete frames, as received and as bodies; MalformedError if one is too long."""
        if self._parts:
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                if len(self._parts) >= _PARTS_MAX:  # Many small parts take more than their bytes.
                    self._parts = [b"".join(self._parts)]
                return b"", ()
            data = b"".join(self._parts)
            self._parts.clear()
        view = memoryview(data)
        bodies = []
        start, length, needed = 0, len(data), LENGTH_BYTES
        while length - start >= LENGTH_BYTES:
            body = int.from_bytes(view[start : start + LENGTH_BYTES], "big")
            if body > self.frame_bytes_max:
                raise MalformedError(
                    f"a frame of {body:,} bytes is too long; {self.frame_bytes_max:,} are the limit"
                )
            needed = LENGTH_BYTES + body
            if start + needed > length:
                break
            bodies.append(view[start + LENGTH_BYTES : start + needed])
            start += needed
            needed = LENGTH_BYTES
        if start == length:
            return data, bodies
        self._parts.append(data[start:])
        self._missing = needed - (length - start)
        return data[:start], bodies


def split(data: bytes) -> Sequence[memoryview]:
    """Split bytes that consist of whole frames."""
    return Splitter(len(data)).feed(data)[1]


_PARTS_MAX = 256
_FIXARRAY = 0x90
_FIRST_CONTROL_TAG = 10

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Control] = msgspec.msgpack.Decoder(Control)
