"""The city of the experiments: its brokers in a row, and what is published and wanted there."""

from collections.abc import Iterator
from enum import StrEnum
from functools import cache

from sterna.core.names import NodeId
from sterna.model.filters import Filter
from sterna.sim.topology import Topology, tree

DEGREE, LEVELS = 4, 4
"""Table 2: the degree and the height of the hierarchy, which has 85 brokers."""
LEAVES = 64
"""Clients attach to the leaves of the hierarchy, which lie in a row from west to east."""
RANGE_KM = 0.5
"""The range that each of them serves (5.2.1)."""
WIDTH_KM = LEAVES * RANGE_KM

KINDS = 27
"""How many different events there are."""


class Ends(StrEnum):
    """What happens to somebody who comes to the end of the city."""

    BOUNCE = "bounce"
    """They turn back."""
    STOP = "stop"
    """They stay there."""


@cache
def topology() -> Topology:
    """The hierarchy of brokers."""
    return tree(DEGREE, LEVELS)


@cache
def broker(leaf: int) -> NodeId:
    """The name of a leaf, which are numbered from 0 in the west."""
    return topology().leaves()[leaf]


def downtown(leaves: int) -> range:
    """The innermost leaves, so many of them."""
    first = (LEAVES - leaves) // 2
    return range(first, first + leaves)


def _wanted() -> Iterator[range]:
    for width in (1, 3, 9, KINDS):
        for first in range(1, KINDS + 1, width):
            yield range(first, first + width)


WANTED: tuple[range, ...] = tuple(_wanted())
"""The 40 subscriptions by the kinds of events that match them: 27 match one, 9 match three, 3 match
nine, and one matches all (5.2.1)."""


@cache
def subscription(number: int) -> Filter:
    """One of the 40 subscriptions, numbered from 0, as a filter."""
    kinds = WANTED[number]
    if len(kinds) == 1:
        return Filter(f"kind = {kinds[0]}")
    return Filter(f"kind BETWEEN {kinds[0]} AND {kinds[-1]}")


def leaf_at(km: float) -> int:
    """The leaf that serves a position, in kilometres from the west end."""
    return min(int(km / RANGE_KM), LEAVES - 1)


def position(km: float, ends: Ends) -> float:
    """Where somebody is who would be at `km` if the city had no ends."""
    if ends is Ends.STOP:
        return min(max(km, 0.0), WIDTH_KM)
    km %= 2 * WIDTH_KM
    return 2 * WIDTH_KM - km if km > WIDTH_KM else km


@cache
def path_up(leaf: int) -> tuple[NodeId, ...]:
    """The brokers from a leaf to the root, both included."""
    above = [broker(leaf)]
    while (parent := topology().parent(above[-1])) is not None:
        above.append(parent)
    return tuple(above)


@cache
def hops(one: int, other: int) -> int:
    """How many links lie between two leaves."""
    shared = len(set(path_up(one)) & set(path_up(other)))
    return 2 * (LEVELS - shared)
