"""Datagrams between brokers in reach: what is sent arrives, and all else is told from it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.messages import Message, SubscriptionChange
from sterna.core.overlay.election import Beat, Reign
from sterna.core.protocol import message_types
from sterna.model.ranges import INT_MAX
from sterna.wire.codec import MalformedError, to_msgpack
from sterna.wire.datagrams import (
    DATAGRAM_BYTES_MAX,
    MAGIC,
    VERSION,
    Datagram,
    decode_datagram,
    encode_datagram,
)
from tests.scale import examples
from tests.wire.messages import messages_of

pytestmark = pytest.mark.spec("MB-1", "LV-6")

BEAT = Beat(reign=Reign(5, "B1"), round=7, path=("B1", "B2"))


@pytest.mark.parametrize(
    "kind", [k for k in message_types() if k.is_datagram], ids=lambda kind: kind.__name__
)
def test_what_is_sent_arrives(kind: type[Message]) -> None:
    @examples(50)
    @given(messages_of(kind), st.text(min_size=1, max_size=20), st.text(max_size=16))
    def holds(message: Message, node: str, run: str) -> None:
        datagram, arrived = decode_datagram(encode_datagram(node, run, "127.0.0.1:1", message))
        assert (datagram.node, datagram.run, datagram.address) == (node, run, "127.0.0.1:1")
        assert arrived == message

    holds()


@examples(500)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_refused_and_nothing_else_happens(data: bytes, begins_well: bool) -> None:
    with pytest.raises(MalformedError):
        decode_datagram((MAGIC + bytes([VERSION])) * begins_well + data)


@examples(300)
@given(st.data())
def test_a_datagram_with_a_wrong_byte_is_one_or_is_none(data: st.DataObject) -> None:
    """No other exception."""
    sent = bytearray(encode_datagram("B2", "run", "", BEAT))
    sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    try:
        _, message = decode_datagram(bytes(sent))
    except MalformedError:
        return
    assert isinstance(message, Beat)


def datagram(message: bytes, **changes: str) -> bytes:
    fields = {"node": "B2", "run": "run", "address": "", **changes}
    body = msgspec.msgpack.encode(Datagram(message=msgspec.Raw(message), **fields))
    return MAGIC + bytes([VERSION]) + body


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(MAGIC, id="no version"),
        pytest.param(MAGIC + bytes([VERSION + 1]), id="another version"),
        pytest.param(datagram(b"\x80"), id="no type"),
        pytest.param(datagram(to_msgpack({"type": "Later"})), id="a later message"),
        pytest.param(datagram(to_msgpack(SubscriptionChange())), id="a message for links"),
        pytest.param(datagram(to_msgpack(BEAT), node=""), id="no name"),
        pytest.param(datagram(to_msgpack(BEAT), node="B" * 300), id="a long name"),
        pytest.param(
            datagram(to_msgpack(Beat(reign=Reign(5, "B1"), round=INT_MAX + 1, path=("B1",)))),
            id="a number out of range",
        ),
        pytest.param(
            datagram(to_msgpack(Beat(reign=Reign(5, "B1"), round=1, path=("B1" * 9_999,)))),
            id="too long",
        ),
    ],
)
def test_what_is_no_datagram_of_ours_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_datagram(data)


def test_a_datagram_that_is_too_long_is_not_sent() -> None:
    beat = Beat(reign=Reign(5, "B1"), round=1, path=("B" * DATAGRAM_BYTES_MAX,))
    with pytest.raises(ValueError, match="8,192 are the limit: give brokers shorter names"):
        encode_datagram("B1", "run", "", beat)
