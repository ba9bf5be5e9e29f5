"""The brokers that `sterna bench broker` compares, each with its settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from pathlib import Path

from sterna.bench.load import LoadError
from sterna.bench.servers import MosquittoServer, RelayServer, Server, SternaServer
from sterna.bench.worker import QOS, Protocol
from sterna.net.config import Durability


class Program(StrEnum):
    """What runs."""

    STERNA = auto()
    OTHER = auto()
    """Another version of Sterna, run by another Python."""
    MOSQUITTO = auto()
    RELAY = auto()


@dataclass(frozen=True)
class Contender:
    """A broker with its settings, and what its clients speak."""

    program: Program
    protocol: Protocol = Protocol.NATIVE
    is_durable: bool = False

    def __str__(self) -> str:
        words = ["other sterna" if self.program is Program.OTHER else str(self.program)]
        if self.is_durable:
            words.append("durable")
        if self.protocol is not Protocol.NATIVE:
            words.append(f"QoS {QOS[self.protocol]}")
        return " ".join(words)

    @property
    def is_acknowledged(self) -> bool:
        """Whether the broker acknowledges events."""
        return self.protocol is not Protocol.MQTT_0

    @property
    def keeps(self) -> bool:
        """Whether the broker keeps events for a client that is away."""
        return self.is_acknowledged and self.program is not Program.RELAY

    def start(
        self, directory: Path, *, other: Path | None = None, mosquitto: str | None = None
    ) -> Server:
        """Start the broker, with its data in a directory."""
        match self.program:
            case Program.STERNA | Program.OTHER:
                return SternaServer(
                    directory,
                    Durability.BATCH if self.is_durable else Durability.NONE,
                    is_mqtt=self.protocol is not Protocol.NATIVE,
                    python=other if self.program is Program.OTHER else None,
                )
            case Program.MOSQUITTO:
                if mosquitto is None:
                    raise LoadError("mosquitto is not installed")
                return MosquittoServer(mosquitto, directory, persistent=self.keeps)
            case Program.RELAY:
                return RelayServer(directory)


RELAY = Contender(Program.RELAY)
"""The least that a broker can do: it shows the limit of the load generator."""

NATIVE = (Contender(Program.STERNA), Contender(Program.STERNA, is_durable=True))

DEVICES = (
    Contender(Program.STERNA, Protocol.MQTT_0),
    Contender(Program.STERNA, Protocol.MQTT_1),
    Contender(Program.STERNA, Protocol.MQTT_1, is_durable=True),
    Contender(Program.STERNA, Protocol.MQTT_2),
    Contender(Program.STERNA, Protocol.MQTT_2, is_durable=True),
)
"""Sterna with clients that speak MQTT."""


def contenders(*, devices: bool, other: bool, mosquitto: bool) -> list[Contender]:
    """All that can be compared: clients are devices or native, with another version or without."""
    ours = list(DEVICES if devices else NATIVE)
    if other:
        ours += [Contender(Program.OTHER, each.protocol, each.is_durable) for each in ours]
    if mosquitto:
        ours += [Contender(Program.MOSQUITTO, each) for each in QOS if devices or each in _BESIDE]
    return ours


_BESIDE = (Protocol.MQTT_0, Protocol.MQTT_1)
"""What native clients are compared with."""


def versions(among: Sequence[Contender]) -> list[tuple[Contender, Contender]]:
    """Each of this version, with the other version of it."""
    return [
        (each, other)
        for each in among
        if each.program is Program.STERNA
        and (other := Contender(Program.OTHER, each.protocol, each.is_durable)) in among
    ]


def compared(among: Sequence[Contender]) -> list[tuple[Contender, Contender]]:
    """Which are compared with which: with mosquitto, durable with not durable, and versions."""
    ours = [each for each in among if each.program is Program.STERNA]
    pairs = [(each, Contender(Program.MOSQUITTO, _peer(each))) for each in ours]
    pairs += [(each, Contender(Program.STERNA, each.protocol)) for each in ours if each.is_durable]
    return [pair for pair in pairs if pair[1] in among] + versions(among)


def _peer(ours: Contender) -> Protocol:
    """What the clients of mosquitto speak that is compared with this one."""
    if ours.protocol is not Protocol.NATIVE:
        return ours.protocol
    return Protocol.MQTT_1 if ours.is_durable else Protocol.MQTT_0
