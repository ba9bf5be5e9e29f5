"""A toy protocol: a broker states where it expects a client to go next, whenever one attaches."""

from typing import ClassVar

from sterna.core.component import BrokerComponent
from sterna.core.facts import Fact
from sterna.core.keeping import Reader, Writer
from sterna.core.names import LinkId, NodeId, Peer, Time
from sterna.core.protocol import Protocol, register
from sterna.core.settings import Settings

PLACE = "hall"
"""Where all clients are."""


class Foreseen(Fact, frozen=True, kw_only=True):
    """A broker expects a client at some places, the most probable one first."""

    client: NodeId
    places: tuple[str, ...]


class Foreseeing(BrokerComponent):
    """Asks the broker's predictor, and keeps what it has answered."""

    name = "foreseeing"
    facts = (Foreseen,)
    Kept: ClassVar[object] = list[tuple[LinkId, list[str]]]

    def __init__(self) -> None:
        self.answers: list[tuple[LinkId, list[str]]] = []

    def configure(self, settings: Settings, now: Time) -> None:
        del settings
        self._ask("configured", now)

    def keep(self, writer: Writer) -> list[tuple[LinkId, list[str]]]:
        del writer
        return self.answers

    def restore(self, kept: list[tuple[LinkId, list[str]]], reader: Reader) -> None:
        del reader
        self.answers = kept

    def link_up(self, link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is Peer.CLIENT:
            self._ask(link, now)

    def _ask(self, link: LinkId, now: Time) -> None:
        found = self.broker.predictor.next(PLACE, at=now, client=link)
        places = tuple(place for place, _ in found)
        self.answers.append((link, list(places)))
        self.broker.state(Foreseen(at=self.broker.id, time=now, client=link, places=places))


FORESEEING = register(Protocol(name="foreseeing", broker=Foreseeing))
