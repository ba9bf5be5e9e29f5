"""A bus that drives from broker to broker, with and without a protocol that hands it over."""

from sterna import Filter
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, Detach, Publish, Subscribe
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Do, LinkModel, Script, Settle, Wait
from sterna.sim.topology import tree

ROUTE = ("B4", "B5", "B6", "B7")


NOTICE = Do(client="stop", what=Publish(attributes={"service": "passengers", "line": 7}))

steps: list[AnyStep] = [
    Do(client="bus", what=Subscribe(subscription="1", filter=Filter("line = 7"))),
    Settle(),
]
for broker in ROUTE[1:]:
    steps += [
        NOTICE,  # It is on its way while the bus leaves;
        Wait(us=15_000),
        Do(client="bus", what=Detach()),
        NOTICE,  # this one comes while the bus is between two brokers,
        Wait(us=40_000),
        Do(client="bus", what=Attach(broker=broker)),
        NOTICE,  # this one while it is being handed over,
        Wait(us=120_000),
        NOTICE,  # and this one when all is calm.
        Wait(us=80_000),
    ]

for protocol in (Handover.NAIVE, Handover.RELOCATION):
    script = Script(
        topology=tree(2, 3),  # B1 is the root, B4 to B7 are leaves.
        clients={"bus": ROUTE[0], "stop": "B7"},
        steps=tuple(steps),
        link=LinkModel(latency_us=10_000),
        handover=HandoverOptions(protocol=protocol),
    )
    simulation = Simulation(script)
    outcome = simulation.run()
    received = [id_.seq for id_ in simulation.oracle.received("bus")]
    print(f"{protocol}: the bus got {received} of {outcome.published}")
