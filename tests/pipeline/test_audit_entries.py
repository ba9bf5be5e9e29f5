"""What is wrong with how events came into the network, and what came to clients without a link."""

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from sterna.core.facts import (
    Accepted,
    Attached,
    Delivered,
    Detached,
    Fact,
    Moved,
    Published,
    Recalled,
    RecordBegun,
    Restarted,
    Subscribed,
    Unsubscribed,
)
from sterna.core.names import Peer
from sterna.model.delivery import Fault
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.pipeline.audit import Verdict, audit, in_table
from tests.pipeline.test_audit_agrees import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000
GRACE_US = 5 * SECOND
END = 300


def event(publisher: str, number: int, second: int, **attributes: Any) -> Event:
    content: dict[str, Any] = {"x": number, "net": "net", **attributes}
    return Event(publisher=publisher, seq=number, time_us=second * SECOND, attributes=content)


class Told:
    """What nodes state, second by second; a client's clock may leap."""

    def __init__(self) -> None:
        self._facts: list[tuple[int, Fact]] = []
        self._leaps: dict[str, tuple[int, int]] = {}

    def leap(self, second: int, client: str, by: int) -> None:
        """From a second on, the clock of a client shows another time."""
        self._leaps[client] = second, by

    def facts(self) -> list[Fact]:
        """In the order in which they were stated."""
        return [fact for _, fact in sorted(self._facts, key=lambda each: each[0])]

    def add(self, second: int, *stated: Fact) -> None:
        for fact in stated:
            since, by = self._leaps.get(fact.at, (0, 0))
            shown = second + (by if second >= since else 0)
            self._facts.append((second, replace(fact, time=shown * SECOND)))

    def attach(
        self,
        second: int,
        client: str,
        start: type[Fact] | None = RecordBegun,
        *,
        is_heard: bool = True,
    ) -> None:
        if start is not None:
            self.add(second, start(at=client, time=0))
        self.add(second, Attached(at=client, time=0, link="B1", peer=Peer.BROKER))
        if is_heard:
            self.add(second, Attached(at="B1", time=0, link=client, peer=Peer.CLIENT))

    def detach(self, second: int, client: str) -> None:
        self.add(
            second,
            Detached(at=client, time=0, link="B1", peer=Peer.BROKER),
            Detached(at="B1", time=0, link=client, peer=Peer.CLIENT),
        )

    def publish(self, second: int, *events: Event) -> None:
        self.add(second, Published(at=events[0].publisher, time=0, events=events))

    def accept(self, second: int, *events: Event) -> None:
        self.add(second, Accepted(at="B1", time=0, link=events[0].publisher, events=events))

    def enter(self, second: int, *events: Event) -> None:
        """Published, and accepted at once."""
        self.publish(second, *events)
        self.accept(second, *events)

    def deliver(self, second: int, client: str, *events: Event) -> None:
        self.add(second, Delivered(at=client, time=0, events=events))

    def recall(self, second: int, client: str, *events: Event) -> None:
        self.add(second, Recalled(at=client, time=0, events=events))

    def subscribe(self, second: int, client: str, text: str) -> None:
        asked = Subscribed(at=client, time=0, subscription="s", filter=Filter(text))
        self.add(second, asked)

    def unsubscribe(self, second: int, client: str) -> None:
        self.add(second, Unsubscribed(at=client, time=0, subscription="s"))


def all_of_them() -> list[Fact]:
    """Publishers that do something wrong, or not, and a few subscribers."""
    told = Told()
    _contents(told)
    _forgeries(told)
    _numbers(told)
    _without_a_link(told)
    _past(told)
    _clocks(told)
    _unheard(told)
    _old_states(told)
    told.accept(END, event("last", 1, END))  # The broker's journal reaches so far.
    return told.facts()


def _contents(told: Told) -> None:
    """`altered` has other attributes at the broker, `padded` another payload; `same` has not."""
    for name in ("altered", "padded", "same"):
        told.attach(10, name)
        published = [event(name, number, 100 + number) for number in (1, 2, 3)]
        accepted = list(published)
        if name == "altered":
            accepted[1] = event(name, 2, 102, x=999)
        if name == "padded":
            accepted[1] = replace(published[1], payload=b"more")
        if name == "same":  # The order of attributes means nothing.
            turned = dict(reversed([*published[1].attributes.items()]))
            accepted[1] = replace(published[1], attributes=turned)
        for own, taken in zip(published, accepted, strict=True):
            told.publish(own.seq + 100, own)
            told.accept(own.seq + 100, taken)
        told.detach(200, name)


def _forgeries(told: Told) -> None:
    """Of `robbed`, the broker has an event that its journal lacks; of the others it may."""
    names = ("robbed", "killed", "away", "kept", "early", "silent", "old")
    for name in names[:-2]:
        told.attach(10, name)
        told.enter(50, event(name, 10, 50))
    told.attach(10, "old", start=None)  # From before journals said where a run begins.
    told.enter(50, event("old", 10, 50))
    told.accept(100, event("robbed", 500, 100, net="other"))  # It matches, and nobody lost it.
    told.accept(101, event("robbed", 501, 101, x="unwanted", net="none"))
    told.enter(150, event("robbed", 11, 150))
    told.attach(10, "lurker")  # It wants all that `robbed` seems to have published.
    told.subscribe(12, "lurker", "net = 'other'")
    told.detach(290, "lurker")
    told.accept(100, event("killed", 11, 100))  # Its journal ends at 50 s.
    told.detach(80, "away")
    told.accept(100, event("away", 500, 100))  # A program without a journal has run meanwhile.
    told.attach(120, "away", Restarted)
    told.accept(150, event("kept", 9, 100))  # From a run without a journal, but with the state.
    told.accept(12, event("early", 500, 12))  # Within a grace period of the connection.
    told.accept(100, event("silent", 1, 100))
    told.accept(100, event("old", 500, 100))
    for name in ("robbed", "away", "kept", "early", "old"):
        told.detach(200, name)


def _numbers(told: Told) -> None:
    """`twice` gives one number to two events; so do two programs, one of them without a journal."""
    for name in ("twice", "clone"):
        told.attach(10, name)
        told.enter(100, event(name, 1, 100))
        told.enter(101, event(name, 2, 101))
        told.detach(200, name)
    told.enter(102, event("twice", 2, 102, x=77))
    told.accept(103, event("clone", 2, 103))
    told.accept(100, event("moved", 1, 100))  # The same again, as it was not confirmed.
    told.accept(101, event("moved", 1, 100))


def _without_a_link(told: Told) -> None:
    """`gone` gets something without a link that was published meanwhile; `slow` what was before."""
    told.attach(10, "writer")
    told.enter(39, event("writer", 1, 39, net="links"))
    told.enter(60, event("writer", 2, 60, net="links"))
    for name in ("gone", "slow", "back"):
        told.attach(10, name)
        told.subscribe(12, name, "net = 'links'")
    for name in ("gone", "slow", "back"):
        if name != "slow":
            told.deliver(39, name, event("writer", 1, 39, net="links"))
        told.detach(40, name)
        if name == "slow":  # It had waited for the past of a subscription.
            told.deliver(41, name, event("writer", 1, 39, net="links"))
        if name == "gone":
            told.deliver(61, name, event("writer", 2, 60, net="links"))
        told.attach(100, name, start=Restarted if name == "back" else None)
        if name != "gone":
            told.deliver(101, name, event("writer", 2, 60, net="links"))
        told.detach(250, name)
    told.detach(250, "writer")


def _past(told: Told) -> None:
    """`reader` is given the past: one event was published, one was not, one was not asked for."""
    told.attach(10, "past")
    known = [event("past", number, 20, net=net) for number, net in ((1, "past"), (2, "others"))]
    told.enter(20, *known)
    told.attach(100, "reader")
    told.subscribe(110, "reader", "net = 'past'")
    told.recall(111, "reader", known[0], known[1], event("past", 3, 20, net="past"))
    told.enter(130, event("past", 4, 130, net="past"))
    told.recall(131, "reader", event("past", 4, 130, net="past"))  # It came with the past.
    told.detach(250, "reader")
    told.detach(250, "past")


LATER = Filter("net = 'hidden'")
"""By its clock, `hidden` has asked for it long before an event was published that matches."""


def _clocks(told: Told) -> None:
    """The clocks of four clients leap while their programs run; that of `steady` is right.

    The journal of `behind` shows it, that of `hidden` does not.
    """
    told.leap(150, "behind", -60)
    told.leap(150, "hidden", -60)
    told.leap(100, "ahead", 60)
    told.leap(100, "sprinter", 60)
    names = ("steady", "sprinter", "ahead", "behind", "hidden")
    for name in names:
        told.attach(10, name)
    for name in ("ahead", "behind"):
        told.subscribe(12, name, "net = 'clocks'")
    told.subscribe(12, "hidden", "net = 'clocks' AND by = 'steady'")
    told.add(140, Moved(at="behind", time=0, location="elsewhere"))
    told.enter(160, event("steady", 160, 160, net="hidden"))
    told.add(190, Subscribed(at="hidden", time=0, subscription="t", filter=LATER))
    for second in (50, 170, 220):
        one = event("steady", second, second, net="clocks", by="steady")
        two = event("sprinter", second, second, net="clocks")
        for each in (one, two):
            told.enter(second, each)
        told.deliver(second, "behind", one, two)
        told.deliver(second, "hidden", one)
        if second < 200:
            told.deliver(second, "ahead", one, two)
    told.detach(140, "ahead")
    told.attach(150, "ahead", start=None)
    told.unsubscribe(200, "ahead")  # It shows 260 s then.
    for name in names:
        told.detach(280, name)


def _unheard(told: Told) -> None:
    """A broker that was killed has lost when `unheard` connected; its clock is right."""
    told.attach(10, "sender")
    told.attach(10, "unheard")
    told.subscribe(12, "unheard", "net = 'unheard'")
    for second in (100, 130):
        told.detach(second - 1, "unheard")
        told.attach(second, "unheard", start=None, is_heard=False)
    told.detach(199, "unheard")
    told.attach(200, "unheard", start=None)
    told.enter(150, event("sender", 1, 150, net="unheard"))  # It never comes.
    told.detach(280, "unheard")
    told.detach(280, "sender")


def _old_states(told: Told) -> None:
    """Two publishers without a journal; `returned` sends what its old state had, after others."""
    told.attach(10, "patient")
    told.subscribe(12, "patient", "net = 'old'")
    for name in ("returned", "onward"):
        told.add(10, Attached(at="B1", time=0, link=name, peer=Peer.CLIENT))
    numbers = {"returned": (1, 2, 9, 3, 4), "onward": (1, 2, 3, 4, 9)}
    for name, seqs in numbers.items():
        for place, seq in enumerate(seqs):
            second = 60 + (30 if name == "returned" else 1) * place
            told.accept(second, event(name, seq, second, net="old"))
            if seq not in {3, 4}:
                told.deliver(second, "patient", event(name, seq, second, net="old"))
    told.accept(150, event("onward", 3, 62, net="old"))  # Once more, as it was not confirmed.
    told.detach(280, "patient")


Found = tuple[Fault, str, str, int]


@pytest.fixture(scope="module")
def verdict(spark: "SparkSession") -> Verdict:
    """One job for all of them."""
    stated = in_table(frame(spark, all_of_them()), is_little=True)
    return audit(stated, grace_us=GRACE_US, partitions=2)


def found(verdict: Verdict, *faults: Fault) -> set[Found]:
    return {
        (each.fault, each.client, each.publisher, each.seq)
        for each in verdict.findings
        if each.fault in faults
    }


@pytest.mark.spec("PL-5")
def test_content_that_differs_between_publisher_and_broker_is_found(verdict: Verdict) -> None:
    """Attributes and payload, whatever the order in which attributes are written."""
    assert found(verdict, Fault.ALTERED) == {
        (Fault.ALTERED, "", "altered", 2),
        (Fault.ALTERED, "", "padded", 2),
    }
    (path,) = {each.path for each in verdict.findings if each.publisher == "altered"}
    assert path == ("altered → B1",)


@pytest.mark.spec("PL-5")
def test_what_a_broker_has_and_a_publisher_that_was_connected_has_not_is_forged(
    verdict: Verdict,
) -> None:
    """A publisher may be killed, run without a journal, or send what such a run has left."""
    assert found(verdict, Fault.FORGED) == {
        (Fault.FORGED, "", "robbed", 500),
        (Fault.FORGED, "", "robbed", 501),
    }


@pytest.mark.spec("PL-5")
def test_a_number_that_two_events_have_is_found(verdict: Verdict) -> None:
    """In one journal, or of two programs of which one keeps none; what is sent again is fine."""
    assert found(verdict, Fault.REUSED) == {
        (Fault.REUSED, "", "twice", 2),
        (Fault.REUSED, "", "clone", 2),
    }


@pytest.mark.spec("PL-5")
def test_what_came_without_a_link_is_found(verdict: Verdict) -> None:
    """If it was published meanwhile: what was before may have waited in the client."""
    assert found(verdict, Fault.DETACHED) == {(Fault.DETACHED, "gone", "writer", 2)}


@pytest.mark.spec("PL-5")
def test_a_past_that_never_was_is_found(verdict: Verdict) -> None:
    """And one that was not asked for; what came with the past is not lost."""
    assert found(verdict, Fault.UNPUBLISHED, Fault.UNASKED) == {
        (Fault.UNPUBLISHED, "reader", "past", 3),
        (Fault.UNASKED, "reader", "past", 2),
    }


@pytest.mark.spec("PL-5")
def test_clocks_that_leap_are_told_and_nobody_is_accused_by_them(verdict: Verdict) -> None:
    """What came back in time, before it was published, or after the end of a subscription."""
    witnesses = verdict.unjudged.witnesses
    assert witnesses.apart_us == {"ahead": 60 * SECOND, "sprinter": 60 * SECOND}
    assert witnesses.went_back == ("behind",)
    assert verdict.unjudged.early == (("hidden", "steady"),)
    unjudged = {each.name: each.apart for each in verdict.accounts.clients if each.apart}
    assert unjudged == {"ahead": 5, "behind": 6}


@pytest.mark.spec("PL-5")
def test_what_a_broker_has_lost_does_not_make_a_clock_wrong(verdict: Verdict) -> None:
    """Two of three connections are in the journal of one end only; a loss is found all the same."""
    lost = {each for each in found(verdict, Fault.LOST) if each[1] != "patient"}
    assert lost == {(Fault.LOST, "unheard", "sender", 1)}


@pytest.mark.spec("PL-5")
def test_nothing_else_is_wrong(verdict: Verdict) -> None:
    assert verdict.faults.total() == 12, verdict.findings
    assert str(verdict.findings[0]) == "altered: event altered #2 (altered → B1)"


@pytest.mark.spec("PL-5")
def test_what_a_publisher_sends_with_an_old_state_is_not_called_lost(verdict: Verdict) -> None:
    """Its number was passed when it came; if it came in order, it is lost."""
    lost = {each for each in found(verdict, Fault.LOST) if each[1] == "patient"}
    assert lost == {(Fault.LOST, "patient", "onward", seq) for seq in (3, 4)}
