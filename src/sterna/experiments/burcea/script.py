"""The script of a run: everybody subscribes, and then they publish and move."""

from sterna.core.handover.options import HandoverOptions
from sterna.core.inputs import Advertise, Attach, Detach, Publish, Subscribe
from sterna.core.names import NodeId, Time
from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import ClientOptions, HistoryOptions
from sterna.experiments.burcea.city import broker, subscription, topology
from sterna.experiments.burcea.journeys import People, Publisher, Subscriber
from sterna.experiments.burcea.settings import Prediction, Setting
from sterna.experiments.timeline import Plan, timed
from sterna.sim.script import AnyStep, Do, LinkModel, Script, Settle, Wait

START_US: Time = 60_000_000
"""A run begins when everybody has subscribed, a minute after the simulation."""
REST_US: Time = 1_000_000
"""When a run is over, subscribers that are under way arrive after so long. Nothing of that is
counted, but everybody gets the last events, so that it can be seen whether any is missing."""
SUBSCRIPTION = "s"


def make_script(setting: Setting, everybody: People, seed: int) -> Script:
    """The script of a run; times of journeys count from `START_US`."""
    length_us = setting.length_us
    plan: Plan = []
    for publisher in everybody.publishers:
        what = Publish(attributes={"kind": publisher.kind}, payload=bytes(setting.payload_bytes))
        publish = Do(client=publisher.client, what=what)
        plan += [(START_US + at, publish) for at in publisher.times(length_us)]
    itinerary: dict[NodeId, tuple[tuple[Time, NodeId], ...]] = {}
    for subscriber in everybody.subscribers:
        client, arrivals = subscriber.client, []
        for move in subscriber.moves:
            if move.leaves_us >= length_us:
                break
            at, to = START_US + min(move.arrives_us, length_us + REST_US), broker(move.leaf)
            plan.append((START_US + move.leaves_us, Do(client=client, what=Detach())))
            plan.append((at, Do(client=client, what=Attach(broker=to))))
            arrivals.append((at, to))
        itinerary[client] = tuple(arrivals)
    steps: list[AnyStep] = [*_beginning(setting, everybody), Wait(us=START_US)]
    steps += timed([(at - START_US, step) for at, step in plan])
    return Script(
        topology=topology(),
        clients={each.client: broker(each.leaf) for each in _all(everybody)},
        steps=(*steps, Settle()),
        routing=RoutingOptions(
            strategy=setting.routing, advertisements=setting.advertisements, hierarchical=True
        ),
        client=ClientOptions(advertisements=setting.advertisements),
        link=LinkModel(
            latency_us=setting.latency_ms * 1_000,
            bytes_per_s=setting.kbytes_per_s and 1_000 * setting.kbytes_per_s,
            known_arrivals=True,
        ),
        handover=HandoverOptions(protocol=setting.strategy),
        options=(
            {}
            if setting.subscriptions == "broker"
            else {setting.strategy: {"subscriptions": setting.subscriptions}}
        ),
        history=HistoryOptions(events_max=setting.log_events),
        itinerary=itinerary if setting.prediction is Prediction.PERFECT else {},
        seed=seed,
    )


def _all(everybody: People) -> tuple[Publisher | Subscriber, ...]:
    return (*everybody.publishers, *everybody.subscribers)


def _beginning(setting: Setting, everybody: People) -> list[Do]:
    offers = [
        Do(
            client=each.client,
            what=Advertise(advertisement="a", filter=subscription(each.kind - 1)),
        )
        for each in everybody.publishers
        if setting.advertisements
    ]
    return offers + [
        Do(
            client=each.client,
            what=Subscribe(subscription=SUBSCRIPTION, filter=subscription(each.subscription)),
        )
        for each in everybody.subscribers
    ]
