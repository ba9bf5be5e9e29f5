"""What Spark reports of a pipeline, told in the words of its users."""

import logging
import re
from collections.abc import Collection

from sterna.pipeline.progress import step

log = logging.getLogger("sterna.pipeline")

_FLOW = re.compile(r"Flow \S*?(\w+) (?:is|has) (RUNNING|COMPLETED)\.")


class Narrator:
    """Knows which tables are made and which are done."""

    def __init__(self, names: Collection[str]) -> None:
        self._count = len(names)
        self._done: set[str] = set()
        self._running: list[str] = []

    def hear(self, message: str) -> None:
        """Take a message of Spark; of tables that are made at once, the first one is told."""
        log.debug(message)
        flow = _FLOW.fullmatch(message)
        if flow is None:
            return
        name, state = flow.groups()
        if state == "COMPLETED":
            self._done.add(name)
        self._running = [each for each in self._running if each != name]
        if state == "RUNNING":
            self._running.append(name)
        if self._running:
            self._tell(f"archiving {self._running[0]}")

    def begin(self, name: str) -> None:
        """Tell that a view is made, when all before it are done."""
        self._tell(f"making {name}")
        self._done.add(name)

    def _tell(self, words: str) -> None:
        step(words, f"table {len(self._done) + 1} of {self._count}")
