"""Random devices, moves, cuts and kills, against what the specification promises.

QoS 1: at least once. QoS 2: exactly once. The messages of each publisher come in their order. A
session that has begun is never lost, whatever happens to connections, links and brokers.
"""

import random

import pytest

from sterna.core.facts import Settled
from sterna.devices.frames import Delivery
from sterna.mqtt.packets import (
    Auth,
    Connack,
    Disconnect,
    Packet,
    Pubcomp,
    Pubrel,
    Suback,
    Unsuback,
    Version,
    Will,
)
from sterna.sim.oracle import Oracle
from tests.devices.world import Phone, World
from tests.scale import CAMPAIGN

SEEDS = 150 * CAMPAIGN


class Campaign:
    """One random run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - reproducible, not secret.
        mqtt = {"inflight_max": self.random.choice((1, 2, 5, 1000)), "journal": True}
        self.world = World(self.random.randint(1, 4), mqtt=mqtt)
        self.phones = [
            Phone(self.world, f"p{n}", version=self.random.choice(list(Version)))
            for n in range(self.random.randint(2, 4))
        ]
        self.published: dict[Phone, list[tuple[str, int]]] = {phone: [] for phone in self.phones}
        self.qos: dict[Phone, int] = {}
        for phone in self.phones:
            phone.connect(self.random.choice(self.world.names))
            self.qos[phone] = self.random.randint(1, 2)
            phone.subscribe("t/#", qos=self.qos[phone])
        self.world.run()
        self.world.facts.append(Settled(at="", time=self.world.now))

    def run(self) -> None:
        """Do random things, repair everything, and judge."""
        for _ in range(self.random.randint(5, 60)):
            self._do_something()
            for _ in range(self.random.choice((0, 0, 1, 2, 5, 100))):
                self.world.step()
        self._repair()
        self._judge()

    def _do_something(self) -> None:
        world, pick = self.world, self.random.choice
        phone = pick(self.phones)
        match self.random.randrange(16):
            case 0 | 1 | 2 | 3:
                for _ in range(self.random.choice((1, 1, 3, 12))):
                    self._publish(phone)
            case 4 | 5 | 6:
                if self.random.random() < 0.3:
                    phone.vanish()
                phone.connect(pick(world.names))
            case 7:
                if phone.broker:
                    phone.lose()
            case 8 | 14:
                phone.answers = not phone.answers
            case 9:
                place = self.random.randrange(len(world.names))
                if place and world.is_linked(*world.names[place - 1 : place + 1]):
                    world.cut(*world.names[place - 1 : place + 1])
            case 10:
                self._join()
            case 11:
                name = pick(world.names)
                if name in world.down:
                    world.restart(name)
                else:
                    world.kill(name)
            case 12 | 15:
                name = pick(world.names)
                if name not in world.down:
                    world.snapshot(name)
            case _:
                world.wait(self.random.choice((0.01, 0.3, 1)))

    def _publish(self, phone: Phone) -> None:
        sent = self.published[phone]
        name = f"{phone.name} {len(sent)}"
        qos = self.random.randint(1, 2)
        sent.append((name, qos))
        phone.publish(f"t/{len(sent) % 2}", name, qos)

    def _join(self) -> None:
        world = self.world
        for a, b in zip(world.names, world.names[1:], strict=False):
            if not world.is_linked(a, b) and not {a, b} & world.down:
                world.join(a, b)

    def _repair(self) -> None:
        world = self.world
        for name in list(world.down):
            world.restart(name)
        self._join()
        world.wait(1)
        for phone in self.phones:
            phone.answers = True
        for turn in range(3):
            for phone in self.phones:
                if not (phone.broker and turn) or self.random.random() < 0.3:
                    phone.connect(self.random.choice(world.names))
            world.wait(6)

    def _judge(self) -> None:
        for phone in self.phones:
            assert phone.broker, f"{phone.name} is not connected"
            assert phone.is_present, f"{phone.name} has lost its session"
            assert phone.is_done, f"{phone.name} has sent what was never acknowledged"
            for publisher, sent in self.published.items():
                self._judge_one(phone, publisher, sent)
        self._judge_facts()
        holders = [name for b in self.world.names for name in self.world.devices_at(b).devices]
        assert sorted(holders) == sorted(phone.name for phone in self.phones)

    def _judge_facts(self) -> None:
        """What was stated of devices is what the oracle of simulations expects of any client."""
        oracle = Oracle()
        for fact in (*self.world.facts, Settled(at="", time=self.world.now)):
            oracle.fact(fact)
        assert oracle.findings() == []
        count = sum(map(len, self.published.values()))
        assert oracle.published >= count  # With QoS 1, a device may publish again.
        assert oracle.owed() == oracle.delivered == oracle.published * len(self.phones)

    def _judge_one(self, phone: Phone, publisher: Phone, sent: list[tuple[str, int]]) -> None:
        got = [name for name in phone.received if name.startswith(f"{publisher.name} ")]
        wanted = [name for name, _ in sent]
        assert list(dict.fromkeys(got)) == wanted, f"{phone.name}: {got}, not {wanted}"
        for name, qos in sent:
            if min(qos, self.qos[phone]) == 2:
                assert got.count(name) == 1, name


@pytest.mark.spec("LV-4")
@pytest.mark.parametrize("block", range(10))
def test_nothing_is_lost_and_nothing_comes_twice(block: int) -> None:
    for number in range(SEEDS // 10):
        seed = block * SEEDS + number
        try:
            Campaign(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


class Chaos(Campaign):
    """Devices that come with and without sessions, at several places at once, with wills."""

    def run(self) -> None:
        """Do random things, repair everything, and see that all of it works."""
        for _ in range(self.random.randint(5, 60)):
            if self.random.random() < 0.5:
                self._connect_somehow(self.random.choice(self.phones))
            else:
                self._do_something()
            for _ in range(self.random.choice((0, 0, 1, 2, 5, 100))):
                self.world.step()
        self._repair()
        self._try_out()

    def _connect_somehow(self, phone: Phone) -> None:
        pick = self.random.choice
        self.world.now += 200_000  # Lives of a client that begin apart have numbers of their own.
        if self.random.random() < 0.3:
            other = Phone(self.world, phone.name.removeprefix("mqtt:"), version=phone.version)
            self.phones[self.phones.index(phone)] = other
            self.published[other], self.qos[other] = [], 2
            phone = other
        will = Will("w", b"gone", pick((0, 1, 2)), retain=pick((False, True)), delay_s=pick((0, 1)))
        phone.connect(
            pick(self.world.names),
            clean=pick((False, True)),
            expiry_s=pick((0, 1, 5, 0xFFFFFFFF)),
            will=pick((None, will)),
        )
        phone.subscribe(pick(("t/#", "w", "r/+")), qos=pick((0, 1, 2)))
        phone.unsubscribe(pick(("t/#", "w", "r/+")))
        phone.publish(f"r/{pick('ab')}", pick(("", "1", "2", "3")), pick((0, 1, 2)), retain=True)

    def _try_out(self) -> None:
        """Each device gets what it subscribes to, once, and all brokers retain the same."""
        world = self.world
        for phone in self.phones:
            phone.connect(self.random.choice(world.names), clean=True).subscribe("last/#")
        world.wait(6)
        for number, phone in enumerate(self.phones):
            assert phone.broker, f"{phone.name} is not connected"
            phone.publish(f"last/{number}", f"last {number}")
        world.wait(6)
        wanted = [f"last {number}" for number in range(len(self.phones))]
        for phone in self.phones:
            got = sorted(each for each in phone.received if each.startswith("last"))
            assert got == wanted, f"{phone.name}: {got}"
        retained = []
        for name in world.names:
            reader = Phone(world, f"reader of {name}").connect(name, clean=True)
            reader.subscribe("r/#", "w")
            world.run()
            found = {each.publish.topic: each.publish.payload for each in reader.messages}
            retained.append(found)
        assert all(found == retained[0] for found in retained), retained


@pytest.mark.spec("LV-4")
@pytest.mark.parametrize("block", range(10))
def test_whatever_devices_do_brokers_go_on(block: int) -> None:
    for number in range(SEEDS // 10):
        seed = block * SEEDS + number
        try:
            Chaos(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.spec("LV-4")
def test_what_brokers_never_send() -> None:
    """User properties only with PUBLISH; no AUTH, no response information."""
    seen: set[type[Packet | Delivery]] = set()
    for seed in range(20):
        chaos = Chaos(seed)
        chaos.run()
        for phone in chaos.phones:
            for packet in phone.packets:
                seen.add(type(packet))
                if isinstance(packet, Delivery):
                    continue
                assert not isinstance(packet, Auth)
                assert not getattr(packet, "user_properties", ())
                if isinstance(packet, Pubrel | Pubcomp | Unsuback):
                    assert packet.reason_string is None
                if isinstance(packet, Connack):
                    assert packet.authentication_method is None
                    assert packet.response_information is None
    assert {Connack, Pubrel, Pubcomp, Unsuback, Suback, Disconnect} <= seen
