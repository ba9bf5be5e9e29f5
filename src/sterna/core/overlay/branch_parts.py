"""What brokers say, state and keep about branches that are cut off; see `branches`."""

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import msgspec

from sterna.core.facts import Fact
from sterna.core.messages import Message
from sterna.core.names import LinkId, NodeId, Time
from sterna.core.overlay.doubts import KeptDoubts
from sterna.core.overlay.messages import OverlayLink, Unicast
from sterna.model.event import Event, EventId
from sterna.model.ranges import Number

# ---- What brokers say


class BranchAsked(Unicast, frozen=True, kw_only=True):
    """From the end of a link that is gone: may I send what is kept for your branch?"""

    is_repeated: ClassVar[bool] = True

    neighbour: NodeId
    """The other end of the link."""
    number: Number


class BranchReady(Unicast, frozen=True, kw_only=True):
    """The answer: all brokers on the way know what the branch wants."""

    is_repeated: ClassVar[bool] = True

    neighbour: NodeId
    number: Number


class KeptForBranch(Unicast, frozen=True, kw_only=True):
    """What was kept for a branch, or a part of it."""

    is_said_once: ClassVar[bool] = True

    neighbour: NodeId
    number: Number
    events: tuple[Event, ...] = ()
    is_last: bool = False


class BranchServed(Message, frozen=True, kw_only=True):
    """To all brokers: this one has routed all that one end of a link has kept for its branch."""

    is_said_once: ClassVar[bool] = True

    link: OverlayLink
    end: NodeId
    by: NodeId
    number: Number


# ---- What they state


class BranchCutOff(Fact, frozen=True, kw_only=True):
    """A link is gone; what is wanted behind it is kept from now on."""

    neighbour: NodeId
    events: int
    """How many events were on their way."""


class BranchReached(Fact, frozen=True, kw_only=True):
    """A broker of the branch has got what was kept."""

    neighbour: NodeId
    by: NodeId
    events: int


class BranchGivenUp(Fact, frozen=True, kw_only=True):
    """A bound was reached: the oldest events are kept no longer, or none are any more."""

    neighbour: NodeId
    events: int


class OrderWaited(Fact, frozen=True, kw_only=True):
    """Clients have waited for events that might come on another way."""

    waited_us: Time
    is_over: bool
    """Whether all has come; else nobody waits any longer."""


class BranchOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is kept for branches that are cut off, and how long clients wait for order."""

    keep_us: Time = 600_000_000
    """How long something is kept for a branch that does not come back."""
    events_max: int = 100_000
    """How many events are kept for each."""
    patience_us: Time = 2_000_000
    """How long clients wait at most."""
    recent_us: Time = 3_000_000
    """How long what a neighbour has confirmed is remembered: it may not have passed it on."""


@dataclass(slots=True)
class Cut:
    """A link that is gone, or has begun anew, and what is kept for the branch behind it."""

    since: Time
    beyond: tuple[OverlayLink, ...] = ()
    """The links behind it, as they were, and those that had been lost before."""
    behind: frozenset[NodeId] = frozenset()
    """The brokers that these lead to."""
    kept: deque[Event] = field(default_factory=deque)
    had: dict[EventId, None] = field(default_factory=dict)
    """What has been kept: it comes again when others serve their branches."""
    number: int = 0
    """The number of the last question."""
    asked: dict[NodeId, Time] = field(default_factory=dict)
    """When the brokers that are nearest were asked that have not been served."""
    served: dict[NodeId, None] = field(default_factory=dict)
    is_open: bool = False
    """Whether the neighbour is linked again, and has got what was kept."""
    came: int = 0
    """How many events were kept in all, so far."""
    sent: dict[NodeId, int] = field(default_factory=dict)
    """How many of them were sent to which broker."""
    finishing: dict[NodeId, None] = field(default_factory=dict)
    """The brokers that were told that this was all, for the time being."""


class Recent(NamedTuple):
    """An event that went over a link, and when."""

    time: Time
    event: Event


class KeptCut(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a cut."""

    since: Time
    beyond: tuple[OverlayLink, ...]
    kept: list[int]
    number: int
    asked: dict[NodeId, Time]
    served: list[NodeId]
    is_open: bool
    came: int
    sent: dict[NodeId, int]
    finishing: list[NodeId]


class KeptBranches(msgspec.Struct, frozen=True, kw_only=True):
    """What it holds of all of them, and of the rest."""

    cuts: dict[LinkId, KeptCut]
    recent: dict[LinkId, list[tuple[Time, int]]]
    doubts: KeptDoubts
    pending: list[int]
    seen: list[tuple[NodeId, NodeId, int]]
    passed: dict[LinkId, list[EventId]]
    number: int
    taken: list[tuple[EventId, Time]] = []
