"""What a broker of release 0.1 kept for routing, as records: a function for each of its classes.

Indexes of filters are left out: they are made again from the routes.
"""

from collections.abc import Sequence

from sterna.core.keeping import Writer
from sterna.core.routing.advertisements import KeptAdvertised
from sterna.core.routing.announcements import KeptNeighbour
from sterna.core.routing.covering import KeptMaximal
from sterna.core.routing.kept import KeptRouter
from sterna.core.routing.merging import KeptGroup, KeptMerged
from sterna.core.routing.overlaps import KeptOverlaps
from sterna.core.routing.stages import KeptDifference, KeptDistinct, KeptEverything
from sterna.core.routing.strategies import KeptStage
from sterna.core.routing.table import KeptTable, RoutingTable
from sterna.net.release_0_1.reading import Old


def router(old: Old, _writer: Writer) -> KeptRouter:
    """Routing as a whole. Its counter had the number of the next name, not of the last one."""
    return KeptRouter(
        subscriptions=routing_table(old.subscriptions),
        advertisements=old.advertisements,
        neighbours={
            link: neighbour(each, is_publisher=each.subscriptions.chain is old._interest)
            for link, each in old._neighbours.items()
        },
        advertising={},
        interest=None if old._interest is None else chain(old._interest),
        publishers=list(old._publishers._current.values()),
        names=old._names - 1,
    )


def routing_table(old: Old) -> KeptTable:
    """Which filters were announced over which link; the order of links is made anew."""
    entered = [(*key, filter_, route) for key, (filter_, route) in old._entered.items()]
    table = RoutingTable()
    table.restore(KeptTable(routes=old._routes, entered=entered))
    return table.keep()


def neighbour(old: Old, *, is_publisher: bool) -> KeptNeighbour:
    """What is announced to one neighbour."""
    told, offers = old.subscriptions, old.advertisements
    return KeptNeighbour(
        subscriptions=[] if is_publisher else chain(told.chain),
        difference=difference(told.difference),
        advertisements=[] if offers is None else chain(offers.chain),
        offers=None if offers is None else difference(offers.difference),
    )


def chain(old: Old) -> list[KeptStage]:
    """The stages of a chain, one after the other."""
    stages: Sequence[Old] = old._stages
    return [stage(each, stages[:place]) for place, each in enumerate(stages)]


def stage(old: Old, before: Sequence[Old]) -> KeptStage:
    """One stage; it may have left to those before it what it does not keep itself."""
    match type(old).__name__:
        case "Advertised":
            return advertised(old)
        case "Everything":
            return KeptEverything(old._route)
        case "Distinct":
            return distinct(old)
        case "Maximal":
            return maximal(old)
        case "Merged":
            return merged(old, before[-1])
        case other:
            raise ValueError(f"there is no stage {other} of routing")


def advertised(old: Old) -> KeptAdvertised:
    """The routes that advertisements admit."""
    return KeptAdvertised(
        advertisements=list(old._advertisements.values()),
        offers=overlap_index(old._offers),
        waiting=list(old._waiting.values()),
        wishes=overlap_index(old._wishes),
        admits=[(id_, list(routes.values())) for id_, routes in old._admits.items()],
    )


def overlap_index(old: Old) -> KeptOverlaps:
    """The order in which overlaps are found."""
    return KeptOverlaps([list(routes) for routes in old._routes.values()], list(old._values))


def distinct(old: Old) -> KeptDistinct:
    """Equal filters that count as one."""
    return KeptDistinct([(route, old._counts[same]) for same, route in old._routes.items()])


def maximal(old: Old) -> KeptMaximal:
    """The filters that no other covers, and the forest of those that wait behind them."""
    return KeptMaximal(
        maximal=list(old._maximal.values()),
        followers=[(id_, list(each.values())) for id_, each in old._followers.items()],
        unwanted=[id_ for id_, coverer in old._coverer.items() if coverer is None],
    )


def merged(old: Old, covering: Old) -> KeptMerged:
    """Filters that are passed on as one, and those that are alone: it had only their names.

    A group that is empty and was never passed on is left out.
    """
    found = {each.id: each for each in old._group_of.values()} | old._changed
    groups = {id_: each for id_, each in found.items() if each.members or each.merged is not None}
    return KeptMerged(
        alone=[covering._maximal[id_] for id_ in old._alone],
        groups=[group(each) for each in groups.values()],
        open=[id_ for each in old._open.values() for id_ in each if id_ in groups],
        changed=[id_ for id_ in old._changed if id_ in groups],
    )


def group(old: Old) -> KeptGroup:
    """All members have the same key, and so has what was passed on for them."""
    members = list(old.members.values())
    first = members[0] if members else old.merged
    return KeptGroup(old.id, old.key[0], first, members, old.merged)


def difference(old: Old) -> KeptDifference:
    """What was announced to a neighbour, and what will be."""
    return KeptDifference(
        told=list(old.told.values()),
        added=list(old.added.values()),
        removed=list(old.removed.values()),
        looked_at=vars(old).get("_looked_at", True),
    )
