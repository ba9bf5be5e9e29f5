"""A network of brokers whose connections break: what the strategies say, and who gets what."""

from sterna import Filter
from sterna.core.inputs import Publish, Subscribe
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.sim.run import run
from sterna.sim.script import Do, Drop, Script, Settle
from sterna.sim.topology import tree
from sterna.sim.trace import Trace

WISHES = {
    "car-1": "service = 'parking' AND price <= 3",
    "car-2": "service = 'parking' AND price <= 2",
    "van-1": "service = 'charging'",
}

for strategy in (Strategy.SIMPLE, Strategy.MERGING):
    script = Script(
        topology=tree(2, 3),  # B1 is the root, B4 to B7 are leaves.
        clients={"car-1": "B4", "car-2": "B4", "van-1": "B5", "garage": "B7"},
        steps=(
            *(
                Do(client=client, what=Subscribe(subscription="1", filter=Filter(text)))
                for client, text in WISHES.items()
            ),
            Settle(),
            Drop(a="B1", b="B3", us=2_000_000),  # The garage is cut off for two seconds.
            Do(client="garage", what=Publish(attributes={"service": "parking", "price": 2.5})),
        ),
        routing=RoutingOptions(strategy=strategy),
    )
    trace = Trace()
    outcome = run(script, [trace])
    print(f"--- {strategy} routing: {outcome.control_messages} control messages,", end=" ")
    print(f"{outcome.tables[-1].total} routing entries, {len(outcome.findings)} wrong deliveries")
    print("\n".join(line for line in trace.lines if "SubscriptionChange" not in line))
