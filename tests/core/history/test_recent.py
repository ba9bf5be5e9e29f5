"""The recent past at a broker: what it keeps, and how much that counts."""

import pytest

from sterna.core.broker import Broker
from sterna.core.history.recent import Recent
from sterna.core.inputs import LinkUp, Received
from sterna.core.names import Peer
from sterna.model.event import Event
from sterna.wire.snapshots import encode_node, restore_node


@pytest.mark.spec("LV-2")
def test_a_broker_that_keeps_nothing_answers() -> None:
    recent = at_a_broker(0)
    event = Event(publisher="pat", seq=1, time_us=0, attributes={"kind": "x"})
    recent.events_passing([event], "pat", 0)
    assert list(recent.memory.batches()) == []


@pytest.mark.spec("LV-2")
def test_events_that_are_too_large_to_keep_are_not_kept() -> None:
    recent = at_a_broker(10, bytes_max=1_000)
    for seq in (1, 2):
        event = Event(publisher="pat", seq=seq, time_us=0, attributes={}, payload=b"." * 2_000)
        recent.events_passing([event], "pat", 0)
    assert list(recent.memory.batches()) == []


@pytest.mark.spec("LV-2")
@pytest.mark.parametrize(("came_bytes", "kept"), [(500, 1), (900, 0)])
def test_what_came_over_a_connection_counts_with_its_size_there(came_bytes: int, kept: int) -> None:
    recent = at_a_broker(10, bytes_max=1_000)
    event = Event(publisher="pat", seq=1, time_us=0, attributes={})
    recent.broker.unweighed = came_bytes
    recent.events_passing([event], "pat", 0)
    assert len(list(recent.memory.batches())) == kept
    assert recent.broker.unweighed == 0


@pytest.mark.spec("LV-2")
def test_the_size_of_an_input_counts_for_no_later_event() -> None:
    """An input without events leaves nothing behind that a restored broker would not know."""
    recent = at_a_broker(10, bytes_max=1_000)
    recent.broker.handle(LinkUp(link="pat", peer=Peer.CLIENT), 0)
    recent.broker.handle(Received(link="pat", frames=(), size=900), 0)
    recent.events_passing([Event(publisher="pat", seq=1, time_us=0, attributes={})], "pat", 0)
    assert len(list(recent.memory.batches())) == 1


@pytest.mark.spec("LV-9")
@pytest.mark.parametrize("came_bytes", [0, 500])
def test_sizes_of_recent_events_are_kept(came_bytes: int) -> None:
    recent = at_a_broker(10)
    event = Event(publisher="pat", seq=1, time_us=0, attributes={})
    recent.broker.unweighed = came_bytes
    recent.events_passing([event], "pat", 0)
    restored = at_a_broker(10)
    restore_node(encode_node(recent.broker), restored.broker)
    before, after = ([e.size for e in each.memory.batches()] for each in (recent, restored))
    assert after == before


def at_a_broker(events_max: int, bytes_max: int = 64 << 20) -> Recent:
    recent = Recent(events_max, bytes_max)
    Broker("B1", components=[recent])
    return recent
