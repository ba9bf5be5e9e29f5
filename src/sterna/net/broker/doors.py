"""Where peers come in: one door for each protocol that they speak."""

from typing import NamedTuple, Protocol

from sterna.net.broker.budget import Budget
from sterna.net.broker.configuration import Configuration
from sterna.net.broker.driver import BrokerDriver
from sterna.net.broker.limits import Limits
from sterna.net.broker.pausing import Pausing
from sterna.net.broker.sessions import Sessions
from sterna.net.metrics import Metrics


class Parts(NamedTuple):
    """The parts of a broker that are the same for every door."""

    configuration: Configuration
    driver: BrokerDriver
    sessions: Sessions
    pausing: Pausing
    limits: Limits
    budget: Budget
    metrics: Metrics


class Change(NamedTuple):
    """What has changed when the configuration was read again."""

    keys: frozenset[str]
    """The keys with new values, as `section.key`."""
    is_digest_new: bool
    """Whether clients have to be informed of it."""
    is_advertising_new: bool
    """Whether this broker has begun or ceased to route by advertisements."""


class Door(Protocol):
    """Lets peers in that speak one protocol: listens, does the handshake, and adds sessions.

    A door adds each peer to `Sessions`, and gives the core what comes from it. The core's frames
    reach the peer by its session. Nothing else in the broker knows what the peer speaks.
    """

    @property
    def strangers(self) -> int:
        """How many connections have an unfinished handshake."""
        ...

    @property
    def strangers_bytes(self) -> int:
        """How many bytes these have sent that are not complete frames."""
        ...

    async def open(self) -> None:
        """Listen; OSError if that fails."""
        ...

    def close(self) -> None:
        """Accept no more connections."""
        ...

    @property
    def is_drained(self) -> bool:
        """Whether nothing that was here has to go elsewhere before the broker ends."""
        ...

    def turn_away(self, reason: str) -> None:
        """End the connections whose handshake is unfinished, and give the reason."""
        ...

    def abort(self) -> None:
        """End the connections whose handshake is unfinished, now."""
        ...

    def configure(self, change: Change) -> None:
        """Work by another configuration, and send peers what they have to know of it."""
        ...
