"""What happens at the clients inside a broker, as facts for its journal.

A client of the library writes a journal of its own. These write into that of the broker where they
are; a session that moves goes on in the journal of the next one, whose clock may be behind. So the
facts of a client have ascending times of their own, and whoever reads them needs no other order.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from sterna.core.facts import Fact
from sterna.core.names import Time


class Testimony:
    """Collects the facts of a turn, if anybody wants them."""

    def __init__(self, *, is_wanted: bool) -> None:
        self.is_wanted = is_wanted
        self._facts: list[Fact] = []

    def add(self, facts: Iterable[Fact], time: Time) -> None:
        """Something happened at a client, by a time that no other of its facts have."""
        if self.is_wanted:
            self._facts += [
                each if each.time == time else replace(each, time=time) for each in facts
            ]

    def take(self) -> list[Fact]:
        """Take what was collected."""
        facts, self._facts = self._facts, []
        return facts
