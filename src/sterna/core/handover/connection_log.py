"""The log of a client's past connections, and what it says about new events.

A client that comes to a new broker while its old one cannot be reached may get new events at once,
if these cannot be duplicates of what the old one has delivered. (Huang and Garcia-Molina, 4.3)

**The rule.** The client says when its connection to each broker ended. What was published after
the last of these ends was delivered over none of them. A broker that the client has not met for
longer than anything is kept does not count: whatever is still kept was published later.

**The clocks.** An event has the time of its publisher's clock, and the end of a connection that of
the client's. The rule allows for a difference of so many microseconds (`clocks_differ_us`). If
clocks differ by more, one of two things happens: a new event waits, as if its order mattered; or an
event is sent that the client has, and the client drops it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from sterna.core.names import NEVER, NodeId, Time
from sterna.model.ranges import Instant

CONNECTIONS_MAX = 32
"""How many connections a client remembers, and a broker looks at."""


AHEAD_MAX = 100_000
"""So many events that were sent ahead are remembered: by a broker, so that it does not send them
again, and by a client, so that it does not deliver them twice."""


class Connection(NamedTuple):
    """A connection of a client that has ended."""

    until_us: Instant
    """When it ended, by the client's clock."""
    broker: NodeId


class ConnectionLog:
    """When a client was last connected with each of the brokers that it has met."""

    def __init__(self) -> None:
        self._ends: dict[NodeId, Time] = {}
        """The latest one is the last."""
        self.present: NodeId | None = None
        """The broker of the present connection; its end is not known if the program crashes."""

    def begin(self, broker: NodeId, now: Time) -> None:
        """A connection has begun; if another one was not seen to end, it ends now."""
        if self.present is not None:
            self.end(self.present, now)
        self.present = broker

    def end(self, broker: NodeId, now: Time) -> None:
        """A connection has ended."""
        if self.present == broker:
            self.present = None
            self._ends.pop(broker, None)
            self._ends[broker] = now
            if len(self._ends) > CONNECTIONS_MAX:
                del self._ends[next(iter(self._ends))]

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections that have ended, the latest first."""
        return tuple(Connection(until, broker) for broker, until in reversed(self._ends.items()))

    def restore(self, connections: Iterable[Connection], present: NodeId | None) -> None:
        """Go on with what a snapshot has held."""
        self._ends = {broker: until for until, broker in reversed(tuple(connections))}
        self.present = present


def new_after(
    connections: Iterable[Connection], here: NodeId, now: Time, *,
    kept_us: Time | None, clocks_differ_us: Time,
) -> Time:  # fmt: skip
    """The time after which an event has to be published to be surely new to a client.

    NEVER if the client brings no log. A broker knows itself what it has sent from `here`. No event
    is kept for longer than `kept_us`; None if there is no such limit.
    """
    latest = tuple(connections)[:CONNECTIONS_MAX]
    if not latest:
        return NEVER
    ends = [until for until, broker in latest if broker != here]
    last = max(ends, default=0) + clocks_differ_us
    is_long_ago = kept_us is not None and last + clocks_differ_us + kept_us < now
    return 0 if is_long_ago or not ends else last
