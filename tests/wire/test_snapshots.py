"""A node restored from its snapshot goes on exactly as the one that was kept."""

import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.assembly import make_broker, make_client
from sterna.core.catalogue import LIVE
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Input, MoveTo, Publish, SetVariable, Subscribe
from sterna.core.link import LinkTiming
from sterna.core.location.options import PlacesOptions
from sterna.core.names import NodeId, Peer, Time
from sterna.core.node import Node, Turn
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Do, Reconfigure, Script
from sterna.sim.topology import random_tree
from sterna.wire.codec import to_msgpack
from sterna.wire.snapshots import encode_node, restore_node
from tests.scale import CAMPAIGN, examples
from tests.sim.confirmations import asking
from tests.sim.moving import Moving


class Twins(Simulation):
    """Runs beside each node another one that is restored from its snapshot again and again."""

    def __init__(self, script: Script, every: int) -> None:
        self.every = every
        self.restored = 0
        self.compared = 0
        super().__init__(script)

    def _broker(self, id_: NodeId) -> Callable[[int], Node]:
        return self._twin(super()._broker(id_), Peer.BROKER)

    def _client(self, id_: NodeId) -> Callable[[int], Node]:
        return self._twin(super()._client(id_), Peer.CLIENT)

    def _twin(self, make: Callable[[int], Node], peer: Peer) -> Callable[[int], Node]:
        def make_twin(lives: int) -> Node:
            node, twin, turns = make(lives), make(lives), 0
            handle = node.handle

            def handle_both(given: Input, now: Time) -> Turn:
                nonlocal twin, turns
                turns += 1
                if turns % self.every == 0:
                    twin = restore_node(encode_node(twin), self._made(twin, peer, lives))
                    self.restored += 1
                turn, other = handle(given, now), twin.handle(given, now)
                assert _told(other) == _told(turn)
                assert twin.deadline == node.deadline
                assert twin.is_settled == node.is_settled
                self.compared += 1
                return turn

            node.handle = handle_both  # type: ignore[method-assign]
            return node

        return make_twin

    def _made(self, twin: Node, peer: Peer, lives: int) -> Node:
        make = make_broker if peer is Peer.BROKER else make_client
        timing: LinkTiming = self.script.timing
        return make(twin.id, twin.settings, timing=timing, incarnation=lives)


def _told(turn: Turn) -> list[bytes]:
    """What a turn does and states, in its order."""
    return [
        type(each).__name__.encode() + to_msgpack(each) for each in (*turn.actions, *turn.facts)
    ]


PLACES = PlacesOptions(
    edges=(("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("b", "d")), dwell_us=200_000
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    handover = draw(st.sampled_from((Handover.RELOCATION, Handover.NONE)))
    roams = handover == Handover.RELOCATION
    advertisements = draw(st.booleans())
    return Plan(
        topology=random_tree(draw(st.integers(1, 4)), draw(st.integers(0, 99))),
        clients=draw(st.integers(2, 5)),
        subscriptions=draw(st.sampled_from((10, 60))),
        events=30,
        variety=draw(st.sampled_from((2, 8))),
        moves=10 if roams else 0,
        naps=6 if roams else 0,
        leaves=3 if roams else 0,
        routing=RoutingOptions(
            strategy=draw(st.sampled_from(Strategy)), advertisements=advertisements
        ),
        client=ClientOptions(advertisements=advertisements, quenching=draw(st.booleans())),
        handover=HandoverOptions(
            protocol=handover,
            cache_events_max=draw(st.sampled_from((10_000, 3, 1))),
            cache_ttl_us=draw(st.sampled_from((None, 50_000))),
            away_max_us=draw(st.sampled_from((None, 200_000))),
        ),
        faults=FAULTS[draw(st.sampled_from(("none", "light", "heavy")))],
    )


@pytest.mark.spec("LV-9")
@examples(25, long=20)
@given(plans(), st.integers(0, 2**32), st.sampled_from(((), LIVE)), st.sampled_from((3, 17)))
def test_a_restored_node_goes_on_exactly_as_the_one_that_was_kept(
    plan: Plan, seed: int, protocols: tuple[str, ...], every: int
) -> None:
    """Whatever it is in the middle of: the same messages in the same order, the same facts."""
    script = msgspec.structs.replace(generate(plan, seed), protocols=protocols)
    twins = Twins(asking(script, seed) if protocols else script, every)
    twins.run()
    assert twins.compared


def wandering(script: Script, seed: int) -> Script:
    """The same script, with clients that also walk about and set variables."""
    rng = random.Random(f"walk {seed}")  # noqa: S311 - reproducible.
    places = sorted({place for edge in PLACES.edges for place in edge})
    steps: list[AnyStep] = []
    for client in script.clients:
        steps.append(Do(client=client, what=SetVariable(name="limit", value=3, low=1, high=5)))
        for number, where in enumerate(("spot IN myloc", "spot IN myloc(1) AND zone < $limit")):
            filter_ = Filter(where)
            steps.append(
                Do(client=client, what=Subscribe(subscription=f"m{number}", filter=filter_))
            )
    for step in script.steps:
        if isinstance(step, Do) and isinstance(step.what, Publish):
            attributes = {**step.what.attributes, "spot": rng.choice(places)}
            steps.append(Do(client=step.client, what=Publish(attributes=attributes)))
        else:
            steps.append(step)
        client = rng.choice(list(script.clients))
        if rng.random() < 0.3:
            steps.append(Do(client=client, what=MoveTo(location=rng.choice(places))))
        if rng.random() < 0.1:
            value = rng.randint(0, 8)
            steps.append(Do(client=client, what=SetVariable(name="limit", value=value)))
    return msgspec.structs.replace(
        script,
        steps=tuple(steps),
        places=PLACES,
        locations=dict.fromkeys(script.clients, "a"),
    )


@pytest.mark.spec("LV-9", "LM-5")
@examples(10, long=20)
@given(plans(), st.integers(0, 2**32), st.sampled_from((3, 17)))
def test_so_does_one_with_moving_subscriptions(plan: Plan, seed: int, every: int) -> None:
    twins = Twins(asking(wandering(generate(plan, seed), seed), seed), every)
    twins.run()
    assert twins.compared


def switching(script: Script, seed: int) -> Script:
    """The same script, with brokers whose places come and go."""
    rng = random.Random(f"switches {seed}")  # noqa: S311 - reproducible.
    steps: list[AnyStep] = []
    for step in script.steps:
        steps.append(step)
        if rng.random() < 0.1:
            broker = rng.choice(script.topology.brokers)
            places = rng.choice((PLACES, None))
            settings = msgspec.structs.replace(script.settings(broker), places=places)
            steps.append(Reconfigure(broker=broker, settings=settings, tells=rng.random() < 0.5))
    return msgspec.structs.replace(script, steps=tuple(steps))


@pytest.mark.spec("LV-9", "LM-5")
@examples(10, long=20)
@given(plans(), st.integers(0, 2**32), st.sampled_from((3, 17)))
def test_so_does_one_with_components_that_end(plan: Plan, seed: int, every: int) -> None:
    """They go on by the settings that they had, and in their order."""
    script = wandering(generate(msgspec.structs.replace(plan, leaves=0), seed), seed)
    twins = Twins(switching(script, seed), every)
    twins.run()
    assert twins.compared


@pytest.mark.parametrize("protocol", ["modular", "reversing"])
def test_so_does_one_whose_brokers_move(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With clients that move among them, and that hold events back."""
    restored = 0
    for seed in range(12 * CAMPAIGN):
        monkeypatch.setattr("tests.sim.moving.Simulation", lambda script, _: Twins(script, every=5))
        is_careful = protocol == "modular"  # Which needs one thing at a time.
        run = Moving(seed, protocol, brokers=6, roams=True, one_by_one=is_careful)
        for _ in range(6):
            run.subscribe()
        run.settle()
        run.anything(8, publishes=True)
        run.meet()
        assert isinstance(run.simulation, Twins)
        restored += run.simulation.restored
    assert restored > 300 * CAMPAIGN
