"""Overlays of brokers: trees, lines, stars, random trees, and from a file."""

import random
from pathlib import Path

import msgspec

from sterna.core.names import NodeId
from sterna.errors import SternaError


class TopologyError(SternaError, ValueError):
    """The overlay is not a tree; the message says why."""


class Topology(msgspec.Struct, frozen=True):
    """Brokers and the links between them: connected and without cycles."""

    brokers: tuple[NodeId, ...]
    """The brokers; the first is the root, where there is a hierarchy."""
    links: tuple[tuple[NodeId, NodeId], ...]
    """The links, each from the broker nearer to the root to the other."""
    reach: tuple[tuple[NodeId, NodeId], ...] | None = None
    """Which brokers are in reach of each other, if they make their tree by themselves: any graph.
    Then there are no links in the beginning."""

    def __post_init__(self) -> None:
        if not self.brokers:
            raise TopologyError("an overlay needs a broker")
        if len(set(self.brokers)) < len(self.brokers):
            raise TopologyError("each broker needs a name of its own")
        if self.reach is not None:
            self._check_reach()
            return
        parents: dict[NodeId, NodeId] = {}
        for upper, lower in self.links:
            for end in (upper, lower):
                if end not in self.brokers:
                    raise TopologyError(f"the link {upper} - {lower} ends at no broker")
            if lower in parents or lower == self.brokers[0]:
                raise TopologyError(f"{lower} has two ways to the root: the overlay has a cycle")
            parents[lower] = upper
        for broker in self.brokers:
            above, seen = broker, set()
            while above in parents and above not in seen:
                seen.add(above)
                above = parents[above]
            if above != self.brokers[0]:
                raise TopologyError(f"{broker} has no way to {self.brokers[0]}")

    def _check_reach(self) -> None:
        if self.links:
            raise TopologyError("brokers that make their links by themselves begin without any")
        for pair in self.reach or ():
            for end in pair:
                if end not in self.brokers:
                    raise TopologyError(f"{' and '.join(pair)} are in reach: {end} is no broker")

    def parent(self, broker: NodeId) -> NodeId | None:
        """The next broker on the way to the root."""
        return next((upper for upper, lower in self.links if lower == broker), None)

    def leaves(self) -> tuple[NodeId, ...]:
        """The brokers with a single link (or the only one)."""
        uppers = {upper for upper, _ in self.links}
        return tuple(broker for broker in self.brokers if broker not in uppers)


def tree(degree: int, levels: int) -> Topology:
    """A complete tree: Burcea's has degree 4 and 4 levels, 85 brokers."""
    total = sum(degree**level for level in range(levels))
    return from_parents([(child - 1) // degree for child in range(1, total)])


def tree_of(brokers: int, degree: int = 4) -> Topology:
    """The first so many brokers of a complete tree."""
    return from_parents([(child - 1) // degree for child in range(1, brokers)])


def line(brokers: int) -> Topology:
    return from_parents(list(range(brokers - 1)))


def star(brokers: int) -> Topology:
    return from_parents([0] * (brokers - 1))


def random_tree(brokers: int, seed: int) -> Topology:
    """Each broker is linked to an earlier one, chosen uniformly at random."""
    rng = random.Random(f"topology {seed}")  # noqa: S311 - reproducible, not secret.
    return from_parents([rng.randrange(child) for child in range(1, brokers)])


def from_parents(parents: list[int]) -> Topology:
    """Brokers B1, B2, …: for each but the first, the position of the broker it is linked to."""
    names = tuple(f"B{number}" for number in range(1, len(parents) + 2))
    links = tuple((names[parent], names[child]) for child, parent in enumerate(parents, 1))
    return Topology(names, links)


def from_edges(edges: list[tuple[NodeId, NodeId]]) -> Topology:
    """An overlay from its links in any order; the first broker named is the root."""
    if not edges:
        raise TopologyError("an overlay of several brokers needs links")
    names = list(dict.fromkeys(end for edge in edges for end in edge))
    near: dict[NodeId, list[NodeId]] = {name: [] for name in names}
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    links: list[tuple[NodeId, NodeId]] = []
    order, reached = [names[0]], {names[0]}
    for broker in order:
        for other in near[broker]:
            if other not in reached:
                reached.add(other)
                order.append(other)
                links.append((broker, other))
    if len(reached) < len(names):
        lost = next(name for name in names if name not in reached)
        raise TopologyError(f"{lost} has no way to {names[0]}")
    if len(links) < len(edges):
        raise TopologyError("the overlay has a cycle: leave out a link")
    return Topology(tuple(order), tuple(links))


def from_file(path: Path) -> Topology:
    """Read an overlay: two broker names a line; empty lines and lines with # are skipped."""
    edges = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = text.split("#")[0].split()
        if len(words) == 2:
            edges.append((words[0], words[1]))
        elif words:
            raise TopologyError(f"{path}, line {number}: expected two broker names, found {text!r}")
    return from_edges(edges)
