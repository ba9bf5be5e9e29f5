"""The past in parts: as one answer, in order and once, also if the answer breaks off."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.handover.options import Handover
from sterna.core.history import recall
from sterna.core.history.messages import Past, PastAsked
from sterna.core.history.recall import Recall
from sterna.core.history.recent import Recent
from sterna.core.inputs import Attach, Detach, Publish, Subscribe
from sterna.core.names import LinkId, NodeId, Time
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS
from sterna.sim.run import Simulation
from sterna.sim.topology import line
from tests.scale import examples
from tests.sim.overlay import Facts
from tests.sim.test_recall import RING, Recalling, Story, network

pytestmark = pytest.mark.spec("LV-2")

PAYLOAD = b"." * 100_000
"""Each such event is a part of its own, and three of them are a window."""


class Expecting(Recent):
    """Knows what each answer has to be, in all its parts."""

    def __init__(self) -> None:
        super().__init__(RING)
        self.passed: list[Event] = []
        self.expected: dict[tuple[str, int], list[Event]] = {}

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        self.passed += events
        super().events_passing(events, link, now)

    def on_past_asked(self, message: PastAsked, link: LinkId, now: Time) -> None:
        wanted = [
            event
            for event in self.passed[-RING:]
            if event.time_us >= (message.since_us or 0)
            and message.route.filter.matches(event.attributes)
        ]
        if message.events_max is not None:
            wanted = wanted[len(wanted) - min(message.events_max, len(wanted)) :]
        self.expected[message.route.id, message.number] = wanted
        super().on_past_asked(message, link, now)


class Collecting(Recall):
    """Remembers all parts of each answer."""

    def __init__(self) -> None:
        super().__init__(hold_us=10**12)
        self.parts: dict[tuple[str, int], list[tuple[Event, ...]]] = {}
        self.ended: dict[tuple[str, int], None] = {}
        self.answers: dict[str, tuple[Event, ...]] = {}

    def on_past(self, message: Past, link: LinkId, now: Time) -> None:
        key = message.subscription, message.number
        self.parts.setdefault(key, []).append(message.events)
        if not message.more:
            self.ended[key] = None
            self.answers[message.subscription.split("/")[1]] = ()
        super().on_past(message, link, now)

    def _with_enough(self) -> list[str]:
        enough = super()._with_enough()
        self.answers |= dict.fromkeys(self._with_blocking(enough), ())
        return enough


class InParts(Recalling):
    """A network whose events are so large that each is a part of its own."""

    def __init__(self, run: Recalling) -> None:
        self.facts = Facts()
        self.simulation = Simulation(
            run.simulation.script,
            [self.facts],
            components=lambda _: [Expecting()],
            client_components=lambda _: [Collecting()],
        )
        self.given = {}
        for client in run.simulation.script.clients:
            self._listen(client, self.given.setdefault(client, {}))

    def publish(self, client: NodeId, kind: str = "x") -> "InParts":
        self.do(client, Publish(attributes={"kind": kind}, payload=PAYLOAD))
        return self

    def answers(self, client: NodeId) -> dict[str, tuple[Event, ...]]:
        return self.collected(client).answers

    def collected(self, client: NodeId) -> Collecting:
        part = self.simulation.network.hosts[client].node.part("past")
        assert isinstance(part, Collecting)
        return part

    def expecting(self, broker: NodeId) -> Expecting:
        part = self.simulation.network.hosts[broker].node.part("past")
        assert isinstance(part, Expecting)
        return part


def in_parts(*args: object, **options: object) -> InParts:
    return InParts(network(*args, **options))  # type: ignore[arg-type]


class StoryInParts(Story):
    """The same stories, with large events."""

    run: InParts

    def __init__(self, rng: Random, protocol: Handover, faults: str) -> None:
        super().__init__(rng, protocol, FAULTS[faults], None)
        self.run = InParts(self.run)


@pytest.mark.parametrize("faults", ["none", "heavy"])
@pytest.mark.parametrize("protocol", [Handover.RELOCATION, Handover.NONE])
def test_an_answer_in_parts_comes_first_in_order_and_once(protocol: Handover, faults: str) -> None:
    seen: Counter[str] = Counter()
    roams, fails = protocol == Handover.RELOCATION, faults == "heavy"
    whats = ["publish"] * 6 + ["subscribe"] * 3 + ["unsubscribe", "wait", "settle"]
    whats += ["move", "move", "nap"] * roams + ["drop", "pause", "crash"] * fails

    @examples(50)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        rng = Random(f"parts {seed}")  # noqa: S311 - reproducible, not secret.
        story = StoryInParts(rng, protocol, faults)
        story.tell(whats)
        if roams:
            for client in story.clients:
                story.move(client)
        run = story.run
        run.settle().check()
        for client in story.clients:
            collected = run.collected(client)
            assert set(story.names[client]) <= set(collected.answers)
            if not roams and not fails:
                for (id_, number), parts in collected.parts.items():
                    expected = run.expecting(story.clients[client]).expected[id_, number]
                    came = [event for part in parts for event in part]
                    assert came == expected[: len(came)]
                    if (id_, number) in collected.ended:
                        assert came == expected
            seen["parts"] += sum(map(len, collected.parts.values()))
        seen["runs"] += 1

    runs()
    assert seen["parts"] > 5 * seen["runs"]


def test_what_follows_waits_for_the_last_part() -> None:
    run = in_parts(line(1), {"ann": "B1", "pat": "B1"})
    run.settle()
    for _ in range(RING):
        run.publish("pat")
    run.settle()
    run.subscribe("ann").wait(2_500)
    run.publish("pat").wait(1_500)
    assert 0 < len(run.numbers("ann")) < RING, "the parts that came are there, and nothing else"
    run.settle()
    assert run.numbers("ann") == [*range(1, RING + 2)]
    recalled = [fact for fact in run.facts.all if isinstance(fact, facts.Recalled)]
    assert len(recalled) == RING


def test_a_client_that_moves_in_the_middle_goes_on_elsewhere() -> None:
    """It asks again there, and does not get again what it had."""
    run = in_parts(line(2), {"ann": "B1", "bob": "B2", "pat": "B1"})
    run.settle()
    run.do("bob", Subscribe(subscription="1", filter=Filter("TRUE"))).settle()
    for _ in range(RING):
        run.publish("pat")
    run.settle()
    run.subscribe("ann").wait(2_500)
    some = len(run.numbers("ann"))
    assert 0 < some < RING
    run.do("ann", Detach()).wait(5_000).do("ann", Attach(broker="B2")).settle()
    run.publish("pat").settle()
    assert run.numbers("ann") == [*range(1, RING + 2)]
    assert len(run.collected("ann").parts["ann/1", 1]) > RING
    run.check()


def test_a_client_asks_again_if_its_broker_has_too_many_requests() -> None:
    run = in_parts(line(1), {"ann": "B1", "pat": "B1"})
    run.settle().publish("pat").settle()
    part = run.expecting("B1")
    part._open_count += 10_000
    run.subscribe("ann").wait(500_000)
    assert run.numbers("ann") == []
    run.publish("pat").wait(100_000)
    part._open_count -= 10_000
    run.wait(1_000_000).settle()
    assert run.numbers("ann") == [1, 2]
    run.check()


def test_a_client_that_would_hold_too_much_goes_on_without_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It knows what it missed."""
    monkeypatch.setattr(recall, "HELD_MAX", 2)
    run = in_parts(line(1), {"ann": "B1", "pat": "B1"})
    run.settle()
    for _ in range(RING):
        run.publish("pat")
    run.settle()
    run.subscribe("ann").wait(1_500)
    for _ in range(3):
        run.publish("pat")
    run.settle()
    had = run.numbers("ann")
    missed = [fact.events for fact in run.facts.all if isinstance(fact, facts.Missed)]
    lost = [id_.seq for ids in missed for id_ in ids]
    assert lost
    assert had == [seq for seq in range(1, RING + 4) if seq not in lost]
    assert run.collected("ann")._given_up == {}
