"""The runs: a district, a chain of brokers, publishers; and every message of the searches."""

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeGuard

import msgspec

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.frames import Data, Frame
from sterna.core.history.messages import HistoryAsked, HistoryExpected, HistoryFound, Past
from sterna.core.history.options import HistoryOptions, Search
from sterna.core.history.runs import latest
from sterna.core.history.search import Searches
from sterna.core.inputs import Advertise, Publish, Subscribe
from sterna.core.messages import Message
from sterna.core.names import NodeId, Time
from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import ClientOptions
from sterna.experiments.cilia_variants.settings import EVENTS_MAX, Measures, Setting
from sterna.experiments.counting import between_brokers, bytes_between_brokers
from sterna.experiments.experiment import DeliveryError, in_words
from sterna.experiments.timeline import Plan, timed
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.oracle import Finding
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Do, Doing, LinkModel, Script, Settle
from sterna.sim.topology import Topology
from sterna.wire.codec import size

BORDERS = 3
"""How many brokers of the district have subscribers."""
SEGMENTS = 12
"""How many segments the road has about which everybody publishes."""
STRETCHES = (12, 6, 4)
"""How many segments a subscriber asks for: they overlap, and some cover others."""
ROUND_EVENTS = 10
"""How many events there are from one subscriber to the next."""
FIRST_EVENTS = 30
"""How many there are before the first one."""
ROUND_US = 100_000
"""How long a round takes; events and the subscriber come at any time of it."""

LATENCY_US = 1_000
"""How long a message takes over a link."""

SEARCHING: tuple[type[Message], ...] = (HistoryAsked, HistoryExpected, HistoryFound)


# ---- The workload


def make_script(setting: Setting, seed: int) -> Script:
    """Advertisements, the first events, and then a round for each subscriber.

    Each part has a `Settle` at its end. Runs with the same seed have the same subscribers and the
    same events, of whatever publishers.
    """
    rng = random.Random(f"cilia-variants {seed}")  # noqa: S311 - reproducible, not secret.
    publishers = [f"P{number}" for number in range(1, setting.publishers + 1)]
    subscribers = [f"C{number}" for number in range(1, setting.subscribers + 1)]
    offer = Advertise(advertisement="road", filter=Filter(f"segment < {SEGMENTS}"))
    rounds: list[Plan] = [[(0, Do(client=each, what=offer)) for each in publishers]]
    rounds.append(_publications(rng, publishers, setting, FIRST_EVENTS))
    borders = {}
    for number, client in enumerate(subscribers):
        borders[client] = f"A{rng.randint(1, BORDERS)}"
        what = _subscribe(rng, is_asking=number % 2 == 1)
        coming = rng.randrange(ROUND_US), Do(client=client, what=what)
        rounds.append([*_publications(rng, publishers, setting, ROUND_EVENTS), coming])
    steps = [step for plan in rounds for step in (*timed(plan), Settle())]
    return Script(
        topology=_topology(setting),
        clients=borders | {each: f"X{each.removeprefix('P')}" for each in publishers},
        steps=tuple(steps),
        routing=RoutingOptions(advertisements=True),
        client=ClientOptions(advertisements=True),
        link=LinkModel(known_arrivals=True, latency_us=LATENCY_US),
        protocols=("past", "search"),
        history=HistoryOptions(
            events_max=setting.buffer,
            publisher_events=setting.buffer,
            search=setting.search,
            prepares=setting.prepares,
        ),
        seed=seed,
    )


def _topology(setting: Setting) -> Topology:
    """Three brokers with subscribers, a chain, and at its other end a broker for each publisher."""
    chain = [f"I{number}" for number in range(1, setting.distance + 1)]
    borders = [f"A{number}" for number in range(1, BORDERS + 1)]
    sources = [f"X{number}" for number in range(1, setting.publishers + 1)]
    links = [*pairwise(chain)]
    links += [(chain[0], each) for each in borders]
    links += [(chain[-1], each) for each in sources]
    return Topology((*chain, *borders, *sources), tuple(links))


def _subscribe(rng: random.Random, *, is_asking: bool) -> Subscribe:
    length = rng.choice(STRETCHES)
    first = rng.randrange(0, SEGMENTS - length + 1, 2)
    return Subscribe(
        subscription="road",
        filter=Filter(f"segment BETWEEN {first} AND {first + length - 1}"),
        past_events_max=EVENTS_MAX if is_asking else None,
    )


def _publications(
    rng: random.Random, publishers: list[NodeId], setting: Setting, count: int
) -> Plan:
    plan: Plan = []
    for time in rng.sample(range(ROUND_US), count):
        attributes = {"segment": rng.randrange(SEGMENTS), "speed": round(rng.uniform(0, 120), 1)}
        publish = Publish(attributes=attributes, payload=bytes(setting.payload_bytes))
        client = publishers[int(rng.random() * len(publishers))]
        plan.append((time, Do(client=client, what=publish)))
    return plan


# ---- Counting


class Watch(Observer):
    """Notes what was published and delivered, and counts what the messages of searches hold."""

    def __init__(self) -> None:
        self.published: dict[NodeId, list[Event]] = defaultdict(list)
        self.past: dict[NodeId, list[Event]] = defaultdict(list)
        """What the searches for each client have found. Some of it may have come as usual since."""
        self.delivered: dict[NodeId, dict[EventId, Time]] = defaultdict(dict)
        """When each client was given what."""
        self.answered: dict[NodeId, Time] = {}
        """When the past of each client was sent to it."""
        self.list_bytes = 0
        self.carried = 0

    def fact(self, fact: Fact) -> None:
        match fact:
            case facts.Published():
                self.published[fact.at] += fact.events
            case facts.Recalled() | facts.Delivered():
                self.delivered[fact.at] |= {event.id: fact.time for event in fact.events}
            case _:
                pass

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        del fate
        if not isinstance(frame, Data):
            return
        match frame.message:
            case HistoryAsked() if frame.message.known:
                bare = msgspec.structs.replace(frame.message, known=())
                without = msgspec.structs.replace(frame, message=bare)
                self.list_bytes += size(frame) - size(without)
            case HistoryFound():
                self.carried += len(frame.message.events)
            case Past():
                client = pipe.target.node.id
                self.past[client] += frame.message.events
                self.answered[client] = now
            case _:
                pass

    def found(self, client: NodeId) -> int:
        """How many events a client had when its past had come: past ones, and those on their way.

        Events that are on their way meanwhile are a part of the past in some variants; in others
        they come as usual, at the same time. At most as many count as were asked for.
        """
        came = self.answered[client] + LATENCY_US
        return min(EVENTS_MAX, sum(time <= came for time in self.delivered[client].values()))


def run(setting: Setting, seed: int) -> Measures:
    """Simulate once; DeliveryError if anything is wrong with what was delivered."""
    script, watch = make_script(setting, seed), Watch()
    simulation = Simulation(script, [watch], count_bytes=True)
    asked: dict[NodeId, Subscribe] = {}
    held: list[Event] = []
    sums: Counter[str] = Counter()
    for part in _parts(script.steps):
        for step in part:
            if isinstance(step, Do) and _asks(step.what):
                asked[step.client] = step.what
                held = held_by_publishers(simulation, step.what.filter)
                sums["wanted"] += len(_matching(watch.published, step.what))
                sums["held"] += len(held)
            simulation.do(step)
        if held:
            client, wanted = next(reversed(asked.items()))
            still = held_by_publishers(simulation, wanted.filter, events_max=None)
            kept = [event for event in held if event in still]
            sums["lacking"] += len(lacking(kept, watch.past[client], watch.delivered[client]))
            held = []
    gaps = [client for client, wanted in asked.items() if gap(client, wanted.filter, watch)]
    wrong: list[Finding | str] = [*simulation.oracle.findings()]
    if setting.search is not Search.NONE:  # Without a search, a broker believes its own buffer.
        wrong += [f"a gap behind the past of {client}" for client in gaps]
    if wrong:
        raise DeliveryError(f"{in_words(setting)}, seed {seed}", wrong)
    messages, volume = between_brokers(simulation), bytes_between_brokers(simulation)
    return Measures(
        searches=len(asked),
        questions=messages[HistoryAsked],
        expects=messages[HistoryExpected],
        answers=messages[HistoryFound],
        messages=sum(messages[kind] for kind in SEARCHING),
        question_bytes=volume[HistoryAsked],
        expect_bytes=volume[HistoryExpected],
        answer_bytes=volume[HistoryFound],
        bytes=sum(volume[kind] for kind in SEARCHING),
        list_bytes=watch.list_bytes,
        carried=watch.carried,
        found=sum(map(watch.found, asked)),
        past=sum(map(len, watch.past.values())),
        wanted=sums["wanted"],
        held=sums["held"],
        lacking=sums["lacking"],
        gapped=len(gaps),
        regular_messages=sum(n for kind, n in messages.items() if kind not in SEARCHING),
        regular_bytes=sum(n for kind, n in volume.items() if kind not in SEARCHING),
    )


def _parts(steps: Sequence[AnyStep]) -> Iterator[list[AnyStep]]:
    """The steps up to each `Settle`."""
    part: list[AnyStep] = []
    for step in steps:
        part.append(step)
        if isinstance(step, Settle):
            yield part
            part = []


def _asks(what: Doing) -> TypeGuard[Subscribe]:
    return isinstance(what, Subscribe) and what.past_events_max is not None


# ---- What must hold


def held_by_publishers(
    simulation: Simulation, wanted: Filter, events_max: int | None = EVENTS_MAX
) -> list[Event]:
    """The latest events that match of those that the brokers of their publishers have."""
    runs: dict[NodeId, list[Event]] = {}
    for host in simulation.network.hosts.values():
        searches = host.node.part("search")
        if isinstance(searches, Searches):
            for publisher, own in searches.published.items():
                runs[publisher] = [e for e in own.events if wanted.matches(e.attributes)]
    return latest(runs, events_max, None)


def lacking(held: Iterable[Event], past: Sequence[Event], got: Collection[EventId]) -> list[Event]:
    """What was held and did not come, neither as past nor as usual.

    An answer with as many events as were asked for lacks nothing that is older than these.
    """
    oldest = min(event.time_us for event in past) if len(past) >= EVENTS_MAX else 0
    return [event for event in held if event.id not in got and event.time_us >= oldest]


def gap(client: NodeId, wanted: Filter, watch: Watch) -> list[Event]:
    """What a client has not got though it came after the first past event of its publisher."""
    firsts: dict[NodeId, int] = {}
    for event in watch.past[client]:
        firsts.setdefault(event.publisher, event.seq)
    return [
        event
        for publisher, first in firsts.items()
        for event in watch.published[publisher]
        if event.seq >= first
        and wanted.matches(event.attributes)
        and event.id not in watch.delivered[client]
    ]


def _matching(published: Mapping[NodeId, Sequence[Event]], wanted: Subscribe) -> list[Event]:
    runs = {
        publisher: [event for event in events if wanted.filter.matches(event.attributes)]
        for publisher, events in published.items()
    }
    return latest(runs, wanted.past_events_max, None)
