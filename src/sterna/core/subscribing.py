"""What a client wants: its subscriptions, and which of them an event is for."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from sterna.core import facts, inputs
from sterna.core.actions import Deliver
from sterna.core.confirming.asking import Asking
from sterna.core.facts import Fact
from sterna.core.handover.messages import KeptFor
from sterna.core.history.messages import PastAsked
from sterna.core.history.recall import Recall
from sterna.core.location.whereabouts import Whereabouts
from sterna.core.messages import Route, SubscriptionChange
from sterna.core.names import LocalProtocolError, RouteId, Time
from sterna.core.terms.messages import DEFAULT, Order, Terms
from sterna.core.terms.stating import Stating
from sterna.matching import MatchIndex
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.model.queue_policies import PolicyError, parse_policy

if TYPE_CHECKING:
    from sterna.core.client import Client


class Subscribing:
    """A client's subscriptions; those that depend on the client mean something else as it moves."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self.filters: dict[str, Filter] = {}
        """The filters by the names of their subscriptions, as the application gave them."""
        self._wanted: MatchIndex[str] = MatchIndex()
        """The filters as they apply to the client right now."""

    # ---- From the application

    def subscribe(self, given: inputs.Subscribe, now: Time) -> None:
        """The application wants the events that match a filter."""
        client, name, filter_ = self._client, given.subscription, given.filter
        if name in self.filters:
            raise LocalProtocolError(
                f"{client.id} has a subscription {name!r}; unsubscribe it first"
            )
        wants_past = given.past_events_max is not None or given.past_since_us is not None
        recall = self._recall if wants_past else None
        stating = None if given.terms == DEFAULT else self._stating
        if given.terms.keep:
            _check_policy(given.terms.keep)
        exact = self._exact(filter_)
        self._wanted.add(name, exact)
        self.filters[name] = filter_
        client.state(
            facts.Subscribed(
                at=client.id,
                time=now,
                subscription=name,
                filter=filter_,
                past_events_max=given.past_events_max,
                keep=given.terms.keep,
                order=_stated(given.terms.order),
            )
        )
        if stating is not None:
            stating.state(name, given.terms, now)
        if not filter_.is_bound:
            client.state(facts.Adapted(at=client.id, time=now, subscription=name, filter=exact))
        if filter_.uses_myloc:
            if recall is not None:
                recall.begin_here(name, given.past_events_max, given.past_since_us, now)
            self.whereabouts.tell(now)
        if not filter_.uses_myloc and (recall is None or not client.is_welcome):
            self.tell_again([name], now)  # A request for the past, which waits, is behind it.
        if recall is not None:
            asked = PastAsked(
                route=self.told_past(name),
                events_max=given.past_events_max,
                since_us=given.past_since_us,
                is_here=filter_.uses_myloc,
            )
            recall.ask(asked, now)

    def unsubscribe(self, given: inputs.Unsubscribe, now: Time) -> None:
        """The application ends a subscription."""
        client, name = self._client, given.subscription
        if name not in self.filters:
            raise LocalProtocolError(f"{client.id} has no subscription {name!r}")
        filter_ = self.filters.pop(name)
        self._wanted.remove(name)
        client.unsubscribed(name, now)
        client.state(facts.Unsubscribed(at=client.id, time=now, subscription=name))
        if filter_.uses_myloc:
            self.whereabouts.tell(now)
        else:
            client.tell(SubscriptionChange(removed=(client.route(name),)), now)

    def confirm(self, given: inputs.Confirm, now: Time) -> None:
        """The application wants to know when every broker that matters knows a subscription."""
        client, name = self._client, given.subscription
        if name not in self.filters:
            raise LocalProtocolError(f"{client.id} has no subscription {name!r}")
        part = client.part(Asking.name)
        if part is None:
            raise LocalProtocolError(
                f"{client.id} cannot ask who knows a subscription: "
                f"its network has no protocol {Asking.name!r}"
            )
        cast("Asking", part).ask(name, now)

    def move(self, given: inputs.MoveTo, now: Time) -> None:
        """The application is at a location now."""
        self.whereabouts.move(given, now)

    def set_variable(self, given: inputs.SetVariable, now: Time) -> None:
        """A variable that subscriptions refer to has a value now."""
        self.whereabouts.set(given, now)

    def in_force(self, now: Time) -> Iterator[Fact]:
        """What the application wants, as if it had just asked for it."""
        at = self._client.id
        for name, filter_ in self.filters.items():
            terms = self.terms(name)
            yield facts.Subscribed(
                at=at,
                time=now,
                subscription=name,
                filter=filter_,
                keep=terms.keep,
                order=_stated(terms.order),
            )
            if not filter_.is_bound:
                exact = self._exact_or_anywhere(filter_)
                yield facts.Adapted(at=at, time=now, subscription=name, filter=exact)

    # ---- To the application

    def take(
        self, events: Sequence[Event], now: Time, *,
        kept_for: KeptFor | None = None, overtakes: bool = False,
    ) -> None:  # fmt: skip
        """Give the application what it wants of these events.

        What was kept for the client may be for a moving subscription at a place where it was. What
        `overtakes` earlier events is only for subscriptions that permit it.
        """
        client = self._client
        if len(events) == 1 and kept_for is None and not overtakes:  # Mostly it is so.
            only = (events[0],)
            names = self.wanting(events[0])
            if names:
                self._deliver(only, (names,), now, anywhere=False)
            else:
                client.state(facts.Stray(at=client.id, time=now, events=only))
            return
        found = self._wanting_each(events)
        if overtakes:
            found = [tuple(filter(self._permits_overtaking, names)) for names in found]
        if kept_for is not None:
            kept = dict(kept_for)
            found = [
                tuple(dict.fromkeys((*names, *self._wanted_then(kept.get(event.id, ())))))
                for event, names in zip(events, found, strict=True)
            ]
        wanted = tuple(event for event, names in zip(events, found, strict=True) if names)
        if wanted:
            anywhere, names_ = kept_for is not None, tuple(filter(None, found))
            self._deliver(wanted, names_, now, anywhere=anywhere, overtakes=overtakes)
        if len(wanted) < len(events):
            stray = tuple(event for event, names in zip(events, found, strict=True) if not names)
            client.state(facts.Stray(at=client.id, time=now, events=stray))

    def _deliver(
        self, events: tuple[Event, ...], subscriptions: tuple[tuple[str, ...], ...], now: Time, *,
        anywhere: bool, overtakes: bool = False,
    ) -> None:  # fmt: skip
        for delivering in self._client.hooks.delivering:
            going = delivering(events, subscriptions, now, anywhere=anywhere, overtakes=overtakes)
            if going is not None:
                events = tuple(event for event, _ in going)
                subscriptions = tuple(names for _, names in going)
        if events:
            self.deliver(events, subscriptions, now, anywhere=anywhere, overtakes=overtakes)

    def deliver(
        self, events: tuple[Event, ...], subscriptions: tuple[tuple[str, ...], ...], now: Time, *,
        anywhere: bool = False, overtakes: bool = False,
    ) -> None:  # fmt: skip
        """Give the application events, each for the subscriptions that want it."""
        client = self._client
        client.act(Deliver(events, subscriptions))
        client.state(facts.Delivered(at=client.id, time=now, events=events, anywhere=anywhere))
        if overtakes:
            ids = tuple(event.id for event in events)
            client.state(facts.Overtook(at=client.id, time=now, events=ids))

    def wanting(self, event: Event) -> tuple[str, ...]:
        """The subscriptions that want an event, here and now, by name."""
        return tuple(sorted(self._wanted.match(event.attributes)))

    def _wanting_each(self, events: Sequence[Event]) -> list[tuple[str, ...]]:
        only = self._wanted.only
        if only is None:
            return [self.wanting(event) for event in events]
        names, matches = (only[0],), only[1].matches
        return [names if matches(event.attributes) else () for event in events]

    def is_wanted(self, event: Event, name: str) -> bool:
        """Whether a subscription wants an event, here and now."""
        filter_ = self.filters.get(name)
        if filter_ is not None and filter_.is_bound:
            return filter_.matches(event.attributes)
        return name in self.wanting(event)

    def _wanted_then(self, routes: Sequence[RouteId]) -> list[str]:
        """The moving subscriptions that wanted an event then, and still exist."""
        names = [route.removeprefix(self._client.route("")) for route in routes]
        return [name for name in names if not self._is_static(name)]

    def _is_static(self, name: str) -> bool:
        return name not in self.filters or self.filters[name].is_bound

    # ---- To the broker

    def introduction(self) -> tuple[Route, ...]:
        """The subscriptions that a new broker has to know; moving ones are announced otherwise."""
        return tuple(self.told(name) for name, f in self.filters.items() if not f.uses_myloc)

    def adapt(self, name: str, exact: Filter, now: Time) -> None:
        """A subscription means something else from now on."""
        client = self._client
        self._wanted.remove(name)
        self._wanted.add(name, exact)
        client.state(facts.Adapted(at=client.id, time=now, subscription=name, filter=exact))

    def tell_again(self, names: Sequence[str], now: Time) -> None:
        """Announce to the broker the subscriptions that are new or mean something else.

        Those that use `myloc` are announced otherwise.
        """
        if names:
            change = SubscriptionChange(added=tuple(self.told(name) for name in names))
            self._client.tell(change, now)

    def told(self, name: str) -> Route:
        """The route that the broker has to know of a subscription."""
        filter_ = self.filters[name]
        told = filter_ if filter_.is_bound else self.whereabouts.context.told(filter_)
        return Route(self._client.route(name), told)

    def told_past(self, name: str) -> Route:
        """The route of whose past a subscription is to get, here and now."""
        filter_ = self.filters[name]
        if not filter_.uses_myloc:
            return self.told(name)
        return Route(self._client.route(name), self._exact_or_anywhere(filter_))

    # ---- Components

    def terms(self, name: str) -> Terms:
        """The terms of a subscription."""
        part = self._client.part(Stating.name)
        return DEFAULT if part is None else cast("Stating", part).of(name)

    @property
    def may_overtake(self) -> bool:
        """Whether a subscription lets new events overtake earlier ones."""
        return any(map(self._permits_overtaking, self.filters))

    def _permits_overtaking(self, name: str) -> bool:
        return self.terms(name).order is Order.AVAILABLE

    @property
    def _stating(self) -> Stating:
        part = self._client.part(Stating.name)
        if part is None:
            raise LocalProtocolError(
                f"{self._client.id} cannot subscribe on terms of its own: its network has no "
                f"protocol {Stating.name!r}; list it among the network's protocols"
            )
        return cast("Stating", part)

    @property
    def _recall(self) -> Recall:
        part = self._client.part(Recall.name)
        if part is None:
            raise LocalProtocolError(
                f"{self._client.id} cannot ask for the past: "
                f"its network has no protocol {Recall.name!r}"
            )
        return cast("Recall", part)

    @property
    def whereabouts(self) -> Whereabouts:
        """The component that knows where the client is; LocalProtocolError without places."""
        part = self._client.part(Whereabouts.name)
        if part is None:
            raise LocalProtocolError(
                f"{self._client.id} knows nothing of locations and variables: "
                "its network has no places"
            )
        return cast("Whereabouts", part)

    def _exact(self, filter_: Filter) -> Filter:
        """What a filter means to the client right now."""
        return filter_ if filter_.is_bound else self.whereabouts.context.exact(filter_)

    def restore(self, filters: dict[str, Filter]) -> None:
        """Go on with what a snapshot has held."""
        self.filters = filters
        for name, filter_ in filters.items():
            exact = filter_ if filter_.is_bound else self._exact_or_anywhere(filter_)
            self._wanted.add(name, exact)

    def _exact_or_anywhere(self, filter_: Filter) -> Filter:
        """The same; the places may have become more than a filter can hold."""
        return self.whereabouts.context.exact_or_anywhere(filter_)


def _check_policy(text: str) -> None:
    try:
        parse_policy(text)
    except PolicyError as error:
        raise LocalProtocolError(str(error)) from None


def _stated(order: Order) -> str:
    """The order of a subscription as a fact states it."""
    return "" if order is DEFAULT.order else str(order)
