"""When a client was connected long enough for all that was on its way to have arrived."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from sterna.model.delivery import FOREVER

BEGINNING = 0


class Presence:
    """The connections of a client, and when everything on its way to or from it had arrived.

    Where it is known when nothing was on its way (`settled`), that is at each such moment in a
    connection; a client without facts about its connections counts as connected. Elsewhere it is
    whenever a connection has been up for a whole `grace` period.
    """

    def __init__(
        self,
        connections: Iterable[tuple[int, int]],
        *,
        settled: Sequence[int] | None = None,
        grace: int = 0,
    ) -> None:
        self._grace = grace
        self._connections = [
            (since, until)
            for since, until in connections
            if settled is not None or until - since >= grace
        ]
        if settled is not None and not self._connections:
            self._connections = [(BEGINNING, FOREVER)]
        self._since = [since for since, _ in self._connections]
        self._enough = [until - grace for _, until in self._connections]
        self._stays = bool(self._connections) and self._connections[-1][1] == FOREVER
        self._calm = None if settled is None else self._calm_of(settled)

    def after(self, moment: int) -> int | None:
        """When all that was on its way at a moment had arrived; None if the client was not there.

        FOREVER: it is there at the end, and it was not checked since.
        """
        if self._calm is None:
            place = bisect_left(self._enough, moment)
            if place == len(self._connections):
                return None
            return max(self._since[place], moment) + self._grace
        place = bisect_left(self._calm, moment)
        if place < len(self._calm):
            return self._calm[place]
        return FOREVER if self._stays else None

    def before(self, moment: int) -> int | None:
        """The last moment of which all that was on its way had arrived by another moment."""
        if self._calm is None:
            place = bisect_right(self._since, moment - self._grace) - 1
            return None if place < 0 else min(self._connections[place][1], moment) - self._grace
        if moment == FOREVER and self._stays:
            return FOREVER
        place = bisect_right(self._calm, moment) - 1
        return None if place < 0 else self._calm[place]

    def _calm_of(self, settled: Sequence[int]) -> list[int]:
        """The moments at which nothing was on its way and the client was there."""
        calm: list[int] = []
        for since, until in self._connections:
            calm += settled[bisect_left(settled, since) : bisect_left(settled, until)]
        return calm


def connections_of(
    links: Iterable[tuple[int, bool | None]], *, unbroken: bool = True
) -> list[tuple[int, int]]:
    """The connections of a client, from the moments at which a link came or went, in order.

    One that has not ended lasts for ever; one that had begun before all that is known, always did.
    If a link comes while there is one, the connection continues (`unbroken`), or it had ended at an
    unknown time, since the client was killed: then it counts for nothing. Where a program starts
    (None), no link is there.
    """
    connections: list[tuple[int, int]] = []
    since: int | None = None
    is_first = True
    for moment, is_there in links:
        if is_first and is_there is False:
            since = BEGINNING
        if is_there and (since is None or not unbroken):
            since = moment
        elif not is_there and since is not None:
            connections.append((since, moment))
            since = None
        is_first = False
    return [*connections, *([(since, FOREVER)] if since is not None else [])]
