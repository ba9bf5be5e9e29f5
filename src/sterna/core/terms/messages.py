"""What a client tells its broker about its subscriptions besides their filters."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from sterna.core.messages import Claim, Message
from sterna.core.names import RouteId
from sterna.model.queue_policies import CHARACTERS_MAX

TERMS = "terms"
"""The name of the protocol, of the feature to speak it, and of what a client claims by it."""


class Order(StrEnum):
    """In which order a client wants what other brokers have kept for it."""

    STRICT = "strict"
    """The events of each publisher in their order: what may be missing is waited for."""
    AVAILABLE = "available"
    """What is there is delivered at once, also while another broker cannot be reached."""


class Terms(msgspec.Struct, frozen=True, gc=False):
    """What a client wants of a subscription besides its filter."""

    keep: Annotated[str, msgspec.Meta(max_length=CHARACTERS_MAX)] = ""
    """What is kept of the events that wait for the client: a queue policy, see
    `sterna.model.queue_policies`. Empty if all are; so are they at brokers that do not know it."""
    order: Order = Order.STRICT


DEFAULT = Terms()
"""The terms of a subscription that states none."""

TermsOf = tuple[tuple[RouteId, Terms], ...]
"""The terms of subscriptions by name; those that are not there have the default."""


class TermsChange(Message, frozen=True, kw_only=True):
    """Client -> border broker: the terms of my subscriptions. It precedes the subscriptions, so
    that nothing is kept for them on other terms.
    """

    from_clients: ClassVar[bool] = True
    with_arrival: ClassVar[bool] = True
    precedes_subscriptions: ClassVar[bool] = True

    added: TermsOf = ()
    removed: tuple[RouteId, ...] = ()
    """The subscriptions that have no terms of their own any more."""
    anew: bool = False
    """Whether this replaces all terms that were stated before."""

    def claims(self) -> Iterable[Claim]:
        names = [id_ for id_, _ in self.added]
        return (Claim(TERMS, names, self.removed, replaces=self.anew),)
