"""The nodes of a live network: how they are timed, numbered and configured."""

from time import time

from sterna import plugins
from sterna.core.assembly import make_broker
from sterna.core.broker import Broker
from sterna.core.catalogue import LIVE
from sterna.core.link import LinkTiming
from sterna.core.names import NodeId
from sterna.core.settings import ClientOptions, Settings
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
    named = (*config.network.protocols, config.network.handover)
    mobility = config.mobility_options()
    return Settings(
        routing=config.routing_options,
        client=ClientOptions(
            advertisements=config.network.advertisements, quenching=config.network.quenching
        ),
        handover=config.handover_options,
        places=config.places_options(mobility),
        mobility=mobility,
        protocols=(*LIVE, *(protocol.name for protocol in more)),
        options=config.protocols,
        modules={plugins.find(each).name: each for each in named if plugins.is_in_module(each)},
    )


def broker_of(began: Began) -> Broker:
    """The broker whose log begins like this, before the first input."""
    return make_broker(
        began.node, began.settings, timing=AT_A_BROKER, incarnation=began.incarnation
    )


def next_incarnation(node: NodeId) -> int:
    """A number that is greater each time this node starts without a memory, in any process.

    One process may start many nodes within a tick of the clock. Each name is counted by itself:
    together they would run ahead of the clock, and then another process would begin behind them.
    """
    now = int((time() - _EPOCH) * _PER_SECOND)
    number = _last[node] = max(_last.pop(node, 0) + 1, now)
    while _last[oldest := next(iter(_last))] < now:
        del _last[oldest]
    return number


def first_seq() -> int:
    """The number from which a publisher without a memory counts its events: above all those before,
    as long as it publishes less than a million events a second on average.
    """
    return int((time() - _EPOCH) * 1e6)


_EPOCH = 1_767_225_600
"""The beginning of 2026."""
_PER_SECOND = 10
_last: dict[NodeId, int] = {}
"""The nodes that this process has started within the last tick, with their numbers."""
