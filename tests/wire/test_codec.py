"""Frames and bytes: what is sent is what arrives, and nonsense is told from it."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import protocol as protocols
from sterna.core.component import BrokerComponent
from sterna.core.handover.messages import Arrival
from sterna.core.link import Data, Frame
from sterna.core.messages import Message, OtherMessage, Route
from sterna.core.protocol import Protocol, message_types, register
from sterna.model.filters import Filter
from sterna.wire import codec
from sterna.wire.codec import Bodies, MalformedError, decode, encode, from_json, size
from sterna.wire.frames import (
    Ask,
    Hello,
    Ping,
    Role,
    Splitter,
    agree,
    control,
    decode_control,
    frame,
    is_control,
    split,
)
from tests.scale import examples
from tests.wire.messages import frames, messages_of


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("kind", message_types(), ids=lambda kind: kind.__name__)
def test_every_message_arrives_as_it_was_sent(kind: type[Message]) -> None:
    @examples(30)
    @given(frames(messages_of(kind)))
    def holds(sent: Frame) -> None:
        body = b"".join(encode(sent, Bodies()))
        assert not is_control(memoryview(body))
        # A number that is not one is not equal to itself; written out, it is.
        assert repr(decode(body)) == repr(sent)
        assert size(sent) == len(frame(body))

    holds()


@pytest.mark.spec("LV-6")
@examples(1000)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    """A frame, or an error that says so: no other exception."""
    for read in (decode, decode_control):
        try:
            read(memoryview(data))
        except MalformedError:
            continue


@pytest.mark.spec("LV-6")
@examples(500)
@given(st.data())
def test_damaged_frames_are_refused_and_nothing_else_happens(data: st.DataObject) -> None:
    """One that was right, with some bytes changed, cut off or added."""
    kind = data.draw(st.sampled_from(message_types()))
    body = bytearray(b"".join(encode(data.draw(frames(messages_of(kind))), Bodies())))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not body:
            return
    with suppress(MalformedError):
        decode(bytes(body))


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize(
    "body",
    [
        b"\x91" * 100_000,  # An array in an array in an array …
        b"\x81\xa1a" * 100_000,
        b"\x94\x00\x01\x00" + b"\x81\xa4type" * 50_000,
        b"\xdd\xff\xff\xff\xff",  # An array with four billion elements, or so it says.
        b"\xdb\xff\xff\xff\xff",
        b"\x94\x00\x01\x00\xa3\xff\xfe\xfd",  # Not UTF-8.
        b"",
    ],
)
def test_deep_and_lying_frames_are_refused(body: bytes) -> None:
    for read in (decode, decode_control):
        with pytest.raises(MalformedError):
            read(memoryview(body))


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("filter_", [7, None, ["zone"], "zone = ", "(" * 300_000, "zone = 1" * 9])
def test_a_filter_that_is_none_makes_the_frame_malformed(filter_: object) -> None:
    message = {"type": "SubscriptionChange", "added": [["1", filter_]], "removed": []}
    body = msgspec.msgpack.encode((0, 1, 0, message))
    with pytest.raises(MalformedError):
        decode(body)


def test_a_filter_in_use_is_parsed_once() -> None:
    text = "zone = 'park' AND price < 3 AND seats > 1234"

    def read() -> Filter:
        filter_: Filter = from_json(msgspec.json.encode(text), Filter)
        return filter_

    first = read()
    assert read() is first
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None, "it is kept for nobody"


@pytest.mark.spec("LV-10")
@pytest.mark.parametrize("short_filters", [False, True])
def test_a_message_of_another_protocol_is_told_from_a_malformed_one(*, short_filters: bool) -> None:
    message = {"type": "Overtaken", "by": ["car", 7]}
    body = msgspec.msgpack.encode((0, 5, 3, message))
    assert decode(body, short_filters=short_filters) == Data(5, 3, OtherMessage(kind="Overtaken"))
    for malformed in (
        (0, 5, 3, {"type": "Events", "events": 7}),
        (0, 5, 3, {"by": ["car", 7]}),
        (0, "5", 3, message),
        (3, 5, 3, message),
    ):
        with pytest.raises(MalformedError):
            decode(msgspec.msgpack.encode(malformed), short_filters=short_filters)


# ---- Protocols that become known while frames are decoded


class Overtaken(Message, frozen=True, kw_only=True):
    """A message of a protocol that becomes known late."""

    by: str


class Overtaking(BrokerComponent):
    """A component of that protocol."""

    name = "overtaking"
    handles = (Overtaken,)

    def on_overtaken(self, message: Overtaken, link: str, now: int) -> None:
        """Do nothing."""


OVERTAKING = Protocol(name="overtaking", broker=Overtaking)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[Protocol]:
    """A protocol to register, known to no other test."""
    with monkeypatch.context() as patched:
        patched.setattr(protocols, "_protocols", dict(protocols._protocols))
        yield OVERTAKING
    codec._renew_formats()


class InTheMidst(dict[str, Filter]):
    """Takes the place of the filters in use: registers a protocol when one of them is decoded."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol

    def get(self, text: str, default: Any = None) -> Any:
        register(self._protocol)
        return super().get(text, default)


@pytest.mark.spec("LV-10")
@pytest.mark.parametrize("short_filters", [False, True])
def test_a_frame_is_decoded_though_a_protocol_becomes_known_meanwhile(
    late: Protocol, monkeypatch: pytest.MonkeyPatch, *, short_filters: bool
) -> None:
    """`sterna reload` registers protocols in a thread, and the broker goes on with its clients."""
    route = Route("1", Filter("price < 3"))
    sent = Data(1, 0, Arrival(visit=1, born=1, stay=1, received=0, subscriptions=(route,)))
    body = b"".join(encode(sent, Bodies()))
    monkeypatch.setattr(codec, "_filters", InTheMidst(late))

    found = decode(body, short_filters=short_filters)

    assert late in protocols.registered()
    assert found == sent
    assert isinstance(found, Data)
    assert type(found.message) is Arrival


@pytest.mark.spec("LV-10")
def test_an_unknown_message_is_not_malformed_though_it_becomes_known_meanwhile(
    late: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = msgspec.msgpack.encode((0, 5, 3, {"type": "Overtaken", "by": "car"}))
    other = codec._other_decoder

    class Late:
        def decode(self, body: bytes) -> object:
            register(late)
            return other.decode(body)

    monkeypatch.setattr(codec, "_other_decoder", Late())

    assert decode(body) == Data(5, 3, OtherMessage(kind="Overtaken"))
    assert decode(body) == Data(5, 3, Overtaken(by="car"))


def test_those_who_go_through_protocols_see_none_that_is_registered_meanwhile(
    late: Protocol,
) -> None:
    """Else a dictionary would change under them."""
    through = protocols._parts()
    first = next(through)
    register(late)
    assert Overtaking not in (first, *through)


# ---- Frames on a connection


@pytest.mark.spec("LV-1")
@examples(300)
@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_frames_are_the_same_however_they_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    """TCP may deliver them in any pieces; what came as it came is the whole of it."""
    sent = b"".join(map(frame, bodies))
    splitter = Splitter(1_000)
    found: list[bytes] = []
    raws = b""
    place = 0
    while place < len(sent):
        length = data.draw(st.sampled_from((1, 2, 5, 50, 1_000)))
        raw, some = splitter.feed(sent[place : place + length])
        assert [bytes(body) for body in some] == [bytes(body) for body in split(raw)]
        found += map(bytes, some)
        raws += raw
        place += length
    assert found == bodies
    assert raws == sent
    assert splitter.rest == 0


@pytest.mark.spec("LV-6")
def test_a_frame_sent_byte_by_byte_takes_no_more_than_its_bytes() -> None:
    splitter = Splitter(100_000)
    sent = frame(bytes(100_000))
    most = 0
    for place in range(len(sent) - 1):
        splitter.feed(sent[place : place + 1])
        most = max(most, len(splitter._parts))
    assert most <= 256
    assert [bytes(body) for body in splitter.feed(sent[-1:])[1]] == [bytes(100_000)]


@pytest.mark.spec("LV-6")
def test_a_frame_that_is_too_long_is_refused_before_it_comes() -> None:
    with pytest.raises(MalformedError, match="too long"):
        Splitter(100).feed((101).to_bytes(4, "big"))


@pytest.mark.spec("LV-1")
def test_control_frames_are_told_from_link_frames() -> None:
    hello = Hello(versions=(1, 1), role=Role.CLIENT, node="c")
    for said in (hello, Ping(), Ask(what="status")):
        (body,) = split(control(said))
        assert is_control(body)
        assert decode_control(body) == said


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize(
    ("ours", "theirs", "version"),
    [((1, 3), (2, 5), 3), ((2, 2), (1, 4), 2), ((1, 1), (2, 3), None)],
)
def test_the_highest_version_that_both_speak_is_used(
    ours: tuple[int, int], theirs: tuple[int, int], version: int | None
) -> None:
    sides = [
        Hello(versions=versions, role=Role.CLIENT, node="c", features=features)
        for versions, features in ((ours, ("a", "b")), (theirs, ("b", "c")))
    ]
    if version is None:
        with pytest.raises(MalformedError, match="upgrade the older one"):
            agree(*sides)
    else:
        assert agree(*sides) == (version, ("b",))
