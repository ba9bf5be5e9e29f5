"""What is varied in the quenching experiment, and what is measured."""

from collections.abc import Sequence

import msgspec

from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import ClientOptions
from sterna.experiments.experiment import Point

MATCH_RATES = (0.01, 0.1, 0.3, 0.6, 0.9)
CHANGE_RATE = 0.1
"""Where something else varies."""
MEMBERS_MAX = RoutingOptions().interest_members_max
MEMBERS_MANY = 16
"""How many subscriptions make one filter of c_all at most: as usual, and in a variation."""
BUFFER_MAX = ClientOptions().buffer_events_max


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What one pair of runs is made from: with quenching, and without."""

    match_rate: float
    """The share of the events that is wanted; it determines the number of subscriptions."""
    change_rate: float
    """Subscriptions that are replaced by others, for each event of one publisher."""
    events: int
    """Of each publisher."""
    disconnected: float = 0.0
    """The share of the time in which publishers have no connection."""
    buffer_events_max: int = BUFFER_MAX
    interest_members_max: int = MEMBERS_MAX


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What a pair of runs gives: bytes on the publishers' links, in both directions."""

    match_rate: float
    """As it came out."""
    subscriptions: float
    filters: float
    """In c_all, at the end."""
    changes: float
    first_bytes: float
    """To tell one publisher c_all when it connects; not part of the following."""
    bytes_without: float
    bytes_with: float
    event_bytes_saved: float
    update_bytes: float
    """Spent on changes of c_all."""
    link_bytes_saved: float
    """Acknowledgements and the like; negative where quenching needs more of them."""
    saved_per_event: float
    """Bytes, net: what a publisher sends and receives less for each of its events."""
    saved_share: float
    """The same as a share of what it sends and receives without quenching."""
    quenched: float
    purged_without: float
    """Events that somebody wanted and that a full buffer discarded."""
    purged_with: float


Points = Sequence[Point[Setting, Measures]]
