"""A film of a bus that drives through a city while a broker crashes: it gets every notice, once.

Run it with the name of a file to write (`python examples/film.py film.svg`), and open that in a
browser.
"""

import sys
from pathlib import Path

from sterna import Filter
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, Detach, Publish, Subscribe
from sterna.sim.film import Film
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Crash, Do, LinkModel, Script, Settle, Wait
from sterna.sim.topology import tree

NOTICE = Do(client="stop", what=Publish(attributes={"service": "passengers", "line": 7}))
PAUSE = Wait(us=150_000)

subscribing: list[AnyStep] = [
    Do(client="bus", what=Subscribe(subscription="1", filter=Filter("line = 7"))),
    Settle(),
]
driving: list[AnyStep] = [NOTICE, PAUSE]
for broker in ("B5", "B6"):
    driving += [
        Do(client="bus", what=Detach()),
        *(NOTICE, PAUSE, NOTICE, PAUSE),  # These come while the bus is between two brokers.
        *([Crash(broker="B3", us=500_000)] if broker == "B6" else []),
        Do(client="bus", what=Attach(broker=broker)),
        *(NOTICE, PAUSE, NOTICE, PAUSE, NOTICE, PAUSE),
    ]

script = Script(
    topology=tree(2, 3),  # B1 is the root, B4 to B7 are leaves.
    clients={"bus": "B4", "stop": "B7"},
    steps=(*subscribing, *driving, Settle()),
    link=LinkModel(latency_us=60_000),
    handover=HandoverOptions(protocol=Handover.RELOCATION),
)
film = Film(script)
simulation = Simulation(script, [film])
for step in subscribing:
    simulation.do(step)
film.begin(simulation.network.kernel.now)
for step in (*driving, Settle()):
    simulation.do(step)
outcome = simulation.outcome()

for name in sys.argv[1:]:
    Path(name).write_text(film.svg(slower=4), encoding="utf-8")
print(f"{outcome.published} published, {outcome.delivered} delivered, {outcome.findings} wrong")
