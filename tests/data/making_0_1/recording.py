"""A network at work, and the record of what its clients are owed when it is opened again."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from sterna.net.handles import Subscription

from sterna.model.event import Scalar
from sterna.model.filters import Filter
from sterna.net.client import Client, connect
from sterna.net.local import LocalNetwork
from tests.data.kept import (
    ARCHIVE,
    KeptBroker,
    KeptClient,
    KeptEvent,
    KeptGuest,
    KeptQuestion,
    KeptSubscription,
    NetworkManifest,
    pack,
    plain,
    save,
)
from tests.net.live import gather_events, settle

Publication = tuple[Mapping[str, Scalar], bytes]
"""Attributes and payload."""

AWAY_S = 1e9
"""Clients that stay away longer are forgotten. These are away until somebody runs the tests."""

STOPPED = "stopped in good order"
KILLED = "killed with SIGKILL"


@dataclass
class Member:
    """A client of the network, in this process or in one of its own."""

    kept: KeptClient
    client: Client | None = None
    process: "subprocess.Popen[str] | None" = None
    handles: dict[str, Subscription] = field(default_factory=dict)
    is_owed: bool = True
    """Whether what is published now is for it, too."""

    def tell(self, **told: object) -> Any:
        """Have the process do something; its answer."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        assert self.process is not None
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


class Recording:
    """Runs one case. `end` ends all brokers, and `keep` writes the case."""

    def __init__(
        self,
        directory: Path,
        case: str,
        about: str,
        *,
        brokers: int = 3,
        links: Mapping[str, str] | None = None,
        **tables: Any,
    ) -> None:
        limits = {"away_s": AWAY_S, **tables.pop("limits", {})}
        config = {"log": {"level": "warning"}, "limits": limits, **tables}
        self.directory = directory
        self.network = LocalNetwork(brokers, directory=directory, config=config, links=links)
        self.manifest = NetworkManifest(case=case, about=about, must_hold=[])
        self.members: dict[str, Member] = {}
        self.down: set[str] = set()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.network.start)
        return self

    async def __aexit__(self, *error: object) -> None:
        for member in self.members.values():
            if member.process is not None:
                member.process.kill()
                member.process.wait()
            if member.client is not None:
                await member.client.close(wait_s=0)
        await asyncio.to_thread(self.network.stop, patience_s=1.0)

    # ---- Clients

    async def join(self, name: str, at: str, *, connect_s: float = 10.0) -> Client:
        """A client with a state, in this process."""
        client = await connect(
            self.network.url(at), client=name, state=self.state(name), connect_s=connect_s
        )
        self._admit(name, at, client.published).client = client
        return client

    async def join_as_process(self, name: str, at: str) -> Member:
        """A client with a state, in a process that can be killed."""
        arguments = [self.network.url(at), name, str(self.state(name))]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.data.making_0_1.killed_client", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        member = self._admit(name, at, 0)
        member.process = process
        answer = await asyncio.to_thread(member.answer)
        member.kept.published = answer["published"]
        return member

    def _admit(self, name: str, at: str, published: int) -> Member:
        kept = KeptClient(was_at=at, comes_back_at=at, published=published, how=STOPPED)
        self.manifest.clients[name] = kept
        member = self.members[name] = Member(kept)
        return member

    def state(self, name: str) -> Path:
        return self.directory / "clients" / name

    async def subscribe(
        self, name: str, where: str, *, means: str | None = None, called: str | None = None
    ) -> None:
        """Subscribe; from now on, and once all brokers know, matching events are owed."""
        member, called = self.members[name], called or where
        if member.client is not None:
            member.handles[called] = member.client.subscribe(where, name=called)
        else:
            await asyncio.to_thread(member.tell, do="subscribe", name=called, where=where)
        member.kept.subscriptions.append(KeptSubscription(name=called, where=where, means=means))

    async def take(self, name: str, called: str, count: int, *, in_hand: bool = False) -> None:
        """The application takes events; the last one is not owed any more unless `in_hand`."""
        member = self.members[name]
        (subscription,) = (each for each in member.kept.subscriptions if each.name == called)
        if member.client is not None:
            taken = [list(e.id) for e in await gather_events(member.handles[called], count)]
        else:
            taken = await asyncio.to_thread(member.tell, do="take", name=called, count=count)
        events = [self.manifest.events[number] for number in subscription.receives[:count]]
        assert sorted(taken) == sorted([e.publisher, e.seq] for e in events)
        del subscription.receives[: count - in_hand]

    async def wait(self, name: str, called: str, count: int) -> None:
        """Wait until so many events wait in a client process."""
        member = self.members[name]
        await asyncio.to_thread(member.tell, do="wait", name=called, count=count)

    def goes_on(self, name: str, *, advertises: str | None = None) -> None:
        """A client is to publish also when all is open again."""
        member = self.members[name]
        member.kept.goes_on = True
        if advertises is not None:
            assert member.client is not None
            member.client.advertise(advertises)

    async def detach(self, name: str) -> None:
        """A client disconnects, and its process goes on."""
        member = self.members[name]
        if member.client is not None:
            await member.client.detach()
        else:
            await asyncio.to_thread(member.tell, do="detach")

    async def leave(self, name: str) -> None:
        """A client ends in good order, and comes back only when all is opened again."""
        member = self.members[name]
        assert member.client is not None
        await member.client.close()
        member.client = None

    def kill(self, name: str) -> None:
        """A client process is killed."""
        member = self.members[name]
        assert member.process is not None
        member.process.kill()
        member.process.wait()
        member.process, member.kept.how = None, KILLED

    # ---- Events

    async def publish(
        self, name: str, publications: Iterable[Publication], *, waits: bool = True
    ) -> None:
        """Publish, wait for the broker if there is one, and note who is owed what."""
        member, publications = self.members[name], list(publications)
        if member.client is not None:
            receipts = [member.client.publish(*each) for each in publications]
            if waits and member.client.is_connected:
                await member.client.drain()
            ids: list[Any] = [receipt.id for receipt in receipts]
        else:
            told = [(plain(attributes), payload.hex()) for attributes, payload in publications]
            ids = await asyncio.to_thread(member.tell, do="publish", events=told)
        member.kept.published = ids[-1][1]
        for (publisher, seq), (attributes, payload) in zip(ids, publications, strict=True):
            event = KeptEvent(
                publisher=publisher, seq=seq, attributes=plain(attributes), payload=payload.hex()
            )
            self.manifest.events.append(event)
            self._owe(len(self.manifest.events) - 1, attributes)

    def _owe(self, number: int, attributes: Mapping[str, Scalar]) -> None:
        for member in self.members.values():
            for subscription in member.kept.subscriptions:
                if member.is_owed and _meaning(subscription).matches(attributes):
                    subscription.receives.append(number)

    async def settle(self) -> None:
        """Wait until nothing is on its way."""
        clients = [each.client for each in self.members.values() if each.client is not None]
        await settle(self.network, clients, down=self.down)

    # ---- The end

    def guests(self, *, is_changing: bool = False) -> None:
        """Write down what brokers say of their clients."""
        for name in self.network.names:
            if name in self.down:
                continue
            queues = self.network.ask(name, "queues")["queues"]
            self.manifest.brokers[name] = KeptBroker(
                connects_to=self.network.links.get(name),
                how="",
                guests={
                    queue["name"]: KeptGuest(
                        subscriptions=queue["subscriptions"],
                        kept_events=None if is_changing else queue["kept_events"],
                    )
                    for queue in queues
                    if queue["role"] == "client"
                },
            )

    async def end(self, *, killed: bool) -> None:
        """End all brokers, those that connect to others first; then the clients."""
        if not self.manifest.brokers:
            await asyncio.to_thread(self.guests)
        for name in reversed(self.network.names):
            if name in self.down:
                continue
            if killed:
                self.kill_broker(name)
            else:
                assert await asyncio.to_thread(self.network.end, name) == 0
                self.manifest.brokers[name].how = STOPPED
        for member in self.members.values():
            if member.client is not None:
                await member.client.close(wait_s=0)
                member.client = None

    def kill_broker(self, name: str) -> None:
        """Kill a broker; what it says of its clients is written down already."""
        self.network.kill(name)
        self.down.add(name)
        self.manifest.brokers[name].how = KILLED

    def afterwards(self, events: Sequence[Mapping[str, Scalar]]) -> None:
        """What is to be published when all is open again."""
        self.manifest.afterwards = [plain(attributes) for attributes in events]
        for member in self.members.values():
            for subscription in member.kept.subscriptions:
                matches = _meaning(subscription).matches
                subscription.afterwards = [
                    number for number, attributes in enumerate(events) if matches(attributes)
                ]

    def ask(self, at: str, where: str, past: int, expected: Sequence[KeptEvent]) -> None:
        """What a new subscription must begin with."""
        question = KeptQuestion(at=at, where=where, past=past, receives=list(expected))
        self.manifest.questions.append(question)

    def keep(self, case: Path, *must_hold: str) -> None:
        """Write the case."""
        self.manifest.must_hold = [*must_hold, *ALWAYS]
        self.manifest.brokers = dict(sorted(self.manifest.brokers.items()))
        for name in self.network.names:
            self._make_portable(name)
        pack(self.directory, case / ARCHIVE)
        save(self.manifest, case)

    def _make_portable(self, name: str) -> None:
        """The configuration names files relative to itself; messages to people are not kept."""
        self.network.messages(name).unlink(missing_ok=True)
        file = self.directory / name / "broker.toml"
        text = file.read_text(encoding="utf-8")
        text = text.replace(f'"{self.directory}/{name}/data"', '"data"')
        file.write_text(text.replace(f'"{self.directory}/', '"../'), encoding="utf-8")
        assert str(self.directory) not in file.read_text(encoding="utf-8")


def _meaning(subscription: KeptSubscription) -> Filter:
    return Filter(subscription.means or subscription.where)


ALWAYS = (
    "All brokers start with their broker.toml, whatever the ports, and know each other.",
    (
        "Each broker has of each client as many subscriptions and kept events as `guests` says; "
        "unless `is_at_rest` is false, then handovers change that as soon as the brokers meet."
    ),
    "Each client starts with its state at `comes_back_at` and finds its subscriptions by name.",
    "Each client has published up to the number in `published`, and numbers on from there.",
    (
        "Each subscription gets the events in `receives` and no others, those of each publisher in "
        "order, with the same identity, attributes and payload."
    ),
    "Then each subscription gets those in `afterwards`, from each broker, in order.",
    "No client has missed anything.",
)
