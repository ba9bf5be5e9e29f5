"""How long a client that moves to another broker waits for what it missed."""

from collections.abc import Sequence
from time import perf_counter

from sterna.bench.latency import Line
from sterna.bench.load import LoadError
from sterna.bench.native import NativeSpeaker

SYMBOL = "roaming"


def roam(ports: Sequence[int], handovers: int) -> list[float]:
    """Go from broker to broker in turn; each time, an event is published while the client is away.

    For each handover, the milliseconds from when the client begins to connect until it has the
    event.
    """
    publisher = Line(NativeSpeaker("roaming-publisher", ()), ports[0])
    publisher.until_ready()
    client = NativeSpeaker("roaming-client", (f"sym = '{SYMBOL}'",))
    client.numbers = []
    line = Line(client, ports[0])
    line.until_ready()
    line.confirm()
    gaps_ms = []
    for number in range(1, handovers + 1):
        line.close()
        publisher.write(publisher.speaker.encode([(SYMBOL, 1.0)], 1)[0].data)
        while publisher.speaker.acknowledged < number:
            publisher.read()
        client.move()
        began = perf_counter()
        line = Line(client, ports[number % len(ports)])
        came = 0.0
        while client.received < number:
            came = line.read()
        gaps_ms.append((came - began) * 1e3)
        line.confirm()
        if client.numbers != list(range(1, number + 1)):
            raise LoadError(
                f"after {number} handovers the last events are {client.numbers[-3:]}: "
                "the brokers have lost or repeated one"
            )
    line.close()
    publisher.close()
    return gaps_ms
