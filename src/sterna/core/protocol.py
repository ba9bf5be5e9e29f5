"""Protocols: what each adds to brokers and clients, declared in one place and found by name.

Codec, admission, journal, Spark schemas and documentation are built from these declarations.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from sterna.core import facts as built_in
from sterna.core.component import BrokerComponent, ClientComponent, Component
from sterna.core.facts import Fact
from sterna.core.messages import (
    AdvertisementChange,
    Announced,
    AnnouncementAsked,
    Events,
    InterestAsked,
    InterestKnown,
    Message,
    SubscriptionChange,
)
from sterna.core.names import LocalProtocolError
from sterna.core.settings import Settings


class Kind(Enum):
    """What decides whether a network uses a protocol."""

    LISTED = "listed"
    """A network uses it if the settings list it among `protocols`."""
    PLACES = "places"
    """A network uses it if the settings have places."""
    HANDOVER = "handover"
    """A network uses it if the settings name it as `handover.protocol`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A protocol: its name, and what it adds to a broker and to a client."""

    name: str
    broker: type[BrokerComponent] | None = None
    client: type[ClientComponent] | None = None
    kind: Kind = Kind.LISTED
    needs: tuple[str, ...] = ()
    """The names of protocols that nodes take part in as well, whether the settings list them or
    not."""
    is_last: bool = False
    """Whether its components work behind those of all others, for what they send must follow what
    the others send at the same moment."""

    @property
    def parts(self) -> tuple[type[Component], ...]:
        """The components that it adds to a broker and to a client."""
        return tuple(part for part in (self.broker, self.client) if part is not None)

    def is_used(self, settings: Settings) -> bool:
        """Whether nodes with these settings take part in it."""
        match self.kind:
            case Kind.LISTED:
                return self.name in settings.protocols
            case Kind.PLACES:
                return settings.places is not None
            case Kind.HANDOVER:
                return settings.handover.protocol == self.name


class UnknownProtocolError(LocalProtocolError):
    """No protocol of this name is known here."""

    def __init__(self, name: str) -> None:
        known = ", ".join(sorted(_protocols))
        super().__init__(
            f"there is no protocol {name!r} here; install the package that provides it, "
            f"or use one of {known}"
        )
        self.name = name


BASE: tuple[type[Message], ...] = (
    *(Events, SubscriptionChange, AdvertisementChange, InterestAsked, InterestKnown),
    *(AnnouncementAsked, Announced),
)
"""The messages that every broker and client knows."""

_protocols: dict[str, Protocol] = {}
_listeners: list[Callable[[], None]] = []


def register(protocol: Protocol) -> Protocol:
    """Make a protocol known under its name; the same one may be registered again."""
    known = _protocols.get(protocol.name)
    if known == protocol:
        return protocol
    if known is not None:
        raise ValueError(f"two protocols are called {protocol.name!r}: rename one of them")
    _check_names(protocol)
    _protocols[protocol.name] = protocol
    for changed in _listeners:
        changed()
    return protocol


def named(name: str) -> Protocol:
    """The protocol of this name; UnknownProtocolError if there is none."""
    if name not in _protocols:
        raise UnknownProtocolError(name)
    return _protocols[name]


def registered() -> tuple[Protocol, ...]:
    """All protocols that are known."""
    return tuple(_protocols.values())


def when_registered(changed: Callable[[], None]) -> None:
    """Have something called whenever another protocol becomes known."""
    _listeners.append(changed)


def message_types() -> tuple[type[Message], ...]:
    """Every message of every protocol that is known."""
    handled = (kind for part in _parts() for kind in part.handles)
    return tuple(dict.fromkeys((*BASE, *handled)))


def fact_types() -> tuple[type[Fact], ...]:
    """Every fact that can be stated: Sterna's own, and those that protocols declare."""
    own = (
        kind
        for kind in vars(built_in).values()
        if isinstance(kind, type) and issubclass(kind, Fact) and kind is not Fact
    )
    declared = (kind for part in _parts() for kind in part.facts)
    return tuple(dict.fromkeys((*own, *declared)))


def _parts() -> Iterator[type[Component]]:
    for protocol in registered():  # Another thread may register one meanwhile.
        yield from protocol.parts


def _check_names(protocol: Protocol) -> None:
    """Messages and facts travel and are stored under the names of their classes."""
    for what, mine, known in (
        ("message", [k for part in protocol.parts for k in part.handles], message_types()),
        ("fact", [k for part in protocol.parts for k in part.facts], fact_types()),
    ):
        taken = {kind.__name__: kind for kind in known}
        for kind in mine:
            other = taken.setdefault(kind.__name__, kind)
            if other is not kind:
                raise ValueError(
                    f"protocol {protocol.name!r} has a {what} {kind.__name__}, and so has "
                    f"{other.__module__}: rename it"
                )
