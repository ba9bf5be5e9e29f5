"""The routing strategies, as the chains of stages that they are."""

from sterna.core.routing.advertisements import AdvertisementGate, KeptAdvertised
from sterna.core.routing.covering import KeptMaximal, Maximal
from sterna.core.routing.merging import KeptMerged, Merged
from sterna.core.routing.options import Strategy
from sterna.core.routing.stages import (
    Difference,
    Distinct,
    Everything,
    KeptDistinct,
    KeptEverything,
    KeptNothing,
    NameRoute,
    Stage,
)
from sterna.core.routing.unions import UnionDifference

KeptStage = KeptNothing | KeptEverything | KeptDistinct | KeptMaximal | KeptMerged | KeptAdvertised
"""What a snapshot holds of any stage of a chain."""


def difference(strategy: Strategy, gate: AdvertisementGate | None = None) -> Difference:
    """The end of a chain, for a neighbour that gets only what its advertisements admit."""
    if strategy in {Strategy.MERGING, Strategy.IMPERFECT}:
        return UnionDifference(gate)
    return Difference()


def stages(strategy: Strategy, name: NameRoute, *, members_max: int) -> list[Stage]:
    """The stages between the filters that a broker has and what it announces to a neighbour."""
    match strategy:
        case Strategy.FLOODING:
            return [Everything(name)]
        case Strategy.SIMPLE:
            return []
        case Strategy.IDENTITY:
            return [Distinct(name)]
        case Strategy.COVERING:
            return [Distinct(name), Maximal()]
        case Strategy.MERGING | Strategy.IMPERFECT if members_max < 2:
            return [Distinct(name), Maximal()]
        case Strategy.MERGING | Strategy.IMPERFECT:
            exact = strategy is Strategy.MERGING
            merged = Merged(name, exact=exact, members_max=members_max)
            return [Distinct(name), Maximal(), merged, Distinct(name), Maximal()]
