"""The subscriptions of an application: queues of events, and which ones are acknowledged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from sterna.core.actions import Deliver
from sterna.core.confirming.facts import SubscriptionKnown
from sterna.core.inputs import Confirm, Subscribe, Unsubscribe
from sterna.core.names import LocalProtocolError
from sterna.errors import (
    ClosedError,
    SternaError,
    SubscriptionTooLargeError,
    UnconfirmedError,
)
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.client.driver import ClientDriver
from sterna.net.client.handles import Subscription
from sterna.net.client.keeper import Keeper
from sterna.net.client.life import Life
from sterna.net.client.publications import FRAME_BYTES, text_size
from sterna.net.state import KeptSubscription
from sterna.wire.codec import SHORT_FILTER_CHARACTERS_MAX

log = logging.getLogger("sterna.client")

QUEUE_EVENTS_MAX = 10_000
"""When more events wait in a subscription, the client stops reading until they are taken."""


class Deliveries:
    """All subscriptions of a client, with the events that wait in them."""

    def __init__(self, life: Life, driver: ClientDriver, keeper: Keeper) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.missed = 0
        """How many events brokers discarded before they could be delivered."""
        self._life = life
        self._driver = driver
        self._keeper = keeper
        self._announced_bytes = 0
        """About how many bytes it takes to announce all subscriptions to a new broker."""
        self._resumable: dict[str, Subscription] = {}
        """Subscriptions from before a restart that the application has not asked for yet."""

    @property
    def owner(self) -> str:
        """The name of the client."""
        return self._life.name

    # ---- Subscribing

    def resumed(self, name: str, filter_: Filter) -> Subscription | None:
        """The subscription of this name from before a restart, if it still means the same."""
        known = self._resumable.pop(name, None)
        if known is not None and known.where != filter_:
            self.end_subscription(known)
            return None
        return known

    def subscribe(self, given: Subscribe) -> Subscription:
        """Make a new subscription."""
        name, filter_ = given.subscription, given.filter
        if name in self._driver.node.subscriptions:
            raise LocalProtocolError(
                f"{self._life.name} has a subscription {name!r} already; close it first, or give "
                "this one a name of its own"
            )
        self._check_room(name, filter_)
        subscription = self.subscriptions[name] = Subscription(self, name, filter_)
        try:
            self._driver.give(given)
        except LocalProtocolError:
            del self.subscriptions[name]
            raise
        self._announced_bytes += _announced_size(name, filter_)
        return subscription

    async def confirm(self, subscription: Subscription) -> None:
        """Wait until every broker that matters knows a subscription."""
        self._life.check()
        if subscription._is_over:
            raise self.reason(subscription)
        waiter = asyncio.get_running_loop().create_future()
        subscription._confirming[waiter] = self._driver.position
        try:
            self._driver.give(Confirm(subscription=subscription.name))
            await waiter
        finally:
            del subscription._confirming[waiter]

    def known(self, fact: SubscriptionKnown, position: int) -> None:
        """Brokers have confirmed a subscription; wake the calls that had asked by then."""
        subscription = self.subscriptions.get(fact.subscription)
        waiters = {} if subscription is None else subscription._confirming
        for waiter, asked in waiters.items():
            if asked >= position or waiter.done():
                continue  # It is about an earlier subscription of this name.
            if fact.but_not:
                waiter.set_exception(_unconfirmed(fact))
            else:
                waiter.set_result(None)

    def reason(self, subscription: Subscription) -> SternaError:
        """The error that says why a subscription has ended."""
        try:
            self._life.check()
        except SternaError as reason:
            return reason
        return ClosedError(f"the subscription {subscription.name!r} is closed")

    def end_subscription(self, subscription: Subscription) -> None:
        """Unsubscribe. Events that have arrived can still be taken."""
        if subscription._is_over:
            return
        subscription._end()
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
            self._announced_bytes -= _announced_size(subscription.name, subscription.where)
        self.read_on()  # Too many events may have waited in this one.
        if not self._life.is_over:
            self._driver.give(Unsubscribe(subscription=subscription.name))

    def _check_room(self, name: str, filter_: Filter) -> None:
        """Raise if all subscriptions would not fit in the one frame that announces them."""
        length = len(str(filter_))
        if length > SHORT_FILTER_CHARACTERS_MAX:
            raise SubscriptionTooLargeError(
                f"the filter has {length:,} characters, and a broker accepts "
                f"{SHORT_FILTER_CHARACTERS_MAX:,} from a client; divide it among several",
                size=length,
                limit=SHORT_FILTER_CHARACTERS_MAX,
            )
        size = self._announced_bytes + _announced_size(name, filter_)
        limit = self._keeper.frame_bytes_max - FRAME_BYTES
        if size > limit:
            raise SubscriptionTooLargeError(
                f"all subscriptions of {self._life.name} together have about {size:,} bytes, and a "
                f"broker accepts {self._keeper.frame_bytes_max:,} (frame_bytes_max); subscribe to "
                "less, or divide them among several clients",
                size=size,
                limit=limit,
            )

    # ---- Handing over

    def deliver(self, action: Deliver, subscriptions: Mapping[str, Subscription]) -> None:
        """Put events into the queues of the subscriptions that want them."""
        names = action.subscriptions[0]
        if len(names) == 1 and all(each == names for each in action.subscriptions):
            subscription = subscriptions.get(names[0])
            if subscription is not None:
                subscription._put(action.events)
        else:
            for event, wanting in zip(action.events, action.subscriptions, strict=True):
                for name in wanting:
                    subscription = subscriptions.get(name)
                    if subscription is not None:
                        subscription._put((event,))
        is_much = any(each.waiting > QUEUE_EVENTS_MAX for each in subscriptions.values())
        if is_much and not self._life.is_closing:
            self._keeper.pause()

    def read_on(self) -> None:
        """Resume reading if the application has taken enough events."""
        if self._keeper.is_paused and all(
            each.waiting < QUEUE_EVENTS_MAX // 2 for each in self.subscriptions.values()
        ):
            self._keeper.resume()

    def note_done(self, subscription: Subscription) -> None:
        """Keep in the state how many events of a subscription were acknowledged."""
        if self.subscriptions.get(subscription.name) is subscription:
            self._driver.note(f"{subscription._backlog.done} {subscription.name}")

    def check(self) -> None:
        """Raise the error with which the client has failed, if it has."""
        if self._life.failure is not None:
            self._life.check()

    def missed_more(self, count: int) -> None:
        """Count events that brokers have discarded, or that came too late."""
        self.missed += count
        log.warning(
            "%s missed %d events that brokers discarded, or that came too late",
            self._life.name,
            count,
        )

    def closing(self) -> None:
        """Acknowledge the events in hand, because the application closes the client."""
        for subscription in self.subscriptions.values():
            subscription._ask_for_more()

    def end(self) -> None:
        """End all subscriptions, because the client has ended."""
        for subscription in self.subscriptions.values():
            subscription._end()

    # ---- Recovery and snapshots

    def delivered_before(self, action: Deliver, filters: Mapping[str, Filter]) -> None:
        """Queue events from before a restart; `done_before` drops the acknowledged ones."""
        for names in action.subscriptions:
            for name in names:
                self._remembered(name, filters[name])
        self.deliver(action, self.subscriptions)

    def unsubscribed_before(self, name: str) -> None:
        """Drop a subscription that ended before the restart."""
        self.subscriptions.pop(name, None)

    def done_before(self, note: str) -> None:
        """Drop events of a subscription that were acknowledged before the restart."""
        count, _, name = note.partition(" ")
        subscription = self.subscriptions.get(name)
        if subscription is not None:
            subscription._backlog.finished_before(int(count))

    def resume(self, filters: Mapping[str, Filter]) -> None:
        """Let subscriptions continue, now that everything from before the restart is known."""
        for name, filter_ in filters.items():
            self._resumable[name] = self._remembered(name, filter_)
            self._announced_bytes += _announced_size(name, filter_)

    def _remembered(self, name: str, filter_: Filter) -> Subscription:
        """The subscription of this name; a new one if there is none yet."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            subscription = self.subscriptions[name] = Subscription(self, name, filter_)
        return subscription

    def memory(self) -> list[KeptSubscription]:
        """What a snapshot has to hold."""
        return [
            KeptSubscription(name, each.where, each._backlog.done, list(each._backlog.everything()))
            for name, each in self.subscriptions.items()
        ]

    def remember(self, kept: Iterable[KeptSubscription]) -> None:
        """Go on with what a snapshot has held."""
        for each in kept:
            backlog = self._remembered(each.name, each.where)._backlog
            backlog.done = each.done
            backlog.put(each.waiting)


async def call(
    subscription: Subscription, callback: Callable[[Event], Awaitable[None] | None]
) -> None:
    """Call a function with each event of a subscription; its failures are logged."""
    try:
        async for event in subscription:
            try:
                result = callback(event)
                if result is not None:
                    await result
            except Exception:
                log.exception("the callback of subscription %r failed", subscription.name)
    except SternaError as error:
        log.warning("subscription %r ends: %s", subscription.name, error)


def _unconfirmed(fact: SubscriptionKnown) -> UnconfirmedError:
    return UnconfirmedError(
        f"{', '.join(fact.but_not)} cannot say whether the subscription {fact.subscription!r} is "
        "known there; upgrade these brokers and clients",
        nodes=fact.but_not,
    )


def _announced_size(name: str, filter_: Filter) -> int:
    """About how many bytes it takes to announce a subscription."""
    return 2 * text_size(name) + text_size(str(filter_)) + 32
