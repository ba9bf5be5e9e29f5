"""Reads frames that take long in another thread, one after the other, while the loop goes on."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from sterna.core.link import Frame
from sterna.net.broker.sessions import Session
from sterna.wire.codec import MalformedError, decode_slowly

HasRead = Callable[[Session, Frame | MalformedError], None]


class SlowReading:
    """The frames with long filters, of all sessions: at most one of each.

    A frame is read at a time: the thread and the loop share a processor, so more threads would only
    slow the loop down.
    """

    def __init__(self, has_read: HasRead) -> None:
        self._has_read = has_read
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Session, tuple[memoryview, bool]] = {}
        self._current: Session | None = None

    def read(self, session: Session, body: memoryview, *, short_filters: bool) -> None:
        """Read a frame of a session; `has_read` is called with it, or with what is wrong."""
        self._waiting[session] = body, short_filters
        self._begin()

    def forget(self, session: Session) -> None:
        """A session is over."""
        self._waiting.pop(session, None)

    def _begin(self) -> None:
        if self._current is not None or not self._waiting:
            return
        session = self._current = next(iter(self._waiting))
        job = self._waiting.pop(session)
        # The end of the process does not wait for it, as it would for a thread of a pool.
        thread = Thread(target=self._work, args=(session, *job), name="filters", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # The system allows for no more threads.
            self._work(session, *job)

    def _work(self, session: Session, body: memoryview, short_filters: bool) -> None:  # noqa: FBT001
        frame: Frame | MalformedError
        try:
            frame = decode_slowly(body, short_filters=short_filters)
        except MalformedError as problem:
            frame = problem
        with suppress(RuntimeError):  # The loop may have ended.
            self._loop.call_soon_threadsafe(self._done, session, frame)

    def _done(self, session: Session, frame: Frame | MalformedError) -> None:
        self._current = None
        self._begin()
        self._has_read(session, frame)
