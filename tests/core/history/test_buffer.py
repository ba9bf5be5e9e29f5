"""History buffers: some events are kept however many others pass. (Cilia et al., 5.2)"""

import msgspec
import pytest

from sterna.core.broker import Broker
from sterna.core.history.options import BufferOptions, HistoryOptions
from sterna.core.history.recent import Recent
from sterna.core.settings import ClientOptions, Settings
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.sim.script import Crash, Reconfigure
from sterna.sim.topology import line
from sterna.wire.snapshots import encode_node, restore_node
from tests.sim.overlay import Overlay

pytestmark = pytest.mark.spec("PA-2")


def recent_with(*buffers: BufferOptions, **more: int) -> Recent:
    recent = Recent.make(Settings(history=HistoryOptions(buffers=buffers, events_max=2, **more)))  # type: ignore[arg-type]
    Broker("B1", components=[recent])
    return recent


def passing(recent: Recent, *kinds: str, now: int = 0) -> None:
    for seq, kind in enumerate(kinds, 1):
        event = Event(publisher="pat", seq=now + seq, time_us=now, attributes={"kind": kind})
        recent.events_passing([event], "pat", now)


def kept(recent: Recent) -> set[int]:
    return {event.seq for batch in recent.batches() for event in batch.events}


def alarms(**bounds: int) -> BufferOptions:
    return BufferOptions(filter=Filter("kind = 'alarm'"), **bounds)


def test_a_buffer_keeps_what_others_push_out() -> None:
    recent = recent_with(alarms())
    passing(recent, "alarm", "car", "car", "car")

    assert kept(recent) == {1, 3, 4}


@pytest.mark.spec("PA-3")
@pytest.mark.parametrize(
    ("options", "left", "later"),
    [
        (alarms(events_max=1), {3, 4, 5}, {3, 11, 12}),
        (alarms(bytes_max=1), {4, 5}, {11, 12}),
        (alarms(age_max_us=5), {1, 2, 3, 4, 5}, {11, 12}),
    ],
)
def test_a_buffer_is_bounded(options: BufferOptions, left: set[int], later: set[int]) -> None:
    """By count, bytes and age."""
    recent = recent_with(options)
    passing(recent, "alarm", "alarm", "alarm", "car", "car")
    assert kept(recent) == left

    passing(recent, "car", "car", now=10)
    assert kept(recent) == later


def test_a_buffer_with_other_bounds_keeps_what_it_has() -> None:
    recent = recent_with(alarms())
    passing(recent, "alarm", "alarm", "car", "car")

    settings = Settings(history=HistoryOptions(buffers=(alarms(events_max=1),), events_max=2))
    recent.configure(settings, 0)

    assert kept(recent) == {2, 3, 4}


@pytest.mark.spec("LV-9")
def test_what_is_in_buffers_survives_a_restart() -> None:
    recent, restored = recent_with(alarms()), recent_with(alarms())
    passing(recent, "alarm", "car", "car", "car")

    restore_node(encode_node(recent.broker), restored.broker)

    assert kept(restored) == kept(recent) == {1, 3, 4}


@pytest.mark.spec("QU-1")
def test_publishers_do_not_discard_what_buffers_keep() -> None:
    """Nobody wants anything at first; what no buffer keeps is discarded at its source."""
    run = Overlay(
        line(2),
        {"pat": "B1", "sue": "B2"},
        client=ClientOptions(quenching=True),
        protocols=("past", "search"),
        history=HistoryOptions(buffers=(alarms(),)),
        crashing=["B1"],
    ).settle()
    for kind in ("alarm", "car", "alarm"):
        run.publish("pat", kind=kind).settle()
    assert run.outcome().quenched == 1
    run.fault(Crash(broker="B1", us=10_000)).settle().publish("pat", kind="alarm").settle()
    assert run.outcome().quenched == 1

    run.subscribe("sue", "kind IS NOT NULL", past=10).settle()

    assert run.recalled("sue") == ["pat#3", "pat#4"]  # Between 1 and 3 there was something.


def test_buffers_that_are_given_up_are_no_interest_any_more() -> None:
    run = Overlay(
        line(1),
        {"pat": "B1"},
        client=ClientOptions(quenching=True),
        protocols=("past",),
        history=HistoryOptions(buffers=(alarms(),)),
    ).settle()
    settings = run.broker("B1").settings
    changed = msgspec.structs.replace(settings, history=HistoryOptions())

    run.simulation.do(Reconfigure(broker="B1", settings=changed))
    run.settle().publish("pat", kind="alarm").settle()

    assert run.outcome().quenched == 1
