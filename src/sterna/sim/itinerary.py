"""Perfect predictions: a simulation knows where its clients will go."""

from collections.abc import Callable, Mapping, Sequence

from sterna.core.names import NodeId, Time
from sterna.model.mobility import Prediction
from sterna.model.prediction import COUNT

Arrivals = Sequence[tuple[Time, NodeId]]
"""When a client arrives at which broker, in order."""


class Itinerary:
    """Predicts the broker that a client is going to attach to next, as the script says."""

    def __init__(self, arrivals: Mapping[NodeId, Arrivals], now: Callable[[], Time]) -> None:
        """`now` is the time of the simulation, for those who ask without one."""
        self._arrivals = arrivals
        self._now = now

    def next(
        self,
        place: str,
        history: Sequence[str] = (),
        at: int | None = None,
        *,
        client: str | None = None,
        count: int = COUNT,
    ) -> tuple[Prediction, ...]:
        """The client's next broker; none if it comes back to this one, or to no other."""
        del history, count
        at = self._now() if at is None else at
        for time, broker in self._arrivals.get(client or "", ()):
            if time > at or (time == at and broker != place):  # Else it has arrived.
                return () if broker == place else (Prediction(broker, 1.0),)
        return ()
