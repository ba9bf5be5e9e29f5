"""The clocks of this machine: the only place where the network's nodes read them."""

from time import monotonic_ns, time_ns

from sterna.core.clock import Clock
from sterna.core.names import Time


def wall_us() -> Time:
    """Microseconds since 1970, by a clock that may be set forward and back."""
    return time_ns() // 1000


def elapsed_us() -> Time:
    """Microseconds since some moment, by a clock that cannot be set."""
    return monotonic_ns() // 1000


def node_clock() -> Clock:
    """The clock of a node that starts now."""
    return Clock(lambda: wall_us(), elapsed_us)  # noqa: PLW0108 - tests replace `wall_us`.
