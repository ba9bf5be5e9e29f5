"""What each strategy must tell a neighbour, in the plainest words: the oracle for the stages."""

from sterna.core.routing.options import Strategy
from sterna.core.routing.stages import EVERYTHING
from sterna.model.filters import Filter


def told(strategy: Strategy, filters: list[Filter]) -> list[Filter]:
    """What a neighbour has to be told about these filters. (Merging only bounds it.)"""
    match strategy:
        case Strategy.FLOODING:
            return [EVERYTHING]
        case Strategy.SIMPLE:
            return filters
        case Strategy.IDENTITY:
            return list(dict.fromkeys(filters))
        case _:
            return maximal(list(dict.fromkeys(filters)))


def maximal(filters: list[Filter]) -> list[Filter]:
    """Those that no other covers; of several that cover each other, the first."""
    return [
        filter_
        for place, filter_ in enumerate(filters)
        if filter_.normal_form != ()
        and not any(
            other.covers(filter_) and (earlier < place or not filter_.covers(other))
            for earlier, other in enumerate(filters)
            if earlier != place
        )
    ]
