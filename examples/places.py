"""A car that wants to know of free parking spaces in the street it is in, while it drives on."""

from itertools import pairwise

from sterna import Filter
from sterna.core.inputs import MoveTo, Publish, Subscribe
from sterna.core.location.options import PlacesOptions
from sterna.core.location.steps import StepRule
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Do, LinkModel, Script, Settle, Wait
from sterna.sim.topology import tree

STREETS = [f"{number}th street" for number in range(4, 14)]
WANTED = Filter("service = 'parking' AND street IN myloc")


def free(street: str) -> Do:
    return Do(client="city", what=Publish(attributes={"service": "parking", "street": street}))


steps: list[AnyStep] = [Do(client="car", what=Subscribe(subscription="1", filter=WANTED)), Settle()]
for street in STREETS[1:]:
    steps += [free(other) for other in STREETS]  # These arrive when the car is in the next street.
    steps += [Wait(us=200_000), Do(client="car", what=MoveTo(location=street)), Wait(us=800_000)]

for rule in (StepRule.SUB_UNSUB, StepRule.SAFE, StepRule.EVERYWHERE):
    script = Script(
        topology=tree(2, 4),
        clients={"car": "B8", "city": "B15"},
        steps=tuple(steps),
        link=LinkModel(latency_us=30_000),
        places=PlacesOptions(edges=tuple(pairwise(STREETS)), rule=rule, dwell_us=1_000_000),
        locations={"car": STREETS[0]},
    )
    simulation = Simulation(script)
    outcome = simulation.run()
    found, sent = len(simulation.oracle.received("car")), outcome.messages
    print(f"{rule:10} {found} of 9 free spaces in its own street;", end=" ")
    print(f"{sent['Events']} event messages, {sent['MovingChange']} about moves")
