"""Inputs as records of a log. What came over a link is kept as it came."""

import struct
from typing import Any

import msgspec
from msgspec.structs import replace

import sterna
from sterna.core import inputs
from sterna.core.catalogue import LIVE_0_1
from sterna.core.inputs import Heard, Input, LinkDown, LinkGone, LinkUp, Received, TimePassed
from sterna.core.lives import NOTHING_KNOWN, Earlier
from sterna.core.names import NodeId, Peer, Time
from sterna.core.settings import Settings
from sterna.devices.filters import why_no_filter
from sterna.devices.inputs import DeviceConnected, DeviceLost, DeviceSaid
from sterna.mqtt.decoder import Decoder
from sterna.mqtt.packets import Version
from sterna.wire.codec import decode_stored, from_json, from_msgpack, to_json, to_msgpack
from sterna.wire.datagrams import decode_said
from sterna.wire.frames import split

_HEAD = struct.Struct("<BQH")
"""The head of a record: which input, when, and the length of the link's name that follows."""

_BEGAN = 0
_RECEIVED, _LINK_UP, _LINK_DOWN, _LINK_GONE, _TIME_PASSED, _APPLICATION, _NOTE, _HEARD = range(1, 9)
_DEVICE_SAID = 9

_PEER = {
    (peer, advertises): peer.encode() + ending
    for peer in Peer
    for advertises, ending in ((None, b""), (True, b"+"), (False, b"-"))
}
"""What is at the other end, and whether it advertises."""
_LINK_UPS = {body: key for key, body in _PEER.items()}
_EARLIER = "@"

_LINK_INPUTS: dict[type[Input], int] = {LinkDown: _LINK_DOWN, LinkGone: _LINK_GONE}

_Doing: Any = (
    inputs.Subscribe
    | inputs.Unsubscribe
    | inputs.Confirm
    | inputs.Advertise
    | inputs.Unadvertise
    | inputs.Publish
    | inputs.PublishMany
    | inputs.Leave
    | inputs.Attach
    | inputs.Detach
    | inputs.MoveTo
    | inputs.SetVariable
    | inputs.Ahead
    | inputs.ArchiveChanged
    | inputs.LookedUp
    | inputs.MemoryShort
    | inputs.QueueSpilled
    | inputs.KeptSpilled
    | inputs.Configured
    | inputs.Restarted
    | DeviceConnected
    | DeviceLost
)


class Began(msgspec.Struct, frozen=True, kw_only=True):
    """The first record: whose log this is, and how the node was made."""

    node: NodeId
    incarnation: int
    settings: Settings = msgspec.field(name="network")
    """The settings that the node began with."""
    seq: int = 0
    """The number from which a client counts its events."""
    release: str = ""
    """The release that wrote this; empty: 0.1."""


def encode_began(began: Began) -> bytes:
    """Encode the first record."""
    return _record(_BEGAN, 0, "", to_json(replace(began, release=sterna.__version__)))


def decode_began(record: bytes) -> Began | None:
    """The content of the first record; None if this is another one."""
    if not record or record[0] != _BEGAN:
        return None
    began = from_json(record[_HEAD.size :], Began)
    if began.release:
        return began
    # Release 0.1 did not list the protocols that every live node takes part in.
    return replace(began, settings=replace(began.settings, protocols=LIVE_0_1))


def encode_note(note: bytes) -> bytes:
    """Encode a note: something that the driver has to remember, and that is no input."""
    return _record(_NOTE, 0, "", note)


def decode_note(record: bytes) -> bytes | None:
    """The note, if a record is one."""
    return record[_HEAD.size :] if record[0] == _NOTE else None


def encode_record(given: Input, now: Time, raw: bytes = b"") -> bytes:
    """Encode an input and its time; `raw` is what came over the link, if something did."""
    kind = type(given)
    if kind is Received:
        return _record(_RECEIVED, now, given.link, raw)  # type: ignore[attr-defined]
    if isinstance(given, DeviceSaid):
        return _record(_DEVICE_SAID, now, given.device, bytes((given.version,)) + raw)
    if isinstance(given, Heard):
        return _record(_HEARD, now, given.sender, to_msgpack(given.message))
    if kind is TimePassed:
        return _record(_TIME_PASSED, now, "", b"")
    if isinstance(given, LinkUp):
        return _record(_LINK_UP, now, given.link, _link_up(given))
    if kind in _LINK_INPUTS:
        return _record(_LINK_INPUTS[kind], now, given.link, b"")  # type: ignore[attr-defined]
    return _record(_APPLICATION, now, "", to_msgpack(given))


def decode_record(record: bytes) -> tuple[Input, Time]:
    """The input of a record, and its time."""
    kind, now, length = _HEAD.unpack_from(record)
    body = _HEAD.size + length
    link = record[_HEAD.size : body].decode()
    match kind:
        case 1:
            frames = tuple([decode_stored(frame) for frame in split(record[body:])])
            return Received(link=link, frames=frames, size=len(record) - body), now
        case 2:
            who, has_features, names = record[body:].partition(b" ")
            peer, advertises = _LINK_UPS[who]
            features, earlier = _features(names.decode()) if has_features else (None, NOTHING_KNOWN)
            up = LinkUp(
                link=link, peer=peer, advertises=advertises, features=features, earlier=earlier
            )
            return up, now
        case 3:
            return LinkDown(link=link), now
        case 4:
            return LinkGone(link=link), now
        case 5:
            return TimePassed(), now
        case 6:
            given: Input = from_msgpack(record[body:], _Doing)
            return given, now
        case 8:
            return Heard(sender=link, message=decode_said(record[body:])), now
        case 9:
            version = Version(record[body])
            packets = Decoder(version=version, check_filter=why_no_filter).feed(record[body + 1 :])
            return DeviceSaid(device=link, version=version, packets=tuple(packets)), now
        case _:
            raise msgspec.ValidationError(f"the log has an input of an unknown kind {kind}")


def _link_up(given: LinkUp) -> bytes:
    """Who is at the other end, and the features it has, each behind a space.

    What it knew of earlier lives follows like another feature: older releases take it for one.
    """
    who, earlier = _PEER[given.peer, given.advertises], given.earlier
    more = [f"{_EARLIER}{earlier.visit},{earlier.seq}"] if earlier.visit else []
    if given.features is None and not more:
        return who
    return who + b" " + " ".join([*(given.features or ()), *more]).encode()


def _features(names: str) -> tuple[tuple[str, ...], Earlier]:
    """The features in a record, and what was known of earlier lives."""
    *features, last = ["", *names.split()]
    if not last.startswith(_EARLIER):
        return tuple(names.split()), NOTHING_KNOWN
    visit, seq = last.removeprefix(_EARLIER).split(",")
    return tuple(features[1:]), Earlier(int(visit), int(seq))


def _record(kind: int, now: Time, link: str, body: bytes) -> bytes:
    name = link.encode()
    return _HEAD.pack(kind, now, len(name)) + name + body
