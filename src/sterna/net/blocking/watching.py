"""A client that several brokers serve at once, for programs without asyncio."""

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from sterna.errors import ClosedError
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.blocking.handles import Advertisement, Receipt, Subscription, call, call_each
from sterna.net.blocking.running import Running
from sterna.net.client import watching
from sterna.net.client.api import CLOSE_S
from sterna.net.client.checking import checked_filter
from sterna.net.client.connections import Change


class WatchingClient(Running[watching.WatchingClient]):
    """A client with several sessions, each at a broker of its own. `connect` with
    `watch` makes it.
    """

    def close(self, *, timeout: float | None = CLOSE_S) -> None:
        """Send what is left to send, and end; the network forgets the client."""
        self._close(lambda: self._client.close(timeout=timeout))

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers that watch now."""
        return () if self._is_closed else self._client.brokers

    @property
    def sessions(self) -> tuple[str, ...]:
        """The names of the sessions, which are those of their clients in the network."""
        return self._client.sessions

    # ---- What an application does

    def subscribe(
        self,
        where: str | Filter,
        *,
        name: str | None = None,
        callback: Callable[[Event], object] | None = None,
        keep: str | None = None,
    ) -> Subscription:
        """Subscribe to all events that match a filter, at all brokers that watch.

        A `callback` is called with each event, in a thread of its own, instead of iterating; it may
        use the client. With `keep`, each of these brokers keeps less while the client is away; as
        in `Client.subscribe`.
        """
        filter_ = checked_filter(where)
        subscription = Subscription(
            self,
            self._do(lambda: self._client.subscribe(filter_, name=name, keep=keep)),
            takes_ahead=True,
        )
        if callback is not None:
            threading.Thread(
                target=call, args=(subscription, callback), name="sterna callback", daemon=True
            ).start()
        return subscription

    def publish(
        self,
        /,
        attributes: Mapping[str, object] | None = None,
        payload: bytes = b"",
        **more: object,
    ) -> Receipt:
        """Publish an event once, over a connection of its own.

        This does not wait for a broker; `client.publish(price=3).wait()` does. If the broker of
        that connection is lost for good, the client goes on at another one. What the lost one had
        not confirmed may be published or not: waiting for it raises a NotConnectedError.
        """
        receipt = Receipt(self)
        receipt._receipt = self._do(lambda: self._client.publish(attributes, payload, **more))
        return receipt

    def publish_all(
        self,
        events: Iterable[Mapping[str, object] | tuple[Mapping[str, object], bytes]],
        *,
        timeout: float | None = None,
    ) -> int:
        """Publish many events and wait until all are accepted; as `Client.publish_all`."""
        found = list(events)
        return self._wait(lambda: self._client.publish_all(found, timeout=timeout))

    def drain(self, timeout: float | None = None) -> None:
        """Wait until a broker has accepted all events; TimedOutError after `timeout` seconds.

        NotConnectedError if some are not certain, because their broker was lost for good.
        """
        self._wait(lambda: self._client.drain(timeout))

    def advertise(self, where: str | Filter, *, name: str | None = None) -> Advertisement:
        """Announce what this client will publish, in networks that route by advertisements."""
        filter_ = where if isinstance(where, Filter) else Filter(where)
        return Advertisement(self, self._do(lambda: self._client.advertise(filter_, name=name)))

    # ---- The connections

    def attach(self, *urls: str, timeout: float | None = None) -> None:
        """Connect again after `detach`, or go to other brokers.

        As `attach` of the client for asyncio. NotConnectedError if a session finds no broker.
        """
        self._wait(lambda: self._client.attach(*urls, timeout=timeout))

    def detach(self, *, timeout: float | None = None) -> None:
        """Disconnect. The brokers keep events for the client meanwhile."""
        self._wait(lambda: self._client.detach(timeout=timeout))

    def on_connection(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """Call a function with each `Connected` and `Lost` of each session, in a thread of its own.

        It begins with `Connected` for each that is connected now, and may use the client. The
        returned function ends it.
        """
        changes: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        remove = self._do(lambda: self._client.on_connection(changes.put))
        threading.Thread(
            target=call_each, args=(iter(changes.get, None), callback), name="sterna callback",
            daemon=True,
        ).start()  # fmt: skip

        def end() -> None:
            changes.put(None)
            with suppress(ClosedError):  # Nothing changes any more.
                self._do(remove)

        return end

    def _unaccepted(self, what: str) -> Callable[[], str]:
        return self._client._outlet.client._publications.unaccepted(what)
