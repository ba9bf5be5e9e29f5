"""A film shows what happened in a run, and nothing else."""

from itertools import pairwise
from xml.etree import ElementTree as ET

from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, Detach, Publish, Subscribe
from sterna.core.link import Data, Frame
from sterna.core.names import Time
from sterna.model.filters import Filter
from sterna.sim.film import Film
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Do, LinkModel, Script, Settle, Wait
from sterna.sim.topology import line

SVG = "{http://www.w3.org/2000/svg}"
PUBLISH = Do(client="<bob>", what=Publish(attributes={"n": 1}))
SCRIPT = Script(
    topology=line(3),
    clients={"ann": "B1", "<bob>": "B2"},
    steps=(
        Do(client="ann", what=Subscribe(subscription="1", filter=Filter("n > 0"))),
        Settle(),
        PUBLISH,
        Wait(us=50_000),
        Do(client="ann", what=Detach()),
        PUBLISH,
        Wait(us=50_000),
        Do(client="ann", what=Attach(broker="B3")),
        Crash(broker="B2", us=100_000),
        Wait(us=300_000),
    ),
    link=LinkModel(latency_us=5_000),
    handover=HandoverOptions(protocol=Handover.RELOCATION),
)


class Counting(Observer):
    """Counts the frames with events."""

    def __init__(self) -> None:
        self.frames = 0

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        del pipe, fate, now
        self.frames += isinstance(frame, Data) and bool(getattr(frame.message, "events", ()))


def filmed() -> tuple[ET.Element, int]:
    film, counting = Film(SCRIPT), Counting()
    outcome = Simulation(SCRIPT, [film, counting]).run()
    assert outcome.delivered == 2
    return ET.fromstring(film.svg(slower=2)), counting.frames  # noqa: S314 - made here.


def test_each_event_flies_over_each_link_that_it_was_sent_over() -> None:
    svg, frames = filmed()

    flying = [c for c in svg.iter(f"{SVG}circle") if c.get("class") in {"event", "replay"}]
    assert len(flying) == frames > 4


def test_times_are_in_order_and_within_the_film() -> None:
    svg, _ = filmed()

    for animation in (*svg.iter(f"{SVG}animate"), *svg.iter(f"{SVG}animateTransform")):
        shares = [float(share) for share in animation.attrib["keyTimes"].split(";")]
        assert shares[0] == 0
        assert all(a <= b for a, b in pairwise(shares))
        assert shares[-1] <= 1
        assert len(animation.attrib["values"].split(";")) == len(shares)
        if animation.get("calcMode") != "discrete":
            assert shares[-1] == 1


def test_a_client_moves_and_what_it_got_is_listed() -> None:
    svg, _ = filmed()

    texts = ["".join(text.itertext()) for text in svg.iter(f"{SVG}text")]
    assert texts.count("B2") == 1
    assert "<bob>" in texts
    assert texts[-3:] == ["ann got", "1", "2"]
    ways = [each.attrib["values"] for each in svg.iter(f"{SVG}animateTransform")]
    assert len(set(ways[0].split(";"))) == 2  # From B1 to B3.
    assert len(set(ways[1].split(";"))) == 1  # The publisher stays.
    assert len([c for c in svg.iter(f"{SVG}circle") if c.get("class") == "trouble"]) == 1


def test_a_film_begins_where_it_was_told_to() -> None:
    film = Film(SCRIPT)
    simulation = Simulation(SCRIPT, [film])
    for step in SCRIPT.steps[:5]:
        simulation.do(step)
    film.begin(simulation.network.kernel.now)
    for step in SCRIPT.steps[5:]:
        simulation.do(step)
    simulation.settle()
    whole, part = filmed()[0], ET.fromstring(film.svg())  # noqa: S314 - made here.

    assert len(list(part.iter(f"{SVG}circle"))) < len(list(whole.iter(f"{SVG}circle")))
