"""The nodes of a live network: the core's brokers and clients, with the components they need."""

from time import time

from sterna.core.broker import Broker
from sterna.core.client import Client, ClientOptions
from sterna.core.handover import options as handover
from sterna.core.history.recent import Recall, Recent
from sterna.core.link import LinkTiming
from sterna.core.location import options as places
from sterna.core.names import NodeId
from sterna.core.overlay.members import Members
from sterna.net.config import BrokerConfig
from sterna.wire.frames import Network

LIVE = LinkTiming(resend_us=None, ack_delay_us=0)
"""TCP loses nothing while it stands; all that came at once is acknowledged at once."""

AT_A_CLIENT = LinkTiming(resend_us=None, ack_delay_us=2_000)
"""A broker need not know of each delivery at once."""


def network_of(config: BrokerConfig) -> Network:
    """How a broker's network works, as it tells its neighbours and clients."""
    return Network(
        routing=config.routing_options,
        client=ClientOptions(
            advertisements=config.network.advertisements, quenching=config.network.quenching
        ),
        handover=config.handover_options,
        places=config.places_options(),
    )


def make_broker(id_: NodeId, network: Network, incarnation: int, *, recent_max: int) -> Broker:
    """A broker for a live network."""
    space = None if network.places is None else network.places.space()
    components = [
        Members(),
        Recent(recent_max),
        *places.broker_components(network.places, space),
        *handover.broker_components(network.handover),
    ]
    return Broker(id_, network.routing, components, timing=LIVE, incarnation=incarnation)


def make_client(id_: NodeId, network: Network, incarnation: int, *, seq: int) -> Client:
    """A client for a live network, whose events are numbered from after `seq`."""
    space = None if network.places is None else network.places.space()
    components = [
        Recall(),
        *places.client_components(network.places, space),
        *handover.client_components(network.handover),
    ]
    return Client(
        id_, network.client, components, timing=AT_A_CLIENT, incarnation=incarnation, seq=seq
    )


def next_incarnation() -> int:
    """A number that is greater each time a node starts without a memory, on any machine."""
    global _last  # noqa: PLW0603 - it is about this process.
    _last = max(_last + 1, int((time() - _EPOCH) * _PER_SECOND))
    return _last


def first_seq() -> int:
    """Where a publisher without a memory numbers its events from: above all that it did before,
    as long as it publishes less than a million events a second on average.
    """
    return int((time() - _EPOCH) * 1e6)


_EPOCH = 1_767_225_600
"""The beginning of 2026."""
_PER_SECOND = 10
_last = 0
