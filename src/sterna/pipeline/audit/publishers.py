"""When what a client published had left it."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

from sterna.model.delivery import FOREVER
from sterna.pipeline.audit.presence import Presence
from sterna.pipeline.audit.stated import LIVE

NOBODY: Mapping[str, Any] = dict.fromkeys(
    ("connections", "farewells", "oblivions", "discarded", "recorded", "lives"), ()
)
"""What is known of a client without facts about it."""


class Publishers:
    """The clients of a world, as far as their events depend on what they did."""

    def __init__(
        self, conducts: Sequence[Mapping[str, Any]], grace: int, *, advertisements: bool | None
    ) -> None:
        self._slack = grace if conducts[0]["world"] == LIVE else 0
        self._settled = next((each["settled"] for each in conducts if not each["client"]), None)
        self._grace = grace
        self._conducts = {each["client"]: each for each in conducts}
        self.needs_offers = (
            any(each["has_offers"] for each in conducts)
            if advertisements is None
            else advertisements
        )
        """Whether an event goes to nobody unless it was advertised."""
        self._made: dict[str, Publisher] = {}

    def __getitem__(self, name: str) -> "Publisher":
        found = self._made.get(name)
        if found is None:
            conduct = self._conducts.get(name, NOBODY)
            found = self._made[name] = Publisher(
                conduct, settled=self._settled, grace=self._grace, slack=self._slack
            )
        return found


class Publisher:
    """When the events of a client were out; all is found by bisection, however often it started."""

    def __init__(
        self, conduct: Mapping[str, Any], *, settled: list[int] | None, grace: int, slack: int
    ) -> None:
        pairs = ((pair["since"], pair["until"]) for pair in conduct["connections"])
        self._presence = Presence(pairs, settled=settled, grace=grace)
        self._lives = sorted(conduct["lives"])
        self._farewells = sorted((left["moment"], left["last"]) for left in conduct["farewells"])
        oblivions = sorted((each["moment"], each["heard"]) for each in conduct["oblivions"])
        self._forgotten = [moment + slack for moment, _ in oblivions]
        backwards = accumulate((heard for _, heard in reversed(oblivions)), min)
        self._heard = list(backwards)[::-1]
        self.discarded = frozenset(conduct["discarded"])
        """The events that it had no room for."""
        self._recorded = [(each["first"], each["last"]) for each in conduct["recorded"] or ()]

    def out(self, moment: int) -> int | None:
        """When what it published at a moment had left it; None if its life never sent it."""
        out, ended = self._presence.after(moment), self.life_ended(moment)
        if out is not None and ended <= out and ended != FOREVER:
            return None  # It was gone with the memory of the program.
        return out

    def life_ended(self, moment: int) -> int:
        """When the life ended in which it published something."""
        place = bisect_right(self._lives, moment)
        return self._lives[place] if place < len(self._lives) else FOREVER

    def farewells(self, moment: int) -> list[tuple[int, int]]:
        """When it left, and its last event that had arrived then, in the same life as a moment."""
        since = bisect_right(self._farewells, (moment, FOREVER))
        until = bisect_left(self._farewells, (self.life_ended(moment), -FOREVER))
        return self._farewells[since:until]

    def heard(self, moment: int) -> int | None:
        """No later event had reached the network when it was forgotten; None if it was not."""
        place = bisect_left(self._forgotten, moment)
        return self._heard[place] if place < len(self._heard) else None

    def has_recorded(self, seq: int) -> bool:
        """Whether its own journal has an event."""
        place = bisect_right(self._recorded, (seq, FOREVER)) - 1
        return place >= 0 and seq <= self._recorded[place][1]


class Stretches:
    """Which of some numbered things hold at a moment, each from one moment to another one."""

    def __init__(self, stretches: Iterable[tuple[int, int, int]]) -> None:
        changes: list[tuple[int, int, int]] = []
        for since, until, what in stretches:
            if since <= until:
                changes += [(since, 1, what), (until + 1, -1, what)]
        self._moments: list[int] = []
        self._held: list[frozenset[int]] = []
        counts: Counter[int] = Counter()
        for moment, together in groupby(sorted(changes), key=itemgetter(0)):
            for _, change, what in together:
                counts[what] += change
            counts = +counts
            self._moments.append(moment)
            self._held.append(frozenset(counts))

    def at(self, moment: int) -> frozenset[int]:
        place = bisect_right(self._moments, moment) - 1
        return self._held[place] if place >= 0 else frozenset()
