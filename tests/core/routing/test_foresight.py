"""Foresight: a broker that was prepared for an input does the same, in a shorter time."""

import gc
import time
from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.actions import Transmit
from sterna.core.broker import Broker
from sterna.core.history.messages import Past, PastAsked
from sterna.core.history.recent import Recent
from sterna.core.inputs import Input, LinkUp, Received
from sterna.core.link import Data, Resume
from sterna.core.messages import Events, Message, Route, SubscriptionChange
from sterna.core.names import Peer
from sterna.core.node import Turn
from sterna.core.routing.foresight import Foresight
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter
from tests.scale import examples, soon

TEXTS = ("a" * 2_000, "ab" * 2_000, "a/b" * 500, "abc", "b")
PATTERNS = (
    "x LIKE '%a_b%'",
    "x LIKE '%a_c%' OR n = 1",
    "x LIKE '%a%_a'",
    "x MATCHES 'a/+/#'",
    "NOT x LIKE '%b%'",
    "n > 0",
    "TRUE",
)
LINKS = ("ann", "bob", "B2")
MB = 900_000
LETTERS = "abcdefghijklm"
THREE = list(product(LETTERS, repeat=3))


def broker(links: Sequence[str] = LINKS) -> Broker:
    """A broker with two clients and a neighbour, all of them connected."""
    made = Broker("B1", components=[Recent(100)])
    for link in links:
        peer = Peer.BROKER if link == "B2" else Peer.CLIENT
        made.handle(LinkUp(link=link, peer=peer), 0)
        made.handle(Received(link=link, frames=(Resume(1, None, 0, True),)), 0)
    return made


class Peers:
    """The other ends of a broker's links."""

    def __init__(self) -> None:
        self._seq = dict.fromkeys(LINKS, 0)
        self._published = 0

    def says(self, link: str, *messages: Message, size: int = 10_000_000) -> Received:
        frames = []
        for message in messages:
            self._seq[link] += 1
            frames.append(Data(self._seq[link], 0, message))
        return Received(link=link, frames=tuple(frames), size=size)

    def subscribes(self, link: str, *texts: str, start: int = 0) -> Received:
        routes = tuple(Route(f"{link}/{start + n}", Filter(text)) for n, text in enumerate(texts))
        return self.says(link, SubscriptionChange(added=routes))

    def publishes(self, link: str, *texts: str, size: int = 10_000_000) -> Received:
        events = []
        for text in texts:
            self._published += 1
            attributes: dict[str, Scalar] = {"x": text, "n": self._published % 3}
            events.append(
                Event(publisher=link, seq=self._published, time_us=0, attributes=attributes)
            )
        return self.says(link, Events(events=tuple(events)), size=size)


def prepared(node: Broker, given: Received, *between: Input) -> Turn:
    """What a broker does that was interrupted wherever it can be; other inputs come between."""
    foresight = node.foresee(given, lambda: True)
    others = list(between)
    while foresight is not None and not foresight.is_complete():
        if others:
            node.handle(others.pop(0), 1)
    for other in others:
        node.handle(other, 1)
    node.foresight = foresight
    turn = node.handle(given, 2)
    node.foresight = None
    return turn


choices = st.lists(st.tuples(st.sampled_from(LINKS), st.sampled_from(PATTERNS)), max_size=8)


@pytest.mark.spec("RT-1", "LV-6")
@examples(150)
@given(
    first=choices, then=choices, ended=st.sets(st.integers(0, 7)),
    texts=st.lists(st.integers(0, len(TEXTS) - 1), min_size=1, max_size=20),
)  # fmt: skip
def test_a_prepared_broker_does_the_same(
    first: list[tuple[str, str]],
    then: list[tuple[str, str]],
    ended: set[int],
    texts: list[int],
) -> None:
    """Also if filters have come and gone since it was prepared."""
    one, other, peers = broker(), broker(), Peers()
    for number, (link, text) in enumerate(first):
        given = peers.subscribes(link, text, start=number)
        one.handle(given, 1)
        other.handle(given, 1)
    changes: list[Input] = [
        peers.subscribes(link, text, start=100 + number)
        for number, (link, text) in enumerate(then)
        if link != "ann"
    ]
    for number in sorted(ended):
        if number < len(first) and first[number][0] != "ann":
            link = first[number][0]
            gone = SubscriptionChange(removed=(f"{link}/{number}",))
            changes.append(peers.says(link, gone))
    published = peers.publishes("ann", *(TEXTS[number] for number in texts))
    for change in changes:
        one.handle(change, 1)

    expected = one.handle(published, 2)
    turn = prepared(other, published, *changes)

    assert turn == expected


@pytest.mark.spec("RT-1")
def test_events_that_were_not_foreseen_are_matched_as_ever() -> None:
    """A foresight for more events than there are now, or for others."""
    node, peers = broker(), Peers()
    node.handle(peers.subscribes("bob", "x LIKE '%a_b%'"), 0)
    table = node.router.subscriptions
    events = [
        Event(publisher="p", seq=seq, time_us=0, attributes={"x": text})
        for seq, text in enumerate(["aab", "b", "a-b", "c"], 1)
    ]
    other = Event(publisher="q", seq=9, time_us=0, attributes={"x": "aab"})

    def found(*parts: Sequence[Event]) -> list[list[int]]:
        foresight = Foresight(events, lambda: False)
        foresight.begin(table.foresee(foresight))
        assert foresight.is_complete()
        wanted = [table.match(part, foresight).get("bob", ()) for part in parts]
        return [[event.seq for event in part] for part in wanted]

    assert found(events) == [[1, 3]]
    assert found(events[:1], events[1:2], events[2:]) == [[1], [], [3]]
    assert found(events[1:], events) == [[3], [1, 3]]
    assert found([*events[2:], other], events[::-1]) == [[3, 9], [3, 1]]


@pytest.mark.spec("LV-2")
@pytest.mark.parametrize("is_prepared", [False, True])
def test_the_past_is_the_same_for_a_prepared_broker(is_prepared: bool) -> None:
    """Also if events have come meanwhile, and others are no longer among the last ones."""
    node, peers = broker(), Peers()
    node.handle(peers.publishes("ann", *["a/b"] * 10, *TEXTS[:2], *["a/b"] * 3, *["-"] * 80), 0)
    asked = PastAsked(route=Route("bob/1", Filter("x LIKE '%a_b%' OR x = 'b'")), events_max=20)
    given = peers.says("bob", asked)
    meanwhile = peers.publishes("ann", *["-"] * 11, "b", "a/b")

    if is_prepared:
        turn = prepared(node, given, meanwhile)
    else:
        node.handle(meanwhile, 1)
        turn = node.handle(given, 2)

    frames = [each.frame for each in turn.actions if isinstance(each, Transmit)]
    messages = [frame.message for frame in frames if isinstance(frame, Data)]
    found = [event.seq for past in messages if isinstance(past, Past) for event in past.events]
    assert found == [9, 10, 13, 14, 15, 107, 108]


def test_small_inputs_and_simple_filters_need_no_preparation() -> None:
    node, peers = broker(), Peers()
    small = peers.says("ann", size=1_000)
    large = peers.says("ann", size=1_000_000)
    assert node.foresee(large, lambda: True) is None
    node.handle(peers.subscribes("bob", *(f"x LIKE '%a_{n}%'" for n in range(10))), 0)
    assert node.foresee(small, lambda: True) is None
    assert node.foresee(large, lambda: True) is not None


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize(
    ("filters", "events", "is_long"),
    [
        (["n >= 0"], 5_000, False),
        (["n >= 0"] + [f"n = {n}" for n in range(20)], 5_000, True),
        ([" OR ".join(f"a{n} = 1" for n in range(300))], 200, True),
        (["+".join(["n"] * 60) + " > 1"], 1_000, True),
        (["n >= 0", "x LIKE '%a_b%'"], 5_000, True),
    ],
    ids=["one", "many", "alternatives", "sum", "pattern"],
)
def test_what_takes_long_depends_on_tests_and_texts(
    filters: list[str], events: int, is_long: bool
) -> None:
    """Few comparisons take no time, however many bytes there are; a pattern reads all of them."""
    node, peers = broker(), Peers()
    node.handle(peers.subscribes("bob", *filters), 0)

    given = peers.publishes("ann", *["-"] * events, size=400_000)

    assert node.takes_long(given) is is_long


@pytest.fixture
def _spared() -> Iterator[None]:
    """No search for garbage among all tests: a broker does not search what it keeps, either."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.spec("LV-6")
@pytest.mark.usefixtures("_spared")
@pytest.mark.parametrize(
    ("filters", "texts"),
    [
        ([f"x LIKE '%{'a_' * 506}b%'"], ["a" * MB]),
        (["x LIKE '%{}_{}%_{}%'".format(*each) for each in THREE], [LETTERS * 70_000]),
        ([" OR ".join(f"x LIKE '%a_{n}_a%'" for n in range(500))], ["a" * MB]),
        (["x LIKE '%{}_{}%_{}%'".format(*each) for each in THREE[:500]], [LETTERS * 70] * 100),
        (["x MATCHES '+/{}/+/{}{}/#'".format(*each) for each in THREE], ["a/" * (MB // 2)]),
    ],
    ids=["long", "many", "alternatives", "events", "topics"],
)  # fmt: skip
def test_no_slice_takes_long(filters: list[str], texts: list[str]) -> None:
    """By processor time, so a busy machine fails no test: what others wait for is far less."""
    node, peers = broker(LINKS[:2]), Peers()
    node.handle(peers.subscribes("bob", *filters), 0)
    given = peers.publishes("ann", *texts)
    until = 0.0
    foresight = node.foresee(given, lambda: time.thread_time() > until)
    assert foresight is not None
    longest, is_complete = 0.0, False
    with soon(20):
        while not is_complete:
            began = time.thread_time()
            until = began + 0.02
            is_complete = foresight.is_complete()
            longest = max(longest, time.thread_time() - began)
        node.foresight = foresight
        began = time.thread_time()
        node.handle(given, 1)
        longest = max(longest, time.thread_time() - began)
    assert longest < 0.25
