"""Simulated nodes that were pickled in the middle of something, and what each did afterwards."""

import pickle
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from sterna.core.broker import Broker
from sterna.core.client import Client, ClientOptions
from sterna.core.component import Component
from sterna.core.handover import options as handover
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.history.recent import Recall, Recent
from sterna.core.inputs import (
    Advertise,
    Input,
    MoveTo,
    Publish,
    Received,
    SetVariable,
    Subscribe,
)
from sterna.core.location import options as places
from sterna.core.location.options import PlacesOptions
from sterna.core.names import LocalProtocolError, NodeId, Time
from sterna.core.node import Node, Turn
from sterna.core.overlay.members import Members
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.filters import Filter
from sterna.net.records import Began, encode_record
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.run import Simulation
from sterna.sim.script import Do, Script
from sterna.sim.topology import random_tree
from sterna.wire.codec import Bodies, encode
from sterna.wire.frames import Network, frame

from tests.data.kept import (
    ARCHIVE,
    KeptTurn,
    NodesManifest,
    pack,
    plain_record,
    record_kinds,
    save,
)

RUNS = 60
TURNS_MAX = 30
"""How many inputs of each node are kept."""

PLACES = PlacesOptions(
    edges=(("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("b", "d")), dwell_us=200_000
)


async def make(directory: Path, target: Path) -> None:
    manifest = NodesManifest(
        case="nodes",
        about="Brokers and clients of simulated networks, pickled in the middle of something.",
        must_hold=[
            "A restored node does with each input what the pickled one did: the same messages in"
            " the same order on each link, the same facts, the same deadline."
        ],
    )
    for seed in range(RUNS):
        rng = random.Random(f"nodes {seed}")
        run = Recorded(_script(rng, seed), rng)
        run.run()
        for each in rng.sample(run.kept, min(3, len(run.kept))):
            name = f"{len(manifest.nodes):03d}"
            (directory / f"{name}.pickle").write_bytes(each.state)
            (directory / f"{name}.inputs").write_bytes(msgspec.msgpack.encode(each.inputs))
            (directory / f"{name}.turns").write_bytes(msgspec.json.encode(each.turns))
            manifest.nodes[name] = each.kind
    manifest.kinds = record_kinds()
    pack(directory, target / ARCHIVE)
    save(manifest, target)


def _script(rng: random.Random, seed: int) -> Script:
    """A run with one strategy after the other, and everything else at random."""
    roams, advertises = rng.random() < 0.7, rng.random() < 0.5
    strategies = list(Strategy)
    protocol = Handover.RELOCATION if roams else rng.choice((Handover.NONE, Handover.NAIVE))
    plan = Plan(
        topology=random_tree(rng.randint(2, 4), seed),
        clients=rng.randint(2, 5),
        subscriptions=rng.choice((10, 40)),
        events=40,
        variety=rng.choice((2, 8)),
        moves=12 if roams else 0,
        naps=6 if roams else 0,
        leaves=3 if roams else 0,
        routing=RoutingOptions(
            strategy=strategies[seed % len(strategies)],
            advertisements=advertises,
            merge_members_max=rng.choice((3, 16)),
        ),
        client=ClientOptions(advertisements=advertises, quenching=rng.random() < 0.5),
        handover=HandoverOptions(
            protocol=protocol,
            cache_events_max=rng.choice((10_000, 3)),
            cache_ttl_us=rng.choice((None, 50_000)),
            away_max_us=rng.choice((None, 200_000)),
        ),
        faults=FAULTS[rng.choice(("none", "light"))],
    )
    script = generate(plan, seed)
    return _moving(script, rng, advertises=advertises) if seed % 2 else script


def _moving(script: Script, rng: random.Random, *, advertises: bool) -> Script:
    """The same with clients that go from room to room, have variables and ask for the past."""
    clients, steps = list(script.clients), list(script.steps)
    rooms = Filter("room IN ('a', 'b', 'c', 'd')")
    for number in range(24):
        client, name = rng.choice(clients), f"more-{number}"
        what: Input = (
            MoveTo(location=rng.choice("abcd")),
            MoveTo(location=rng.choice("abcd")),
            Subscribe(subscription=name, filter=Filter("room IN myloc")),
            SetVariable(name="v", value=number % 9, low=0, high=9 + number % 3),
            Subscribe(subscription=name, filter=Filter("room = 'a'"), past_events_max=2),
            Publish(attributes={"room": rng.choice("abcd")}),
        )[number % 6]
        if advertises and isinstance(what, Publish):
            offer = Advertise(advertisement=name, filter=rooms)
            steps.insert(0, Do(client=client, what=offer))
        steps.insert(rng.randint(len(clients), len(steps)), Do(client=client, what=what))
    at = dict.fromkeys(clients, "a")
    return msgspec.structs.replace(script, steps=tuple(steps), places=PLACES, locations=at)


class Kept(msgspec.Struct, kw_only=True):
    """A node that was pickled, and what it did then."""

    kind: str
    state: bytes = b""
    inputs: list[bytes] = []
    turns: list[KeptTurn] = []


class Recorded(Simulation):
    """Pickles each node at some time, and keeps what it does then."""

    def __init__(self, script: Script, rng: random.Random) -> None:
        self.kept: list[Kept] = []
        self._rng = rng
        super().__init__(script, judged=False)

    def _broker(self, id_: NodeId) -> Callable[[int], Node]:
        script = self.script

        def make(lives: int) -> Node:
            components = [
                Members(),
                Recent(10_000),
                *places.broker_components(script.places, self._space),
                *handover.broker_components(script.handover),
            ]
            return self._recorded(
                Broker(id_, script.routing, components, timing=script.timing, incarnation=lives),
                "broker state 2",
            )

        return make

    def _client(self, id_: NodeId) -> Callable[[int], Node]:
        script = self.script

        def make(lives: int) -> Node:
            components: list[Component] = [
                Recall(),
                *places.client_components(script.places, self._space),
                *handover.client_components(script.handover),
            ]
            return self._recorded(
                Client(id_, script.client, components, timing=script.timing, incarnation=lives),
                "client state 1",
            )

        return make

    def _recorded(self, node: Node, kind: str) -> Node:
        script = self.script
        network = Network(
            routing=script.routing,
            client=script.client,
            handover=script.handover,
            places=script.places,
        )
        began = Began(node=node.id, incarnation=node.incarnation, network=network)
        handle, begins, turns = node.handle, self._rng.randint(10, 150), 0
        kept = Kept(kind=kind)

        def handle_and_keep(given: Input, now: Time) -> Turn:
            nonlocal turns
            turns += 1
            if turns == begins:
                del node.__dict__["handle"]
                memory = {} if kind == "client state 1" else None
                kept.state = pickle.dumps((now, began, node, memory), protocol=5)
                node.handle = handle_and_keep
                self.kept.append(kept)
            try:
                actions, facts = handle(given, now)
            except LocalProtocolError:
                actions, facts = [], []
            if turns >= begins and len(kept.inputs) < TURNS_MAX:
                kept.inputs.append(encode_record(given, now, _raw(given)))
                kept.turns.append(
                    KeptTurn(
                        actions=[plain_record(each) for each in actions],
                        facts=[plain_record(each) for each in facts],
                        deadline=node.deadline,
                        is_settled=node.is_settled,
                    )
                )
            return actions, facts

        node.handle = handle_and_keep
        return node


def _raw(given: Input) -> bytes:
    frames: Sequence[object] = given.frames if isinstance(given, Received) else ()
    return b"".join(frame(b"".join(encode(each, Bodies()))) for each in frames)
