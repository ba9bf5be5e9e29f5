"""Which brokers depend on each other: the death of one of them cuts the other off.

In a tree, events on their way to two brokers take the same way up to where their ways part. Each
broker on that shared part is one whose death cuts off both.
"""

import asyncio
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sterna.core.names import NodeId
from sterna.net.address import Address
from sterna.net.client.transport import Transport
from sterna.net.connection import Connection
from sterna.wire.codec import MalformedError
from sterna.wire.frames import VERSION, Answer, Ask, Control, Hello, Ping, Pong, Refusal, Role

ASK_S = 1.0
"""So long a broker may take to say how brokers are linked."""

ANSWER_BYTES_MAX = 2**30

Links = Iterable[tuple[NodeId, NodeId]]


class Place(NamedTuple):
    """A broker, and the links of its network as it knows them."""

    broker: NodeId
    """Empty if it answers, but does not say."""
    links: tuple[tuple[NodeId, NodeId], ...]


class Taken(NamedTuple):
    """Where a session is already."""

    host: str
    broker: NodeId | None


def most_independent(places: Mapping[str, Place | None], taken: Sequence[Taken]) -> list[str]:
    """The addresses at which other brokers answer, first those that share least with the taken.

    That is first a host, then brokers whose death cuts off both. Of equal ones, the order remains.
    """
    hosts = [each.host for each in taken]
    brokers = [each.broker for each in taken if each.broker]

    def cost(url: str, place: Place) -> tuple[int, int]:
        common = sum(shared(place.links, each, place.broker) for each in brokers)
        return hosts.count(Address.from_url(url).host), common

    costs = {
        url: (not place.broker, *cost(url, place))
        for url, place in places.items()
        if place is not None and place.broker not in brokers
    }
    return sorted(costs, key=costs.__getitem__)


def shared(links: Links, a: NodeId, b: NodeId) -> int:
    """How much two brokers depend on the same brokers: 0 if only on the publishers' own.

    For each broker where publishers may be, the others that events from there pass on their way to
    both, these two included. In a tree these are as many as it has links to the way between them.
    """
    near: dict[NodeId, list[NodeId]] = {a: [], b: []}
    for one, other in links:
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    before = _ways(near, [a])
    if b not in before:
        return 0  # They are in different networks.
    between, at = [b], b
    while at != a:
        at = before[at]
        between.append(at)
    distance = dict.fromkeys(between, 0)
    for broker, previous in _ways(near, between).items():
        if broker not in distance:
            distance[broker] = distance[previous] + 1
    return sum(distance.values())


def _ways(near: Mapping[NodeId, Sequence[NodeId]], start: Sequence[NodeId]) -> dict[NodeId, NodeId]:
    """From each broker, the next one on its way to the nearest of some; the nearest come first."""
    before = {broker: broker for broker in start}
    waiting = deque(start)
    while waiting:
        at = waiting.popleft()
        for other in near[at]:
            if other not in before:
                before[other] = at
                waiting.append(other)
    return before


async def place_of(url: str, transport: Transport) -> Place | None:
    """Ask a broker for its name and the links of its network; None if it does not answer."""
    question = _Question()
    try:
        async with asyncio.timeout(ASK_S):
            connection = await transport.dial(
                Address.from_url(url), lambda: Connection(question, ANSWER_BYTES_MAX)
            )
            try:
                connection.say(
                    Hello(
                        versions=(VERSION, VERSION), role=Role.OBSERVER, node=f"ask-{os.getpid()}"
                    )
                )
                connection.say(Ask(what=_TOPOLOGY))
                answer = await question.answer
                links = tuple((str(a), str(b)) for a, b in answer["links"])
                return Place(str(answer["at"]), links)
            finally:
                connection.abort()
    except (OSError, LookupError, TypeError, ValueError):  # A TimeoutError is an OSError, too.
        return None


_TOPOLOGY = "topology"


class _Question:
    """The owner of a connection for one question."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def connected(self, connection: Connection) -> None:
        pass

    def control_arrived(self, connection: Connection, said: Control) -> None:
        match said:
            case Answer(what=answered, answer=answer) if answered == _TOPOLOGY:
                if not self.answer.done():
                    self.answer.set_result(answer)
            case Refusal():
                if not self.answer.done():
                    self.answer.set_result({"at": "", "links": ()})
            case Ping():
                connection.say(Pong())
            case _:
                pass

    def frames_arrived(
        self, connection: Connection, raw: bytes, bodies: Sequence[memoryview]
    ) -> None:
        pass

    def unfinished(self, connection: Connection, size_bytes: int) -> None:
        pass

    def malformed(self, connection: Connection, problem: MalformedError) -> None:
        del problem
        self.lost(connection)

    def lost(self, connection: Connection) -> None:
        del connection
        if not self.answer.done():
            self.answer.set_exception(ConnectionError("there was no answer"))

    def congested(self, connection: Connection, *, is_full: bool) -> None:
        pass
