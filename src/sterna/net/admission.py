"""What a client may say. A broker believes other brokers; clients are held to the rules."""

from collections.abc import Callable, Collection, Sequence

from sterna.core.link import Data, Frame
from sterna.core.messages import (
    AdvertisementChange,
    Arrival,
    Events,
    Farewell,
    InterestAsked,
    Message,
    MovingChange,
    MovingRoute,
    PastAsked,
    Probe,
    Probed,
    Route,
    SubscriptionChange,
)
from sterna.core.names import LinkId, RouteId
from sterna.errors import SternaError


class RefusedError(SternaError):
    """A client went too far; the message is for it."""


MAY_SAY = (
    *(AdvertisementChange, Arrival, Events, Farewell, InterestAsked, MovingChange, PastAsked),
    *(Probe, Probed, SubscriptionChange),
)
"""The rest is for brokers among themselves."""

NAME_CHARACTERS_MAX = 256


Known = Callable[[LinkId], Sequence[Collection[RouteId]]]
"""The names of a client's subscriptions, advertisements and moving subscriptions at this broker."""


class Admission:
    """Refuses what is too much, or not a client's to say."""

    def __init__(self, known: Known, *, subscriptions_max: int) -> None:
        self._known = known
        self._subscriptions_max = subscriptions_max

    def check(self, link: LinkId, frames: Sequence[Frame]) -> None:
        """RefusedError if a client says what it must not."""
        said = None
        for frame in frames:
            if type(frame) is Data:
                message = frame.message
                if type(message) is Events:
                    _check_publisher(link, message)
                else:
                    if not isinstance(message, MAY_SAY):
                        raise RefusedError(f"clients do not send {type(message).__name__} messages")
                    if said is None:
                        said = _Names(self._known(link))
                    said.add(message)
        if said is not None and said.count > self._subscriptions_max:
            raise RefusedError(
                f"{link} would have {said.count:,} subscriptions and advertisements, and "
                f"{self._subscriptions_max:,} are the limit (subscriptions_per_client_max)"
            )


class _Names:
    """What a client has when its messages have been heard, at most."""

    def __init__(self, known: Sequence[Collection[RouteId]]) -> None:
        self._known = known
        self._added: tuple[set[RouteId], ...] = tuple(set() for _ in known)
        self._removed: tuple[set[RouteId], ...] = tuple(set() for _ in known)

    @property
    def count(self) -> int:
        return sum(
            len(known) + len(added) - len(removed)
            for known, added, removed in zip(self._known, self._added, self._removed, strict=True)
        )

    def add(self, message: Message) -> None:
        match message:
            case SubscriptionChange():
                self._change(0, message.added, message.removed)
            case AdvertisementChange():
                self._change(1, message.added, message.removed)
            case MovingChange():
                self._change(2, message.added, message.removed)
            case PastAsked():
                self._change(0, (message.route,), ())
            case Arrival():  # All there is from now on.
                self.__init__(((), (), self._known[2]))  # type: ignore[misc]
                self._change(0, message.subscriptions, ())
                self._change(1, message.advertisements, ())
                for other in message.others:
                    self.add(other)
            case _:
                pass

    def _change(
        self, kind: int, added: Sequence[Route | MovingRoute], removed: Sequence[RouteId]
    ) -> None:
        known = self._known[kind]
        for route in added:
            self._removed[kind].discard(route.id)
            if route.id not in known:
                self._added[kind].add(route.id)
        for id_ in removed:
            self._added[kind].discard(id_)
            if id_ in known:
                self._removed[kind].add(id_)


def _check_publisher(link: LinkId, message: Events) -> None:
    for event in message.events:
        if event.publisher != link:
            raise RefusedError(f"{link} sent an event of {event.publisher}; a client sends its own")
