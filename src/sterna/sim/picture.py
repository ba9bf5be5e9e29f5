"""A run as a sequence diagram: who sent what to whom, from top to bottom."""

import re
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from xml.sax.saxutils import escape

from sterna.core.facts import Fact
from sterna.core.inputs import Input
from sterna.core.link import Data, Frame
from sterna.core.names import NodeId, Peer, Time
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.trace import fact_in_words, input_in_words, message_in_words

ROWS_MAX, NODES_MAX = 500, 40
"""How many rows and lifelines people can look at: 16,000 pixels down, and up to 9,600 across."""


@dataclass(frozen=True)
class Arrow:
    """A message on its way."""

    time: Time
    source: NodeId
    target: NodeId
    text: str
    fate: Fate


@dataclass(frozen=True)
class Note:
    """What happened at a node, or to the whole network if the node is ''."""

    time: Time
    node: NodeId
    text: str


class Picture(Observer):
    """Draws what a trace has. Repeated messages are dashed; lost ones end in a cross."""

    def __init__(self) -> None:
        self.rows: list[Arrow | Note] = []
        self._peers: dict[NodeId, Peer] = {}
        self._near: dict[NodeId, dict[NodeId, None]] = {}

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        for host, other in (pipe.source, pipe.target), (pipe.target, pipe.source):
            self._peers[host.node.id] = host.peer
            self._near.setdefault(host.node.id, {})[other.node.id] = None
        if isinstance(frame, Data):
            words = message_in_words(frame.message)
            self.rows.append(Arrow(now, pipe.source.node.id, pipe.target.node.id, words, fate))

    def given(self, node: NodeId, given: Input, now: Time) -> None:
        self.rows.append(Note(now, node, input_in_words(given)))

    def fact(self, fact: Fact) -> None:
        words = fact_in_words(fact)
        if words is not None:
            self.rows.append(Note(fact.time, fact.at, words))

    def trouble(self, text: str, now: Time) -> None:
        self.rows.append(Note(now, "", text))

    def begin(self) -> None:
        """Begin here: drop what was drawn so far."""
        self.rows.clear()

    # ---- A part of it

    def part(
        self, *, since: Time = 0, until: Time | None = None, nodes: Collection[NodeId] = ()
    ) -> "Picture":
        """Return what happened from one time to another, and if nodes are given, only at these."""
        return self._with(
            [
                row
                for row in self.rows
                if since <= row.time
                and (until is None or row.time <= until)
                and (not nodes or not _ends(row) or any(end in nodes for end in _ends(row)))
            ]
        )

    def beginning(self, *, rows: int = ROWS_MAX, nodes: int = NODES_MAX) -> "Picture":
        """Return as much from its beginning as people can look at: itself if it is not larger."""
        busy: dict[NodeId, None] = {}
        for place, row in enumerate(self.rows):
            busy |= dict.fromkeys(_ends(row))
            if place == rows or len(busy) > nodes:
                return self._with(self.rows[:place])
        return self

    def _with(self, rows: "list[Arrow | Note]") -> "Picture":
        part = Picture()
        part.rows, part._peers, part._near = rows, self._peers, self._near
        return part

    # ---- Where the lifelines are

    def nodes(self) -> list[NodeId]:
        """All nodes that do something, from left to right, neighbours close to each other."""
        busy: dict[NodeId, None] = {}
        for row in self.rows:
            busy |= dict.fromkeys(_ends(row))
        order: dict[NodeId, None] = {}
        for node in [*busy, *self._near][::-1]:
            if node not in order:
                order |= self._walk(self._farthest(node))
        return [node for node in order if node in busy]

    def _farthest(self, node: NodeId) -> NodeId:
        """One end of the network, as seen from a node."""
        reached, waiting = {node}, deque([node])
        while waiting:
            node = waiting.popleft()
            fresh = [other for other in self._near.get(node, {}) if other not in reached]
            reached.update(fresh)
            waiting += fresh
        return node

    def _walk(self, start: NodeId) -> dict[NodeId, None]:
        """All nodes in reach, dead ends first."""
        order: dict[NodeId, None] = {}
        waiting = [start]
        while waiting:
            node = waiting.pop()
            if node not in order:
                order[node] = None
                waiting += sorted(self._near.get(node, {}), key=lambda o: -len(self._near[o]))
        return order

    # ---- Two output formats

    def mermaid(self) -> str:
        """The picture in Mermaid's language, which many Markdown viewers draw."""
        names = {node: f"n{place}" for place, node in enumerate(self.nodes(), 1)}
        everyone = ",".join(dict.fromkeys(["n1", f"n{len(names)}"]))
        lines = ["sequenceDiagram"]
        for node, name in names.items():
            kind = "participant" if self._peers.get(node) is Peer.BROKER else "actor"
            shown = _for_mermaid(node).replace(":", "#58;")  # As `wrap:` would be an order.
            lines.append(f"{kind} {name} as {shown}")
        for row in self.rows if names else ():
            text = _for_mermaid(_shortened(row.text, 72))
            if isinstance(row, Arrow):
                arrow = "-x" if row.fate.lost else "-->>" if row.fate.again else "->>"
                lines.append(f"{names[row.source]}{arrow}{names[row.target]}: {text}")
            else:
                lines.append(f"Note over {names.get(row.node, everyone)}: {text}")
        return "\n    ".join(lines) + "\n"

    def svg(self) -> str:
        """The picture as an image that needs nothing else."""
        nodes = self.nodes()
        x = _columns(nodes, self.rows)
        width = max([*x.values(), LEFT]) + RIGHT
        bottom = TOP + ROW * (len(self.rows) + 1)
        height = bottom + 40
        parts = [f'<rect width="{width}" height="{height}" fill="#fff"/>']
        for node in nodes:
            parts.append(f'<path d="M{x[node]} {TOP}V{bottom}" stroke="#d0d7de"/>')
            color = DARK if self._peers.get(node) is Peer.BROKER else GREY
            parts += [_head(node, x[node], y, color) for y in (TOP - 13, bottom + 13)]
            again = range(TOP + 20 * ROW + 12, bottom - 5 * ROW, 20 * ROW)
            parts += [
                f'<text class="name" x="{x[node] + 4}" y="{y}">{_for_xml(node)}</text>'
                for y in again
            ]
        parts.append(_time("ms", TOP - 10))
        before = None
        for place, row in enumerate(self.rows, 1):
            y = TOP + ROW * place
            if row.time != before:
                parts.append(_time(f"{row.time / 1000:.3f}".rstrip("0").rstrip("."), y))
            before = row.time
            if isinstance(row, Arrow):
                parts.append(_arrow(row, x[row.source], x[row.target], y, width))
            else:
                parts.append(_note(row, x.get(row.node), y, width))
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>\n{STYLE}\n</style>'
        return "\n".join([head, *parts, "</svg>\n"])


def _ends(row: Arrow | Note) -> tuple[NodeId, ...]:
    """The nodes that something happens at; none if it happens to the whole network."""
    if isinstance(row, Arrow):
        return row.source, row.target
    return (row.node,) if row.node else ()


def _shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1].rstrip() + "…"


def _for_mermaid(text: str) -> str:
    """Escape everything that might mean something to Mermaid."""
    return re.sub(r"[^\w .,:=+/()'…-]", lambda found: f"#{ord(found[0])};", text)


def _for_xml(text: str) -> str:
    """Drop the characters that XML cannot hold at all."""
    return escape(re.sub(r"[^\t\n\x20-\uFFFD\U00010000-\U0010FFFF]", "�", text))


# ---- The parts of an SVG. All letters count as equally wide: nothing here can measure them.

LETTER = 6.2
LEFT, RIGHT, EDGE, TOP, ROW = 70, 70, 14, 44, 32
GAP_MIN, GAP_MAX, TEXT_MAX = 90, 240, 54
DARK, GREY, BLUE, RED = "#24292f", "#57606a", "#0969da", "#cf222e"

STYLE = """\
text { font: 11px 'Segoe UI', 'Helvetica Neue', Arial, sans-serif; text-anchor: middle }
.head { font-size: 12px; font-weight: 600; fill: #fff }
.name { font-size: 9px; fill: #8c959f; text-anchor: start }
.time { font-size: 10px; fill: #8c959f; text-anchor: end }
.does { fill: #fff8c5; stroke: #e3d27c }
.delivers { fill: #dafbe1; stroke: #9bd8a8 }
.trouble { fill: #ffebe9; stroke: #f5b5b0 }
.settled { fill: #f6f8fa }"""


def _columns(nodes: list[NodeId], rows: list[Arrow | Note]) -> dict[NodeId, int]:
    """The position of each lifeline: far enough from the last for the labels between the two."""
    place = {node: number for number, node in enumerate(nodes)}
    gaps = [max(GAP_MIN, 8 * len(a + b) // 2 + 30) for a, b in pairwise(["", *nodes])]
    for row in rows:
        if isinstance(row, Arrow) and abs(place[row.source] - place[row.target]) == 1:
            gap = max(place[row.source], place[row.target])
            gaps[gap] = max(gaps[gap], min(round(LETTER * len(row.text)) + 30, GAP_MAX))
    return {node: LEFT + sum(gaps[: number + 1]) - 34 for node, number in place.items()}


def _time(text: str, y: int) -> str:
    return f'<text class="time" x="{LEFT - EDGE}" y="{y - 1}">{text}</text>'


def _head(node: NodeId, x: int, y: int, color: str) -> str:
    width = 8 * len(node) + 22
    return (
        f'<rect x="{x - width // 2}" y="{y - 13}" width="{width}" height="26" rx="4" '
        f'fill="{color}"/><text class="head" x="{x}" y="{y + 4}">{_for_xml(node)}</text>'
    )


def _arrow(row: Arrow, start: int, end: int, y: int, width: int) -> str:
    color = RED if row.fate.lost else BLUE if row.text.startswith("Events ") else GREY
    letters = max(int(abs(end - start) / LETTER) - 3, TEXT_MAX)
    _, label = _label(row.text, letters, (start + end) // 2, y - 5, width, color)
    back = -7 if end > start else 7
    tip = f"M{end + back} {y - 4}L{end} {y}l{back} 4"
    if row.fate.lost:
        end += 2 * back
        tip = f"M{end - 4} {y - 4}l8 8m-8 0l8 -8"
    dashes = ' stroke-dasharray="5 3"' if row.fate.again else ""
    lines = f'<path d="M{start} {y}H{end}"{dashes}/><path d="{tip}"/>'
    return f'<g fill="none" stroke="{color}" stroke-width="1.3">{lines}</g>{label}'


def _note(row: Note, x: int | None, y: int, width: int) -> str:
    """A box on a lifeline, or a band from side to side."""
    if x is not None:
        style = "delivers" if row.text.startswith("delivers") else "does"
        (left, right), label = _label(row.text, TEXT_MAX, x, y - 1, width, DARK)
    else:
        style = "settled" if row.text == "settled" else "trouble"
        left, right = LEFT, width - EDGE
        _, label = _label(row.text, TEXT_MAX, (left + right) // 2, y - 1, width, DARK)
    box = f'x="{left}" y="{y - 16}" width="{right - left}" height="22" rx="3"'
    return f'<rect class="{style}" {box}/>{label}'


def _label(
    text: str, letters: int, x: int, y: int, width: int, color: str
) -> tuple[tuple[int, int], str]:
    """Centre a text at x, but inside the picture: its extent, and the text."""
    short = _shortened(text, letters)
    half = round(LETTER * len(short)) // 2 + 8
    x = max(LEFT + half, min(x, width - EDGE - half))
    title = f"<title>{_for_xml(text)}</title>" if short != text else ""
    label = f'<text x="{x}" y="{y}" fill="{color}">{title}{_for_xml(short)}</text>'
    return (x - half, x + half), label
