"""The hooks that the components of a node override, each found once and not at every event.

They are records of their own: an object with more than 30 attributes is slow in Python 3.11.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar

from sterna.core.component import BrokerComponent, ClientComponent, Component

H = TypeVar("H", "BrokerHooks", "ClientHooks")
Hook = tuple[Callable[..., Any], ...]
"""The methods of the components that override a hook, in the order of the components."""


@dataclass(frozen=True, slots=True)
class BrokerHooks:
    """The hooks of a broker's components; see `BrokerComponent` for each."""

    inputs: Hook
    exchange: Hook
    events_arriving: Hook
    events_passing: Hook
    events_leaving: Hook
    subscriptions_changed: Hook
    advertisements_changed: Hook
    is_kept_elsewhere: Hook
    goes_elsewhere: Hook
    is_elsewhere: Hook
    client_moved: Hook
    moving_changed: Hook
    terms_changed: Hook
    migrated: Hook
    restarted: Hook
    overlay_changed: Hook
    archive_changed: Hook
    looked_up: Hook
    keeps: Hook
    outlasts: Hook
    sleeps: Hook
    order_restored: Hook
    exact: Hook
    claimed: Hook
    kept: Hook
    hosted: Hook
    keep_less: Hook
    discard_spilled: Hook
    forget_away: Hook
    earlier: Hook
    foresees: Hook
    frames_received: Hook


@dataclass(frozen=True, slots=True)
class ClientHooks:
    """The hooks of a client's components; see `ClientComponent` for each."""

    events_arriving: Hook
    delivering: Hook
    introduces: Hook
    introduction: Hook
    introduction_sent: Hook
    may_publish: Hook
    left: Hook
    unsubscribed: Hook
    moved: Hook


def find(kind: type[H], components: Sequence[Component]) -> H:
    """The hooks that some components override."""
    return kind(**{field.name: _overriding(components, field.name) for field in fields(kind)})


def _overriding(components: Sequence[Component], hook: str) -> Hook:
    return tuple(
        getattr(each, hook)
        for each in components
        if _is_overridden(type(each), hook)  # type: ignore[arg-type] # Classes can be hashed.
    )


@cache
def _is_overridden(kind: type[Component], hook: str) -> bool:
    bases = (Component, BrokerComponent, ClientComponent)
    return hasattr(kind, hook) and not any(
        getattr(kind, hook) is getattr(base, hook, None) for base in bases
    )
