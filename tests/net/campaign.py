"""Random faults on a live network: what clients do, what goes wrong, and whether all is right.

One round of mischief after the other: clients publish, subscribe, roam and nap; brokers are killed
and started again; connections break, fall silent or are slow; disks fill. Then all is mended, the
network settles, and the oracle of the simulator judges the facts of the clients.
"""

import asyncio
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from sterna.errors import NotConnectedError, SternaError
from sterna.net.client import search
from sterna.net.client.handles import Receipt, Subscription
from sterna.sim.oracle import Oracle
from tests.net.live import Client, connect, network_in, settle
from tests.net.proxy import Proxy

KINDS = ("car", "bus", "tram")
HEARTBEAT_S = 0.5


class Campaign:
    """A network under attack. The same seed does the same, as far as processes allow."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        brokers: int = 4,
        clients: int = 6,
        level: str = "batch",
        **tables: Any,
    ) -> None:
        """Make a network; more of its configuration as tables."""
        self.seed = seed
        self.seen: Counter[str] = Counter()
        """What was done, by kind."""
        self.oracle = Oracle(f"c{number}" for number in range(clients))
        self._rng = random.Random(f"campaign {seed}")  # noqa: S311 - reproducible, not secret.
        self._count = clients
        self.network = network_in(
            directory,
            brokers,
            durability={"level": level, "snapshot_inputs": 300},
            heartbeat={"every_s": HEARTBEAT_S, "missed_max": 2},
            **tables,
        )
        self._doors: dict[str, Proxy] = {}
        """Where clients come in, for each broker."""
        self._links: dict[str, Proxy] = {}
        """Through which each broker reaches the one above it."""
        self._clients: dict[str, Client] = {}
        self._away: set[str] = set()
        self._subscriptions: dict[str, dict[str, Subscription]] = {}
        self._receipts: list[Receipt] = []
        self._down: set[str] = set()
        self._log: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, rounds: int, *, at_least_s: float = 0.0) -> None:
        """Rounds of mischief, each judged when all is mended; more of them if there is time."""
        end = time.monotonic() + at_least_s
        with patch.object(search, "HEARTBEAT_S", HEARTBEAT_S):
            try:
                await self._start()
                while self.seen["rounds"] < rounds or time.monotonic() < end:
                    steps = self._rng.randrange(20, 150)
                    kill_at = self._rng.randrange(steps)
                    for step in range(steps):
                        await self._something()
                        if step == kill_at:
                            self._kill()
                    await self._mend()
                    self.judge()
            finally:
                await self._stop()

    # ---- Beginning and end

    async def _start(self) -> None:
        for name in self.network.names:
            self._doors[name] = await Proxy(self.network.addresses[name], self._rng).start()
        for name, above in self.network.links.items():
            link = await Proxy(self.network.addresses[above], self._rng).start()
            self._links[name] = link
            config = self.network.configs[name]
            self.network.configs[name] = replace(
                config, network=replace(config.network, neighbours=(link.url,))
            )
        await asyncio.to_thread(self.network.start)
        for number in range(self._count):
            name = f"c{number}"
            client = connect(self._some_door().url, client=name, facts=self.oracle.fact, timeout=30)
            self._clients[name] = await client
            self._subscriptions[name] = {}
            for _ in range(2):
                self._subscribe(name)
        await settle(self.network, self._clients.values(), self.oracle.fact)

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for client in self._clients.values():
            await client.close(timeout=0.5)
        for proxy in self._proxies:
            await proxy.stop()
        await asyncio.to_thread(self.network.stop, patience_s=5)

    async def _mend(self) -> None:
        for proxy in self._proxies:
            proxy.heal()
        while self._down or self._tasks:
            for name in sorted(self._down):
                self._down.discard(name)
                await asyncio.to_thread(self.network.restart, name)
            if self._tasks:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for name, client in self._clients.items():
            if name in self._away:
                await client.attach()
        self._away.clear()
        async with asyncio.timeout(60):
            for receipt in self._receipts:
                await receipt
        self._receipts.clear()
        await settle(self.network, self._clients.values(), self.oracle.fact)

    def judge(self) -> None:
        """Raise if anything is wrong in a network that has settled."""
        findings = self.oracle.findings()
        ended = self.network.died()
        if findings or ended:
            story = "\n".join([*self._log[-60:], *map(str, findings[:10]), *ended.values()])
            raise AssertionError(
                f"round {self.seen['rounds'] + 1} went wrong ({len(findings)} findings); "
                f"to see it again:\n  python -m tests.net.campaign {self.seed}\n{story}"
            )
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions.values():
                subscription.take()
        self.seen["rounds"] += 1

    @property
    def _proxies(self) -> list[Proxy]:
        return [*self._doors.values(), *self._links.values()]

    # ---- Mischief

    async def _something(self) -> None:
        doings: dict[Callable[[], object], int] = {
            self._publish: 40,
            self._change_subscriptions: 8,
            self._roam: 10,
            self._nap: 4,
            self._come_back: 6,
            self._kill: 4,
            self._start_again: 6,
            self._fill_disk: 1,
            self._drop: 6,
            self._silence: 2,
            self._shut: 3,
            self._slow_down: 4,
            self._heal: 4,
        }
        doing = self._rng.choices(list(doings), list(doings.values()))[0]
        result = doing()
        if asyncio.iscoroutine(result):
            await result
        await asyncio.sleep(self._rng.choice((0, 0, 0.001, 0.02)))

    def _publish(self) -> None:
        name = self._some_client()
        for _ in range(self._rng.choice((1, 1, 3, 50))):
            event = {"kind": self._rng.choice(KINDS), "zone": self._rng.randrange(4)}
            payload = bytes(self._rng.choice((0, 10, 2_000)))
            self._receipts.append(self._clients[name].publish(event, payload))
            self.seen["published"] += 1

    def _change_subscriptions(self) -> object:
        name = self._some_client()
        mine = self._subscriptions[name]
        if len(mine) > 3 or (len(mine) > 1 and self._rng.random() < 0.3):
            return mine.pop(self._rng.choice(list(mine))).close()
        self._subscribe(name)
        return None

    def _subscribe(self, name: str) -> None:
        kind, zone = self._rng.choice(KINDS), self._rng.randrange(4)
        text = self._rng.choice((f"kind = '{kind}'", f"zone >= {zone}", f"zone < {zone}"))
        if text not in self._subscriptions[name]:
            client = self._clients[name]
            self._subscriptions[name][text] = client.subscribe(text, name=text)

    def _roam(self) -> None:
        self._attach(self._some_client(), self._some_door().url)

    def _come_back(self) -> None:
        if self._away:
            self._attach(self._rng.choice(sorted(self._away)), None)

    def _attach(self, name: str, url: str | None) -> None:
        if not self._is_busy(name):
            self._away.add(name)
            self._do(f"{name} attaches", self._go(name, url))

    async def _go(self, name: str, url: str | None) -> None:
        try:
            await self._clients[name].attach(url)
        except NotConnectedError as error:
            if error.instead is None:
                raise
        self._away.discard(name)
        self.seen["moves"] += 1

    def _nap(self) -> None:
        name = self._some_client()
        if not self._is_busy(name):
            self._away.add(name)
            self.seen["naps"] += 1
            self._do(f"{name} naps", self._clients[name].detach())

    def _kill(self) -> None:
        name = self._some_broker()
        if name is not None:
            self._say(f"{name} is killed")
            self.network.kill(name)
            self._down.add(name)
            self.seen["kills"] += 1

    def _start_again(self) -> None:
        if self._down:
            name = self._rng.choice(sorted(self._down))
            self._down.discard(name)
            self._do(f"{name} starts again", asyncio.to_thread(self.network.restart, name))

    def _fill_disk(self) -> None:
        """No file of a broker may grow beyond its beginning; what is there can be read."""
        name = self._some_broker()
        if name is not None:
            self._say(f"the disk of {name} is full")
            resource.prlimit(self.network.pid(name), resource.RLIMIT_FSIZE, (4_096, 4_096))
            self._do(f"{name} stops", self._await_failure(name))

    async def _await_failure(self, name: str) -> None:
        """It stops with its next input: somebody connects."""
        while self.network.is_running(name):
            with suppress(SternaError):
                async with connect(self.network.url(name), client=f"visitor-{name}", timeout=1):
                    pass
        ended = self.network.died()
        assert "status 1" in ended[name], ended
        self._down.add(name)
        self.seen["full disks"] += 1

    def _drop(self) -> None:
        self._some_proxy("drops its connections").drop()

    def _silence(self) -> None:
        self._some_proxy("falls silent").silence()

    def _shut(self) -> None:
        proxy = self._some_proxy("is shut")
        proxy.is_shut = True
        proxy.drop()

    def _slow_down(self) -> None:
        self._some_proxy("is slow").delay_s = self._rng.choice((0.002, 0.02))

    def _heal(self) -> None:
        self._some_proxy("is well").heal()

    # ---- Whom

    def _some_client(self) -> str:
        return self._rng.choice(list(self._clients))

    def _some_door(self) -> Proxy:
        return self._rng.choice(list(self._doors.values()))

    def _some_broker(self) -> str | None:
        """One that runs and is not about to."""
        starting = any(task.get_name().startswith("B") for task in self._tasks)
        up = [name for name in self.network.names if name not in self._down]
        return None if starting or len(up) < 2 else self._rng.choice(up)

    def _some_proxy(self, what: str) -> Proxy:
        place, proxy = self._rng.choice(
            [*((f"the door of {n}", p) for n, p in self._doors.items()),
             *((f"the link of {n}", p) for n, p in self._links.items())]
        )  # fmt: skip
        self._say(f"{place} {what}")
        self.seen["troubles"] += 1
        return proxy

    def _is_busy(self, name: str) -> bool:
        return any(task.get_name() == name for task in self._tasks)

    def _do(self, what: str, doing: object) -> None:
        """Have something done while other things happen."""
        self._say(what)
        task = asyncio.ensure_future(doing)  # type: ignore[call-overload]
        task.set_name(what.split(maxsplit=1)[0])
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SternaError):
            raise error
        if error is not None:
            self._say(f"{task.get_name()}: {error}")

    def _say(self, what: str) -> None:
        self._log.append(what)


def main(seed: int, minutes: float) -> None:
    """A campaign from the command line: `python -m tests.net.campaign SEED [MINUTES]`."""
    with tempfile.TemporaryDirectory() as directory:

        async def run() -> Campaign:
            campaign = Campaign(Path(directory), seed)
            await campaign.run(4, at_least_s=60 * minutes)
            return campaign

        sys.stdout.write(f"{dict(asyncio.run(run()).seen)}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
