"""Reads the pickles of release 0.1 without its classes, and without running anything they name.

Objects of its classes become `Old` ones, with the same attributes. What is plain data to this day
is read as such: events, filters, messages, options. Anything else is refused.
"""

import io
import pickle
from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Self

from sterna.core import messages as base
from sterna.core.actions import LookUp
from sterna.core.handover import messages as handover
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.history import messages as history
from sterna.core.link import State
from sterna.core.location import messages as location
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.names import Peer
from sterna.core.overlay import messages as overlay
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model.event import CheckedEvent, Event, EventId
from sterna.model.filters import Filter, tree


def read(state: bytes) -> Any:
    """The content of a snapshot of release 0.1; pickle.UnpicklingError if it is something else."""
    return _Reading(io.BytesIO(state)).load()


class Old:
    """An object of a class that release 0.1 had: nothing but its attributes."""

    fields: ClassVar[tuple[str, ...]] = ()
    """The attributes of classes whose objects were written as lists of values."""

    def __new__(cls, *values: object, **attributes: object) -> Self:
        made = super().__new__(cls)
        made.__dict__.update(zip(cls.fields, values, strict=False), **attributes)
        return made

    def __setstate__(self, state: object) -> None:
        match state:
            case dict():
                self.__dict__.update(state)
            case list():
                self.__dict__.update(zip(self.fields, state, strict=False))
            case (None, dict(slots)):
                self.__dict__.update(slots)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a {type(self).__name__} of release 0.1 has a {name!r}, this one not")


@cache
def _stand_in(name: str, fields: tuple[str, ...]) -> type[Old]:
    return type(name, (Old,), {"fields": fields})


_Names = dict[str, dict[str, tuple[str, ...]]]

_NODES: _Names = {
    "sterna.net.records": {"Began": ()},
    "sterna.wire.frames": {"Network": ()},
    "sterna.core.broker": {"Broker": ()},
    "sterna.core.client": {"Client": ()},
    "sterna.core.link": {
        "Data": ("seq", "acknowledged", "message"),
        "LinkSession": (),
        "LinkTiming": (),
    },
    "sterna.core.quenching": {"Interest": (), "Outgoing": (), "Quenching": ()},
    "sterna.core.overlay.members": {"Members": ()},
    "sterna.core.history.recent": {
        "Held": ("event", "subscriptions", "anywhere", "is_past"),
        "Question": ("asked", "link", "found", "look_up"),
        "Recall": (),
        "Recent": (),
    },
    "sterna.core.routing.advertisements": {"Advertised": ()},
    "sterna.core.routing.covering": {"Maximal": (), "SampleIndex": (), "Samples": ()},
    "sterna.core.routing.merging": {"Group": (), "Merged": ()},
    "sterna.core.routing.overlaps": {"OverlapIndex": ()},
    "sterna.core.routing.router": {
        "Neighbour": ("subscriptions", "advertisements", "gate", "sends_everything"),
        "Router": (),
        "Told": ("chain", "difference"),
    },
    "sterna.core.routing.stages": {
        "Chain": (),
        "Difference": (),
        "Distinct": (),
        "Everything": (),
        "Fan": (),
    },
    "sterna.core.routing.table": {"RoutingTable": ()},
    "sterna.core.routing.unions": {"UnionDifference": ()},
    "sterna.core.location.context": {"Context": (), "Variable": ("value", "low", "high")},
    "sterna.core.location.moving": {"Away": (), "Moving": (), "_Around": ()},
    "sterna.core.location.stays": {"Stays": ()},
    "sterna.core.location.telling": {"Share": (), "Telling": ()},
    "sterna.core.location.whereabouts": {"Whereabouts": ()},
    "sterna.core.handover.cache": {"Cache": (), "Kept": ("event", "since", "weight", "rings")},
    "sterna.core.handover.naive": {"Naive": ()},
    "sterna.core.handover.relocation": {
        "Departure": ("visit", "published"),
        "Guest": (),
        "Promise": ("request", "lost", "held", "missed", "moving", "published", "departing"),
        "Relocation": (),
        "Roaming": (),
        "Stranger": ("request", "source", "since"),
        "Trail": ("link", "born"),
    },
}
"""The classes of brokers and clients, each with the attributes that were written as a list."""

_INPUTS = (
    *("Advertise", "ArchiveChanged", "Attach", "Detach", "Leave", "LinkDown", "LinkGone", "LinkUp"),
    *("LookedUp", "MoveTo", "Publish", "PublishMany", "Received", "SetVariable", "Subscribe"),
    *("TimePassed", "Unadvertise", "Unsubscribe"),
)
"""A node had a method for each of them; nothing else is in its pickle."""

_MADE_AGAIN = {
    "sterna.matching.checks": ("Checks",),
    "sterna.matching.index": ("MatchIndex",),
    "sterna.matching.kernels": ("Arrays",),
    "sterna.matching.table": ("Attribute", "Table"),
    "sterna.matching.tokens": ("Tokens",),
    "sterna.model.filters.normal_form": ("Term",),
    "sterna.model.filters.values": ("ValueSet",),
    "sterna.model.location": ("HexGrid", "MovementGraph", "_Memory"),
    "numpy": ("dtype", "ndarray"),
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
    "numpy._core.numeric": ("_frombuffer",),
    "numpy.core.multiarray": ("_reconstruct", "scalar"),
    "numpy.core.numeric": ("_frombuffer",),
}
"""Classes that a node rebuilds from what it keeps: indexes of filters, spaces of locations."""

_DATA: dict[str, tuple[type, ...]] = {
    "collections": (Counter, deque),
    "sterna.core.actions": (LookUp,),
    "sterna.core.client": (ClientOptions,),
    "sterna.core.handover.options": (Handover, HandoverOptions),
    "sterna.core.link": (State,),
    "sterna.core.location.options": (PlacesOptions,),
    "sterna.core.location.stays": (Dwell,),
    "sterna.core.location.steps": (StepRule,),
    "sterna.core.messages": (
        *(base.Route, base.Events, base.SubscriptionChange, base.AdvertisementChange),
        *(base.InterestAsked, base.InterestKnown),
        *(handover.Arrival, handover.Welcome, handover.Replayed, handover.Located),
        *(handover.Resubscribe, handover.Fetch, handover.Replay),
        *(handover.Farewell, handover.Departed),
        *(history.PastAsked, history.Past),
        *(overlay.OverlayLink, overlay.OverlayChange),
        *(location.MovingRoute, location.MovingChange, location.Probe, location.Probed),
    ),
    "sterna.core.names": (Peer,),
    "sterna.core.routing.options": (RoutingOptions, Strategy),
    "sterna.model.event": (CheckedEvent, Event, EventId),
    "sterna.model.filters.filter": (Filter,),
    "sterna.model.filters.tree": (
        *(tree.Literal, tree.Attribute, tree.Variable, tree.Negative, tree.Arithmetic),
        *(tree.Always, tree.Holds, tree.Compare, tree.Between, tree.In, tree.InMyloc, tree.Like),
        *(tree.Matches, tree.IsNull, tree.Near, tree.Within, tree.Not, tree.And, tree.Or),
    ),
}
"""Plain data, by the module that had it."""


def _attribute(owner: object, name: str) -> object:
    """Resolve names of filters and of enumeration members. Methods of nodes are not needed."""
    if owner is Filter and name == "from_condition":
        return Filter.from_condition  # It runs nothing; what is kept of a filter is its text.
    if isinstance(owner, type) and issubclass(owner, Enum):
        return owner[name]
    return None


def _record(kind: Callable[..., object], fields: dict[str, object]) -> object:
    """Make a record."""
    return kind(**fields)


def _next(number: int, step: int = 1) -> int:
    """The next value of a counter."""
    del step
    return number


def _known() -> dict[tuple[str, str], Any]:
    known: dict[tuple[str, str], Any] = {
        ("builtins", "getattr"): _attribute,
        ("itertools", "count"): _next,
        ("msgspec._utils", "rebuild"): _record,
    }
    for module, classes in _NODES.items():
        known |= {(module, name): _stand_in(name, fields) for name, fields in classes.items()}
    for module, names in {**_MADE_AGAIN, "sterna.core.inputs": _INPUTS}.items():
        known |= {(module, name): _stand_in(name, ()) for name in names}
    for module, kinds in _DATA.items():
        known |= {(module, kind.__name__): kind for kind in kinds}
    return known


_KNOWN = _known()


class _Reading(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which release 0.1 never wrote")
        return _KNOWN[module, name]
