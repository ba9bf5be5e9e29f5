"""The settings of the experiment on replication, and what is measured."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from sterna.core.replication.options import Filtering
from sterna.experiments.experiment import Point

HOLD_MS = 1_000
HOLDS_MS = (0, 20, 50, 100, 200, 500, 1_000, 2_000)
"""How long events are held back at most: as a rule, and in a variation."""


class Trouble(StrEnum):
    """What goes wrong."""

    NOTHING = "nothing"
    LOSSES = "losses"
    """Each event gets lost now and then on its way to a watching broker, as in footnote 3."""
    CUTS = "cuts"
    """Watching brokers lose their connection to the others now and then."""
    DEATHS = "deaths"
    """Watching brokers die for good, one after the other."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run."""

    trouble: Trouble
    brokers: int
    """How many brokers watch for the application."""
    filtering: Filtering
    hold_ms: int = HOLD_MS
    seconds: int = 60


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What the application got of what it was owed, when, and at what cost."""

    owed: float
    lost: float
    """Events that it was owed and never got."""
    late: float
    """Those of them that a session had brought, and that were dropped because of the order."""
    doubled: float
    disordered: float
    """Events that came after later ones of their publisher."""
    held: float
    """Events that were held back for a while."""
    gave_up: float
    """Events that were held back for as long as possible, and then given."""
    median_ms: float
    """From publishing to the application."""
    p99_ms: float
    messages_per_event: float
    """All messages, between brokers and with clients, for each event that is owed."""


Points = Sequence[Point[Setting, Measures]]
