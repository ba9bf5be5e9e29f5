"""Components that the settings have removed, and that are not done: a snapshot brings them back."""

from typing import Any

import msgspec
import pytest

from sterna.core import protocol as protocols
from sterna.core.assembly import make_broker, make_client
from sterna.core.component import BrokerComponent
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.handover.relocation import Relocation
from sterna.core.inputs import Configured, MoveTo, Subscribe
from sterna.core.keeping import Part, Writer
from sterna.core.location.moving import Moving
from sterna.core.location.options import PlacesOptions
from sterna.core.names import Time
from sterna.core.node import NODE, Node
from sterna.core.protocol import Protocol, register
from sterna.core.settings import Settings
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.wire.codec import to_msgpack
from sterna.wire.snapshots import (
    UnreadableSnapshotError,
    encode_node,
    encode_parts,
    restore_node,
)

PLACES = PlacesOptions(edges=(("a", "b"), ("b", "c")), dwell_us=10_000_000)
HANDOVER = HandoverOptions(protocol=Handover.RELOCATION, away_max_us=5_000_000)


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered here is not known to other tests."""
    monkeypatch.setattr(protocols, "_protocols", dict(protocols._protocols))


class Queue(BrokerComponent):
    """Never done; its name is not that of its protocol."""

    name = "queue"
    Kept = dict[str, int]

    def keep(self, writer: Writer) -> dict[str, int]:
        del writer
        return {}

    def end(self, now: Time) -> bool:
        del now
        return False


QUEUES = Protocol(name="queues", broker=Queue)


def names(node: Node) -> list[str]:
    return [each.name for each in node.components]


@pytest.mark.spec("LV-9", "LM-5")
def test_a_client_goes_on_by_the_places_that_it_had() -> None:
    """Its subscription means the same as before, and it can move."""
    client = make_client("ann", Settings(places=PLACES))
    client.handle(MoveTo(location="a"), 1)
    client.handle(Subscribe(subscription="1", filter=Filter("room IN myloc(1)")), 2)
    client.handle(Configured(settings=Settings()), 3)
    client.handle(Configured(settings=Settings(handover=HANDOVER)), 4)

    restored = restore_node(encode_node(client), make_client("ann", client.settings))
    restored = restore_node(encode_node(restored), make_client("ann", client.settings))

    event = Event(publisher="pat", seq=1, time_us=1, attributes={"room": "b"})
    assert restored.wants.wanting(event) == ("1",)
    restored.handle(MoveTo(location="b"), 5)


@pytest.mark.spec("LV-9")
def test_what_ends_keeps_its_settings_and_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever settings have removed it."""
    for kind in (Moving, Relocation):
        monkeypatch.setattr(kind, "end", Queue.end)
    broker = make_broker("B1", Settings(places=PLACES, handover=HANDOVER))
    broker.handle(Configured(settings=Settings(handover=HANDOVER)), 1)
    broker.handle(Configured(settings=Settings()), 2)

    restored = restore_node(encode_node(broker), make_broker("B1", broker.settings))

    assert (
        names(restored)
        == names(broker)
        == ["routing", "quenching", "absence", "moving", "relocation"]
    )
    moving, relocation = restored.part("moving"), restored.part("relocation")
    assert isinstance(moving, Moving)
    assert moving.places == PLACES
    assert isinstance(relocation, Relocation)
    assert relocation.guests.options == HANDOVER


@pytest.mark.spec("LV-9")
def test_a_protocol_whose_component_has_another_name() -> None:
    register(QUEUES)
    broker = make_broker("B1", Settings(protocols=("queues",)))
    broker.handle(Configured(settings=Settings()), 1)

    restored = restore_node(encode_node(broker), make_broker("B1", Settings()))

    assert names(restored) == ["routing", "quenching", "absence", "queue"]


@pytest.mark.spec("LV-9")
def test_a_protocol_that_ends_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings do not name it any more, and so nobody has loaded it."""
    with monkeypatch.context() as before:
        before.setattr(protocols, "_protocols", dict(protocols._protocols))
        register(QUEUES)
        broker = make_broker("B1", Settings(protocols=("queues",)))
        broker.handle(Configured(settings=Settings()), 1)
    asked: list[Settings] = []

    def require(settings: Settings) -> None:
        asked.append(settings)
        register(QUEUES)

    with pytest.raises(UnreadableSnapshotError, match="install the package"):
        restore_node(encode_node(broker), make_broker("B1", Settings()))
    restored = restore_node(encode_node(broker), make_broker("B1", Settings()), require)

    assert names(restored) == ["routing", "quenching", "absence", "queue"]
    assert asked == [Settings(protocols=("queues",))]


@pytest.mark.spec("LV-9")
def test_a_snapshot_without_the_settings_of_what_ends_is_read() -> None:
    """The present settings count instead, as they did when it was written."""
    broker = make_broker("B1", Settings(places=PLACES))
    writer = Writer()
    parts = [_without_settings(part, ["moving"]) for part in broker.keep(writer)]

    restored = restore_node(encode_parts(parts, writer), make_broker("B1", Settings()))

    assert names(restored) == ["routing", "quenching", "absence", "moving"]
    assert restored.arrangement.worked_by == {"moving": Settings()}


def _without_settings(part: Part, ending: list[str]) -> Part:
    if part.name != NODE:
        return part
    kept: dict[str, Any] = msgspec.msgpack.decode(to_msgpack(part.kept))
    del kept["worked_by"]
    return Part(part.name, 1, {**kept, "ending": ending})
