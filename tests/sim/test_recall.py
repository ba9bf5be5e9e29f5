"""Subscriptions that begin with the past: all that the border broker still has, first, in order,
and nothing twice, also if the connection breaks or the client moves before the answer is there.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.actions import Action, Deliver, LookUp
from sterna.core.client import Client
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.history.messages import Past, PastAsked
from sterna.core.history.recent import QUESTIONS_MAX, Recall, Recent
from sterna.core.inputs import (
    Attach,
    Detach,
    Publish,
    Subscribe,
    Unsubscribe,
)
from sterna.core.messages import Route
from sterna.core.names import LinkId, NodeId, Peer, Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS, Faults
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Do, Doing, Drop, LinkModel, Pause, Script
from sterna.sim.topology import Topology, from_parents, line
from tests.scale import examples
from tests.sim.overlay import RELOCATION, Facts

RING = 8
"""So few events are kept that some are always gone."""


class Watched(Recent):
    """Also knows all that ever passed, and so what it has to answer."""

    def __init__(self) -> None:
        super().__init__(RING)
        self.passed: list[Event] = []

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        self.passed += events
        super().events_passing(events, link, now)

    def on_past_asked(self, message: PastAsked, link: LinkId, now: Time) -> None:
        super().on_past_asked(message, link, now)
        (*_, answer) = self.broker.unconfirmed(link)
        assert isinstance(answer, Past)
        wanted = [
            event
            for event in self.passed[-RING:]
            if event.time_us >= (message.since_us or 0)
            and message.route.filter.matches(event.attributes)
        ]
        if message.events_max is not None:
            wanted = wanted[len(wanted) - min(message.events_max, len(wanted)) :]
        assert list(answer.events) == wanted


class World:
    """An archive with all events that brokers have accepted, and what it has answered."""

    def __init__(self) -> None:
        self.events: dict[EventId, Event] = {}
        self.answers: dict[tuple[NodeId, int], list[Event]] = {}
        """A broker that crashed and does all anew is told the same, as its log would."""

    def answer(self, broker: NodeId, asked: LookUp) -> list[Event]:
        found = [
            event
            for event in self.events.values()
            if asked.since_us <= event.time_us <= asked.until_us
            and asked.filter.matches(event.attributes)
        ]
        return self.answers.setdefault((broker, asked.question), found)


class Archived(Recent):
    """Looks into an archive, which takes its time."""

    def __init__(self, world: World) -> None:
        super().__init__(RING)
        self.has_archive = True
        self._world = world

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is Peer.CLIENT:
            self._world.events |= {event.id: event for event in events}
        super().events_passing(events, link, now)

    def on_past_asked(self, message: PastAsked, link: LinkId, now: Time) -> None:
        super().on_past_asked(message, link, now)
        if self.unanswered():
            self.wake_by(now + 5_000)

    def wake(self, now: Time) -> None:
        for asked in self.unanswered():
            answer = self._world.answer(self.broker.id, asked)
            self.looked_up(asked.question, answer, now)


class Answered(Recall):
    """Remembers the answers that counted, but for what still waits when its subscription ends.

    A subscription that goes on because enough is there had an answer without events.
    """

    def __init__(self) -> None:
        super().__init__(hold_us=10**12)
        self.answers: dict[str, tuple[Event, ...]] = {}

    def _with_enough(self) -> list[str]:
        enough = super()._with_enough()
        self.answers |= dict.fromkeys(self._with_blocking(enough), ())
        return enough

    def on_past(self, message: Past, link: LinkId, now: Time) -> None:
        before = len(self._asked)
        super().on_past(message, link, now)
        if len(self._asked) < before:
            self.answers[message.subscription.split("/")[1]] = message.events

    def unsubscribed(self, name: str, now: Time) -> None:
        waiting = [held.event for held in self._held if name in held.subscriptions]
        if name in self.answers:
            answer = self.answers[name]
            self.answers[name] = tuple(event for event in answer if event not in waiting)
        super().unsubscribed(name, now)


class Recalling:
    """A network whose brokers keep the last events, and whose clients ask for them."""

    def __init__(self, script: Script, world: World | None = None) -> None:
        self.facts = Facts()
        self.simulation = Simulation(
            script,
            [self.facts],
            components=lambda _: [Watched() if world is None else Archived(world)],
            client_components=lambda _: [Answered()],
        )
        self.given: dict[NodeId, dict[str, list[Event]]] = {}
        """What each application was given for each of its subscriptions."""
        for client in script.clients:
            self._listen(client, self.given.setdefault(client, {}))

    def _listen(self, client: NodeId, given: dict[str, list[Event]]) -> None:
        node = self.simulation.network.hosts[client].node
        act = node.act

        def listen(action: Action) -> None:
            act(action)
            if isinstance(action, Deliver):
                for event, names in zip(action.events, action.subscriptions, strict=True):
                    for name in names:
                        given.setdefault(name, []).append(event)

        node.act = listen  # type: ignore[method-assign]

    def do(self, client: NodeId, what: Doing) -> "Recalling":
        self.simulation.do(Do(client=client, what=what))
        return self

    def publish(self, client: NodeId, kind: str = "x") -> "Recalling":
        return self.do(client, Publish(attributes={"kind": kind}))

    def subscribe(self, client: NodeId, name: str = "1", kind: str = "x") -> "Recalling":
        wanted = Filter(f"kind = '{kind}'")
        return self.do(client, Subscribe(subscription=name, filter=wanted, past_events_max=RING))

    def wait(self, us: Time) -> "Recalling":
        self.simulation.network.run(self.simulation.network.kernel.now + us)
        return self

    def settle(self) -> "Recalling":
        self.simulation.settle()
        return self

    def numbers(self, client: NodeId, name: str = "1") -> list[int]:
        return [event.seq for event in self.given[client].get(name, [])]

    def answers(self, client: NodeId) -> dict[str, tuple[Event, ...]]:
        components = self.simulation.network.hosts[client].node.components
        return next(each.answers for each in components if isinstance(each, Answered))

    def check(self) -> None:
        """What must hold for each subscription, whatever has happened."""
        assert self.simulation.outcome().findings == []
        for client, subscriptions in self.given.items():
            for name, events in subscriptions.items():
                last: dict[NodeId, int] = {}
                for event in events:
                    assert event.seq > last.get(event.publisher, 0), f"{client}/{name}: {events}"
                    last[event.publisher] = event.seq
            for name, answer in self.answers(client).items():
                assert {event.id for event in answer} <= {
                    event.id for event in subscriptions.get(name, [])
                }
        for fact in self.facts.all:
            if isinstance(fact, facts.Recalled):
                given = self.given[fact.at][str(fact.subscription)]
                assert {event.id for event in fact.events} <= {event.id for event in given}


def network(
    topology: Topology,
    clients: dict[NodeId, NodeId],
    handover: HandoverOptions = RELOCATION,
    link: LinkModel | None = None,
    strategy: Strategy = Strategy.COVERING,
    world: World | None = None,
) -> Recalling:
    crashing = tuple(Crash(broker=broker, us=0) for broker in topology.brokers)  # They keep logs.
    script = Script(
        topology=topology,
        clients=clients,
        steps=crashing,
        handover=handover,
        routing=RoutingOptions(strategy=strategy),
        link=link or LinkModel(),
    )
    return Recalling(script, world)


class Story:
    """Clients subscribe, publish, move and go offline at random, and things go wrong."""

    def __init__(
        self, rng: Random, protocol: Handover, faults: Faults, world: World | None
    ) -> None:
        self._rng = rng
        count = rng.randint(1, 4)
        self._topology = from_parents([rng.randrange(n) for n in range(1, count)])
        self.clients = {client: self._broker() for client in ("ann", "bob", "pat")}
        self.run = network(
            self._topology,
            self.clients,
            HandoverOptions(protocol=protocol),
            LinkModel(jitter_us=2_000, loss=faults.loss, duplication=faults.duplication),
            rng.choice(list(Strategy)),
            world,
        )
        self.names: dict[NodeId, list[str]] = {client: [] for client in self.clients}
        self._count = 0

    def tell(self, whats: Sequence[str]) -> None:
        for what in self._rng.choices(whats, k=self._rng.randint(10, 60)):
            getattr(self, f"_{what}")(self._rng.choice(list(self.clients)))
            self.run.wait(self._rng.choice((0, 0, 500, 3_000)))

    def _publish(self, client: NodeId) -> None:
        self.run.publish(client, self._rng.choice("xxy"))

    def _subscribe(self, client: NodeId) -> None:
        self._count += 1
        self.names[client].append(str(self._count))
        asked = Subscribe(
            subscription=str(self._count),
            filter=Filter(self._rng.choice(("kind = 'x'", "TRUE"))),
            past_events_max=self._rng.choice((None, 0, 2, RING)),
            past_since_us=self._rng.choice((0, 0, 20_000)),
        )
        self.run.do(client, asked)

    def _unsubscribe(self, client: NodeId) -> None:
        if self.names[client]:
            self.run.do(client, Unsubscribe(subscription=self.names[client].pop()))

    def _wait(self, _client: NodeId) -> None:
        self.run.wait(self._while())

    def _settle(self, _client: NodeId) -> None:
        self.run.settle()

    def move(self, client: NodeId) -> None:
        self.run.do(client, Attach(broker=self._broker()))

    _move = move

    def _nap(self, client: NodeId) -> None:
        self.run.do(client, Detach())

    def _drop(self, client: NodeId) -> None:
        node = self.run.simulation.network.hosts[client].node
        assert isinstance(node, Client)
        assert node.link is not None
        self.run.simulation.do(Drop(a=client, b=node.link, us=self._while()))

    def _pause(self, _client: NodeId) -> None:
        self.run.simulation.do(Pause(broker=self._broker(), us=self._while()))

    def _crash(self, _client: NodeId) -> None:
        self.run.simulation.do(Crash(broker=self._broker(), us=self._while()))

    def _while(self) -> Time:
        return self._rng.randint(1_000, 100_000)

    def _broker(self) -> NodeId:
        return self._rng.choice(self._topology.brokers)


@pytest.mark.spec("LV-2", "PA-6")
@pytest.mark.parametrize("archive", [False, True], ids=["", "archive"])
@pytest.mark.parametrize("faults", ["none", "heavy"])
@pytest.mark.parametrize("protocol", [Handover.RELOCATION, Handover.NONE])
def test_the_past_comes_first_in_order_and_once(
    protocol: Handover, faults: str, archive: bool
) -> None:
    seen: Counter[str] = Counter()
    roams, fails = protocol == Handover.RELOCATION, faults == "heavy"
    whats = ["publish"] * 6 + ["subscribe"] * 3 + ["unsubscribe", "wait", "settle"]
    whats += ["move", "move", "nap"] * roams + ["drop", "pause", "crash"] * fails

    @examples(80)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        rng = Random(f"recall {seed}")  # noqa: S311 - reproducible, not secret.
        story = Story(rng, protocol, FAULTS[faults], World() if archive else None)
        story.tell(whats)
        if roams:
            for client in story.clients:
                story.move(client)
        story.run.settle().check()
        for client in story.clients:
            assert set(story.names[client]) <= set(story.run.answers(client))
        recalled = [fact for fact in story.run.facts.all if isinstance(fact, facts.Recalled)]
        seen.update(runs=1, recalled=sum(len(fact.events) for fact in recalled))

    runs()
    assert seen["recalled"] > 5 * seen["runs"]


# ---- Single stories


@pytest.mark.spec("LV-2")
def test_a_subscription_begins_with_what_its_broker_has() -> None:
    run = network(line(2), {"ann": "B1", "pat": "B1"}).settle()
    for _ in range(RING + 2):
        run.publish("pat").settle()
    run.publish("pat", "y").settle().subscribe("ann").publish("pat").settle()

    assert run.numbers("ann") == [*range(4, RING + 3), RING + 4]


@pytest.mark.spec("LV-2", "PA-5")
def test_facts_say_how_much_was_asked_for_and_whose_past_came() -> None:
    """The past of the second waits with an event that came as usual, for that of the first."""
    run = network(line(1), {"ann": "B1", "pat": "B1"}).settle()
    run.do("ann", Subscribe(subscription="0", filter=Filter("TRUE"))).settle()
    run.publish("pat", "x").publish("pat", "y").settle()
    run.subscribe("ann", "1").subscribe("ann", "2", kind="y").publish("pat", "x").settle()

    said = [fact for fact in run.facts.all if isinstance(fact, facts.Subscribed)]
    assert [(fact.subscription, fact.past_events_max) for fact in said] == [
        ("0", None),
        ("1", RING),
        ("2", RING),
    ]
    recalled = [fact for fact in run.facts.all if isinstance(fact, facts.Recalled)]
    assert [(fact.subscription, [event.seq for event in fact.events]) for fact in recalled] == [
        ("1", [1]),
        ("2", [2]),
    ]


@pytest.mark.spec("LV-2")
def test_the_past_waits_for_a_connection() -> None:
    run = network(line(2), {"ann": "B1", "pat": "B1"}).settle().publish("pat").settle()
    run.do("ann", Detach()).wait(5_000).subscribe("ann").publish("pat").settle()
    assert run.numbers("ann") == []
    run.do("ann", Attach(broker="B1")).settle().publish("pat").settle()
    assert run.numbers("ann") == [1, 2, 3]


@pytest.mark.spec("LV-2")
@pytest.mark.parametrize("broker", ["B1", "B2"], ids=["resumed", "moved"])
def test_what_comes_before_a_lost_answer_waits_for_it(broker: str) -> None:
    """The broker has answered, but the client has gone; what comes now is kept for it.

    Both brokers see all events, because somebody wants them there.
    """
    run = network(line(2), {"ann": "B1", "bob": "B2", "pat": "B1"}).settle()
    run.do("bob", Subscribe(subscription="1", filter=Filter("TRUE"))).settle()
    run.publish("pat").publish("pat").settle()
    run.subscribe("ann").wait(1_500).do("ann", Detach()).wait(5_000)
    run.publish("pat").settle()
    run.do("ann", Attach(broker=broker)).settle().publish("pat").settle()

    assert run.numbers("ann") == [1, 2, 3, 4]
    (recalled,) = [fact for fact in run.facts.all if isinstance(fact, facts.Recalled)]
    assert [event.seq for event in recalled.events] == [1, 2]


@pytest.mark.spec("LV-2")
def test_what_the_old_broker_kept_comes_before_the_past_of_the_new_one() -> None:
    """The new one has seen the second event only, because somebody there wants such events."""
    run = network(line(2), {"ann": "B1", "bob": "B2", "pat": "B1"}).settle()
    run.do("bob", Subscribe(subscription="1", filter=Filter("kind = 'y'"))).settle()
    run.subscribe("ann", kind="x' OR kind = 'y").wait(1_500).do("ann", Detach()).wait(5_000)
    run.publish("pat", "x").publish("pat", "y").settle()
    run.do("ann", Attach(broker="B2")).settle()

    assert run.numbers("ann") == [1, 2]


@pytest.mark.spec("LV-2")
def test_nobody_is_asked_twice_on_one_connection() -> None:
    run = network(line(1), {"ann": "B1", "pat": "B1"}).settle().publish("pat").settle()
    run.do("ann", Detach()).wait(5_000).subscribe("ann").do("ann", Attach(broker="B1")).settle()
    run.subscribe("ann", "2").wait(500)
    run.simulation.do(Drop(a="ann", b="B1", us=10_000))
    run.settle()
    messages = run.simulation.outcome().messages
    assert (messages["PastAsked"], messages["Past"]) == (2, 2)


@pytest.mark.spec("LV-2")
def test_an_answer_is_for_the_subscription_that_asked() -> None:
    """Its name is used again, for something else, before the answer is there."""
    run = network(line(1), {"ann": "B1", "pat": "B1"}).settle()
    run.publish("pat", "x").publish("pat", "y").settle()
    run.subscribe("ann").do("ann", Unsubscribe(subscription="1")).subscribe("ann", kind="y")
    run.settle()
    assert run.numbers("ann") == [2]


@pytest.mark.spec("LV-2")
def test_who_ends_the_subscription_gets_what_waits_for_others() -> None:
    run = network(line(1), {"ann": "B1", "pat": "B1"}).settle()
    run.do("ann", Subscribe(subscription="0", filter=Filter("TRUE"))).settle()
    run.do("ann", Detach()).wait(5_000).subscribe("ann").publish("pat").settle()
    run.do("ann", Attach(broker="B1")).wait(4_500)
    run.do("ann", Unsubscribe(subscription="1")).settle()
    assert run.numbers("ann", "0") == [1]


@pytest.mark.spec("LV-2")
def test_publishers_that_were_not_in_order_are_recalled_in_order() -> None:
    """As happens where publishers move without a protocol for that."""
    run = network(line(1), {"ann": "B1"}).settle()
    part = next(
        each
        for each in run.simulation.network.hosts["B1"].node.components
        if isinstance(each, Recent)
    )
    events = [
        Event(publisher=publisher, seq=seq, time_us=0, attributes={"kind": "x"})
        for publisher, seq in (("pat", 2), ("bob", 1), ("pat", 1), ("pat", 2))
    ]
    Recent.events_passing(part, events, "pat", 0)
    Recent.on_past_asked(
        part, PastAsked(route=Route("ann/1", Filter("TRUE")), events_max=RING), "ann", 0
    )
    (*_, answer) = part.broker.unconfirmed("ann")
    assert isinstance(answer, Past)
    assert [event.id for event in answer.events] == [
        EventId("pat", 1),
        EventId("bob", 1),
        EventId("pat", 2),
    ]


@pytest.mark.spec("PA-6")
def test_the_archive_is_asked_for_what_its_broker_never_saw() -> None:
    """All that was published anywhere, oldest first; what comes meanwhile waits."""
    world = World()
    run = network(line(2), {"ann": "B2", "pat": "B1"}, world=world).settle()
    for _ in range(RING - 2):
        run.publish("pat").settle()
    run.subscribe("ann").wait(2_500).publish("pat").wait(3_200)
    assert run.numbers("ann") == [], "the event waits for the past"
    run.settle()

    assert run.numbers("ann") == [*range(1, RING)]
    assert len(world.answers) == 1
    run.subscribe("ann", "2").settle()
    assert len(world.answers) == 2, "its own memory is too short"


@pytest.mark.spec("PA-6")
def test_the_last_events_are_the_last_of_archive_and_broker_together() -> None:
    """What a broker has seen lately may be old, of publishers that were away."""
    run = network(line(1), {"ann": "B1"}, world=World()).settle()
    part = next(
        each
        for each in run.simulation.network.hosts["B1"].node.components
        if isinstance(each, Recent)
    )
    old, new, newest = (
        Event(publisher=name, seq=1, time_us=time, attributes={"kind": "x"})
        for name, time in (("pat", 5), ("bob", 60), ("eve", 70))
    )
    Recent.events_passing(part, [old], "pat", 100)
    asked = PastAsked(route=Route("ann/1", Filter("TRUE")), events_max=2)
    Recent.on_past_asked(part, asked, "ann", 100)
    (question,) = part.unanswered()
    part.looked_up(question.question, [new, newest], 110)

    (*_, answer) = part.broker.unconfirmed("ann")
    assert isinstance(answer, Past)
    assert answer.events == (new, newest)


@pytest.mark.spec("PA-6")
def test_nobody_waits_for_an_archive_that_is_asked_too_much() -> None:
    """Beyond a number of questions at a time, the broker answers with what it has itself."""
    run = network(line(1), {"ann": "B1", "pat": "B1"}, world=World()).settle()
    run.publish("pat").settle()
    for number in range(QUESTIONS_MAX + 1):
        run.subscribe("ann", str(number))
    run.wait(2_500)

    assert list(run.answers("ann")) == [str(QUESTIONS_MAX)]
    run.settle()
    assert len(run.answers("ann")) == QUESTIONS_MAX + 1
