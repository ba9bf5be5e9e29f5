"""What release 0.1 has written is read: directories of brokers and clients that it left behind.

The data is in `tests/data/release-0.1`; each case has a manifest of what must be true. It never
changes, and neither does what is asked here.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

import sterna
from sterna import MobilityModel, MovementGraph
from sterna.core.routing.options import Strategy
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.archive import Archive
from sterna.net.client import Client
from sterna.net.client.handles import Subscription
from sterna.net.config import BrokerConfig
from sterna.net.local import LocalNetwork
from sterna.pipeline.declared.run import run
from sterna.pipeline.tables import read
from tests.data.kept import (
    MANIFEST,
    JournalManifest,
    KeptEvent,
    KeptQuestion,
    NetworkManifest,
    TablesManifest,
    by_publisher,
    journals_below,
    kept_event,
    same,
    sample,
    unpack,
    value_of,
)
from tests.mobility import model_of
from tests.net.live import gather_events, settle
from tests.scale import CAMPAIGN

RELEASE = Path(__file__).parents[1] / "data" / "release-0.1"

NETWORKS = sorted(
    str(path.parent.relative_to(RELEASE))
    for path in RELEASE.rglob(MANIFEST)
    if '"brokers"' in path.read_text(encoding="utf-8")
)

WITH_OTHER_SETTINGS = (
    *("broker-log", "broker-snapshot-and-log", "handover-half-done/killed"),
    *("strategies/covering", "strategies/covering-advertisements"),
)

OTHER_SETTINGS: list[dict[str, Any]] = [
    *({"strategy": strategy} for strategy in Strategy),
    {"advertisements": True},
    {"advertisements": False},
    {"queue_events_per_client_max": 5_000, "away_s": 1e6, "frame_bytes_max": 2**21},
]
"""Keys of `[network]` and `[limits]`."""

pytestmark = pytest.mark.spec("LV-9")


@pytest.mark.parametrize("case", NETWORKS)
def test_a_network_goes_on_where_it_was(case: str, tmp_path: Path) -> None:
    """Brokers and clients start with what is there: nothing is lost, and nothing comes twice."""
    manifest = _opened(case, tmp_path, NetworkManifest)
    with _network(manifest, tmp_path) as network:
        if manifest.is_at_rest:
            _check_guests(manifest, network)
        asyncio.run(_go_on(manifest, network, tmp_path))


CHANGES = [
    (case, change)
    for number, case in enumerate(WITH_OTHER_SETTINGS)
    for place, change in enumerate(OTHER_SETTINGS)
    if CAMPAIGN > 1 or place % len(WITH_OTHER_SETTINGS) == number
]
"""Each change on one of the directories; a campaign tries all of them on all."""


@pytest.mark.parametrize(("case", "change"), CHANGES, ids=str)
def test_a_network_goes_on_with_other_settings(
    case: str, change: dict[str, Any], tmp_path: Path
) -> None:
    """The same as above, by settings that the data was not made with."""
    manifest = _opened(case, tmp_path, NetworkManifest)
    with _network(manifest, tmp_path, **change) as network:
        if manifest.is_at_rest:
            _check_guests(manifest, network)
        asyncio.run(_go_on(manifest, network, tmp_path))


@pytest.mark.spec("PL-4")
@pytest.mark.parametrize("case", ["broker-snapshot-and-log", "moving/graph"])
def test_a_network_goes_on_with_a_mobility_model(case: str, tmp_path: Path) -> None:
    """Release 0.1 knew of none. It gives locations where there were none, and a dwell time."""
    manifest = _opened(case, tmp_path, NetworkManifest)
    graph = BrokerConfig.load(tmp_path / "B1" / "broker.toml").places.graph
    ways = [("kitchen", "hall")]
    if graph is not None:
        known = MovementGraph.load(graph)
        ways = [(a, b) for a in known.locations for b in known.neighbours(a)]
    model = tmp_path / "rooms.sterna-model"
    model_of(dict.fromkeys(ways, 1), 0.5).save(model)
    with _network(manifest, tmp_path, model=str(model)) as network:
        if manifest.is_at_rest:
            _check_guests(manifest, network)
        asyncio.run(_go_on(manifest, network, tmp_path))


def test_journals_say_what_happened(tmp_path: Path) -> None:
    """All facts of all journals, in order; what later releases add to them does not matter."""
    manifest = _opened("journal", tmp_path, JournalManifest)

    found = journals_below(tmp_path)

    assert list(found) == list(manifest.journals)
    for journal, facts in manifest.journals.items():
        assert len(found[journal]) == len(facts), journal
        for fact, kept in zip(found[journal], facts, strict=True):
            assert same({name: fact.get(name) for name in kept}, kept), journal


def test_spark_reads_the_journals(spark: SparkSession, tmp_path: Path) -> None:
    """As many facts of each kind as there are."""
    manifest = _opened("journal", tmp_path, JournalManifest)

    rows = spark.read.format("sterna").option("table", "facts").load(str(tmp_path))
    facts = rows.select("journal", "position", "turn", "kind").distinct()

    found = {row["kind"]: row["count"] for row in facts.groupBy("kind").count().collect()}
    assert found == manifest.kinds


def test_tables_hold_what_was_archived(tmp_path: Path) -> None:
    """Every reader of parquet finds the rows, and brokers answer from them."""
    manifest = _opened("tables", tmp_path, TablesManifest)
    tables = tmp_path / "tables"

    for name, count in manifest.rows.items():
        assert sum(pq.read_metadata(file).num_rows for file in _files(tables, name)) == count, name
    for name, kept in manifest.samples.items():
        rows = [row for file in _files(tables, name) for row in pq.read_table(file).to_pylist()]
        assert same(sample(rows, kept[0]), kept), name
    past = Archive(tables).past(Filter("TRUE"))
    assert by_publisher(map(kept_event, past)) == by_publisher(manifest.events)


def test_the_pipeline_goes_on_with_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    """It knows what it has archived, wherever journals and tables are now."""
    manifest = _opened("tables", tmp_path, TablesManifest)
    tables = tmp_path / "tables"

    summary = run(spark, tmp_path / "journals", tables, only=["events"])

    assert summary.tables["events"].new == 0
    assert read(spark, tables, "events").count() == manifest.rows["events"]


def test_models_and_graphs_say_where_clients_go(tmp_path: Path) -> None:
    """A mined model predicts the same, and movement graphs lead to the same places."""
    manifest = _opened("tables", tmp_path, TablesManifest)

    model = MobilityModel.load(tmp_path / "mobility.sterna-model")
    for place, expected in manifest.predictions.items():
        assert model.next(place)[0].place == expected
    for name, kept in manifest.graphs.items():
        graph = MovementGraph.load(tmp_path / name)
        assert {place: sorted(graph.neighbours(place)) for place in graph.locations} == kept


def _opened(case: str, directory: Path, kind: type[Any]) -> Any:
    """The manifest of a case, whose files are in the directory from now on."""
    unpack(RELEASE / case, directory)
    return msgspec.json.decode((RELEASE / case / MANIFEST).read_bytes(), type=kind)


def _files(tables: Path, name: str) -> list[Path]:
    """The files that count, as the reference of the tables says."""
    return [
        file
        for file in sorted((tables / name).rglob("*.parquet"))
        if not any(part.startswith("_") for part in file.relative_to(tables).parts)
    ]


# ---- Networks


def _network(manifest: NetworkManifest, directory: Path, **change: Any) -> LocalNetwork:
    """The brokers with their own settings but for some keys, at other addresses."""
    config = BrokerConfig.load(directory / "B1" / "broker.toml")
    in_network = {key: value for key, value in change.items() if hasattr(config.network, key)}
    in_limits = {key: value for key, value in change.items() if hasattr(config.limits, key)}
    in_mobility = {key: value for key, value in change.items() if hasattr(config.mobility, key)}
    network = LocalNetwork(
        len(manifest.brokers),
        directory=directory,
        config=replace(
            config,
            network=replace(config.network, **in_network),
            limits=replace(config.limits, **in_limits),
            mobility=replace(config.mobility, **in_mobility),
        ),
        links={
            name: broker.connects_to
            for name, broker in manifest.brokers.items()
            if broker.connects_to is not None
        },
    )
    assert network.names == list(manifest.brokers)
    return network


def _check_guests(manifest: NetworkManifest, network: LocalNetwork) -> None:
    """What brokers say of clients that are not back yet."""
    for name, broker in manifest.brokers.items():
        queues = {queue["name"]: queue for queue in network.ask(name, "queues")["queues"]}
        for client, guest in broker.guests.items():
            assert queues[client]["subscriptions"] == guest.subscriptions, (name, client)
            if guest.kept_events is not None:
                assert queues[client]["kept_events"] == guest.kept_events, (name, client)


async def _go_on(manifest: NetworkManifest, network: LocalNetwork, directory: Path) -> None:
    async with AsyncExitStack() as stack:
        clients: dict[str, Client] = {}
        handles: dict[tuple[str, str], Subscription] = {}
        for name, kept in manifest.clients.items():
            client = clients[name] = await stack.enter_async_context(
                sterna.connect(
                    network.url(kept.comes_back_at),
                    client=name,
                    state=directory / "clients" / name,
                    timeout=30,
                )
            )
            assert client.published == kept.published
            for each in kept.subscriptions:
                handles[name, each.name] = client.subscribe(each.where, name=each.name)
        await settle(network, clients.values())
        for name, kept in manifest.clients.items():
            for each in kept.subscriptions:
                owed = [manifest.events[number] for number in each.receives]
                _check(handles[name, each.name].take(), owed, f"{name}: {each.name}")
        for question in manifest.questions:
            await _ask(question, network)
        published = await _publish(manifest, network, clients)
        for name, kept in manifest.clients.items():
            for each in kept.subscriptions:
                owed = [events[number] for events in published for number in each.afterwards]
                _check(handles[name, each.name].take(), owed, f"{name}: {each.name}, afterwards")
            assert clients[name].missed == 0


def _check(found: Sequence[Event], owed: Sequence[KeptEvent], what: str) -> None:
    """The same events, those of each publisher in the same order."""
    assert by_publisher(map(kept_event, found)) == by_publisher(owed), what


async def _ask(question: KeptQuestion, network: LocalNetwork) -> None:
    """A new subscription begins with the past that the broker or its archive has."""
    async with sterna.connect(network.url(question.at)) as client:
        subscription = client.subscribe(question.where, past=question.past)
        found = await gather_events(subscription, len(question.receives))
        await settle(network, [client])
        _check([*found, *subscription.take()], question.receives, question.where)


async def _publish(
    manifest: NetworkManifest, network: LocalNetwork, clients: dict[str, Client]
) -> list[list[KeptEvent]]:
    """Publish the same events at each broker and by clients that go on; what each published."""
    events = [
        {key: value_of(value) for key, value in attributes.items()}
        for attributes in manifest.afterwards
    ]
    async with AsyncExitStack() as stack:
        new = [
            await stack.enter_async_context(sterna.connect(url, client=f"later-{name}"))
            for name, url in network.urls.items()
        ]
        for publisher in new:
            publisher.advertise("TRUE")
        publishers = new + [
            clients[name] for name, kept in manifest.clients.items() if kept.goes_on
        ]
        everybody = [*clients.values(), *new]
        await settle(network, everybody)
        receipts = [
            [publisher.publish(attributes) for attributes in events] for publisher in publishers
        ]
        await settle(network, everybody)
    return [
        [
            KeptEvent(publisher=id_.publisher, seq=id_.seq, attributes=attributes, payload="")
            for id_, attributes in zip(ids, manifest.afterwards, strict=True)
        ]
        for ids in [[receipt.id for receipt in each] for each in receipts]
    ]
