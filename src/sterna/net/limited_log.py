"""A log that nobody can fill: of each kind of line, it takes a few in a while, and counts the rest.

Peers that nobody knows can cause log messages as often as they like. What a line of the source
logs is a kind. So whatever is logged is limited, without a word about it where it is logged.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

LINES_MAX = 10
"""How many lines of a kind are logged within a period."""
HOST_LINES_MAX = 3
"""How many of these may be about the same host, for those that name one in `extra`. So a host that
misbehaves does not hide the others."""
PERIOD_S = 10.0
"""How many seconds such a period lasts."""
FIRST_CHARACTERS_MAX = 100
"""How much of the first line of a kind is repeated together with the number of the others."""

Kind = tuple[str, int]
"""Where it is logged: the file and the line."""


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes a few lines of each kind within a period, and then how many others there were."""

    def __init__(
        self,
        stream: TextIO,
        *,
        period_s: float = PERIOD_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream)
        self._period_s = period_s
        self._clock = clock
        self._periods: dict[Kind, _Period] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message, or count it. The handler is locked."""
        kind, now = (record.pathname, record.lineno), self._clock()
        period = self._periods.get(kind)
        if period is None or period.end <= now:
            if period is not None:
                self._tell(period)
            period = self._periods[kind] = _Period(record, now + self._period_s)
        if period.takes(record):
            super().emit(record)
            return
        if not period.left_out:
            timer = threading.Timer(period.end - now, self._tell_later, [period])
            timer.daemon = True
            with suppress(RuntimeError):  # Without a thread, the next line of the kind tells.
                timer.start()
        period.left_out += 1

    def close(self) -> None:
        """Write what is counted so far: this is the end of the process."""
        for period in list(self._periods.values()):
            self._tell_later(period)
        super().close()

    def _tell_later(self, period: "_Period") -> None:
        self.acquire()
        try:
            self._tell(period)
        finally:
            self.release()

    def _tell(self, period: "_Period") -> None:
        """Write how many messages were left out, if some were."""
        count, period.left_out = period.left_out, 0
        if count:
            message = "%s more like this were left out within %g s: %s"
            args = f"{count:,}", self._period_s, period.beginning
            super().emit(logging.makeLogRecord({**period.fields, "msg": message, "args": args}))


class _Period:
    """What was logged of one kind for some time."""

    def __init__(self, first: logging.LogRecord, end: float) -> None:
        self.fields = {
            "name": first.name,
            "levelno": first.levelno,
            "levelname": first.levelname,
        }
        self.beginning = first.getMessage()[:FIRST_CHARACTERS_MAX]
        self.end = end
        self.left_out = 0
        self._lines = 0
        self._hosts: Counter[str] = Counter()

    def takes(self, record: logging.LogRecord) -> bool:
        """Whether there is room for one more line; if so, it is counted."""
        host = getattr(record, "host", None)
        if self._lines >= LINES_MAX or (host and self._hosts[host] >= HOST_LINES_MAX):
            return False
        self._lines += 1
        if host:
            self._hosts[host] += 1
        return True
