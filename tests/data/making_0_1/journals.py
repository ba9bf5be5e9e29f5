"""Journals of a run in which as much as possible happens, and one with a fact of every kind."""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from sterna.core.facts import Fact
from sterna.journal import Journal
from sterna.net.broker import BrokerServer
from sterna.net.client import Client, connect
from sterna.net.config import BrokerConfig
from sterna.net.local import LocalNetwork
from tests.data.kept import ARCHIVE, JournalManifest, journals_below, pack, save
from tests.data.making_0_1.content import publications
from tests.data.making_0_1.moving import EDGES
from tests.net.live import gather_events, settle, until
from tests.pipeline.recorded import one_of_each

HAPPENS = {
    *("Published", "Delivered", "Subscribed", "Unsubscribed", "Moved", "VariableSet", "Adapted"),
    *("Advertised", "Unadvertised", "Quenched", "Recalled", "Missed", "Left", "Forgotten"),
    *("Accepted", "Forwarded", "ClientForgotten", "HandoverStarted", "JunctionFound", "Stray"),
    *("HandoverFinished", "Discarded", "Attached", "Detached", "LinkReset", "RingFound"),
}
"""What is in the journals of live brokers and clients; the others are hard to bring about."""

FLUSH_S = 0.05


async def make(directory: Path, case: Path) -> None:
    journals = directory / "journals"
    await run(directory / "network", journals / "run")
    await _ring(directory / "ring", journals / "ring")
    _every_kind(journals / "every-kind")
    found = journals_below(journals)
    live = {fact["kind"] for name, facts in found.items() for fact in facts if "every" not in name}
    assert live >= HAPPENS, HAPPENS - live
    about = (
        "Journals, version 2: in run/ of three brokers and some clients, in ring/ of three brokers "
        "that somebody connected in a ring, in every-kind/ one with two facts of every kind that "
        "release 0.1 knows. B3 in run/ was killed and every-kind/ was never closed, so their last "
        "files are unfinished (.arrows.open)."
    )
    manifest = JournalManifest(
        case="journal",
        about=about,
        must_hold=[
            "Reading each directory gives the facts in `journals`, in that order.",
            (
                "Events are there in full in Published and Accepted; of others the journal has "
                "only the identity, and time 0 and no attributes stand for the rest."
            ),
            "Spark's source finds as many facts of each kind as `kinds` says, in all journals.",
        ],
        kinds=dict(sorted(Counter(f["kind"] for facts in found.values() for f in facts).items())),
        journals=found,
    )
    pack(journals, case / ARCHIVE)
    save(manifest, case)


# ---- A run


async def run(directory: Path, journals: Path) -> None:
    """Let as much as possible happen in a small network, and gather its journals."""
    directory.mkdir()
    places = directory / "places.json"
    places.write_text(json.dumps({"edges": EDGES}), encoding="utf-8")
    config = {
        "log": {"level": "error"},
        "journal": {"flush_s": FLUSH_S},
        "places": {"graph": str(places)},
        "network": {"quenching": True},
        "limits": {"queue_events_per_client_max": 3, "away_s": 3.0},
    }
    stated: Counter[str] = Counter()

    def state(fact: Fact) -> None:
        stated[type(fact).__name__] += 1

    with LocalNetwork(3, directory=directory, config=config) as network:
        async with AsyncExitStack() as stack:

            async def join(name: str, at: str, **more: Any) -> Client:
                return await stack.enter_async_context(
                    connect(
                        network.url(at), client=name, journal=journals / name, facts=state, **more
                    )
                )

            publisher = await join("p", "B1")
            roamer = await join("roamer", "B2", state=directory / "roamer")
            await _subscribe_and_move(network, publisher, roamer)
            await _roam(network, publisher, roamer)
            await _fall_out_of_step(network, publisher, roamer, stated)
            await _be_forgotten(network, await join("sleeper", "B3"))
            await _lose_memory(network, join, directory / "amnesiac")
            await settle(network, [publisher, roamer])
            await asyncio.sleep(10 * FLUSH_S)  # What B3 has stated is in its journal.
            network.kill("B3")
    for name in network.names:
        shutil.copytree(network.data(name) / "journal", journals / name)


async def _subscribe_and_move(network: LocalNetwork, publisher: Client, roamer: Client) -> None:
    offer = publisher.advertise("n >= 0")
    roamer.move("kitchen")
    roamer.set("limit", 5, low=0, high=9)
    all_ = roamer.subscribe("n >= 0", name="all")
    roamer.subscribe("place IN myloc(1)", name="near")
    roamer.subscribe("n < $limit", name="low")
    await settle(network, [publisher, roamer])
    await publisher.publish_all(publications(5))
    await gather_events(all_, 5)
    roamer.subscribe("n >= 1", past=3, name="again")
    roamer.move("hall")
    roamer.set("limit", 7)
    await settle(network, [publisher, roamer])
    await publisher.publish_all([({"place": "salon"}, b"!"), ({"nobody": "cares"}, b"")])
    await offer.close()


async def _roam(network: LocalNetwork, publisher: Client, roamer: Client) -> None:
    """From B2 to B3 with some events kept, and away for so long that some are not."""
    for count in (2, 7):
        await roamer.detach()
        await settle(network, [publisher, roamer])
        await publisher.publish_all(publications(count, first=10))
        await settle(network, [publisher, roamer])
        await roamer.attach(network.url("B3"))
        await settle(network, [publisher, roamer])


async def _fall_out_of_step(
    network: LocalNetwork, publisher: Client, roamer: Client, stated: Counter[str]
) -> None:
    """Unsubscribe while events are on their way, until one comes too late."""
    for number in range(50):
        late = roamer.subscribe("late >= 0", name=f"late {number}")
        await settle(network, [publisher, roamer])
        publisher.publish(late=number)
        await publisher.drain()
        await late.close()
        await settle(network, [publisher, roamer])
        if stated["Stray"]:
            return
    raise AssertionError("no event was late")


async def _be_forgotten(network: LocalNetwork, sleeper: Client) -> None:
    sleeper.subscribe("n >= 0")
    await settle(network, [sleeper])
    await sleeper.detach()
    await until(lambda: not _knows(network, "B3", sleeper.name), limit_s=20)
    await sleeper.attach()


async def _lose_memory(network: LocalNetwork, join: "Callable[..., Any]", state: Path) -> None:
    """A client whose state is gone comes back to the broker that remembers it."""
    first = await join("amnesiac", "B1", state=state)
    first.subscribe("n >= 0")
    await settle(network, [first])
    await first.close()
    shutil.rmtree(state)
    second = await join("amnesiac", "B1", state=state)
    await settle(network, [second])


def _knows(network: LocalNetwork, at: str, client: str) -> bool:
    return any(queue["name"] == client for queue in network.ask(at, "queues")["queues"])


# ---- The others


async def _ring(directory: Path, journals: Path) -> None:
    """Three brokers, each of them a neighbour of both others."""
    servers: list[BrokerServer] = []
    for number in range(1, 4):
        name = f"R{number}"
        config = BrokerConfig.from_mapping(
            {
                "name": name,
                "listen": "127.0.0.1:0",
                "data": str(directory / name),
                "network": {"neighbours": [server.address.url for server in servers]},
                "journal": {"flush_s": FLUSH_S},
            }
        )
        servers.append(BrokerServer(config))
        await servers[-1].start()
    await until(
        lambda: any(
            fact["kind"] == "RingFound"
            for facts in journals_below(directory).values()
            for fact in facts
        )
    )
    for server in reversed(servers):
        await server.stop()
    for server in servers:
        name = server.config.name
        shutil.copytree(directory / name / "journal", journals / name)


def _every_kind(directory: Path) -> None:
    node = "a/ä-1"
    journal = Journal(directory, node)
    for position, fact in enumerate(one_of_each(node), 1):
        journal.record(position, [fact, fact])
        if position % 5 == 0:
            journal.flush()
        if position == 20:
            journal.roll()
    journal.flush()
