"""The integers of messages: what decodes can be encoded, and what is out of range is refused."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.actions import Transmit
from sterna.core.assembly import make_broker
from sterna.core.catalogue import LIVE
from sterna.core.history.messages import Past
from sterna.core.inputs import LinkDown, LinkUp, Received
from sterna.core.link import Ack, Data, Frame, Resume
from sterna.core.location.messages import MovingChange, MovingRoute, Probe
from sterna.core.location.moving import Moving
from sterna.core.location.options import PlacesOptions
from sterna.core.messages import Events, Message, OtherMessage, Route, SubscriptionChange
from sterna.core.names import Peer
from sterna.core.protocol import message_types
from sterna.core.settings import Settings
from sterna.model.event import CheckedEvent, Event
from sterna.model.filters import Filter, merge
from sterna.model.filters.parser import LENGTH_MAX
from sterna.model.ranges import DURATION_MAX_US, INT_MAX, Range
from sterna.net.nodes import AT_A_BROKER
from sterna.wire.codec import (
    Bodies,
    MalformedError,
    decode,
    decode_stored,
    encode,
)
from sterna.wire.snapshots import encode_node, restore_node
from tests.scale import examples
from tests.wire.messages import ANY_NUMBERS, in_range_or_not, messages_of, raw

PLACES = Settings(places=PlacesOptions(edges=(("a", "b"),)), protocols=LIVE)
ZERO = Event(publisher="p", seq=1, time_us=0)


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("kind", message_types(), ids=lambda kind: kind.__name__)
def test_what_decodes_can_be_encoded_again(kind: type[Message]) -> None:
    """And read by the next node: no message that a node takes is one that it cannot pass on."""

    @examples(60)
    @given(messages_of(kind, in_range_or_not), ANY_NUMBERS, ANY_NUMBERS)
    def holds(message: Message, seq: int, acknowledged: int) -> None:
        with suppress(MalformedError):
            found = decode(raw(Data(seq, acknowledged, message)))
            again = b"".join(encode(found, Bodies()))
            assert repr(decode(again)) == repr(found)

    holds()


@pytest.mark.spec("LV-6")
def test_every_integer_of_our_own_messages_has_a_range() -> None:
    def hints(kind: Any) -> Iterator[Any]:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if not issubclass(kind, Event):  # Its decoder checks it.
                for field in msgspec.structs.fields(kind):
                    yield from hints(field.type)
        elif get_origin(kind) is Annotated:
            yield kind
        elif get_args(kind):
            for each in get_args(kind):
                yield from hints(each)
        else:
            yield kind

    own = [kind for kind in message_types() if kind.__module__.startswith("sterna.")]
    assert len(own) > 20  # Other tests may have brought messages of their own.
    for kind in own:
        found = [each for each in hints(kind) if each is int]
        assert not found, f"{kind.__name__} has an integer without a range"


ROUTE = MovingRoute(id="1", filter=Filter("TRUE"), at="a", dwell_us=None, delay_us=None)


def moving(**numbers: int) -> MovingChange:
    return MovingChange(added=(msgspec.structs.replace(ROUTE, **numbers),))


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize(
    "frame",
    [
        Ack(-1),
        Ack(INT_MAX + 1),
        Data(-1, 0, Probe(number=1)),
        Data(INT_MAX + 1, 0, Probe(number=1)),
        Data(1, INT_MAX + 1, Probe(number=1)),
        Data(1, 0, Probe(number=-1)),
        Data(1, 0, Probe(number=INT_MAX + 1)),
        Data(1, 0, moving(delay_us=2**64 - 1)),
        Data(1, 0, moving(delay_us=DURATION_MAX_US + 1)),
        Data(1, 0, moving(dwell_us=-1)),
        Data(1, 0, moving(places=-1)),
        Resume(-1, None, 0, True),
        Resume(1, -1, 0, True),
        Resume(1, None, INT_MAX + 1, True),
        Data(1, 0, Events(events=(msgspec.structs.replace(ZERO, time_us=INT_MAX + 1),))),
        Data(INT_MAX + 1, 0, OtherMessage(kind="OtherMessage")),
    ],
    ids=repr,
)
@pytest.mark.parametrize("short_filters", [False, True])
def test_a_number_out_of_range_makes_the_frame_malformed(
    frame: Frame, *, short_filters: bool
) -> None:
    """But where an earlier release has stored it, it is read, for the node has taken it then."""
    body = raw(frame)
    with pytest.raises(MalformedError):
        decode(body, short_filters=short_filters)
    stored = decode_stored(body)
    if isinstance(stored, Data) and isinstance(stored.message, Events):
        assert stored.message.events[0].time_us == INT_MAX, "others can read what it passes on"
    else:
        assert repr(stored) == repr(frame)


@pytest.mark.spec("LV-6")
def test_numbers_at_the_ends_of_their_ranges_are_taken() -> None:
    for message in (
        moving(delay_us=DURATION_MAX_US, dwell_us=DURATION_MAX_US, places=2**64 - 1),
        moving(delay_us=0, dwell_us=0, places=0),
        Probe(number=INT_MAX),
        Events(events=(CheckedEvent(publisher="p", seq=INT_MAX, time_us=-(2**63)),)),
    ):
        frame = Data(INT_MAX, INT_MAX, message)
        assert decode(b"".join(encode(frame, Bodies()))) == frame


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize(
    "message",
    [
        moving(delay_us=2**64),
        moving(delay_us=DURATION_MAX_US + 1),
        Probe(number=-1),
        SubscriptionChange(
            added=(
                Route(
                    "1",
                    merge(Filter("a = '" + "x" * (LENGTH_MAX // 2) + f"{n}'") for n in range(3)),
                ),
            )
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_no_receiver_could_read_is_not_encoded(message: Message) -> None:
    with pytest.raises((ValueError, OverflowError)):
        encode(Data(1, 0, message), Bodies())


@examples(100)
@given(st.integers(-(2**63), 2**64 - 1))
def test_a_range_is_checked_as_it_is_declared(number: int) -> None:
    body = raw(Data(1, 0, moving(delay_us=number)))
    if number in range(*Range(0, DURATION_MAX_US + 1)):
        decode(body)
    else:
        with pytest.raises(MalformedError, match="delay_us"):
            decode(body)


@pytest.mark.spec("LV-6", "LV-9")
def test_what_an_older_release_has_kept_is_read_and_does_no_harm() -> None:
    """A snapshot with numbers that nobody accepts now; what is made of them can be sent."""
    broker = make_broker("B1", PLACES, timing=AT_A_BROKER, incarnation=1)
    for link, peer in (("B2", Peer.BROKER), ("c1", Peer.CLIENT)):
        broker.handle(LinkUp(link=link, peer=peer), 1)
        broker.handle(Received(link=link, frames=(Resume(7, None, 0, True),)), 2)
    kept = broker.part("moving")
    assert isinstance(kept, Moving)
    kept.table["c1"] = {"1": msgspec.structs.replace(ROUTE, delay_us=2**64 - 1, dwell_us=2**63)}
    late = msgspec.structs.replace(ZERO, time_us=2**64 - 1)
    broker.send("B2", Events(events=(late,)), 3)
    broker.send("B2", Past(subscription="1", number=2**64 - 1, events=(late,)), 3)
    broker.handle(LinkDown(link="B2"), 4)

    again = restore_node(encode_node(broker), make_broker("B1", PLACES, timing=AT_A_BROKER))

    again.handle(LinkUp(link="B2", peer=Peer.BROKER), 5)
    resumed = Received(link="B2", frames=(Resume(7, 2**32, 0, True),))
    frames = [each.frame for each in again.handle(resumed, 6).actions if isinstance(each, Transmit)]
    data = [each for each in frames if isinstance(each, Data)]
    events, past = (each for each in data if isinstance(each.message, Events | Past))
    assert decode(b"".join(encode(events, Bodies()))) == events, "with the last time there is"
    with pytest.raises(ValueError, match="number"):  # Its driver sends an empty message instead.
        encode(past, Bodies())
    assert encode_node(again)
