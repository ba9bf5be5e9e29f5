"""Serves a broker's journal: remote readers ask for its facts, a page at a time."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from sterna.core.names import NodeId
from sterna.journal import Journal, JournalFailedError
from sterna.journal.pages import beginning, page, start
from sterna.wire.frames import Answer, Ask

if TYPE_CHECKING:
    from sterna.net.broker.native import NativeSession
    from sterna.net.broker.sessions import Session

log = logging.getLogger("sterna.broker")

QUESTIONS = ("journal", "facts")


class Librarian:
    """Reads files in a thread of its own; each reader waits for one answer at a time."""

    def __init__(self, node: NodeId) -> None:
        self._node = node
        self._thread = ThreadPoolExecutor(1, "librarian")
        self._readers: dict[Session, asyncio.Task[None] | None] = {}
        """The task that answers each reader; None if the answer was sent, and is not taken yet."""

    def is_busy_for(self, session: "Session") -> bool:
        """Whether a reader waits for an answer, or has not taken all of it."""
        return session in self._readers

    def answer(self, session: "NativeSession", asked: Ask, journal: Journal) -> None:
        """Answer a reader when the files have been read."""
        self._readers[session] = asyncio.create_task(self._answer(session, asked, journal))

    def taken(self, session: "Session") -> None:
        """A session has taken what was sent."""
        if self._readers.get(session, self) is None:
            del self._readers[session]

    def forget(self, session: "Session") -> None:
        """A session is over."""
        self._readers.pop(session, None)

    def stop(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    async def _answer(self, session: "NativeSession", asked: Ask, journal: Journal) -> None:
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._thread, self._look_up, asked, journal)
        except Exception as error:
            if not isinstance(error, JournalFailedError | OSError):
                log.exception("cannot answer %s", asked)
            session.refuse(f"the journal cannot be read: {error}")
            return
        if session not in self._readers:
            return
        self._readers[session] = None
        session.say(Answer(what=asked.what, answer=answer))
        if not session.waiting_bytes:
            self.taken(session)

    def _look_up(self, asked: Ask, journal: Journal) -> Any:
        end = journal.last_position.position + 1
        journal.flush()
        node = self._node
        if asked.what == "journal":
            first = start(journal.directory, node)
            answer = {"node": node, "start": end if first is None else first, "end": end}
            if asked.details:
                answer["incarnation"] = journal.incarnation
                answer["begins"] = beginning(journal.directory, node, journal.incarnation)
            return answer
        return page(journal.directory, node, max(0, asked.start), min(end, asked.end))
