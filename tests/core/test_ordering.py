"""Events of each publisher are put into order at the client, with bounded patience."""

import pytest

from sterna.core import facts
from sterna.core.actions import Deliver
from sterna.core.client import Client
from sterna.core.inputs import Attach, LinkUp, Received, Subscribe, TimePassed
from sterna.core.link import Data, Resume
from sterna.core.messages import Events
from sterna.core.mobile.ordering import REMEMBERED_MAX, Ordering, OrderingOptions
from sterna.core.names import Peer
from sterna.core.node import Turn
from sterna.model.event import Event
from sterna.model.filters import Filter

PATIENCE = 1_000


class Machine:
    """A client whose broker sends it events."""

    def __init__(self, patience_us: int = PATIENCE) -> None:
        self.ordering = Ordering(OrderingOptions(patience_us=patience_us))
        self.client = Client("c", components=[self.ordering])
        self.client.handle(Subscribe(subscription="all", filter=Filter("n > 0")), 0)
        self.client.handle(Attach(broker="b"), 0)
        self.client.handle(LinkUp(link="b", peer=Peer.BROKER), 0)
        self.client.handle(Received(link="b", frames=(Resume(7, 0, 0, answers=True),)), 0)
        self.seq = 0

    def came(self, *numbers: int, now: int = 0) -> Turn:
        """Events of one publisher have come, in this order."""
        self.seq += 1
        events = tuple(event(number) for number in numbers)
        frame = Data(self.seq, 0, Events(events=events))
        return self.client.handle(Received(link="b", frames=(frame,)), now)

    def wait(self, now: int) -> Turn:
        return self.client.handle(TimePassed(), now)


def event(number: int) -> Event:
    return Event(publisher="p", seq=number, time_us=0, attributes={"n": number})


def delivered(turn: Turn) -> list[int]:
    return [e.seq for each in turn.actions if isinstance(each, Deliver) for e in each.events]


def late(turn: Turn) -> list[int]:
    return [e.seq for each in turn.facts if isinstance(each, facts.Purged) for e in each.events]


def repeated(turn: Turn) -> list[int]:
    return [e.seq for each in turn.facts if isinstance(each, facts.Repeated) for e in each.events]


@pytest.mark.spec("MB-7")
def test_what_follows_directly_goes_at_once() -> None:
    machine = Machine()
    assert delivered(machine.came(1, 2)) == [1, 2]
    assert delivered(machine.came(3)) == [3]
    assert machine.ordering.is_settled


@pytest.mark.spec("MB-7")
def test_an_event_waits_for_those_before_it() -> None:
    machine = Machine()
    machine.came(1)
    assert delivered(machine.came(4, 3)) == []
    assert not machine.ordering.is_settled
    assert delivered(machine.came(2)) == [2, 3, 4]


@pytest.mark.spec("MB-7")
def test_patience_ends_and_what_comes_later_counts_once() -> None:
    machine = Machine()
    machine.came(1)
    machine.came(4, now=10)
    machine.came(6, now=500)
    assert delivered(machine.wait(10 + PATIENCE - 1)) == []
    assert delivered(machine.wait(10 + PATIENCE)) == [4]
    turn = machine.came(3, 5, now=10 + PATIENCE)
    assert (delivered(turn), late(turn)) == ([5, 6], [3])
    turn = machine.came(3, 4, now=10 + PATIENCE)
    assert (delivered(turn), late(turn), repeated(turn)) == ([], [], [4])


@pytest.mark.spec("MB-7")
def test_without_patience_nothing_waits() -> None:
    machine = Machine(0)
    assert delivered(machine.came(3)) == [3]
    turn = machine.came(2, 5)
    assert (delivered(turn), late(turn)) == ([5], [2])


def test_what_it_remembers_is_bounded() -> None:
    machine = Machine()
    for number in range(1, REMEMBERED_MAX + 3):
        machine.came(number)
    (publisher,) = machine.ordering._publishers.values()
    assert len(publisher.came) == REMEMBERED_MAX
    assert repeated(machine.came(REMEMBERED_MAX)) == [REMEMBERED_MAX]
    assert late(machine.came(1)) == [1]  # Nobody knows any more whether it came.
