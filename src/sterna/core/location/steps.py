"""How many moves a client may make that a broker does not know of yet. (Fiege, 5.3)

A broker that is d away from the client (one way) filters an event by where the client was at least
d ago, and the event reaches the client d later. So a client whose location was x for that broker
may be as many steps away from x when the event arrives as it can make within 2d, the time of a
round trip. In a closed interval of that length, moves that are at least a dwell time apart number
at most floor(round trip / dwell) + 1: `SAFE`. While the round trip or the dwell time is not known,
the client may be anywhere. See `docs/decisions/0012-steps.md` for why less is not enough, and for
what the other rules miss.
"""

from enum import StrEnum

from sterna.core.names import Time


class StepRule(StrEnum):
    """How many steps around a client's location a broker asks for."""

    SAFE = "safe"
    """As many as the client can make during a round trip. Nothing is missed."""
    FLOOR = "floor"
    """How many whole dwell times fit in the delay to the client. (Fiege, 5.3, Table 4)"""
    CEIL = "ceil"
    """The same, rounded up. (Fiege, Fig. 13)"""
    SUB_UNSUB = "sub-unsub"
    """Zero: each move unsubscribes the old location and subscribes the new one. (Fiege, 3.3)"""
    EVERYWHERE = "everywhere"
    """No limit: only the client filters by location, as with flooding. (Fiege, 3.3)"""

    @property
    def is_timed(self) -> bool:
        """Whether delays and dwell times matter."""
        return self not in {StepRule.SUB_UNSUB, StepRule.EVERYWHERE}

    def steps(self, delay_us: Time | None, dwell_us: Time | None) -> int | None:
        """The number for a broker with such a round trip to the client; None means no limit.

        The papers' delay is one way, half of that. A round trip or dwell time of None is not known,
        and rules that need it set no limit.
        """
        match self:
            case StepRule.EVERYWHERE:
                return None
            case StepRule.SUB_UNSUB:
                return 0
            case _ if delay_us is None or dwell_us is None:
                return None
            case StepRule.FLOOR:
                return delay_us // (2 * dwell_us)
            case StepRule.CEIL:
                return -(-delay_us // (2 * dwell_us))
            case StepRule.SAFE:
                return delay_us // dwell_us + 1
