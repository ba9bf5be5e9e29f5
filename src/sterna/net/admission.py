"""What a client may send. A broker believes other brokers; clients are held to the rules."""

from collections.abc import Callable, Collection, Sequence

from sterna.core.link import Data, Frame
from sterna.core.messages import Events, Message, OtherMessage
from sterna.core.names import LinkId, RouteId
from sterna.core.terms.messages import TERMS
from sterna.errors import SternaError


class RefusedError(SternaError):
    """A client broke the rules; the message is for it."""


NAME_CHARACTERS_MAX = 256


Claimed = Callable[[LinkId], Sequence[tuple[str, Collection[RouteId]]]]
"""The names under which a client has announced filters at this broker, by kind."""


class Admission:
    """Refuses what is too much, or not allowed to clients."""

    def __init__(self, claimed: Claimed, *, subscriptions_max: int) -> None:
        self._claimed = claimed
        self.subscriptions_max = subscriptions_max

    def check(self, link: LinkId, frames: Sequence[Frame]) -> None:
        """RefusedError if a client sends what it must not."""
        claims = None
        for frame in frames:
            if type(frame) is Data:
                message = frame.message
                if type(message) is Events:
                    _check_publisher(link, message)
                else:
                    if not message.from_clients:
                        raise RefusedError(f"clients do not send {_kind(message)} messages")
                    if claims is None:
                        claims = _Claims(self._claimed(link))
                    claims.add(message)
        if claims is not None and claims.terms > self.subscriptions_max:
            raise RefusedError(
                f"{link} would state terms for {claims.terms:,} subscriptions, and "
                f"{self.subscriptions_max:,} are the limit (subscriptions_per_client_max)"
            )
        if claims is not None and claims.count > self.subscriptions_max:
            raise RefusedError(
                f"{link} would have {claims.count:,} subscriptions and advertisements, and "
                f"{self.subscriptions_max:,} are the limit (subscriptions_per_client_max)"
            )


class _Claims:
    """The names that a client has once its messages are handled."""

    def __init__(self, known: Sequence[tuple[str, Collection[RouteId]]]) -> None:
        self._known: dict[str, Collection[RouteId]] = dict(known)
        self._added: dict[str, set[RouteId]] = {}
        self._removed: dict[str, set[RouteId]] = {}

    @property
    def count(self) -> int:
        """How many filters there are."""
        return sum(self._of(kind) for kind in {*self._known, *self._added} if kind != TERMS)

    @property
    def terms(self) -> int:
        """How many subscriptions have terms of their own."""
        return self._of(TERMS)

    def _of(self, kind: str) -> int:
        known, added = self._known.get(kind, ()), self._added.get(kind, ())
        return len(known) + len(added) - len(self._removed.get(kind, ()))

    def add(self, message: Message) -> None:
        for kind, added, removed, replaces in message.claims():
            if replaces:
                self._known[kind] = ()
                self._added[kind], self._removed[kind] = set(), set()
            known = self._known.get(kind, ())
            new, old = self._added.setdefault(kind, set()), self._removed.setdefault(kind, set())
            for id_ in added:
                old.discard(id_)
                if id_ not in known:
                    new.add(id_)
            for id_ in removed:
                new.discard(id_)
                if id_ in known:
                    old.add(id_)


def _kind(message: Message) -> str:
    return message.kind if isinstance(message, OtherMessage) else type(message).__name__


def _check_publisher(link: LinkId, message: Events) -> None:
    for event in message.events:
        if event.publisher != link:
            raise RefusedError(f"{link} sent an event of {event.publisher}; a client sends its own")
