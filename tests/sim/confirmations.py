"""Clients that ask whether their subscriptions are known, and others that publish just then."""

import random

import msgspec

from sterna.core.client import Client
from sterna.core.confirming.echoes import Echoes
from sterna.core.confirming.facts import SubscriptionKnown
from sterna.core.confirming.messages import CONFIRMING
from sterna.core.facts import Fact
from sterna.core.inputs import Confirm, Leave, Publish, Subscribe, Unsubscribe
from sterna.core.names import NodeId
from sterna.model.event import Scalar
from sterna.sim.generate import KINDS
from sterna.sim.oracle import Oracle
from sterna.sim.script import AnyStep, Do, Script, Settle
from tests.sim.judging import Checked

ROOMS = ("r0", "r1", "r2", "r3", "r4")
"""Where clients can be, and events come from."""


def asking(script: Script, seed: int) -> Script:
    """The same script, with clients that ask whether their subscriptions are known.

    Most ask when they subscribe, and now and then somebody asks again. All brokers have found each
    other before: those who never have are not part of one network.
    """
    rng = random.Random(f"asking {seed}")  # noqa: S311 - reproducible.
    steps: list[AnyStep] = [Settle()]
    active: list[tuple[NodeId, str]] = []
    for step in script.steps:
        steps.append(step)
        match step:
            case Do(client=client, what=Subscribe(subscription=name)):
                active.append((client, name))
                if rng.random() < 0.7:
                    steps.append(Do(client=client, what=Confirm(subscription=name)))
            case Do(client=client, what=Unsubscribe(subscription=name)):
                active.remove((client, name))
            case Do(client=client, what=Leave()):
                active = [each for each in active if each[0] != client]
            case _:
                pass
        if active and rng.random() < 0.1:
            client, name = rng.choice(active)
            steps.append(Do(client=client, what=Confirm(subscription=name)))
    protocols = dict.fromkeys((*script.protocols, CONFIRMING))
    return msgspec.structs.replace(script, steps=tuple(steps), protocols=tuple(protocols))


class Unconfirmed(Oracle):
    """Judges as if nobody had asked: a subscription is known when the network has settled."""

    def fact(self, fact: Fact) -> None:
        if not isinstance(fact, SubscriptionKnown):
            super().fact(fact)


class Eager(Checked):
    """Has others publish at the very moment at which a subscription is said to be known."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._rng = random.Random(f"eager {script.seed}")  # noqa: S311 - reproducible.
        self.known = 0
        self.before = Unconfirmed(script.clients, advertisements=script.client.advertisements)
        self.network._fact += [self.before.fact, self._react]

    def settle(self) -> None:
        super().settle()
        for name, host in self.network.hosts.items():
            part = host.node.part(CONFIRMING)
            assert not (isinstance(part, Echoes) and part._questions), f"{name} keeps questions"

    def _react(self, fact: Fact) -> None:
        if isinstance(fact, SubscriptionKnown):
            assert not fact.but_not
            self.known += 1
            # When this turn is over: the client is in the middle of it.
            self.network.kernel.at(self.network.kernel.now, self._publish, fact)

    def _publish(self, fact: SubscriptionKnown) -> None:
        subscriber = self._client_of(fact.at)
        if fact.subscription not in subscriber.subscriptions:
            return
        wanted = subscriber.wants._exact(subscriber.subscriptions[fact.subscription])
        events = [event for event in map(self._event, range(40)) if wanted.matches(event)]
        for event in events[:3]:
            for name in self.script.clients:
                if self._may_publish(self._client_of(name), event):
                    self.network.give(name, Publish(attributes=event))

    def _may_publish(self, client: Client, event: dict[str, Scalar]) -> bool:
        offers = client.advertisements.values()
        return not client.options.advertisements or any(each.matches(event) for each in offers)

    def _event(self, _number: int) -> dict[str, Scalar]:
        kind = self._rng.choice(KINDS[:5])
        return {
            "kind": kind,
            "line": f"{kind}-{self._rng.randrange(5)}",
            "speed": self._rng.randrange(5),
            "zone": self._rng.randrange(5),
            "room": self._rng.choice(ROOMS),
        }

    def _client_of(self, name: NodeId) -> Client:
        node = self.network.hosts[name].node
        assert isinstance(node, Client)
        return node
