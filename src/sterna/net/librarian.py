"""Lends out a broker's journal: readers elsewhere ask for its facts, a page at a time."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from sterna.journal import Journal, JournalFailedError
from sterna.journal.pages import page, start
from sterna.net.connection import Connection
from sterna.wire.frames import Answer, Ask, Refusal

if TYPE_CHECKING:
    from sterna.net.broker import BrokerServer

log = logging.getLogger("sterna.broker")

QUESTIONS = ("journal", "facts")


class Librarian:
    """Reads files in a thread of its own; each reader waits for one answer at a time."""

    def __init__(self, server: "BrokerServer") -> None:
        self._server = server
        self._thread = ThreadPoolExecutor(1, "librarian")
        self._readers: dict[Connection, asyncio.Task[None] | None] = {}
        """Who waits for an answer; None if it has all been said, and not been taken yet."""

    def is_busy_for(self, connection: Connection) -> bool:
        return connection in self._readers

    def answer(self, connection: Connection, asked: Ask, journal: Journal) -> None:
        """Answer when the files have been read."""
        self._readers[connection] = asyncio.create_task(self._answer(connection, asked, journal))

    def taken(self, connection: Connection) -> None:
        """A connection has taken what was said."""
        if self._readers.get(connection, self) is None:
            del self._readers[connection]

    def forget(self, connection: Connection) -> None:
        """A connection is over."""
        self._readers.pop(connection, None)

    def stop(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    async def _answer(self, connection: Connection, asked: Ask, journal: Journal) -> None:
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._thread, self._look_up, asked, journal)
        except Exception as error:
            if not isinstance(error, JournalFailedError | OSError):
                log.exception("cannot answer %s", asked)
            connection.say(Refusal(reason=f"the journal cannot be read: {error}"))
            connection.close()
            return
        if connection not in self._readers:
            return
        self._readers[connection] = None
        connection.say(Answer(what=asked.what, answer=answer))
        if not connection.waiting_bytes:
            self.taken(connection)

    def _look_up(self, asked: Ask, journal: Journal) -> Any:
        end = journal.last_position.position + 1
        journal.flush()
        node = self._server.config.name
        if asked.what == "journal":
            first = start(journal.directory, node)
            return {"node": node, "start": end if first is None else first, "end": end}
        return page(journal.directory, node, max(0, asked.start), min(end, asked.end))
