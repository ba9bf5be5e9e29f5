"""How brokers and clients are put together from settings, for the simulator and for sockets alike.

Components are called in a fixed order: the protocols that the settings list, places, handover, and
then the listed ones that want to be last. What a handover protocol sends must not overtake what the
others send.
"""

from collections.abc import Callable, Sequence

import msgspec

from sterna.core import catalogue as _catalogue  # noqa: F401 - registers Sterna's own protocols.
from sterna.core.broker import Broker
from sterna.core.client import Client
from sterna.core.component import Component
from sterna.core.handover.options import Handover
from sterna.core.history.options import HistoryOptions
from sterna.core.link import LinkTiming
from sterna.core.names import NodeId
from sterna.core.protocol import Kind, Protocol, named, registered
from sterna.core.settings import Settings
from sterna.model.prediction import Predictor

MakeComponents = Callable[[], Sequence[Component]]


def make_broker(
    id_: NodeId,
    settings: Settings,
    *,
    timing: LinkTiming | None = None,
    incarnation: int = 0,
    more: Sequence[Component] = (),
    predictor: Predictor | None = None,
) -> Broker:
    """A broker with the components that its settings ask for, and some more.

    With a `predictor`, it predicts by that where clients go, and not by its settings.
    """
    return Broker(
        id_,
        settings.routing,
        [*(part.make(settings) for part in broker_parts(settings)), *more],
        settings=settings,
        parts=broker_parts,
        timing=timing,
        incarnation=incarnation,
        predictor=predictor,
    )


def make_client(
    id_: NodeId,
    settings: Settings,
    *,
    timing: LinkTiming | None = None,
    incarnation: int = 0,
    seq: int = 0,
    more: Sequence[Component] = (),
) -> Client:
    """A client with the components that its settings ask for, and some more."""
    return Client(
        id_,
        settings.client,
        [*more, *(part.make(settings) for part in client_parts(settings))],
        settings=settings,
        parts=client_parts,
        timing=timing,
        incarnation=incarnation,
        seq=seq,
    )


def client_settings(settings: Settings) -> Settings:
    """What clients have to know of a broker's settings."""
    needed = [name for each in settings.protocols for name in named(each).needs]
    listed = dict.fromkeys((*settings.protocols, *needed))
    shared = tuple(name for name in listed if named(name).client is not None)
    known = (*shared, settings.handover.protocol)
    handover = settings.handover
    if handover.protocol not in [*Handover] and named(handover.protocol).client is None:
        # Clients need not have the package of a protocol in which they have no part.
        handover = msgspec.structs.replace(handover, protocol=Handover.NONE)
    return Settings(
        routing=msgspec.structs.replace(settings.routing, parent=None),
        client=settings.client,
        handover=handover,
        places=settings.places,
        history=HistoryOptions(hold_us=settings.history.hold_us),
        protocols=shared,
        options={name: settings.options[name] for name in known if name in settings.options},
    )


def used(settings: Settings) -> list[Protocol]:
    """The protocols that the settings ask for, in the order in which their components work."""
    handover = named(settings.handover.protocol)
    asked = [named(name) for name in settings.protocols]
    needed = [name for each in (*asked, handover) for name in each.needs]
    listed = [named(name) for name in dict.fromkeys((*settings.protocols, *needed))]
    return [
        *(each for each in listed if not each.is_last),
        *(each for each in registered() if each.kind is Kind.PLACES and each.is_used(settings)),
        handover,
        *(each for each in listed if each.is_last),
    ]


def broker_parts(settings: Settings) -> list[type[Component]]:
    """The broker's parts of the protocols in use."""
    return [protocol.broker for protocol in used(settings) if protocol.broker is not None]


def client_parts(settings: Settings) -> list[type[Component]]:
    """The client's parts of the protocols in use."""
    return [protocol.client for protocol in used(settings) if protocol.client is not None]
