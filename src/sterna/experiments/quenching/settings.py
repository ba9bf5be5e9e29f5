"""The settings of the quenching experiment, and what is measured."""

from collections.abc import Sequence

import msgspec

from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import ClientOptions
from sterna.experiments.experiment import Point

MATCH_RATES = (0.01, 0.1, 0.3, 0.6, 0.9)
CHANGE_RATE = 0.1
"""The change rate, if it does not vary."""
MEMBERS_MAX = RoutingOptions().interest_members_max
MEMBERS_MANY = 16
"""How many subscriptions make one filter of c_all at most: as usual, and in a variation."""
BUFFER_MAX = ClientOptions().buffer_events_max


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a pair of runs: with quenching, and without."""

    match_rate: float
    """The share of the events that is wanted; it determines the number of subscriptions."""
    change_rate: float
    """Subscriptions that are replaced by others, for each event of one publisher."""
    events: int
    """How many events each publisher has."""
    disconnected: float = 0.0
    """The share of the time in which publishers have no connection."""
    buffer_events_max: int = BUFFER_MAX
    interest_members_max: int = MEMBERS_MAX


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a pair of runs: bytes on the publishers' links, in both directions."""

    match_rate: float
    """The share of the events that was wanted in the run."""
    subscriptions: float
    filters: float
    """How many filters c_all has at the end."""
    changes: float
    first_bytes: float
    """Bytes to announce c_all to one publisher when it connects; not part of the following."""
    bytes_without: float
    bytes_with: float
    event_bytes_saved: float
    update_bytes: float
    """Bytes spent on changes of c_all."""
    link_bytes_saved: float
    """Saved bytes of acknowledgements and the like; negative where quenching needs more of them."""
    saved_per_event: float
    """Net bytes: what a publisher sends and receives less for each of its events."""
    saved_share: float
    """The saved bytes as a share of what a publisher sends and receives without quenching."""
    quenched: float
    purged_without: float
    """Events that a subscriber wanted and that a full buffer discarded, without quenching."""
    purged_with: float


Points = Sequence[Point[Setting, Measures]]
