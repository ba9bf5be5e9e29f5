"""A run as a film: brokers, clients that move between them, and events on their way."""

from dataclasses import dataclass
from xml.sax.saxutils import escape

from sterna.core.facts import Attached, Delivered, Detached, Fact
from sterna.core.link import Data, Frame
from sterna.core.names import NodeId, Peer, Time
from sterna.model.event import Event
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.script import Crash, Script
from sterna.sim.topology import Topology

Point = tuple[float, float]


@dataclass(frozen=True)
class Flight:
    """Events on their way from one node to another."""

    begin: Time
    end: Time
    source: NodeId
    target: NodeId
    events: tuple[Event, ...]
    lost: bool


class Film(Observer):
    """Gathers what can be seen of a run, and draws it as an SVG that moves, and begins again.

    It needs no script and no other file, so pages can show it like any image. Events are as long
    on their way as a frame without jitter is.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._flights: list[Flight] = []
        self._at: dict[NodeId, list[tuple[Time, NodeId | None]]] = {c: [] for c in script.clients}
        self._delivered: dict[NodeId, list[tuple[Time, str]]] = {c: [] for c in script.clients}
        self._troubles: list[tuple[Time, str]] = []
        self._begin: Time = 0
        self._end: Time = 0

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        events = getattr(frame.message, "events", ()) if isinstance(frame, Data) else ()
        if events:
            end = now + (pipe.connection.latency_us or self._script.link.latency_us)
            ends = pipe.source.node.id, pipe.target.node.id
            self._flights.append(Flight(now, end, *ends, events, fate.lost))

    def fact(self, fact: Fact) -> None:
        self._end = max(self._end, fact.time)
        if isinstance(fact, Attached | Detached) and fact.peer is Peer.CLIENT:
            place = fact.at if isinstance(fact, Attached) else None
            self._at[fact.link].append((fact.time, place))
        elif isinstance(fact, Delivered):
            for event in fact.events:
                self._delivered[fact.at].append((fact.time, str(event.seq)))

    def trouble(self, text: str, now: Time) -> None:
        self._troubles.append((now, text))

    def begin(self, now: Time) -> None:
        """Begin here: what was before is not shown."""
        self._begin = now

    # ---- Drawing

    def svg(self, *, slower: float = 1.0) -> str:
        """The film, so many times slower than the simulated time."""
        stage = _Stage(self._script.topology)
        clock = _Clock(self._begin, self._end + PAUSE_US, slower)
        parts = [*stage.links(), *self._trouble_marks(stage, clock), *stage.brokers()]
        for client in self._script.clients:
            parts += self._client(client, stage, clock)
        for flight in self._flights:
            if flight.begin >= self._begin:
                parts += self._flight(flight, stage, clock)
        parts += self._records(stage, clock)
        height = stage.height + RECORD * len(self._receivers()) + 20
        size = f'viewBox="0 0 {stage.width:g} {height:g}" width="{stage.width:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} height="{height:g}">'
        ground = f'<rect width="{stage.width:g}" height="{height:g}" rx="8" fill="#fff"/>'
        return "\n".join([head, f"<style>{STYLE}</style>", ground, *parts, "</svg>\n"])

    def _receivers(self) -> list[NodeId]:
        return [client for client, delivered in self._delivered.items() if delivered]

    def _client(self, client: NodeId, stage: "_Stage", clock: "_Clock") -> list[str]:
        """A client: beside its broker, or below all of them while it is on its way."""
        beside = list(self._script.clients).index(client)
        moves = [(self._begin, stage.client(self._script.clients[client], beside), True)]
        for time, broker in self._at[client]:
            point = moves[-1][1] if broker is None else stage.client(broker, beside)
            moves.append((max(time, self._begin), point, broker is not None))
        seen = [(time, "1" if is_here else ".35") for time, _, is_here in moves]
        places = [f"{x:g},{y:g}" for _, (x, y), _ in moves]
        moving = (
            '<animateTransform attributeName="transform" type="translate" '
            f'values="{";".join([*places, places[-1]])}" '
            f'keyTimes="{clock.shares([time for time, _, _ in moves])}" {clock.loop}/>'
        )
        width = 7 * len(client) + 16
        box = (
            f'<rect class="client" x="{-width / 2:g}" y="-11" width="{width}" height="22" rx="11"/>'
        )
        label = f'<text dy="4">{escape(client)}</text>'
        return [f"<g>{moving}{clock.steps('opacity', seen)}{box}{label}</g>"]

    def _flight(self, flight: Flight, stage: "_Stage", clock: "_Clock") -> list[str]:
        start, end = (
            self._place(node, flight.begin, stage) for node in (flight.source, flight.target)
        )
        shares = clock.shares([flight.begin, flight.end], whole=True)
        kind = "lost" if flight.lost else "replay" if len(flight.events) > 1 else "event"
        moving = "".join(
            f'<animate attributeName="{name}" values="{a:g};{a:g};{b:g};{b:g}" '
            f'keyTimes="{shares}" {clock.loop}/>'
            for name, a, b in (("cx", start[0], end[0]), ("cy", start[1], end[1]))
        )
        shown = clock.steps("opacity", [(self._begin, "0"), (flight.begin, "1"), (flight.end, "0")])
        return [f'<circle class="{kind}" r="5" opacity="0">{moving}{shown}</circle>']

    def _place(self, node: NodeId, now: Time, stage: "_Stage") -> Point:
        if node in stage.points:
            return stage.points[node]
        at = self._script.clients[node]
        for time, broker in self._at[node]:
            if time <= now and broker is not None:
                at = broker
        return stage.client(at, list(self._script.clients).index(node))

    def _trouble_marks(self, stage: "_Stage", clock: "_Clock") -> list[str]:
        """A broker that has crashed is red until it is back."""
        marks = []
        for step in self._script.steps:
            if isinstance(step, Crash):
                for time, text in self._troubles:
                    if step.broker in text and time >= self._begin:
                        x, y = stage.points[step.broker]
                        states = [(self._begin, "0"), (time, "1"), (time + step.us, "0")]
                        shown = clock.steps("opacity", states)
                        marks.append(
                            f'<circle class="trouble" cx="{x:g}" cy="{y:g}" r="34" opacity="0">'
                            f"{shown}</circle>"
                        )
                        break
        return marks

    def _records(self, stage: "_Stage", clock: "_Clock") -> list[str]:
        """What each client has received so far, in the order in which it did."""
        parts = []
        for row, client in enumerate(self._receivers()):
            y = stage.height + RECORD * row + 12
            parts.append(f'<text class="record" x="{EDGE}" y="{y:g}">{escape(client)} got</text>')
            x = EDGE + 7 * (len(client) + 5)
            for time, text in self._delivered[client]:
                shown = clock.steps("opacity", [(self._begin, "0"), (time, "1")])
                parts.append(
                    f'<text class="number" x="{x}" y="{y:g}" opacity="0">{shown}{text}</text>'
                )
                x += 8 * len(text) + 6
        return parts


PAUSE_US: Time = 400_000
"""How long the last picture stays before the film begins again."""

EDGE, LEVEL, BREADTH, RECORD = 24, 84, 130, 24

STYLE = """
text { font: 13px 'Segoe UI', 'Helvetica Neue', Arial, sans-serif; text-anchor: middle }
text.broker { font-weight: 600; fill: #fff }
text.record, text.number { text-anchor: start; fill: #57606a }
text.number { fill: #1a7f37; font-weight: 600 }
path { stroke: #d0d7de; stroke-width: 3; fill: none }
rect.client { fill: #ddf4ff; stroke: #54aeff }
circle.event { fill: #0969da }
circle.replay { fill: #8250df }
circle.lost { fill: #cf222e }
circle.trouble { fill: #ffebe9; stroke: #cf222e; stroke-width: 2 }
"""


class _Clock:
    """When something is seen, as a share of the film."""

    def __init__(self, begin: Time, end: Time, slower: float) -> None:
        self._begin, self._length = begin, end - begin
        self.loop = f'dur="{self._length * slower / 1e6:g}s" repeatCount="indefinite"'

    def share(self, time: Time) -> float:
        return min(1.0, max(0.0, (time - self._begin) / self._length))

    def shares(self, times: list[Time], *, whole: bool = False) -> str:
        """Times as `keyTimes`: these end with 1, and begin with 0 if they are `whole`."""
        shares = [self.share(time) for time in times]
        return ";".join(f"{share:.5g}" for share in ([0.0] if whole else []) + shares + [1.0])

    def steps(self, attribute: str, values: list[tuple[Time, str]]) -> str:
        """An attribute that jumps from value to value."""
        shares = ";".join(f"{self.share(time):.5g}" for time, _ in values)
        texts = ";".join(value for _, value in values)
        return (
            f'<animate attributeName="{attribute}" calcMode="discrete" values="{texts}" '
            f'keyTimes="{shares}" {self.loop}/>'
        )


class _Stage:
    """Where brokers stand: the root above, and each above the middle of those below it."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.points: dict[NodeId, Point] = {}
        self._next = 0
        self._below: dict[NodeId, list[NodeId]] = {broker: [] for broker in topology.brokers}
        for upper, lower in topology.links:
            self._below[upper].append(lower)
        self._depth = 0
        self._stand(topology.brokers[0], 0)
        self.width = 2 * EDGE + BREADTH * self._next
        self.height = EDGE + LEVEL * (self._depth + 1) + 40

    def _stand(self, broker: NodeId, depth: int) -> float:
        self._depth = max(self._depth, depth)
        xs = [self._stand(each, depth + 1) for each in self._below[broker]]
        if not xs:
            xs = [EDGE + BREADTH * (self._next + 0.5)]
            self._next += 1
        x = (xs[0] + xs[-1]) / 2
        self.points[broker] = x, EDGE + 20 + LEVEL * depth
        return x

    def client(self, broker: NodeId, beside: int) -> Point:
        """Where a client is that is attached to a broker."""
        x, y = self.points[broker]
        return x + 30 * (beside % 2) - 15, y + 44 + 26 * (beside % 3)

    def links(self) -> list[str]:
        points = self.points
        return [
            f'<path d="M{points[a][0]:g} {points[a][1]:g}L{points[b][0]:g} {points[b][1]:g}"/>'
            for a, b in self._topology.links
        ]

    def brokers(self) -> list[str]:
        return [
            f'<circle cx="{x:g}" cy="{y:g}" r="20" fill="#24292f"/>'
            f'<text class="broker" x="{x:g}" y="{y + 5:g}">{escape(broker)}</text>'
            for broker, (x, y) in self.points.items()
        ]
