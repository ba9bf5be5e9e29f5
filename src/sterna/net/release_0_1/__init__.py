"""Reads what release 0.1 kept: its snapshots were pickles of its classes, and become records.

The records are those of the first release that wrote any, in version 1. When they are read, they
are converted to whatever they have become since. (See `sterna.wire.snapshots`.)
"""

from sterna.core.assembly import client_settings
from sterna.core.catalogue import LIVE
from sterna.core.settings import Settings
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.records import Began
from sterna.net.release_0_1 import nodes
from sterna.net.release_0_1.reading import Old, read
from sterna.net.state import KeptSubscription, State, encode_memory
from sterna.net.storage.errors import LogFormatError
from sterna.wire.codec import to_msgpack

BROKER_STATE, CLIENT_STATE = "broker state 2", "client state 1"
"""The names of the states that snapshots of release 0.1 hold."""


def converted(kind: str, state: bytes) -> bytes:
    """A state of this kind as today's releases write it; LogFormatError if it cannot be read."""
    if kind not in {BROKER_STATE, CLIENT_STATE}:
        return state
    try:
        return to_msgpack(_client(*read(state)) if kind == CLIENT_STATE else _broker(*read(state)))
    except Exception as error:  # A damaged pickle can go wrong in any way.
        raise LogFormatError(
            f"the snapshot that release 0.1 wrote cannot be read: {error}"
        ) from error


def _broker(time: int, old: Old, node: Old, _memory: None) -> State:
    return _state(time, old, _network(old.network), nodes.broker(node), b"")


def _client(time: int, old: Old, node: Old, memory: "_Memory") -> State:
    settings = client_settings(_network(old.network))
    return _state(time, old, settings, nodes.client(node), encode_memory(_subscriptions(memory)))


def _state(time: int, old: Old, settings: Settings, node: bytes, memory: bytes) -> State:
    began = Began(node=old.node, incarnation=old.incarnation, settings=settings, seq=old.seq)
    return State(
        release="0.1.0", time=time, began=began, settings=settings, node=node, memory=memory
    )


def _network(old: Old) -> Settings:
    """Add the protocols that every live node took part in without having them configured."""
    return Settings(
        routing=old.routing,
        client=old.client,
        handover=old.handover,
        places=old.places,
        protocols=LIVE,
    )


_Memory = dict[str, tuple[Filter, int, tuple[Event, ...]]]
"""By subscription: its filter, how many events the application has finished, and what waits."""


def _subscriptions(memory: _Memory) -> list[KeptSubscription]:
    return [
        KeptSubscription(name, where, done, list(waiting))
        for name, (where, done, waiting) in memory.items()
    ]
