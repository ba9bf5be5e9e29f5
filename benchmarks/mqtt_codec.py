"""What it costs to read and write PUBLISH packets: our codec of MQTT beside `mqtt5`.

    python -m benchmarks.mqtt_codec [--json]

Packets are read from one piece of 64 KiB, as a socket brings them. `mqtt5` is left out if it is not
installed; to have it without adding it to the project:

    pip install --target DIR mqtt5==0.8.0
    PYTHONPATH=DIR python -m benchmarks.mqtt_codec
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from time import process_time
from types import ModuleType

from rich.console import Console
from rich.table import Table

from sterna.bench.measure import Timing, Work, compare
from sterna.mqtt.decoder import Decoder
from sterna.mqtt.encoder import EncodedPublish, encode
from sterna.mqtt.packets import Publish, Version

READ_BYTES = 65536
WRITTEN = 10_000
ROUNDS = 31

_USER = (("type", "position"), ("unit", "m"))


def publishes(count: int) -> dict[str, list[Publish]]:
    """Packets as devices send them: all the same, or each with something of its own."""
    topic = "fleet/car-17/position"
    return {
        "QoS 0, 60 bytes": [Publish(topic, b"x" * 60)] * count,
        "QoS 1, 60 bytes": [Publish(topic, b"x" * 60, 1, packet_id=7)] * count,
        "QoS 1, 300 bytes": [Publish(topic, b"x" * 300, 1, packet_id=7)] * count,
        "QoS 1, each its own topic": [
            Publish(f"fleet/car-{i}/position", b"x" * 60, 1, packet_id=7) for i in range(count)
        ],
        "QoS 1, two user properties": [
            Publish(topic, b"x" * 60, 1, packet_id=7, message_expiry_s=60, user_properties=_USER)
        ]
        * count,
        "QoS 1, each its own user properties": [
            Publish(
                *(topic, b"x" * 60, 1),
                packet_id=7,
                message_expiry_s=60,
                user_properties=(("type", "position"), ("number", str(i))),
            )
            for i in range(count)
        ],
    }


def reading(packets: list[Publish], peer: ModuleType | None) -> dict[str, Work]:
    encoded = [encode(packet, Version.V5) for packet in packets]
    count = READ_BYTES // max(map(len, encoded))
    # More topics and properties than the caches hold.
    pieces = [encoded[at : at + count] for at in range(0, len(encoded) - count, count)]
    streams = [b"".join(piece) for piece in pieces]
    old = [encode(packet, Version.V311) for packet in packets]
    old_streams = [b"".join(old[at : at + count]) for at in range(0, len(old) - count, count)]

    def ours(version: Version, streams: list[bytes]) -> Callable[[], None]:
        def run() -> None:
            decoder = Decoder(version=version)
            for stream in streams:
                decoder.feed(stream)

        return run

    operations = len(streams) * count
    found: dict[str, Work] = {
        "sterna, MQTT 5.0": (ours(Version.V5, streams), operations),
        "sterna, MQTT 3.1.1": (ours(Version.V311, old_streams), operations),
    }
    if peer is not None:
        read = peer.read

        def theirs() -> None:
            for stream in streams:
                view, at, end, packets = memoryview(stream), 0, len(stream), []
                while at < end:
                    packet, length = read(view[at:])
                    packets.append(packet)
                    at += length

        found["mqtt5"] = (theirs, operations)
    return found


def writing(packets: list[Publish], peer: ModuleType | None) -> dict[str, Work]:
    packets = packets[:WRITTEN]

    def ours() -> None:
        for packet in packets:
            encode(packet, Version.V5)

    def fan_out() -> None:
        packet = packets[0]
        to = EncodedPublish(packet, Version.V5).to
        qos = packet.qos
        for packet_id in range(1, WRITTEN + 1):
            to(qos, packet_id)

    found: dict[str, Work] = {
        "sterna, each packet": (ours, WRITTEN),
        "sterna, one packet to 10,000": (fan_out, WRITTEN),
    }
    if peer is not None:
        kind, qualities = peer.PublishPacket, peer.QoS
        records = [
            kind(
                packet.topic,
                packet.payload,
                qos=qualities(packet.qos),
                packet_id=packet.packet_id or None,
                message_expiry_interval=packet.message_expiry_s,
                user_properties=list(packet.user_properties),
            )
            for packet in packets
        ]

        def theirs() -> None:
            for record in records:
                record.write()

        found["mqtt5"] = (theirs, WRITTEN)
    return found


def results() -> dict[str, dict[str, Timing]]:
    try:
        peer = import_module("mqtt5")
    except ModuleNotFoundError:
        peer = None
    found = {}
    for name, packets in publishes(20_000).items():
        found[f"read: {name}"] = compare(reading(packets, peer), ROUNDS, process_time)
        found[f"write: {name}"] = compare(writing(packets, peer), ROUNDS, process_time)
    return found


def main() -> None:
    timings = results()
    if "--json" in sys.argv:
        document = {
            name: {contender: vars(timing) for contender, timing in by.items()}
            for name, by in timings.items()
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    table = Table(
        "PUBLISH", "codec", "median µs of processor time", "best to worst", "x mqtt5", title="MQTT"
    )
    for name, by in timings.items():
        peer = by.get("mqtt5")
        for contender, timing in by.items():
            spread = f"{timing.best_us:.2f} to {timing.worst_us:.2f}"
            ratio = f"{timing / peer:.2f}" if peer else ""
            table.add_row(name, contender, f"{timing.median_us:.2f}", spread, ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
