"""The options of the strategies for disconnected operation. (Burcea et al., 3)"""

from enum import StrEnum

import msgspec

from sterna.core.handover.options import Handover
from sterna.core.settings import Settings


class SubscriptionsAt(StrEnum):
    """Where a client's subscriptions are while it is disconnected. (Burcea, 3.2.4)"""

    BROKER = "broker"
    """At its old broker, from which the new one fetches them."""
    DEVICE = "device"
    """At the client, which brings them to the new broker."""


class TransferOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `standard` and `logging`."""

    subscriptions: SubscriptionsAt = SubscriptionsAt.BROKER


class PrefetchingOptions(TransferOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `prefetching`."""

    brokers_max: int = 1
    """To how many of the brokers that a client may go to next its state is sent."""

    def __post_init__(self) -> None:
        if self.brokers_max < 1:
            raise ValueError("prefetching goes to at least one broker: brokers_max")


class HomeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `home`: none, for subscriptions are at the home broker."""


def transfer_options(settings: Settings) -> TransferOptions:
    """The options of the strategy in use."""
    protocol = settings.handover.protocol
    if protocol == Handover.HOME:
        settings.options_of(protocol, HomeOptions)
        return TransferOptions()
    given = settings.options.get(protocol, {}).get("subscriptions", SubscriptionsAt.BROKER)
    if given not in [*SubscriptionsAt]:
        choice = ", ".join(SubscriptionsAt)
        raise msgspec.ValidationError(f"subscriptions is {given!r}; choose one of {choice}")
    if protocol == Handover.PREFETCHING:
        return settings.options_of(protocol, PrefetchingOptions)
    return settings.options_of(protocol, TransferOptions)


def subscriptions_at(settings: Settings) -> SubscriptionsAt:
    """Where clients' subscriptions are while they are disconnected."""
    match settings.handover.protocol:
        case Handover.STANDARD | Handover.LOGGING | Handover.PREFETCHING:
            return transfer_options(settings).subscriptions
        case Handover.HOME:
            return SubscriptionsAt.BROKER
        case _:
            return SubscriptionsAt.DEVICE
