"""An application in a simulation that has several sessions, each a client of its own."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sterna.core.facts import Delivered, Fact
from sterna.core.inputs import Attach, Input, Subscribe, TimePassed, Unsubscribe
from sterna.core.names import NEVER, NodeId, Time
from sterna.core.replication.inputs import EventsArrived, SessionId, SessionJoined, SessionLost
from sterna.core.replication.merging import Merging
from sterna.core.replication.options import MergingOptions
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.kernel import Kernel
from sterna.sim.network import Observer
from sterna.sim.run import MakeComponents, Simulation
from sterna.sim.script import Do, Script


class Displayed(NamedTuple):
    """An event that the application was given."""

    event: EventId
    time: Time
    published: Time


class Application(Observer):
    """Merges what the clients of its sessions deliver."""

    def __init__(
        self, name: NodeId, sessions: Sequence[SessionId], options: MergingOptions | None = None
    ) -> None:
        self.merging = Merging(name, options, sessions)
        self.displayed: list[Displayed] = []
        self.received: list[EventId] = []
        """What the sessions have brought, in the order of its arrival."""
        self.facts: list[Fact] = []
        self._ever: dict[SessionId, None] = dict.fromkeys(sessions)
        self._waking_at: Time = NEVER
        self._kernel = Kernel()

    @property
    def ids(self) -> list[EventId]:
        """The events that the application was given, in order."""
        return [each.event for each in self.displayed]

    def begin(self, kernel: Kernel) -> None:
        """Use the time of a simulation."""
        self._kernel = kernel

    def join(self, session: SessionId) -> None:
        """A session watches from now on what the application wants."""
        self._ever[session] = None
        self._give(SessionJoined(session=session))

    def lose(self, session: SessionId) -> None:
        """A session will bring nothing more."""
        self._give(SessionLost(session=session))

    def fact(self, fact: Fact) -> None:
        if type(fact) is Delivered and fact.at in self._ever:
            self.received += [event.id for event in fact.events]
            names = ((),) * len(fact.events)
            arrived = EventsArrived(session=fact.at, events=fact.events, subscriptions=names)
            self._give(arrived)

    def _give(self, given: Input) -> None:
        now = self._kernel.now
        merged = self.merging.handle(given, now)
        self.facts += merged.facts
        for action in merged.actions:
            self.displayed += [Displayed(e.id, now, e.time_us) for e in action.events]
        if self.merging.deadline < self._waking_at:
            self._waking_at = self.merging.deadline
            self._kernel.at(self._waking_at, self._wake)

    def _wake(self) -> None:
        self._waking_at = NEVER
        self._give(TimePassed())


class ReplicatedSimulation(Simulation):
    """A simulation with an application whose sessions are clients of the script."""

    def __init__(
        self,
        script: Script,
        application: Application,
        observers: Sequence[Observer] = (),
        *,
        components: MakeComponents = lambda _: (),
        judged: bool = True,
    ) -> None:
        self.application = application
        super().__init__(script, [application, *observers], components=components, judged=judged)
        application.begin(self.network.kernel)

    def subscribe(self, name: str, filter_: Filter) -> None:
        """The application subscribes: each session does."""
        for session in self.application.merging.sessions:
            self._do(session, Subscribe(subscription=name, filter=filter_))

    def unsubscribe(self, name: str) -> None:
        """The application ends a subscription."""
        for session in self.application.merging.sessions:
            self._do(session, Unsubscribe(subscription=name))

    def replace(
        self, lost: SessionId, spare: SessionId, broker: NodeId, wanted: Mapping[str, Filter]
    ) -> None:
        """A session is lost; a client that has done nothing so far takes its place at a broker."""
        self.application.lose(lost)
        self._do(spare, Attach(broker=broker))
        for name, filter_ in wanted.items():
            self._do(spare, Subscribe(subscription=name, filter=filter_))
        self.application.join(spare)

    def _do(self, client: NodeId, what: Attach | Subscribe | Unsubscribe) -> None:
        self.do(Do(client=client, what=what))
