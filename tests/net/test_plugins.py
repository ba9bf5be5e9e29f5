"""Protocols of other packages: one file each, and one line of configuration.

The one of the how-to measures round trips; it is read from the page. It runs in the simulator as
the page shows (`tests/test_docs.py`), and here in live brokers.
"""

import asyncio
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from sterna import blocking, plugins
from sterna.core import protocol as protocols
from sterna.core.assembly import client_settings
from sterna.core.facts import Fact
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, Detach, Publish, Subscribe
from sterna.core.protocol import UnknownProtocolError
from sterna.core.settings import Settings
from sterna.journal import OtherFact, facts_in, read_journal
from sterna.model.filters import Filter
from sterna.net.client import connect
from sterna.net.config import BrokerConfig, ConfigError
from sterna.net.local import LocalNetwork, wait_for
from sterna.net.nodes import settings_of
from sterna.sim.network import Observer
from sterna.sim.run import Simulation
from sterna.sim.script import Do, Script, Settle, Wait
from sterna.sim.topology import line
from sterna.wire.frames import SETTINGS, VERSION, Hello, Role, known_settings
from tests.net.live import SETTLE_S, gather_events, settle

pytestmark = pytest.mark.spec("LV-10")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "components.md").read_text(encoding="utf-8")

PATIENT = "tests.net.protocols.patient:PATIENT"
ROUND_TRIPS = "round_trips:ROUND_TRIPS"
QUICK = {"flush_s": 0.05}


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered here is not known to other tests."""
    monkeypatch.setattr(protocols, "_protocols", dict(protocols._protocols))


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on PYTHONPATH with the component of the how-to, all of it in one file."""
    blocks = re.findall(
        r"^```python\n(.*?)^```",
        PAGE.partition("## Run it in the simulator")[0],
        re.MULTILINE | re.DOTALL,
    )
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "round_trips.py").write_text("\n\n".join(blocks), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{ROOT / 'src'}:{ROOT}")
    return folder


def config(**network: Any) -> dict[str, Any]:
    return {"name": "b1", "network": network}


def problem(document: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_mapping(document)
    (only,) = caught.value.problems
    return only


# ---- The how-to's component in live brokers


@pytest.mark.usefixtures("modules")
def test_the_component_of_the_how_to_in_live_brokers(spark: SparkSession, tmp_path: Path) -> None:
    """Its facts are in Spark, and what it keeps survives kill -9 and a stop with a snapshot."""
    network = LocalNetwork(
        2,
        directory=tmp_path,
        config={
            "network": {"protocols": [ROUND_TRIPS]},
            "protocols": {"round-trips": {"every_us": 50_000}},
            "journal": QUICK,
        },
    )
    ends: dict[str, list[int]] = {name: [] for name in network.names}
    with network:
        for again in (False, True):
            for name in network.names:
                _wait_for_more(network, name, 5)
                if again:
                    assert network.end(name) == 0  # Its state is in a snapshot now.
                else:
                    network.kill(name)
                ends[name].append(max(_numbers(network, name)))
                network.restart(name)
                network.wait_until_whole()
        for name in network.names:
            _wait_for_more(network, name, 5)

    facts = spark.read.format("sterna").option("table", "facts").load(str(tmp_path))
    facts.createOrReplaceTempView("facts")
    (query,) = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    measured = {row["at"]: row for row in spark.sql(query).collect()}
    assert {name: row["link"] for name, row in measured.items()} == {"B1": "B2", "B2": "B1"}
    for name in network.names:
        numbers = _numbers(network, name)
        assert measured[name]["pings"] == len(numbers)
        assert 0 < measured[name]["took_us"] < 10_000_000
        assert all(before < after for before, after in pairwise(numbers)), numbers
        assert numbers[-1] >= ends[name][-1] + 5


def _wait_for_more(network: LocalNetwork, name: str, count: int) -> None:
    enough = len(_numbers(network, name)) + count
    wait_for(lambda: len(_numbers(network, name)) >= enough, f"{name} measures nothing")


def _numbers(network: LocalNetwork, name: str) -> list[int]:
    """The numbers of the Pings that were answered, in order.

    The protocol is registered in this process, or not: `facts_in` tells its facts either way.
    """
    found = []
    for batch in read_journal(network.data(name) / "journal", name):
        for fact in facts_in(batch):
            if isinstance(fact, OtherFact) and fact.kind == "Measured":
                found.append(fact.details["number"])
            elif type(fact).__name__ == "Measured":
                found.append(fact.number)  # type: ignore[attr-defined]
    return found


def test_a_protocol_that_is_removed_from_the_configuration(modules: Path, tmp_path: Path) -> None:
    """Brokers still find it, end it, and need it no more after that."""
    table = {"network": {"protocols": [ROUND_TRIPS]}, "journal": QUICK}
    options = {"protocols": {"round-trips": {"every_us": 20_000}}}
    with LocalNetwork(2, directory=tmp_path, config={**table, **options}) as network:
        _wait_for_more(network, "B2", 1)
        for name, plain in network.configs.items():
            network.configs[name] = replace(
                plain, protocols={}, network=replace(plain.network, protocols=())
            )
        _restart_all(network)
        before = [_numbers(network, name) for name in network.names]
        (modules / "round_trips.py").rename(tmp_path / "gone.py")
        _restart_all(network)
        assert [_numbers(network, name) for name in network.names] == before


@pytest.mark.usefixtures("modules")
def test_a_protocol_is_introduced_broker_by_broker(tmp_path: Path) -> None:
    """Who does not have it yet ignores its messages with a warning, also from its log, and every
    event passes.
    """
    network = LocalNetwork(2, directory=tmp_path, config={"journal": QUICK})

    def introduce(name: str) -> None:
        plain = network.configs[name]
        network.configs[name] = replace(
            plain,
            protocols={"round-trips": {"every_us": 200_000}},
            network=replace(plain.network, protocols=(ROUND_TRIPS,)),
        )

    def is_warned() -> bool:
        said = network.messages("B2").read_text(encoding="utf-8")
        return "B1 sends Ping messages, of a protocol that is not known here" in said

    introduce("B1")
    with network:
        wait_for(is_warned, "B2 does not notice the messages of B1")
        network.kill("B2")
        network.restart("B2")
        network.wait_until_whole()
        with (
            blocking.connect(network.url("B1"), client="ann") as ann,
            blocking.connect(network.url("B2"), client="bob") as bob,
        ):
            wanted = bob.subscribe("TRUE")
            wanted.ready(timeout=SETTLE_S)
            ann.publish(n=1).wait(SETTLE_S)
            assert wanted.get(SETTLE_S).attributes == {"n": 1}
        assert _numbers(network, "B1") == []

        assert network.end("B2") == 0
        introduce("B2")
        network.restart("B2")
        _wait_for_more(network, "B1", 2)
        _wait_for_more(network, "B2", 2)


def _restart_all(network: LocalNetwork) -> None:
    for name in network.names:
        assert network.end(name) == 0
    for name in network.names:
        network.restart(name)
    network.wait_until_whole()


# ---- A toy handover protocol


class Stated(Observer):
    """All facts of a simulation."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def fact(self, fact: Fact) -> None:
        self.facts.append(fact)

    def kinds(self, name: str) -> list[Any]:
        return [fact for fact in self.facts if type(fact).__name__ == name]


def test_a_toy_handover_in_the_simulator() -> None:
    """One file, and its name: a client that is back in time has lost nothing."""
    plugins.find(PATIENT)
    subscribe = Subscribe(subscription="s", filter=Filter("TRUE"))
    steps = (
        Do(client="C", what=subscribe),
        Settle(),
        Do(client="C", what=Detach()),
        Wait(us=100_000),
        Do(client="P", what=Publish(attributes={"n": 1})),
        Wait(us=300_000),
        Do(client="C", what=Attach(broker="B1")),
        Settle(),
        Do(client="C", what=Detach()),
        Wait(us=1_000_000),
        Do(client="P", what=Publish(attributes={"n": 2})),
        Wait(us=300_000),
        Do(client="C", what=Attach(broker="B1")),
        Settle(),
        Do(client="P", what=Publish(attributes={"n": 3})),
    )
    script = Script(
        topology=line(2),
        clients={"C": "B1", "P": "B2"},
        steps=steps,
        handover=HandoverOptions(protocol="patient"),
        options={"patient": {"patience_us": 500_000}},
    )
    stated = Stated()
    Simulation(script, [stated], judged=False).run()

    got = [event.attributes["n"] for fact in stated.kinds("Delivered") for event in fact.events]
    assert got == [1, 3]
    assert [(fact.client, fact.patience_us) for fact in stated.kinds("Abandoned")] == [
        ("C", 500_000)
    ]


def test_a_toy_handover_in_live_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of configuration; clients need not know the protocol."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    network = LocalNetwork(
        2,
        directory=tmp_path,
        config={
            "network": {"handover": PATIENT},
            "protocols": {"patient": {"patience_us": 500_000}},
            "journal": QUICK,
        },
    )
    del protocols._protocols["patient"]

    def was_abandoned() -> bool:
        batches = read_journal(network.data("B1") / "journal")
        return any(
            isinstance(fact, OtherFact) and fact.kind == "Abandoned"
            for batch in batches
            for fact in facts_in(batch)
        )

    async def play() -> list[Any]:
        async with (
            connect(network.url("B1"), client="C") as car,
            connect(network.url("B2"), client="P") as publisher,
        ):
            subscription = car.subscribe("TRUE")
            await settle(network, [car, publisher])
            await car.detach()
            publisher.publish({"n": 1})
            await car.attach(network.url("B1"))
            (first,) = await gather_events(subscription, 1)
            await car.detach()
            await asyncio.to_thread(wait_for, was_abandoned, "C was not abandoned")
            publisher.publish({"n": 2})
            await settle(network, [publisher])
            await car.attach(network.url("B1"))
            await settle(network, [car, publisher])
            publisher.publish({"n": 3})
            (last,) = await gather_events(subscription, 1)
            return [first.attributes["n"], last.attributes["n"]]

    with network:
        assert network.ask("B1", "status")["handover"] == "patient"
        assert asyncio.run(play()) == [1, 3]


# ---- How protocols are found


def test_an_installed_package_announces_its_protocol(modules: Path) -> None:
    """Its name is enough."""
    package = modules / "round_trips-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: round_trips\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[sterna.protocols]\nround-trips = {ROUND_TRIPS}\n")

    settings = settings_of(BrokerConfig.from_mapping(config(protocols=["round-trips"])))

    assert settings.protocols[-1] == "round-trips"
    assert not settings.modules
    plugins.require(settings)


@pytest.mark.usefixtures("modules")
def test_a_module_is_remembered_by_brokers_and_not_told_to_others() -> None:
    """A broker finds it again after a restart. What a broker sends makes nobody import anything."""
    settings = settings_of(BrokerConfig.from_mapping(config(protocols=[ROUND_TRIPS])))

    assert settings.protocols[-1] == "round-trips"
    assert settings.modules == {"round-trips": ROUND_TRIPS}
    del protocols._protocols["round-trips"]
    plugins.require(settings)
    assert client_settings(settings).modules == {}
    hello = Hello(versions=(VERSION, VERSION), role=Role.BROKER, node="b1", features=(SETTINGS,))
    assert known_settings(replace(hello, settings=settings)).modules == {}
    del protocols._protocols["round-trips"]
    with pytest.raises(UnknownProtocolError, match="install the package"):
        plugins.require(replace(settings, modules={}))
    with pytest.raises(UnknownProtocolError):
        plugins.require(Settings(protocols=(ROUND_TRIPS,)))


def test_clients_are_told_of_handovers_in_which_they_have_a_part() -> None:
    plugins.find(PATIENT)
    for protocol, told in [
        ("patient", Handover.NONE),
        (Handover.NAIVE, Handover.NAIVE),
        (Handover.RELOCATION, Handover.RELOCATION),
    ]:
        settings = Settings(handover=HandoverOptions(protocol=protocol))
        assert client_settings(settings).handover.protocol == told


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            config(handover="teleport"),
            "network.handover: is 'teleport'; choose one of none, naive, relocation, standard,",
        ),
        (
            config(handover="overlay"),
            "network.handover: is 'overlay', which is for another purpose",
        ),
        (config(handover=ROUND_TRIPS), "which is for another purpose; choose one of none, naive"),
        (
            config(protocols=["round-trip"]),
            "network.protocols: is 'round-trip'; choose one of ",
        ),
        (
            config(protocols=["round-trip"]),
            "a protocol of an installed package, module:ATTRIBUTE",
        ),
        (config(protocols=["relocation"]), "is 'relocation', which is for another purpose"),
        (config(protocols=["past"]), "is 'past', in which every broker takes part: leave it out"),
        (config(protocols=[ROUND_TRIPS, ROUND_TRIPS]), "names a protocol twice"),
        (
            config(protocols=["nowhere:X"]),
            "names a protocol that cannot be found: 'nowhere:X' cannot",
        ),
        (config(protocols=[":X"]), "write module:ATTRIBUTE"),
        (config(protocols=["round_trips:NONE"]), "the module round_trips has no 'NONE'"),
        (config(protocols=["round_trips:Ping"]), "'round_trips:Ping' is a StructMeta, not a Proto"),
        (
            {**config(protocols=[ROUND_TRIPS]), "protocols": {"round-trip": {}}},
            "protocols.round-trip: is not used here; there are round-trips, relocation",
        ),
        (
            {
                **config(protocols=[ROUND_TRIPS]),
                "protocols": {"round-trips": {"every_us": "often"}},
            },
            "protocols.round-trips: Expected `int`, got `str` - at `$.every_us`",
        ),
    ],
)
def test_a_wrong_name_is_said_clearly(document: dict[str, Any], said: str) -> None:
    assert said in problem(document)


def test_a_component_without_a_handler_is_said_clearly(modules: Path) -> None:
    text = (modules / "round_trips.py").read_text(encoding="utf-8")
    (modules / "deaf.py").write_text(text.replace("def on_pong", "def pong"), encoding="utf-8")

    assert problem(config(protocols=["deaf:ROUND_TRIPS"])).endswith("but has no method on_pong)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def", "its module fails with SyntaxError (invalid syntax (broken.py, line 1))"),
        ("1 / 0", "its module fails with ZeroDivisionError (division by zero)"),
        ("import os\nos.no_such_thing", "fails with AttributeError (module 'os' has no attribute"),
        ("raise SystemExit('not like this')", "its module fails with SystemExit (not like this)"),
        ("import no_such_module", "cannot be imported (No module named 'no_such_module')"),
    ],
)
def test_a_module_that_fails_is_said_clearly(modules: Path, text: str, said: str) -> None:
    """Also if a package announces the protocol."""
    (modules / "broken.py").write_text(text, encoding="utf-8")
    package = modules / "broken-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[sterna.protocols]\nbroken = broken:P\n")

    for name in ("broken:P", "broken"):
        only = problem(config(protocols=[name]))
        assert only.startswith("configuration: network.protocols: names a protocol")
        assert said in only


@pytest.mark.usefixtures("modules")
def test_a_printed_configuration_has_protocols_and_their_options(tmp_path: Path) -> None:
    given = BrokerConfig.from_mapping(
        {
            **config(protocols=[ROUND_TRIPS], handover=PATIENT),
            "protocols": {"round-trips": {"every_us": 5}, "patient": {"patience_us": 7}},
        }
    )
    file = tmp_path / "b1.toml"
    file.write_text(given.to_toml(), encoding="utf-8")

    again = BrokerConfig.load(file)
    assert (again.network, again.protocols) == (given.network, given.protocols)
    table = {"STERNA_PROTOCOLS": "{ round-trips = { every_us = 9 } }"}
    assert BrokerConfig.load(file, table).protocols == {"round-trips": {"every_us": 9}}
