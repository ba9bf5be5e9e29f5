"""Which of the three properties hold, by the facts of a run or of journals."""

from collections.abc import Collection, Iterable

from sterna.core.facts import Delivered, Fact
from sterna.core.names import NodeId
from sterna.core.replication.inputs import SessionId
from sterna.model.event import EventId
from sterna.model.replicas import Verdict, judge


def judge_facts(
    facts: Iterable[Fact], application: NodeId, sessions: Collection[SessionId]
) -> Verdict:
    """Judge what an application was given against what its sessions have brought."""
    displayed: list[EventId] = []
    received: list[EventId] = []
    for fact in facts:
        if isinstance(fact, Delivered):
            ids = [event.id for event in fact.events]
            if fact.at == application:
                displayed += ids
            elif fact.at in sessions:
                received += ids
    return judge(displayed, received)
