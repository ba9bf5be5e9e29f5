"""Answers questions about a broker: from observers, and over HTTP."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from sterna.core.names import Peer
from sterna.net.broker.sessions import Sessions
from sterna.net.http import Pages
from sterna.net.librarian import QUESTIONS, Librarian
from sterna.net.status import clients, queues, status, topology
from sterna.wire.frames import Answer, Ask

if TYPE_CHECKING:
    from sterna.net.broker.native import NativeSession
    from sterna.net.broker.server import BrokerServer


CLIENTS, KICK, RELOAD = "clients", "kick", "reload"

NOT_FROM_ELSEWHERE = {
    RELOAD: "only peers on the broker's own machine may have it reload its configuration",
    KICK: "only peers on the broker's own machine may send clients away",
}
KICKED = "its operator has sent this client away (`sterna kick`)"


class Observers:
    """Knows all questions that a broker answers."""

    def __init__(self, server: "BrokerServer", sessions: Sessions, librarian: Librarian) -> None:
        self._server = server
        self._sessions = sessions
        self._librarian = librarian
        self._reloads: set[asyncio.Task[None]] = set()
        self._documents: Mapping[str, Callable[[], object]] = {
            "status": lambda: status(server),
            "topology": lambda: topology(server),
            "queues": lambda: queues(server),
        }

    def asked(self, session: "NativeSession", asked: Ask) -> None:
        """Answer an observer, at once or when the answer is found."""
        if asked.what in NOT_FROM_ELSEWHERE and not session.is_local:
            self._sessions.refuse(session, NOT_FROM_ELSEWHERE[asked.what], final=True)
            return
        if asked.what == RELOAD:
            self._asked_to_reload(session)
            return
        if asked.what == KICK:
            self._asked_to_kick(session, asked.client)
            return
        if asked.what == CLIENTS:
            session.say(Answer(what=CLIENTS, answer=clients(self._server, asked.start)))
            return
        document = self._documents.get(asked.what)
        if document is not None:
            session.say(Answer(what=asked.what, answer=document()))
        elif asked.what in QUESTIONS:
            self._asked_journal(session, asked)
        else:
            known = [*self._documents, CLIENTS, *QUESTIONS, RELOAD, KICK]
            self._sessions.refuse(session, f"ask for one of {', '.join(known)}")

    def pages(self) -> Pages:
        """The answers over HTTP, with health and metrics."""
        return Pages(
            not_ready=self._not_ready,
            metrics=self._server.metrics.text,
            documents={f"/{what}": answer for what, answer in self._documents.items()},
        )

    def _asked_journal(self, session: "NativeSession", asked: Ask) -> None:
        driver = self._server.driver
        journal = driver.journalist.journal
        if journal is None:
            reason = "this broker keeps no journal (journal.enabled)"
            self._sessions.refuse(session, reason, final=True)
        elif self._librarian.is_busy_for(session):
            self._sessions.refuse(session, "one question about the journal at a time")
        else:
            driver.tell()
            self._librarian.answer(session, asked, journal)

    def _asked_to_kick(self, session: "NativeSession", client: str) -> None:
        """Send a client away for good, and forget what is kept for it."""
        is_known = self._server.node.peers.get(client) is Peer.CLIENT
        was_here = client in self._sessions.links
        if is_known:
            self._sessions.send_away(client, KICKED)
        answer = {"at": self._server.config.name, "is_known": is_known, "was_here": was_here}
        session.say(Answer(what=KICK, answer=answer))

    def _asked_to_reload(self, session: "NativeSession") -> None:
        task = asyncio.create_task(self._reload(session))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self, session: "NativeSession") -> None:
        try:
            report = await self._server.reload()
        except Exception as error:
            self._sessions.refuse(session, f"the reload failed, restart the broker: {error!r}")
            raise  # Nobody expects it, so it is logged.
        session.say(Answer(what=RELOAD, answer=msgspec.to_builtins(report)))

    def _not_ready(self) -> str | None:
        if self._server.is_ready:
            return self._server.progress.problem()
        return "draining" if self._server.is_draining else "starting"
