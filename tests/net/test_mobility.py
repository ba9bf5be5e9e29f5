"""`[mobility] model`: a broker predicts by the model that it was configured with at the time."""

import shutil
from base64 import b64encode
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sterna import MobilityModel
from sterna.core import protocol as protocols
from sterna.core.broker import Broker
from sterna.core.location.moving import Moving
from sterna.core.location.options import PlacesOptions
from sterna.core.settings import Settings
from sterna.net.broker import BrokerServer
from sterna.net.config import BrokerConfig, ConfigError
from sterna.net.engine import Listener, loading, recover_old, replay
from sterna.net.nodes import OLDER_KINDS, STATE_KIND, broker_of, settings_of
from sterna.net.storage import Log
from sterna.wire.codec import to_json
from tests.mobility import model_of
from tests.net.live import connect, gather_events, until
from tests.net.protocols.foreseeing import FORESEEING, Foreseeing
from tests.net.test_reload import Reloading
from tests.net.test_server import config_in, run

pytestmark = pytest.mark.spec("PL-4", "LV-9")

TO_THE_STUDY = {
    ("kitchen", "hall"): 3,
    ("hall", "kitchen"): 1,
    ("hall", "study"): 5,
    ("study", "hall"): 4,
}
TO_THE_KITCHEN = {**TO_THE_STUDY, ("hall", "kitchen"): 9}
TOY = "tests.net.protocols.foreseeing:FORESEEING"
STUDY_FIRST, KITCHEN_FIRST = ["study", "kitchen"], ["kitchen", "study"]


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy protocol is known here, and not to other tests."""
    known = {**protocols._protocols, FORESEEING.name: FORESEEING}
    monkeypatch.setattr(protocols, "_protocols", known)


def save(
    path: Path, moves: Mapping[tuple[str, str], int], least_s: float | None = None
) -> MobilityModel:
    """Write a model to a file."""
    model = model_of(moves, least_s)
    model.save(path)
    return model


def settings(directory: Path, **tables: Any) -> Settings:
    """What a configuration means to a broker's node, with `rooms.sterna-model` as its model."""
    tables = {"name": "B1", "mobility": {"model": "rooms.sterna-model"}, **tables}
    return settings_of(BrokerConfig.from_mapping(tables, directory=directory))


def places(directory: Path, **given: Any) -> PlacesOptions:
    found = settings(directory, places=given).places
    assert found is not None
    return found


# ---- What a model means


def test_a_model_is_a_setting_and_gives_the_locations(tmp_path: Path) -> None:
    """Its file as it is, its movement graph and its shortest stay."""
    model = save(tmp_path / "rooms.sterna-model", TO_THE_STUDY, 0.75)

    found = settings(tmp_path)

    assert found.mobility is not None
    assert found.mobility.model == model.to_bytes()
    assert found.mobility.mined().document == model.document
    assert found.places is not None
    assert sorted(found.places.edges) == sorted(TO_THE_STUDY)
    assert found.places.directed
    assert found.places.dwell_us == 750_000
    assert str(len(model.to_bytes())) in repr(found.mobility)
    assert len(repr(found.mobility)) < 100


def test_places_that_are_told_count_before_those_of_a_model(tmp_path: Path) -> None:
    save(tmp_path / "rooms.sterna-model", TO_THE_STUDY, 0.75)
    (tmp_path / "rooms.csv").write_text("hall,study\n", encoding="utf-8")

    assert places(tmp_path, graph="rooms.csv").edges == (("hall", "study"), ("study", "hall"))
    assert places(tmp_path, grid=9).h3_resolution == 9
    assert places(tmp_path, grid=9).edges == ()


@pytest.mark.spec("LM-3")
def test_the_dwell_time_of_a_model_is_for_the_places_that_it_knows(tmp_path: Path) -> None:
    """A dwell time is a promise: nobody has seen how long clients stay elsewhere."""
    save(tmp_path / "rooms.sterna-model", TO_THE_STUDY, 0.75)
    save(tmp_path / "attic.sterna-model", {("attic", "hall"): 1}, 0.25)
    (tmp_path / "some.csv").write_text("hall,study\n", encoding="utf-8")
    (tmp_path / "more.csv").write_text("hall,study\nhall,attic\n", encoding="utf-8")

    assert places(tmp_path, graph="some.csv").dwell_us == 750_000
    assert places(tmp_path, graph="some.csv", dwell_s=4.0).dwell_us == 4_000_000
    assert places(tmp_path, graph="more.csv").dwell_us is None
    assert places(tmp_path, grid=9).dwell_us is None
    assert places(tmp_path, graph="attic.sterna-model").dwell_us == 250_000, "its own"
    save(tmp_path / "rooms.sterna-model", TO_THE_STUDY)
    assert places(tmp_path, graph="some.csv").dwell_us is None


def test_a_broker_predicts_by_a_model_else_by_places_else_not_at_all(tmp_path: Path) -> None:
    save(tmp_path / "rooms.sterna-model", TO_THE_KITCHEN)
    (tmp_path / "rooms.csv").write_text("hall,study\nhall,attic\n", encoding="utf-8")
    graph = {"graph": "rooms.csv"}

    for tables, expected in (
        ({}, KITCHEN_FIRST),
        ({"places": graph}, KITCHEN_FIRST),
        ({"places": graph, "mobility": {}}, ["attic", "study"]),
        ({"mobility": {}}, []),
    ):
        found = settings(tmp_path, **tables).predictor().next("hall")
        assert [place for place, _ in found] == expected


def test_clients_are_told_of_the_dwell_time_only(tmp_path: Path) -> None:
    """Another model with the same graph and dwell time is nothing new to them."""

    async def reload() -> None:
        model = tmp_path / "rooms.sterna-model"
        save(model, TO_THE_STUDY, 0.75)
        broker = Reloading(tmp_path)
        await broker.server.start()
        text = f'[mobility]\nmodel = "{model.name}"'
        await broker.reload(text)
        configuration = broker.server.configuration
        before = configuration.digest
        told = to_json(configuration.client_settings)
        assert configuration.client_settings.mobility is None
        assert b"750000" in told
        assert len(told) < 1_500

        save(model, TO_THE_KITCHEN, 0.75)
        assert (await broker.reload(text))["applied"] == ["mobility.model"]
        assert configuration.digest == before
        save(model, TO_THE_KITCHEN, 0.5)
        assert (await broker.reload(text))["applied"] == ["mobility.model"]
        assert configuration.digest != before
        await broker.server.stop()

    run(reload())


# ---- Files that are no models


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            None,
            "cannot read .*: No such file or directory; name a file that `sterna pipeline mine`",
        ),
        (b"kitchen,hall\n", "not a mobility model; `sterna pipeline mine` makes one"),
        (model_of(TO_THE_STUDY).to_bytes()[:-1], "damaged: copy or mine it again"),
        (model_of({}).to_bytes(), "holds no places: mine it where clients moved"),
        (model_of({("", "hall"): 1}).to_bytes(), "a location has a non-empty name"),
    ],
    ids=["none", "other", "damaged", "empty", "nameless"],
)
def test_a_file_that_is_no_model_is_one_clear_problem(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    """At a start the broker is not made; at a reload the model in force stays."""
    file = tmp_path / "rooms.sterna-model"

    async def reload() -> None:
        save(file, TO_THE_KITCHEN)
        broker = Reloading(tmp_path)
        await broker.server.start()
        await broker.reload(f'[mobility]\nmodel = "{file.name}"')
        before = broker.server.node.settings
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        report = await broker.reload(f'[mobility]\nmodel = "{file.name}"\n[limits]\nkept_s = 5')
        assert report["applied"] == []
        assert report["error"].count("mobility.model: ") == 1
        assert broker.server.node.settings is before
        found = broker.server.node.predictor.next("hall")
        assert [place for place, _ in found] == KITCHEN_FIRST
        await broker.server.stop()

    run(reload())
    with pytest.raises(ConfigError, match=f"mobility.model: .*{problem}") as caught:
        settings(tmp_path)
    assert len(caught.value.problems) == 1


# ---- A component asks


def toy(node: Broker) -> Foreseeing:
    part = node.part(Foreseeing.name)
    assert isinstance(part, Foreseeing)
    return part


async def visit(server: BrokerServer, name: str) -> list[str]:
    """A client comes to the broker, and the toy says where it will go next."""
    async with connect(server.address.url, client=name, timeout=30):
        await until(lambda: name in dict(toy(server.node).answers))
    return dict(toy(server.node).answers)[name]


def recovered(data: Path) -> Broker:
    """The node as a snapshot and the log after it have it."""
    log, recovery = Log.open(
        data / "log", kind=STATE_KIND, older=OLDER_KINDS, load=loading(broker_of)
    )
    try:
        found = recover_old(data / "log", recovery, broker_of)
        assert found is not None
        replay(found, Listener())
        return found.node
    finally:
        log.close()


class WithToy(Reloading):
    """A broker with the toy protocol."""

    model = "rooms.sterna-model"

    def write(self, text: str = "", **top: str) -> None:
        super().write(f'[network]\nprotocols = ["{TOY}"]\n{text}', **top)

    async def take(self, moves: Mapping[tuple[str, str], int]) -> list[str]:
        """Work by a model of these moves from now on; the keys that were applied."""
        save(self.directory / self.model, moves)
        report = await self.reload(f'[mobility]\nmodel = "{self.model}"')
        assert report["error"] is None
        return list(report["applied"])


def test_old_answers_are_given_again_by_the_model_of_their_time(tmp_path: Path) -> None:
    """A reload changes what a component is answered. A broker that is recovered from its log gives
    each answer again by the model that was in force then, though the file is gone.
    """
    expected = [
        *(("configured", STUDY_FIRST), ("ann", STUDY_FIRST)),
        *(("configured", KITCHEN_FIRST), ("bob", KITCHEN_FIRST)),
        *(("configured", []), ("eve", [])),
    ]

    async def live() -> None:
        broker = WithToy(tmp_path)
        await broker.server.start()
        assert await broker.take(TO_THE_STUDY) == ["mobility.model"]
        assert await visit(broker.server, "ann") == STUDY_FIRST
        assert await broker.take(TO_THE_KITCHEN) == ["mobility.model"]
        assert await visit(broker.server, "bob") == KITCHEN_FIRST
        assert (await broker.reload())["applied"] == ["mobility.model"]
        assert await visit(broker.server, "eve") == []
        assert toy(broker.server.node).answers == expected
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")
        await broker.server.stop()

    run(live())
    (tmp_path / WithToy.model).unlink()
    assert toy(recovered(tmp_path / "crashed")).answers == expected
    assert toy(recovered(tmp_path / "data")).answers == expected


def test_a_snapshot_holds_the_model_until_the_configuration_has_another(tmp_path: Path) -> None:
    async def live() -> None:
        broker = WithToy(tmp_path)
        await broker.server.start()
        await broker.take(TO_THE_STUDY)
        assert await visit(broker.server, "ann") == STUDY_FIRST
        await broker.server.stop()

    async def again(name: str, expected: list[str]) -> None:
        server = BrokerServer(BrokerConfig.load(tmp_path / "broker.toml"))
        await server.start()
        assert await visit(server, name) == expected
        await server.stop()

    run(live())
    node = recovered(tmp_path / "data")
    assert [place for place, _ in node.predictor.next("hall")] == STUDY_FIRST
    run(again("bob", STUDY_FIRST))
    save(tmp_path / WithToy.model, TO_THE_KITCHEN)
    run(again("eve", KITCHEN_FIRST))
    assert toy(recovered(tmp_path / "data")).answers == [
        *(("configured", STUDY_FIRST), ("ann", STUDY_FIRST), ("bob", STUDY_FIRST)),
        *(("configured", KITCHEN_FIRST), ("eve", KITCHEN_FIRST)),
    ]


# ---- Sizes


def test_a_large_model_is_in_the_log_and_in_a_snapshot_once(tmp_path: Path) -> None:
    """Not with each input, and not with each start."""
    names = [f"place-{number:05}" for number in range(10_000)]
    moves = {(a, b): n for n, (a, b) in enumerate(pairwise(names), 1)}
    content = save(tmp_path / WithToy.model, moves).to_bytes()
    (tmp_path / "rooms.csv").write_text("hall,study\n", encoding="utf-8")
    tables = {
        "mobility": {"model": str(tmp_path / WithToy.model)},
        "places": {"graph": str(tmp_path / "rooms.csv")},
    }
    log = tmp_path / "data" / "log"

    async def traffic() -> None:
        server = BrokerServer(config_in(tmp_path, **tables))
        await server.start()
        async with connect(server.address.url, client="c", timeout=30) as client:
            subscription = client.subscribe("n >= 0")
            await client.publish_all({"n": n} for n in range(50))
            await gather_events(subscription, 50)
        await server.stop()

    for _ in range(3):
        run(traffic())
        snapshots = [copies(content, file) for file in log.glob("*.snapshot")]
        assert snapshots == [1] * len(snapshots) != []
        assert sum(copies(content, file) for file in log.glob("*.log")) <= 1


def copies(content: bytes, file: Path) -> int:
    """How often some content is in a file, as it is or, in JSON, with base64."""
    found = file.read_bytes()
    return found.count(content) + found.count(b64encode(content))


# ---- From a file to a subscription that follows its client


@pytest.mark.spec("LM-3")
def test_a_saved_model_serves_subscriptions_that_follow_their_client(tmp_path: Path) -> None:
    """Brokers that have nothing but the model: its places are theirs, and its shortest stay is the
    dwell time by which they ask for no more than they need.
    """
    rooms = [f"room-{number}" for number in range(9)]
    file = tmp_path / "rooms.sterna-model"
    save(file, dict.fromkeys(pairwise(rooms), 1), 3600.0)
    tables: dict[str, Any] = {"mobility": {"model": str(file)}}

    async def follow() -> None:
        near = BrokerServer(config_in(tmp_path / "B1", **tables))
        await near.start()
        network = {"neighbours": [near.address.url]}
        far = BrokerServer(config_in(tmp_path / "B2", name="B2", network=network, **tables))
        await far.start()
        async with (
            connect(near.address.url, client="ann", timeout=30) as ann,
            connect(far.address.url, client="lamp", timeout=30) as lamp,
        ):
            ann.move("room-3")
            subscription = ann.subscribe("room IN myloc")
            await until(lambda: within_reach(far) == ["room IN ('room-3', 'room-4')"])
            for n, room in enumerate(("room-4", "room-8", "room-3")):
                await lamp.publish(room=room, n=n)
            (event,) = await gather_events(subscription, 1)
            assert event.attributes["n"] == 2
        await far.stop()
        await near.stop()

    run(follow())


def within_reach(server: BrokerServer) -> list[str]:
    """What a broker lets through for clients that move."""
    moving = server.node.part(Moving.name)
    assert isinstance(moving, Moving)
    routes = [route for routes in moving.table.values() for route in routes.values()]
    return [str(moving.instance(route)) for route in routes]
