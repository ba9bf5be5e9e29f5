"""The nodes of a live network: how they are timed, numbered and configured."""

from secrets import randbelow
from typing import Any

import msgspec

from sterna import plugins
from sterna.core.assembly import make_broker
from sterna.core.broker import Broker
from sterna.core.catalogue import LIVE
from sterna.core.depot import Depot
from sterna.core.link import LinkTiming
from sterna.core.lives import NOTHING_KNOWN, SESSIONS_MAX, Earlier, first_seq, incarnation
from sterna.core.names import NodeId
from sterna.core.settings import ClientOptions, Settings
from sterna.devices.hosting import DEVICES
from sterna.net import clock
from sterna.net.config import BrokerConfig
from sterna.net.records import Began

AT_A_BROKER = LinkTiming(resend_us=None, ack_delay_us=0)
"""TCP loses nothing while a connection is up; all that came at once is acknowledged at once."""

STATE_KIND = "broker state 3"
"""The kind of state in the snapshots of brokers: a `State`."""

OLDER_KINDS = ("broker state 2",)
"""The kinds of state that older releases wrote, and that can still be read."""

AT_A_CLIENT = LinkTiming(resend_us=None, ack_delay_us=2_000)
"""A broker need not have each delivery acknowledged at once."""


def settings_of(config: BrokerConfig) -> Settings:
    """The settings that a broker's configuration gives its node."""
    more = [plugins.find(each) for each in config.network.protocols]
    named = (*config.network.protocols, config.network.handover_protocol)
    mobility = config.mobility_options()
    return Settings(
        routing=config.routing_options,
        client=ClientOptions(
            advertisements=config.network.advertisements, quenching=config.network.quenching
        ),
        handover=config.handover_options,
        places=config.places_options(mobility),
        mobility=mobility,
        history=config.history_options,
        protocols=(
            *LIVE,
            *config.network.overlay_protocols,
            DEVICES.name,
            *(each.name for each in more),
        ),
        options={**config.protocols, DEVICES.name: _as_read(config.device_options)},
        modules={plugins.find(each).name: each for each in named if plugins.is_in_module(each)},
    )


def broker_of(began: Began, depot: Depot | None = None) -> Broker:
    """The broker whose log begins like this, before the first input."""
    broker = make_broker(
        began.node, began.settings, timing=AT_A_BROKER, incarnation=began.incarnation
    )
    if depot is not None:
        broker.depot = depot
    return broker


def new_broker(name: NodeId, settings: Settings) -> Began:
    """How a broker begins that has no memory: neighbours must not take it for an earlier one."""
    return Began(node=name, incarnation=randbelow(SESSIONS_MAX), settings=settings)


def new_client(name: NodeId, settings: Settings, earlier: Earlier) -> Began:
    """How a client begins that has no memory: above all that its broker knows of earlier lives."""
    return Began(
        node=name,
        incarnation=next_incarnation(name, earlier),
        settings=settings,
        seq=first_seq(clock.wall_us(), earlier),
    )


def next_incarnation(client: NodeId, earlier: Earlier = NOTHING_KNOWN) -> int:
    """A number that is greater each time this client starts without a memory, in any process.

    One process may start it several times before a broker knows. Each name is counted by itself:
    together they would run ahead of the clock, and then another process would begin behind them.
    """
    wall_us = clock.wall_us()
    number = _last[client] = max(_last.pop(client, 0) + 1, incarnation(wall_us, earlier))
    now = incarnation(wall_us, NOTHING_KNOWN)
    while _last[oldest := next(iter(_last))] < now:
        del _last[oldest]
    return number


_last: dict[NodeId, int] = {}
"""The clients that this process has started within the last tick, with their numbers."""


def _as_read(options: msgspec.Struct) -> dict[str, Any]:
    """Options as they are in a log, with lists for tuples: equal ones are the same settings."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(options))
    return found
