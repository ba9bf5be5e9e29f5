"""Brokers change how they hand clients over, one after the other, and no client is cut off."""

import random
from collections.abc import Iterable
from itertools import permutations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sterna.core import facts, protocol
from sterna.core.client import Client
from sterna.core.component import BrokerComponent
from sterna.core.handover.guests import Moment
from sterna.core.handover.hosting import Hosting
from sterna.core.handover.messages import Farewell
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.handover.roaming import NEWS_US
from sterna.core.inputs import Advertise, Attach, Configured, Detach, Publish, Subscribe
from sterna.core.protocol import Kind, Protocol
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import Settings
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.generate import generate
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Crash, Do, Drop, Reconfigure, Script, Settle, Wait
from sterna.sim.topology import line
from tests.scale import examples
from tests.sim.overlay import RELOCATION, Overlay
from tests.sim.test_leaving import leave
from tests.sim.test_reconfiguring import BROKERS, SEEDS, TROUBLE, plan_for, settings

LINE = ("B1", "B2", "B3")
NONE = HandoverOptions()
NAIVE = HandoverOptions(protocol=Handover.NAIVE)


def change(
    run: Overlay, brokers: Iterable[str], handover: HandoverOptions, *, tells: bool = True
) -> Overlay:
    """Change the handover of some brokers at once."""
    for broker in brokers:
        step = Reconfigure(broker=broker, settings=Settings(handover=handover), tells=tells)
        run.simulation.do(step)
    return run


def roaming() -> Overlay:
    """Ann is at B3, Bob at B1, and both have got one event of Pat, who is at B1."""
    run = Overlay(line(3), {"ann": "B3", "bob": "B1", "pat": "B1"}, handover=RELOCATION)
    run.subscribe("ann", "x > 0").subscribe("bob", "x > 0").settle()
    return run.publish("pat", x=1).settle()


def waiting() -> Overlay:
    """Ann has come to B1, and waits for what was kept at B3, which cannot be reached."""
    run = roaming().detach("ann").settle()
    run.fault(Drop(a="B2", b="B3", us=5_000_000))
    return run.attach("ann", "B1").wait(100_000)


# ---- Clients are not handed over any more


@pytest.mark.spec("LV-9", "LV-6")
@pytest.mark.parametrize("handover", [NONE, NAIVE], ids=["none", "naive"])
@pytest.mark.parametrize("broker", ["B3", "B2"], ids=["the old broker", "a broker on the way"])
def test_a_client_does_not_wait_for_a_broker_that_hands_nothing_over(
    broker: str, handover: HandoverOptions
) -> None:
    """It gets no replay, and live events from then on."""
    run = roaming().detach("ann").settle()
    change(run, [broker], handover).wait(1_000_000)
    run.attach("ann", "B1").settle()

    run.publish("pat", x=2).settle()
    assert run.received("ann") == ["pat#1", "pat#2"]
    assert run.relocation("B1").is_settled


@pytest.mark.spec("LV-9")
def test_the_old_broker_drops_a_client_that_is_elsewhere() -> None:
    run = roaming().detach("ann").settle()
    change(run, ["B3"], NONE).wait(1_000_000)
    assert "ann" in run.broker("B3").peers
    run.attach("ann", "B1").settle()

    assert "ann" not in run.broker("B3").peers
    assert "ann" not in run.table("B3")


@pytest.mark.spec("LV-9")
def test_a_client_gets_what_came_while_it_waited() -> None:
    """All brokers have changed before the replay comes."""
    run = change(waiting(), LINE, NONE)
    run.publish("pat", x=2).wait(NEWS_US).settle()

    assert run.received("ann") == ["pat#1", "pat#2"]
    for broker in LINE:
        assert run.broker(broker).part("relocation") is None


@pytest.mark.spec("LV-9")
def test_a_request_that_waits_for_a_link_is_sent_before_relocation_ends() -> None:
    """B2 has nothing else left to do."""
    run = change(waiting(), ["B2"], NONE)
    run.publish("pat", x=2).wait(NEWS_US).settle()

    assert run.received("ann") == ["pat#1", "pat#2"]
    assert run.broker("B2").part("relocation") is None


@pytest.mark.spec("LV-9")
@pytest.mark.parametrize("us", range(0, 5_000, 500))
@pytest.mark.parametrize("tells", [True, False])
def test_a_client_that_arrives_is_received_whatever_its_broker_has_become(
    us: int,
    tells: bool,
) -> None:
    """Perhaps it does not know yet that clients are not handed over there."""
    run = roaming().attach("ann", "B1").wait(us)
    change(run, ["B1"], NONE, tells=tells).settle()

    run.publish("pat", x=2).publish("ann", x=1).settle()
    assert run.received("ann")[-2:] == ["pat#2", "ann#1"]


@pytest.mark.spec("LV-9")
@pytest.mark.parametrize("us", range(0, 5_000, 500))
def test_a_new_client_is_introduced_although_the_change_comes_before_the_welcome(us: int) -> None:
    script = Script(topology=line(1), clients={"ann": "B1"}, steps=(), handover=RELOCATION)
    simulation = Simulation(script)
    for step in (
        Do(client="ann", what=Subscribe(subscription="1", filter=Filter("x > 0"))),
        Wait(us=us),
        Reconfigure(broker="B1", settings=Settings(), tells=True),
        Settle(),
        Do(client="ann", what=Publish(attributes={"x": 1})),
    ):
        simulation.do(step)
    simulation.settle()

    assert simulation.oracle.received("ann") == [EventId("ann", 1)]


@pytest.mark.spec("LV-9")
@pytest.mark.parametrize("us", range(0, 2_500, 500))
def test_a_client_is_welcomed_although_relocation_has_ended_when_it_is_back(us: int) -> None:
    """It was away when it could have been, and does not know of the change."""
    run = roaming().attach("ann", "B1").wait(2_200).detach("ann").settle()
    assert run.relocation("B1").guests["ann"].stay == 0
    run.attach("ann", "B1").wait(us)
    change(run, ["B1"], NONE, tells=False)
    run.publish("ann", x=1).settle().publish("pat", x=2).settle()

    assert run.received("ann") == ["pat#1", "ann#1", "pat#2"]


@pytest.mark.spec("LV-9")
def test_a_client_that_subscribes_without_an_arrival_gets_its_events() -> None:
    """Its link was reset, and B3 expects an arrival, but it knows of the change already."""
    run = roaming()
    run.relocation("B3").guests["ann"].pass_through(Moment.LINK_RESET)
    change(run, ["B3"], NONE).publish("pat", x=2).settle()
    assert run.received("ann") == ["pat#1"]
    run.subscribe("ann", "y > 0", "other").settle().publish("pat", x=3).settle()

    assert run.received("ann") == ["pat#1", "pat#2", "pat#3"]
    assert run.broker("B3").part("relocation") is None


# ---- Clients that stay where they are


@pytest.mark.spec("LV-9", "LV-3")
def test_other_clients_keep_everything_while_relocation_ends() -> None:
    """Bob loses his connection while B1 still waits for what was kept for Ann."""
    run = change(waiting(), LINE, NONE)
    run.fault(Drop(a="bob", b="B1", us=1_000_000)).wait(100_000)
    run.publish("pat", x=2).wait(NEWS_US).settle()

    assert run.received("bob") == ["pat#1", "pat#2"]


@pytest.mark.spec("LV-9", "LV-3")
@pytest.mark.parametrize("tells", [True, False])
def test_other_clients_keep_everything_when_relocation_goes_on(tells: bool) -> None:
    """It had not ended yet: Ann still waits. Bob is away before he hears of that."""
    run = change(waiting(), LINE, NONE)
    change(run, LINE, RELOCATION, tells=tells)
    run.fault(Drop(a="bob", b="B1", us=1_000_000)).wait(100_000)
    run.publish("pat", x=2).wait(NEWS_US).settle()

    assert run.received("bob") == ["pat#1", "pat#2"]
    assert run.received("ann") == ["pat#1", "pat#2"]


@pytest.mark.spec("LV-9", "LV-3")
@pytest.mark.parametrize("us", range(0, 5_000, 500))
def test_clients_keep_their_subscriptions_when_relocation_begins_and_ends_at_once(us: int) -> None:
    """Their arrivals come to a broker that does not hand them over any more."""
    run = Overlay(line(1), {"bob": "B1", "pat": "B1"})
    run.subscribe("bob", "x > 0").settle()
    change(run, ["B1"], RELOCATION).wait(us)
    change(run, ["B1"], NONE).settle()
    run.publish("pat", x=1).settle()

    assert run.received("bob") == ["pat#1"]


@pytest.mark.spec("LV-9", "LV-3")
def test_a_client_that_waits_gets_everything_when_relocation_goes_on() -> None:
    """B1 ends to hand clients over and begins again before the replay for Ann has come."""
    run = roaming().detach("ann").settle().publish("pat", x=2).settle()
    run.fault(Drop(a="B2", b="B3", us=5_000_000)).attach("ann", "B1").wait(100_000)
    run.publish("pat", x=3).wait(100_000)
    change(run, ["B1"], NONE).wait(100_000)
    change(run, ["B1"], RELOCATION)
    for _ in range(5):
        run.publish("pat", x=4).wait(500)
    run.wait(NEWS_US).settle()

    assert run.received("ann") == [f"pat#{number}" for number in range(1, 9)]


@pytest.mark.spec("LV-9", "PM-3")
def test_a_client_learns_what_was_discarded_before_relocation_ended() -> None:
    """It is away when its broker changes, and knows of the change when it is back."""
    small = HandoverOptions(protocol=Handover.RELOCATION, cache_events_max=2)
    run = Overlay(line(1), {"bob": "B1", "pat": "B1"}, handover=small)
    run.subscribe("bob", "x > 0").settle()
    run.fault(Drop(a="bob", b="B1", us=1_000_000)).wait(10_000)
    for _ in range(3):
        run.publish("pat", x=1)
    run.wait(100_000)
    change(run, ["B1"], NONE).settle()

    assert run.received("bob") == ["pat#2", "pat#3"]
    (missed,) = run.facts_of(facts.Missed)
    assert isinstance(missed, facts.Missed)
    assert missed.events == (EventId("pat", 1),)


# ---- Clients are handed over from now on


@pytest.mark.spec("LV-9", "PM-4")
@pytest.mark.parametrize("order", list(permutations(LINE)), ids="-".join)
def test_clients_that_are_known_already_keep_their_events_on_their_first_move(
    order: tuple[str, ...],
) -> None:
    """Brokers that begin later learn of the clients that have been welcomed before."""
    run = Overlay(line(3), {"ann": "B1", "pat": "B2"})
    run.subscribe("ann", "x > 0").settle()
    for broker in order:
        change(run, [broker], RELOCATION).wait(1_000_000)
    run.detach("ann").wait(100_000).publish("pat", x=1).wait(100_000)
    run.attach("ann", "B3").wait(100_000).publish("pat", x=2).settle()

    assert run.received("ann") == ["pat#1", "pat#2"]
    assert run.facts_of(facts.Forgotten) == []


@pytest.mark.spec("LV-9")
@pytest.mark.parametrize("us", range(0, 5_000, 500))
def test_a_client_that_comes_back_is_received_although_its_broker_has_just_begun(us: int) -> None:
    """B1 knows Ann from before, and she does not know yet that she is handed over there."""
    run = Overlay(line(2), {"ann": "B1", "pat": "B2"})
    run.subscribe("ann", "x > 0").subscribe("ann", "y > 0", "other").settle()
    run.attach("ann", "B2").settle().unsubscribe("ann", "other").settle()
    run.attach("ann", "B1").wait(us)
    change(run, LINE[:2], RELOCATION, tells=False).settle()

    run.publish("pat", x=1).publish("ann", x=1).settle()
    assert sorted(run.received("ann")) == ["ann#1", "pat#1"]
    assert run.table("B1")["ann"] == ["x > 0"]


@pytest.mark.spec("LV-9", "PM-4")
def test_a_broker_that_begins_while_a_link_is_down_learns_of_clients_later() -> None:
    run = Overlay(line(2), {"ann": "B1", "pat": "B2"})
    run.subscribe("ann", "x > 0").settle()
    change(run, ["B1"], RELOCATION).settle()
    run.fault(Drop(a="B1", b="B2", us=1_000_000)).wait(10_000)
    change(run, ["B2"], RELOCATION).settle()

    assert run.relocation("B2").trails["ann"].link == "B1"


@pytest.mark.spec("LV-9", "LV-6")
def test_a_client_that_roams_again_is_not_taken_for_what_it_was() -> None:
    """B2 knows it from before, and does not send it away: its visits are counted on."""
    run = Overlay(line(2), {"ann": "B1"}, handover=RELOCATION)
    change(run, ["B1"], NONE).settle()
    before = run.relocation("B2").trails["ann"]
    run.attach("ann", "B2").settle()

    after = run.relocation("B2").trails["ann"]
    assert (before.link, after.link) == ("B1", None)
    assert after.born > before.born
    attached = [fact for fact in run.facts_of(facts.Attached) if fact.at == "ann"]
    assert len(attached) == 2


@pytest.mark.spec("LV-9", "LV-6")
def test_visits_are_counted_on_over_the_same_link() -> None:
    """B2 has been told of Ann before, and is told of her again."""
    run = Overlay(line(2), {"ann": "B1"}, handover=RELOCATION)
    before = run.relocation("B2").trails["ann"]
    change(run, ["B1"], NONE).settle()
    change(run, ["B1"], RELOCATION).settle()

    assert run.relocation("B2").trails["ann"].born > before.born


# ---- Another protocol


class Staying(Hosting):
    """Keeps what comes for clients that are away, and hands nothing over."""

    name = "staying"


class Listening(BrokerComponent):
    """Wants to know who leaves, as others do."""

    name = "listening"
    handles = (Farewell,)

    def on_farewell(self, message: Farewell, link: str, now: int) -> None:
        """Do nothing about it."""


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more protocols, known to one test."""
    monkeypatch.setattr(protocol, "_protocols", dict(protocol._protocols))
    protocol.register(Protocol(name="staying", kind=Kind.HANDOVER, broker=Staying))
    protocol.register(Protocol(name="listening", broker=Listening))


@pytest.mark.spec("LV-9")
@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
def test_another_protocol_for_guests_takes_over_while_a_client_waits(*, leaves: bool) -> None:
    run = change(waiting(), LINE, HandoverOptions(protocol="staying"))
    run.publish("pat", x=2).wait(100_000)
    if leaves:
        leave(run, "ann")
    run.wait(NEWS_US).settle()

    assert run.received("ann") == (["pat#1"] if leaves else ["pat#1", "pat#2"])
    assert run.broker("B1").part("relocation") is None
    run.fault(Drop(a="bob", b="B1", us=1_000_000)).wait(100_000)
    run.publish("pat", x=3).wait(100_000)
    assert run.broker("B1").kept("bob").events == 1
    assert run.settle().received("bob") == ["pat#1", "pat#2", "pat#3"]


@pytest.mark.spec("LV-9")
@pytest.mark.usefixtures("others")
def test_farewells_are_for_the_protocol_in_force() -> None:
    """Relocation is not done, but Bob is no guest of it any more."""
    run = change(waiting(), LINE, HandoverOptions(protocol="staying"))
    leave(run, "bob").wait(100_000)

    assert run.broker("B1").part("relocation") is not None
    assert "bob" not in run.broker("B1").peers


@pytest.mark.spec("LV-9")
@pytest.mark.usefixtures("others")
def test_settings_that_are_refused_change_nothing() -> None:
    run = waiting()
    broker = run.broker("B1")
    before = broker.settings, broker.components
    twice = Settings(handover=RELOCATION, protocols=("listening",))
    with pytest.raises(ValueError, match="two components of B1 handle Farewell"):
        broker.handle(Configured(settings=twice), run.simulation.network.kernel.now)

    assert (broker.settings, broker.components) == before
    assert run.settle().publish("pat", x=2).settle().received("ann") == ["pat#1", "pat#2"]


# ---- Anything at any time


def with_handover(each: Settings, protocol: str) -> Settings:
    """The same settings with another handover protocol."""
    replace = msgspec.structs.replace
    return replace(each, handover=replace(each.handover, protocol=protocol))


def mixed_in(
    steps: Iterable[AnyStep], changes: list[Reconfigure], rng: random.Random
) -> list[AnyStep]:
    """The steps with changes in between, in their order."""
    mixed = list(steps)
    places = sorted(rng.randrange(len(mixed) + 1) for _ in changes)
    for place, step in reversed(list(zip(places, changes, strict=True))):
        mixed[place:place] = [step, Settle()] if rng.random() < 0.2 else [step]
    return mixed


def begin(script: Script, handover: HandoverOptions) -> Simulation:
    """The network of a script, with another handover and nothing done yet; crashes are foreseen."""
    crashes = tuple(step for step in script.steps if isinstance(step, Crash))
    return Simulation(msgspec.structs.replace(script, handover=handover, steps=crashes))


@pytest.mark.spec("LV-9", "PM-4")
@examples(80, long=10)
@given(settings(), TROUBLE, BROKERS, SEEDS)
def test_handover_is_introduced_broker_by_broker_before_clients_roam(
    later: Settings, faults: str, brokers: int, seed: int
) -> None:
    """Once all brokers hand clients over, those that were known before keep every event."""
    rng = random.Random(f"introduced {seed}")  # noqa: S311 - reproducible.
    script = generate(plan_for(later, faults, brokers, seed, roams=True), seed)
    half = len(script.steps) // 2
    calm = [step for step in script.steps[:half] if isinstance(step, Wait | Settle) or stays(step)]
    order = rng.sample(script.topology.brokers, brokers)
    changes = [Reconfigure(broker=broker, settings=later, tells=True) for broker in order]
    simulation = begin(script, NONE)
    for step in (*mixed_in(calm, changes, rng), Settle(), *script.steps[half:], Settle()):
        simulation.do(step)

    assert simulation.outcome().findings == []


def stays(step: AnyStep) -> bool:
    """Whether a client does something, and stays where it is."""
    return isinstance(step, Do) and not isinstance(step.what, Attach | Detach)


NEVER_TOLD = Settings(
    routing=RoutingOptions(strategy=Strategy.SIMPLE),
    handover=HandoverOptions(protocol=Handover.RELOCATION, away_max_us=10**12),
    protocols=("overlay", "past", "confirming"),
)
"""A broker waits for what another has promised, for a client that was born anew since; those
between them hand nothing over any more."""


@pytest.mark.spec("LV-9", "LV-6")
@examples(80, long=10)
@given(
    settings(),
    st.lists(st.sampled_from(Handover), min_size=1, max_size=3),
    *(TROUBLE, BROKERS, SEEDS),
)
@example(NEVER_TOLD, [Handover.RELOCATION, Handover.NAIVE], "heavy", 4, 28374)
def test_whatever_handover_becomes_while_clients_roam_none_is_cut_off(
    first: Settings, later: list[Handover], faults: str, brokers: int, seed: int
) -> None:
    """Events may be lost on the way; in the end each client gets what all others publish."""
    rng = random.Random(f"changed {seed}")  # noqa: S311 - reproducible.
    script = generate(plan_for(first, faults, brokers, seed, roams=True), seed)
    changes = [
        Reconfigure(
            broker=broker, settings=with_handover(first, protocol), tells=rng.random() < 0.5
        )
        for protocol in later
        for broker in rng.sample(script.topology.brokers, brokers)
    ]
    simulation = begin(script, first.handover)
    for step in (Settle(), *mixed_in(script.steps, changes, rng), Settle(), *changes[-brokers:]):
        simulation.do(step)
    everyone, greeting = list(script.clients), Filter("greeting = 1")
    for happening in (
        Subscribe(subscription="greetings", filter=greeting),
        Advertise(advertisement="greetings", filter=greeting),
        Publish(attributes={"greeting": 1}),
    ):
        simulation.settle()
        for client in everyone:
            simulation.do(Do(client=client, what=happening))
    simulation.settle()

    nodes = {client: simulation.network.hosts[client].node for client in everyone}
    last = {client: node.published for client, node in nodes.items() if isinstance(node, Client)}
    for client in everyone:
        received = simulation.oracle.received(client)
        assert {EventId(*each) for each in last.items()} <= set(received)
