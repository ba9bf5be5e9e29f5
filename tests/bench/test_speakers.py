"""The load generator's clients count exactly what arrives, however the bytes are cut."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sterna.bench.mqtt import MqttSpeaker, Qos
from sterna.bench.native import NativeSpeaker
from sterna.bench.speaker import PAYLOAD_BYTES, Content, Speaker
from sterna.core.handover.messages import Replayed
from sterna.core.link import Data
from sterna.core.messages import Events
from sterna.model.event import Event
from sterna.wire.codec import Bodies, decode, encode
from sterna.wire.frames import frame, split
from tests.scale import examples

CONTENT: Content = ("s1", 2.5)


def events(first: int, count: int) -> tuple[Event, ...]:
    return tuple(
        Event(publisher="p", seq=number, time_us=1, attributes={"price": 1.5})
        for number in range(first, first + count)
    )


def feed(speaker: Speaker, data: bytes, cuts: Sequence[int]) -> None:
    """Give it bytes in pieces that end at some places."""
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)})
    for start, end in zip([0, *ends], ends, strict=False):
        speaker.feed(data[start:end])


@examples(60)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=6),
    st.sampled_from([0, 100, 300, 70_000]),
    st.lists(st.integers(0, 10**6), max_size=8),
)
def test_events_are_counted_without_decoding_them(
    messages: list[tuple[bool, int]], before: int, cuts: list[int]
) -> None:
    """In Events and in Replayed, whatever the numbers of the frames."""
    speaker = NativeSpeaker("s", ())
    speaker._expected = before
    speaker.numbers = []
    data, sent = b"", 0
    for number, (is_replayed, count) in enumerate(messages, before + 1):
        chunk = events(sent + 1, count)
        message = Replayed(events=chunk) if is_replayed else Events(events=chunk)
        data += frame(b"".join(encode(Data(number, 0, message), Bodies())))
        sent += count

    feed(speaker, data, cuts)

    assert speaker.received == sent
    assert speaker.numbers == list(range(1, sent + 1))
    assert speaker.unconfirmed == len(messages)


def test_events_that_come_again_do_not_count() -> None:
    """On a new connection, a broker repeats what was not confirmed."""
    speaker = NativeSpeaker("s", ())
    data = frame(b"".join(encode(Data(1, 0, Events(events=events(1, 20))), Bodies())))

    speaker.feed(data)
    speaker.feed(data)

    assert speaker.received == 20


@examples(30)
@given(st.integers(1, 70), st.integers(1, 30))
def test_what_is_published_is_what_a_broker_reads(count: int, batch: int) -> None:
    speaker = NativeSpeaker("p", ())
    chunks = speaker.encode([CONTENT] * count, batch)

    read: list[Event] = []
    for chunk in chunks:
        for body in split(chunk.data):
            data = decode(body)
            assert isinstance(data, Data)
            assert isinstance(data.message, Events)
            assert len(data.message.events) <= batch
            read += data.message.events
    assert [event.seq for event in read] == list(range(1, count + 1))
    assert read[0].attributes == {"sym": "s1", "price": 2.5}
    assert len(read[0].payload) == PAYLOAD_BYTES
    assert sum(chunk.events for chunk in chunks) == count


@examples(40)
@given(st.sampled_from(Qos), st.integers(0, 30), st.lists(st.integers(0, 10**6), max_size=8))
def test_mqtt_packets_are_counted_and_acknowledged(qos: Qos, count: int, cuts: list[int]) -> None:
    """What one client writes is what another gets, under the same packet identifiers."""
    publisher, subscriber = MqttSpeaker("p", (), qos), MqttSpeaker("s", ("all",), qos)
    subscriber.numbers = []
    data = b"".join(chunk.data for chunk in publisher.encode([CONTENT] * count, 1))

    feed(subscriber, data, cuts)
    subscriber.confirm()
    while said := subscriber.take():  # With QoS 2, each has something to say twice.
        publisher.feed(said)
        subscriber.feed(publisher.take())

    assert subscriber.received == count
    assert subscriber.numbers == list(range(1, count + 1))
    assert publisher.acknowledged == (count if qos else 0)
