"""The regular messages of a run in which nobody moves. They need no simulation: each event goes
over the same links each time.
"""

from dataclasses import dataclass
from itertools import pairwise

from sterna.core.names import NodeId
from sterna.experiments.burcea.city import WANTED, path_up
from sterna.experiments.burcea.journeys import People, Publisher
from sterna.experiments.burcea.settings import Setting

Link = tuple[NodeId, NodeId]
"""One direction of a link, from a broker to another."""


@dataclass(frozen=True)
class Still:
    """The regular messages of a run without moves."""

    hops: int
    """Over links between brokers."""
    messages: int
    """To border brokers, each once for each of them."""
    client_hops: int
    """Over links between clients and brokers."""
    rate: float
    """Hops between brokers in a microsecond."""


def still(setting: Setting, everybody: People) -> Still:
    """Count them, with every subscriber where it is at first."""
    hops = messages = clients = 0
    for publisher in everybody.publishers:
        wanting = [
            each for each in everybody.subscribers if publisher.kind in WANTED[each.subscription]
        ]
        leaves = {each.leaf for each in wanting}
        events = len(publisher.times(setting.length_us))
        hops += events * len(links(publisher, leaves, advertised=setting.advertisements))
        messages += events * len(leaves - {publisher.leaf})
        clients += events * (1 + len(wanting))
    return Still(hops, messages, clients, hops / setting.length_us)


def links(publisher: Publisher, leaves: set[int], *, advertised: bool) -> set[Link]:
    """The links between brokers that an event goes over: up to the root, and down to the leaves.

    If it was advertised, it does not go up further than it has to.
    """
    up = path_up(publisher.leaf)
    taken: set[Link] = set() if advertised else set(pairwise(up))
    for leaf in leaves:
        down = path_up(leaf)
        meeting = next(place for place, broker in enumerate(up) if broker in down)
        taken |= set(pairwise(up[: meeting + 1]))
        way = down[: down.index(up[meeting]) + 1]
        taken |= {(above, below) for below, above in pairwise(way)}
    return taken
