"""What an application calls: `connect`, and the client that it returns."""

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, overload

from sterna.core.replication.options import Filtering
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter
from sterna.net import client as async_client
from sterna.net.blocking.handles import (
    Advertisement,
    Connections,
    Receipt,
    Subscription,
    call,
    call_all,
)
from sterna.net.blocking.outgoing import Outgoing
from sterna.net.blocking.running import Running
from sterna.net.blocking.thread import left
from sterna.net.blocking.watching import WatchingClient
from sterna.net.client.api import CLOSE_S, CONNECT_S, HOLD_S, open_subscription
from sterna.net.client.checking import PastBounds, checked_filter, checked_past, checked_terms
from sterna.net.client.connections import Change
from sterna.net.client.handles import Acknowledge
from sterna.net.client.publications import checked_event, checked_item
from sterna.net.client.transport import Transport
from sterna.net.client.waiting import renamed


@overload
def connect(
    *urls: str,
    client: str | None = None,
    state: str | Path | None = None,
    journal: str | Path | None = None,
    timeout: float | None = CONNECT_S,
    transport: Transport | None = None,
    connect_s: float | None = None,
    watch: None = None,
) -> "Client": ...
@overload
def connect(
    *urls: str,
    client: str | None = None,
    journal: str | Path | None = None,
    timeout: float | None = CONNECT_S,
    transport: Transport | None = None,
    watch: int,
    filtering: str = Filtering.HOLDING,
    hold_s: float = HOLD_S,
) -> WatchingClient: ...
def connect(
    *urls: str,
    client: str | None = None,
    state: str | Path | None = None,
    journal: str | Path | None = None,
    timeout: float | None = CONNECT_S,
    transport: Transport | None = None,
    connect_s: float | None = None,
    watch: int | None = None,
    filtering: str = Filtering.HOLDING,
    hold_s: float = HOLD_S,
) -> "Client | WatchingClient":
    """Connect to a broker network, and wait until that is done.

    The arguments are those of `sterna.connect`. Close the client at the end, or use `with`.
    """
    timeout = renamed("connect_s", connect_s, timeout)

    def make() -> Any:
        connecting: Any = async_client.connect  # It checks what goes together.
        return connecting(
            *urls,
            client=client,
            state=state,
            journal=journal,
            timeout=timeout,
            transport=transport,
            watch=watch,
            filtering=filtering,
            hold_s=hold_s,
        )

    if watch is not None:
        return WatchingClient(make)
    return Client(make, has_state=state is not None)


class Client(Running[async_client.Client]):
    """A client of a broker network. `connect` makes it."""

    def __init__(self, make: Callable[[], async_client.Client], *, has_state: bool) -> None:
        """The asyncio client that `make` returns does the work."""
        super().__init__(make)
        self.has_state = has_state
        """Whether the client continues after a restart where it was."""
        self._outgoing = Outgoing(self._client, self._thread)

    # ---- Opening and closing

    def close(self, *, timeout: float | None = CLOSE_S, wait_s: float | None = None) -> None:
        """Send what is left to send, and end. Without a `state`, the network forgets the client.

        After `timeout` seconds, it ends in any case. With a `state`, this acknowledges the events
        that the application has taken, unless it acknowledges by hand. `wait_s` is the old name of
        `timeout`.
        """
        timeout = renamed("wait_s", wait_s, timeout)
        self._close(lambda: self._client.close(timeout=timeout))

    @property
    def broker(self) -> str | None:
        """The broker that the client is connected to, or was connected to last."""
        return self._client.broker

    @property
    def missed(self) -> int:
        """How many events brokers discarded, by their limits, before they could be delivered.

        Among devices alone also those that came too late to be put into order.
        """
        return self._client.missed

    @property
    def is_connected(self) -> bool:
        """Whether its broker accepts and delivers events now."""
        return not self._is_closed and self._client.is_connected

    # ---- What an application does

    def publish(
        self,
        /,
        attributes: Mapping[str, object] | None = None,
        payload: bytes = b"",
        **more: object,
    ) -> Receipt:
        """Publish an event, with attributes from a mapping or as keywords.

        A mapping takes attributes of any name, such as `{"from": 1, "payload": 2}`. This does not
        wait for a broker, unless very many events are in flight.
        `client.publish(price=3).wait()` waits until a broker has accepted the event, and `drain()`
        waits for all.
        """
        event = checked_event(attributes, payload, more)
        return self._outgoing.put(*event, Receipt(self))

    def publish_all(
        self,
        events: Iterable[Mapping[str, object] | tuple[Mapping[str, object], bytes]],
        *,
        timeout: float | None = None,
    ) -> int:
        """Publish many events, wait until a broker has accepted all, and return how many they were.

        Each is a mapping of attributes, or a pair of attributes and payload. They are sent as fast
        as the network takes them. TimedOutError after `timeout` seconds.
        """
        deadline = None if timeout is None else monotonic() + timeout
        count = 0
        for each in events:
            self._outgoing.put(*checked_item(each), Receipt(self), deadline)
            count += 1
        self.drain(left(deadline))
        return count

    def drain(self, timeout: float | None = None) -> None:
        """Wait until a broker has accepted all events; TimedOutError after `timeout` seconds."""
        self._wait(self._outgoing.drain, timeout, self._unaccepted("all events"))

    def subscribe(
        self,
        where: str | Filter,
        *,
        past: PastBounds | None = None,
        name: str | None = None,
        callback: Callable[[Event], object] | None = None,
        acknowledge: Acknowledge = "auto",
        order: str = "strict",
        keep: str | None = None,
    ) -> Subscription:
        """Subscribe to all events that match a filter.

        With `past`, it begins with past events that brokers still have: the last ones, as many as
        this, or those of a period (`'5m'` or a `timedelta`), or both: `(10, '5m')` are the last
        ten, but none that is older than five minutes. A `callback` is called with each
        event, in a thread of its own, instead of iterating; it may use the client. The `name`
        matters to a client with a `state`: after a restart, the subscription of the same name
        continues with the first event that is not acknowledged. Asking for the next event
        acknowledges an event; with `acknowledge="manual"`, `subscription.acknowledge(event)` does.

        With `order="available"`, new events come at once while what the client has missed is still
        at a broker that cannot be reached; older ones of the same publishers follow when it can.

        What waits while the client is away is all kept, within the limits of brokers. With `keep`,
        it is less: `"ttl(30s)"` keeps events for so long, `"last_per(sensor)"` the last one of each
        value, `"max(price)"` and `"min(price * 2)"` the one with the greatest or least value, and
        `"ring(100)"` the last hundred. What is left out so does not count as missed.
        """
        filter_, beginning = checked_filter(where), checked_past(past)
        terms = checked_terms(order=order, keep=keep)
        subscription = Subscription(
            self,
            self._do(
                lambda: open_subscription(
                    self._client, filter_, beginning, name, acknowledge, terms
                )
            ),
            # With a state, asking for more acknowledges what was taken before.
            takes_ahead=not self.has_state or acknowledge == "manual",
        )
        if callback is not None:
            threading.Thread(
                target=call, args=(subscription, callback), name="sterna callback", daemon=True
            ).start()
        return subscription

    def advertise(self, where: str | Filter, *, name: str | None = None) -> Advertisement:
        """Announce what this client will publish, in networks that route by advertisements."""
        filter_ = where if isinstance(where, Filter) else Filter(where)
        return Advertisement(self, self._do(lambda: self._client.advertise(filter_, name=name)))

    def move(self, location: str) -> None:
        """Set the location of the client; subscriptions with `myloc` follow it."""
        self._do(lambda: self._client.move(location))

    def set(
        self, name: str, value: Scalar, *, low: Scalar | None = None, high: Scalar | None = None
    ) -> None:
        """Set a variable; subscriptions with `$name` follow it.

        Brokers learn only the range from `low` to `high`, and nothing of changes within it.
        """
        self._do(lambda: self._client.set(name, value, low=low, high=high))

    def attach(self, url: str | None = None, *, timeout: float | None = None) -> None:
        """Connect or reconnect, to a given broker or to any of the list; wait until that is done.

        NotConnectedError if the given broker does not answer and the client is at another one of
        its list now (`instead`), or if none has answered after `timeout` seconds; the client keeps
        trying in the background then. The default is the timeout of `connect`.
        """
        self._wait(lambda: self._client.attach(url, timeout=timeout))

    def detach(self, *, timeout: float | None = None) -> None:
        """Disconnect. The network keeps events for the client meanwhile.

        TimedOutError if the connection has not ended after `timeout` seconds; it still will.
        """
        self._wait(lambda: self._client.detach(timeout=timeout))

    def connections(self) -> Connections:
        """Return an iterator over changes of the connection: `Connected`, `Lost` and `Moved`.

        It begins with `Connected`, if the client is connected now.
        """
        return Connections(self, self._do(self._client.connections))

    def on_connection(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """Call a function with each `Connected`, `Lost` and `Moved`, in a thread of its own.

        It begins with `Connected`, if the client is connected now, and may use the client. The
        returned function ends it.
        """
        changes = self.connections()
        threading.Thread(
            target=call_all, args=(changes, callback), name="sterna callback", daemon=True
        ).start()
        return changes.close

    # ---- The thread with the event loop

    def _before(self) -> None:
        self._outgoing.pump_all()

    def _unaccepted(self, what: str) -> Callable[[], str]:
        return self._client._publications.unaccepted(what)
