"""A small drawing of an event's way: its publisher, the brokers it came by, and the client."""

from dataclasses import dataclass, field
from html import escape

from sterna.pipeline.report.ways import Way

COLUMN, ROW, WIDTH, HEIGHT = 178, 50, 138, 34
"""Sizes in pixels: the distance of nodes from left to right and from top to bottom, and a node."""

LETTERS_MAX = 16


@dataclass
class Node:
    """A box of the drawing, with those that got the event from it."""

    name: str
    kind: str
    """Its class in the style sheet."""
    line: str = ""
    """The class of the line that leads to it."""
    below: "list[Node]" = field(default_factory=list)
    x: float = 0
    y: float = 0


def drawing(way: Way) -> str:
    """The way as SVG, from left to right."""
    root = _tree(way)
    _lead(root)
    rows = _place(root, 0, 0)
    nodes = list(_all(root))
    width = max(node.x for node in nodes) + WIDTH + 2
    height = rows * ROW - (ROW - HEIGHT) + 2
    lines = [_line(node, below) for node in nodes for below in node.below]
    return (
        f'<svg class="way" role="img" aria-label="The way of the event" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="-1 -1 {width:.0f} {height:.0f}">'
        f"{''.join(lines)}{''.join(map(_box, nodes))}</svg>"
    )


def _tree(way: Way) -> Node:
    """Brokers after those that they got the event from; the client wherever it was sent to it."""
    publisher = Node(way.publisher, "client")
    before = _senders(way)
    brokers = {name: Node(name, "broker", "sent") for name in before}
    for name, sender in before.items():
        (brokers[sender] if sender is not None else publisher).below.append(brokers[name])
    for name in dict.fromkeys(way.sent_by):
        kind = "meant" if way.arrivals else "missing"
        brokers[name].below.append(Node(way.client, f"client {kind}", kind))
    if way.client and not way.sent_by:
        last = brokers.get(way.at or "", list(brokers.values())[-1] if brokers else publisher)
        last.below.append(Node(way.client, "client missing", "missing"))
    others: dict[str, set[str]] = {}
    for step in way.steps:
        if step.to not in brokers and step.to != way.client:
            others.setdefault(step.broker, set()).add(step.to)
    for name, clients in others.items():
        told = next(iter(clients)) if len(clients) == 1 else f"{len(clients)} others"
        brokers[name].below.append(Node(told, "client other", "other"))
    return publisher


def _senders(way: Way) -> dict[str, str | None]:
    """From which broker each broker first got the event; None: from the publisher, or unknown.

    Clocks differ, so that a broker may state that it sent an event on before it was sent to it.
    """
    brokers = way.brokers
    found: dict[str, str | None] = {}
    if way.accepted_by is not None:
        found[way.accepted_by] = None
    for step in way.steps:
        if (
            step.to in brokers
            and step.to not in found
            and step.to not in _line_of(step.broker, found)
        ):
            found[step.to] = step.broker
    return {name: found.get(name) for name in dict.fromkeys([*found, *sorted(brokers)])}


def _line_of(broker: str, senders: dict[str, str | None]) -> list[str]:
    """A broker and all that the event came by before it."""
    found: list[str] = []
    at: str | None = broker
    while at is not None:
        found.append(at)
        at = senders.get(at)
    return found


def _lead(node: Node) -> bool:
    """Mark the lines that lead to the client."""
    leads = [_lead(below) for below in node.below]
    if any(leads) and node.line:
        node.line = "meant"
    return any(leads) or node.line in {"meant", "missing"}


def _place(node: Node, depth: int, row: int) -> int:
    """Place a node and all below it from this row on; return the first row that is free."""
    node.x = depth * COLUMN
    first = row
    for below in node.below:
        row = _place(below, depth + 1, row)
    row = max(row, first + 1)
    ends = [below.y for below in node.below] or [first * ROW]
    node.y = (ends[0] + ends[-1]) / 2
    return row


def _all(node: Node) -> list[Node]:
    return [node, *(each for below in node.below for each in _all(below))]


def _line(node: Node, below: Node) -> str:
    begin, end = (node.x + WIDTH, node.y + HEIGHT / 2), (below.x, below.y + HEIGHT / 2)
    middle = (begin[0] + end[0]) / 2
    path = (
        f"M{begin[0]:.0f} {begin[1]:.0f}C{middle:.0f} {begin[1]:.0f} {middle:.0f} {end[1]:.0f} "
        f"{end[0]:.0f} {end[1]:.0f}"
    )
    cross = ""
    if "missing" in below.line:
        x, y = middle, (begin[1] + end[1]) / 2
        cross = f'<path class="cross" d="M{x - 6} {y - 6}l12 12m0 -12l-12 12"/>'
    return f'<path class="{below.line}" d="{path}"/>{cross}'


def _box(node: Node) -> str:
    name = node.name if len(node.name) <= LETTERS_MAX else node.name[: LETTERS_MAX - 1] + "…"
    round_ = HEIGHT / 2 if node.kind.startswith("client") else 5
    return (
        f'<g class="{node.kind}"><title>{escape(node.name)}</title>'
        f'<rect x="{node.x:.0f}" y="{node.y:.0f}" width="{WIDTH}" height="{HEIGHT}" '
        f'rx="{round_:.0f}"/><text x="{node.x + WIDTH / 2:.0f}" y="{node.y + HEIGHT / 2 + 5:.0f}">'
        f"{escape(name)}</text></g>"
    )
