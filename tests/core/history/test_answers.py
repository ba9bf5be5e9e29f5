"""Answers to requests for the past: in parts, bounded, fair, and the same as all at once."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.actions import LookUp, Transmit
from sterna.core.broker import Broker
from sterna.core.history import recent, windows
from sterna.core.history.messages import Past, PastAsked
from sterna.core.history.recent import Recent
from sterna.core.inputs import LinkDown, LinkGone, LinkUp, LookedUp, Received, TimePassed
from sterna.core.link import Ack, Data, Resume
from sterna.core.messages import Message, Route, SubscriptionChange
from sterna.core.names import NEVER, Peer
from sterna.core.node import Turn
from sterna.core.sizes import weight
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.wire.snapshots import encode_node, restore_node
from tests.scale import examples

PAYLOAD = b"." * 30_000
"""A part has two such events, and a window has eight."""


@dataclass
class Client:
    """A client at the other end of a link: it confirms what it got when it is told to."""

    name: str
    got: list[Past] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    confirmed: int = 0

    @property
    def events(self) -> list[EventId]:
        return [event.id for past in self.got for event in past.events]


class Scene:
    """A broker and some clients of it."""

    def __init__(self, *clients: str, events_max: int = 100, bytes_max: int = 64 << 20) -> None:
        self.limits = events_max, bytes_max
        self.broker = self._new()
        self.clients = {name: Client(name) for name in clients}
        self.lookups: list[LookUp] = []
        for name in clients:
            self.connect(name, None)

    def _new(self) -> Broker:
        return Broker("B1", components=[Recent(*self.limits)])

    @property
    def part(self) -> Recent:
        part = self.broker.part("past")
        assert isinstance(part, Recent)
        return part

    def connect(self, name: str, partner: int | None) -> None:
        self.broker.handle(LinkUp(link=name, peer=Peer.CLIENT), 0)
        received = self.clients[name].received
        self._take(self.broker.handle(
            Received(link=name, frames=(Resume(1, partner, received, True),)), 0
        ))  # fmt: skip

    def restart(self) -> None:
        """Go on with another broker, which was made from a snapshot of this one."""
        self.broker = restore_node(encode_node(self.broker), self._new())

    def pass_by(self, *events: Event) -> None:
        self.part.events_passing(events, "pat", 0)

    def say(self, name: str, *messages: Message) -> None:
        client = self.clients[name]
        frames = []
        for message in messages:
            client.sent += 1
            frames.append(Data(client.sent, 0, message))
        self._take(self.broker.handle(Received(link=name, frames=tuple(frames)), 0))

    def ask(self, name: str, *ids: str, where: str = "TRUE", in_parts: bool = True) -> None:
        route = [Route(f"{name}/{id_}", Filter(where)) for id_ in ids]
        self.say(name, *(PastAsked(route=each, in_parts=in_parts) for each in route))

    def confirm(self, name: str) -> bool:
        """Confirm all that a client has got; whether there was something."""
        client = self.clients[name]
        if client.confirmed == client.received:
            return False
        client.confirmed = client.received
        self._take(self.broker.handle(Received(link=name, frames=(Ack(client.received),)), 0))
        return True

    def wake(self) -> bool:
        """Let the time pass that the broker waits for; whether it does."""
        if self.broker.deadline == NEVER:
            return False
        self._take(self.broker.handle(TimePassed(), self.broker.deadline))
        return True

    def finish(self) -> None:
        while any([*map(self.confirm, self.clients), self.wake()]):
            pass
        assert self.part.is_settled
        assert not self.part._open
        assert not self.part._windows._all_bytes

    def look_up(self, asked: LookUp, found: tuple[Event, ...]) -> None:
        self._take(self.broker.handle(LookedUp(question=asked.question, events=found), 0))

    def _take(self, turn: Turn) -> None:
        for action in turn.actions:
            if isinstance(action, LookUp):
                self.lookups.append(action)
            elif isinstance(action, Transmit) and isinstance(action.frame, Data):
                client = self.clients[action.link]
                if action.frame.seq > client.received:
                    client.received = action.frame.seq
                    if isinstance(action.frame.message, Past):
                        client.got.append(action.frame.message)

    def on_the_way(self, name: str) -> int:
        """How many bytes of the past a client has not confirmed, without what each event adds."""
        return sum(
            len(event.payload)
            for message in self.broker.unconfirmed(name)
            if isinstance(message, Past)
            for event in message.events
        )


def events(count: int, first: int = 1, payload: bytes = PAYLOAD) -> Iterator[Event]:
    for seq in range(first, first + count):
        yield Event(publisher="pat", seq=seq, time_us=seq, attributes={"n": seq}, payload=payload)


@st.composite
def pasts(draw: st.DrawFn) -> list[Event]:
    """Events of some publishers, not always in order, some twice."""
    ids = draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30)), max_size=60))
    return [
        Event(publisher=name, seq=seq, time_us=seq, attributes={"n": seq}, payload=PAYLOAD)
        for name, seq in ids
    ]


@pytest.mark.spec("LV-2", "LV-9")
@examples(60)
@given(st.data())
def test_an_answer_in_parts_is_the_answer_at_once(data: st.DataObject) -> None:
    """Whatever passes meanwhile, and also if the broker is restarted in the middle."""
    scene = Scene("ann", "bob", events_max=data.draw(st.integers(0, 50)))
    before = data.draw(pasts())
    while before:
        count = data.draw(st.integers(1, 20))
        scene.pass_by(*before[:count])
        before = before[count:]
    asked = [
        (
            Filter(data.draw(st.sampled_from(["TRUE", "n > 10", "n < 0"]))),
            data.draw(st.none() | st.integers(0, 40)),
            data.draw(st.none() | st.integers(0, 30)),
        )
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    for client, in_parts in (("ann", True), ("bob", False)):
        scene.say(client, *(
            PastAsked(
                route=Route(f"{client}/{number}", where), events_max=events_max,
                since_us=since_us, number=number, in_parts=in_parts,
            )
            for number, (where, events_max, since_us) in enumerate(asked)
        ))  # fmt: skip
    seq = 100
    for _ in range(data.draw(st.integers(0, 30))):
        match data.draw(st.sampled_from(["pass", "ann", "bob", "wake", "restart"])):
            case "pass":
                seq += 10
                scene.pass_by(*events(10, seq))
            case "wake":
                scene.wake()
            case "restart":
                scene.restart()
            case client:
                scene.confirm(client)
    scene.finish()

    at_once = {past.number: list(past.events) for past in scene.clients["bob"].got}
    in_parts_: dict[int, list[Event]] = {}
    for past in scene.clients["ann"].got:
        in_parts_.setdefault(past.number, []).extend(past.events)
    assert in_parts_ == at_once
    last = [past.more for past in scene.clients["ann"].got]
    assert last.count(False) == len(asked)


@pytest.mark.spec("LV-6")
def test_a_client_that_confirms_nothing_gets_no_more_than_a_window() -> None:
    scene = Scene("ann")
    scene.pass_by(*events(50))
    scene.ask("ann", *map(str, range(20)))
    assert 0 < scene.on_the_way("ann") <= windows.WINDOW_BYTES_MAX + len(PAYLOAD)
    for _ in range(10):
        scene.confirm("ann")
        assert 0 < scene.on_the_way("ann") <= windows.WINDOW_BYTES_MAX + len(PAYLOAD)
    scene.finish()
    assert len(scene.clients["ann"].events) == 20 * 50


@pytest.mark.spec("LV-6")
def test_all_clients_together_get_no_more_than_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody starves although others confirm nothing; whole answers wait for room."""
    monkeypatch.setattr(windows, "ALL_BYTES_MAX", 3 * windows.WINDOW_BYTES_MAX)
    many = [f"c{number}" for number in range(20)]
    scene = Scene(*many, "old")
    scene.pass_by(*events(50))
    for name in many:
        scene.ask(name, "1")
    scene.ask("old", "1", in_parts=False)
    on_the_way = sum(map(scene.on_the_way, many))
    assert on_the_way <= windows.ALL_BYTES_MAX + len(many) * len(PAYLOAD)
    assert scene.clients["old"].got == []
    while scene.confirm("c19"):
        pass
    assert len(scene.clients["c19"].events) == 50
    scene.finish()
    assert [len(each.events) for each in scene.clients.values()] == [50] * 21


@pytest.mark.spec("LV-6")
def test_many_requests_at_once_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One input, one wake go through a bounded number of events; all clients come forward."""
    monkeypatch.setattr(recent, "WORK_EVENTS_MAX", 200)
    scene = Scene("eve", "ann")
    scene.pass_by(*events(100, payload=b""))
    scene.ask("eve", *map(str, range(50)))
    assert len(scene.clients["eve"].got) <= 2
    scene.ask("ann", "1")
    assert scene.wake()
    assert len(scene.clients["ann"].events) == 100
    assert len(scene.clients["eve"].got) <= 4
    scene.restart()
    scene.finish()
    assert len(scene.clients["eve"].events) == 50 * 100


@pytest.mark.spec("LV-6")
def test_too_many_requests_come_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "OPEN_PER_CLIENT_MAX", 3)
    monkeypatch.setattr(recent, "OPEN_MAX", 5)
    scene = Scene("ann", "bob")
    scene.pass_by(*events(50))
    scene.ask("ann", *"12345")
    scene.ask("bob", *"12345")
    later = [
        [past.subscription for past in client.got if past.later]
        for client in scene.clients.values()
    ]
    assert later == [["ann/4", "ann/5"], ["bob/3", "bob/4", "bob/5"]]
    assert {*scene.broker.router.subscriptions.routes("bob")} == {f"bob/{n}" for n in "12345"}
    scene.finish()
    scene.ask("bob", "3")
    scene.finish()
    assert len(scene.clients["bob"].events) == 3 * 50


@pytest.mark.spec("LV-6")
def test_what_only_a_slow_client_needs_is_bounded() -> None:
    """It learns which events it missed; a request that has not begun begins later."""
    size = weight(next(events(1)))
    scene = Scene("ann", bytes_max=20 * size)
    scene.pass_by(*events(20))
    scene.ask("ann", "1", "2")
    for number in range(40):
        scene.pass_by(*events(1, 21 + number))
    (first, second) = scene.part._open["ann"].values()
    begun = first.sent
    assert first.missed == tuple(EventId("pat", seq) for seq in range(begun + 1, 21))
    assert second.marked is not None
    assert second.marked.count == 0
    scene.restart()
    scene.finish()
    assert scene.clients["ann"].events == [EventId("pat", seq + 1) for seq in range(begun)]
    assert [past.missed for past in scene.clients["ann"].got if past.missed] == [first.missed]


@pytest.mark.spec("LV-2")
def test_an_answer_ends_with_its_subscription_and_its_link() -> None:
    scene = Scene("ann", "bob")
    scene.pass_by(*events(50))
    for name in ("ann", "bob"):
        scene.ask(name, "1", "2")
    scene.say("ann", SubscriptionChange(removed=("ann/1",)))
    scene.broker.handle(LinkGone(link="bob"), 0)
    assert [*scene.part._open] == ["ann"]
    scene.clients.pop("bob")
    scene.finish()
    answered = [past.subscription for past in scene.clients["ann"].got if not past.more]
    assert answered == ["ann/2"]


@pytest.mark.spec("LV-2")
def test_an_answer_goes_on_after_a_connection_was_lost() -> None:
    scene = Scene("ann")
    scene.pass_by(*events(50))
    scene.ask("ann", "1")
    scene.broker.handle(LinkDown(link="ann"), 0)
    assert scene.part.is_settled  # It cannot go on by itself.
    scene.connect("ann", 0)
    scene.finish()
    assert len(scene.clients["ann"].events) == 50


@pytest.mark.spec("PA-6", "LV-6")
def test_answers_from_the_archive_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is looked up again when others have got theirs."""
    monkeypatch.setattr(recent, "ARCHIVED_BYTES_MAX", 10 * len(PAYLOAD))
    scene = Scene("ann", "bob", "eve")
    scene.part.has_archive = True
    for name in scene.clients:
        scene.ask(name, "1")
    archived = tuple(events(50))
    rounds = 0
    while scene.lookups:
        rounds += 1
        for asked in scene.lookups[:]:
            scene.lookups.remove(asked)
            scene.look_up(asked, archived)
        assert scene.part._archived_bytes < 2 * sum(map(weight, archived))
        scene.restart()
        for name in scene.clients:
            while scene.confirm(name):
                pass
    scene.finish()
    assert [len(each.events) for each in scene.clients.values()] == [50] * 3
    assert rounds == 3
