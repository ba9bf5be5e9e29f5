"""Whatever comes in: packets or one error, soon, and without much memory."""

import random
import tracemalloc

import pytest

from sterna.mqtt.decoder import Decoder
from sterna.mqtt.encoder import encode
from sterna.mqtt.packets import Connect, MqttError, Packet, Publish, ReasonCode, Role, Version
from tests.mqtt.streams import packets, stream
from tests.scale import CAMPAIGN, soon

ENDS = [(version, role) for version in Version for role in Role]
MUTATIONS = 100_000 * CAMPAIGN


def decoder_for(version: Version, sender: Role) -> Decoder:
    return Decoder() if sender is Role.CLIENT else Decoder(Role.CLIENT, version)


def read(decoder: Decoder, data: bytes) -> tuple[list[Packet], ReasonCode | None]:
    """The packets before the first bad one, and why that is bad."""
    try:
        return decoder.feed(data), None
    except MqttError as error:
        return error.before, error.reason_code


@pytest.mark.spec("LV-4")
@pytest.mark.parametrize(("version", "sender"), ENDS)
def test_the_beginning_of_a_packet_is_no_packet(version: Version, sender: Role) -> None:
    for data in stream(version, sender):
        first = data if data[0] == 0x10 else stream(version, sender)[0]
        for length in range(len(data)):
            decoder = decoder_for(version, sender)
            if data is not first:
                decoder.feed(first)

            assert decoder.feed(data[:length]) == []
            assert len(decoder.feed(data[length:])) == 1


@pytest.mark.parametrize(("version", "sender"), ENDS)
def test_a_packet_whose_header_fits_what_is_left_of_it_is_refused_or_read(
    version: Version, sender: Role
) -> None:
    """Every truncation with the remaining length adjusted, so that the packet is complete."""
    refused = 0
    for data in stream(version, sender):
        at = 2 if data[1] < 0x80 else 3
        for length in range(at, len(data)):
            decoder = decoder_for(version, sender)
            if data[0] != 0x10 and sender is Role.CLIENT:
                decoder.feed(stream(version, sender)[0])
            size = length - at
            header = [size] if size < 0x80 else [size & 0x7F | 0x80, size >> 7]

            found, reason = read(decoder, bytes([data[0], *header]) + data[at:length])

            assert (len(found), reason is None) in {(1, True), (0, False)}
            refused += reason is not None
    assert refused > 50


@pytest.mark.parametrize(("version", "sender"), ENDS)
def test_mutations_give_packets_or_one_error(version: Version, sender: Role) -> None:
    """What is read can be sent on, and reads the same again."""
    draw = random.Random(f"{version} {sender}")  # noqa: S311 - a seed for each end.
    originals = stream(version, sender)
    known = dict(zip(originals, packets(version, sender), strict=True))
    count = MUTATIONS // len(ENDS)
    outcomes = {"read": 0, "refused": 0, "incomplete": 0}
    with soon(60 * CAMPAIGN):
        for _ in range(count):
            original = draw.choice(originals)
            data = mutated(original, draw)
            decoder = decoder_for(version, sender)
            if original[0] != 0x10 and sender is Role.CLIENT:
                decoder = Decoder(version=version)  # As if CONNECT had come.
            found, reason = read(decoder, data)
            if reason is not None:
                outcomes["refused"] += 1
                assert reason.is_failure
            elif not found:
                outcomes["incomplete"] += 1
            for packet in found:
                if packet != known[original]:
                    outcomes["read"] += 1
                    assert_reads_again(packet, decoder.version or version, sender)
    assert min(outcomes.values()) > count // 50, outcomes


def mutated(data: bytes, draw: random.Random) -> bytes:
    """A packet with one to three bytes changed, added, removed or moved."""
    found = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(found) + 1)
        match draw.randrange(6):
            case 0:
                found.insert(at, draw.randrange(256))
            case 1:
                del found[at : at + draw.randint(1, 3)]
            case 2:
                found[at:at] = found[: draw.randint(0, 8)]
            case 3 if at < len(found):
                found[at] = draw.choice((0, 1, 2, 0x26, 0x7F, 0x80, 0xFF))
            case _ if at < len(found):
                found[at] ^= 1 << draw.randrange(8)
    return bytes(found)


def assert_reads_again(packet: Packet, version: Version, sender: Role) -> None:
    decoder = decoder_for(version, sender)
    if sender is Role.CLIENT and not isinstance(packet, Connect):
        decoder = Decoder(version=version)

    assert decoder.feed(encode(packet, version)) == [packet]


@pytest.mark.parametrize(("version", "sender"), ENDS)
def test_damaged_packets_byte_by_byte_end_like_the_whole(version: Version, sender: Role) -> None:
    draw = random.Random(f"pieces {version} {sender}")  # noqa: S311
    first, *others = stream(version, sender)
    refused = 0
    for _ in range(500 * CAMPAIGN):
        data = first + draw.choice(others) + mutated(draw.choice(others), draw)
        data += draw.choice(others)
        whole, reason = read(decoder_for(version, sender), data)
        decoder, why = decoder_for(version, sender), None
        found: list[Packet] = []
        for at in range(len(data)):
            more, why = read(decoder, data[at : at + 1])
            found += more
            if why is not None:
                break

        assert (found, why) == (whole, reason), data.hex()
        refused += reason is not None
    assert 50 * CAMPAIGN < refused < 500 * CAMPAIGN


@pytest.mark.parametrize(("version", "sender"), ENDS)
def test_noise_gives_packets_or_one_error(version: Version, sender: Role) -> None:
    draw = random.Random(24)  # noqa: S311
    outcomes = set()
    for _ in range(5000):
        decoder = decoder_for(version, sender)
        found, reason = read(decoder, draw.randbytes(draw.randint(1, 60)))
        outcomes.add(reason)
        assert all(isinstance(packet, Packet) for packet in found)
    assert {ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR} <= outcomes


def test_an_announced_length_takes_no_memory() -> None:
    decoders = [Decoder(Role.CLIENT, Version.V5) for _ in range(100)]
    tracemalloc.start()
    try:
        for decoder in decoders:
            assert decoder.feed(b"\x30\xff\xff\xff\x7f\0\1t") == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 100 * 500


def test_an_idle_decoder_is_small() -> None:
    data = stream(Version.V5, Role.CLIENT)[0] + encode(Publish("t"), Version.V5)
    Decoder().feed(data)
    tracemalloc.start()
    try:
        decoders = [Decoder() for _ in range(100)]
        for decoder in decoders:
            assert len(decoder.feed(data)) == 2
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 100 * 500


def test_before_connect_only_the_beginning_of_a_connect_is_kept() -> None:
    """Who has not introduced itself cannot make a server wait for a long packet of another kind."""
    for first in range(256):
        decoder = Decoder()
        if first == 0x10:
            assert decoder.feed(b"\x10\xff\xff\x03") == []
        else:
            with pytest.raises(MqttError):
                decoder.feed(bytes((first,)) + b"\xff\xff\x03")


def test_many_tiny_properties_take_linear_time() -> None:
    pairs = b"\x26\0\0\0\0" * 200_000
    size = len(pairs)
    length = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    body = b"\0\1t" + length + pairs
    size = len(body)
    header = bytes([0x30, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    with soon(5):
        (packet,) = Decoder(Role.CLIENT, Version.V5).feed(header + body)

    assert isinstance(packet, Publish)
    assert len(packet.user_properties) == 200_000
