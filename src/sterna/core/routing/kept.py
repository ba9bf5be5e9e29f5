"""What a snapshot holds of routing."""

import msgspec

from sterna.core.messages import Route
from sterna.core.names import LinkId, RouteId, Time
from sterna.core.routing.announcements import KeptNeighbour
from sterna.core.routing.outdated import KeptOutdated
from sterna.core.routing.preparing import KeptPreparations
from sterna.core.routing.strategies import KeptStage
from sterna.core.routing.table import KeptTable


class KeptRouter(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of routing."""

    subscriptions: KeptTable
    advertisements: dict[LinkId, dict[RouteId, Route]]
    neighbours: dict[LinkId, KeptNeighbour]
    advertising: dict[LinkId, bool]
    interest: list[KeptStage] | None
    publishers: list[Route]
    names: int
    outdated: KeptOutdated = {}
    leaving: list[tuple[LinkId, Route]] = []
    ended: list[Route] = []
    ending: list[tuple[LinkId, Route]] = []
    unadvertised: list[LinkId] = []
    expected_offers: dict[LinkId, list[RouteId]] = {}
    preparing: KeptPreparations = KeptPreparations()
    earlier_until: dict[LinkId, Time] = {}
    """Until when advertisements of earlier lives of clients hold; earlier releases have none."""
