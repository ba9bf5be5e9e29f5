"""PL-4: the mobility model, its file, and what brokers and simulations make of it."""

import math
import struct
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sterna import Filter, LocationError, MobilityModel, MobilityModelError, MovementGraph
from sterna.core.inputs import MoveTo, Publish, Subscribe
from sterna.core.location.options import PlacesOptions
from sterna.model import mobility
from sterna.model.mobility import (
    WHOLE,
    Chain,
    Contexts,
    Document,
    Dwell,
    Sizes,
    buckets,
    neighbours,
)
from sterna.net.config import BrokerConfig, ConfigError
from sterna.sim.run import Simulation
from sterna.sim.script import Do, Script, Settle
from sterna.sim.topology import line
from tests.scale import examples

pytestmark = pytest.mark.spec("PL-4")

LEVELS = (("place",), ("place", "previous"), ("place", "client"), ("hour",))
CHAINS = ((0,), (0, 1), (0, 2), (3,))
CELLS = ("0,0", "0,1", "1,1", "5,5")
CLIENTS = ("ann", "bob")

numbers = st.integers(0, len(CELLS) - 1)
times = st.integers(-(10**16), 10**16)


@st.composite
def contexts(draw: st.DrawFn, features: tuple[str, ...]) -> Contexts:
    values = {"place": numbers, "previous": numbers, "client": st.integers(0, 1)}
    key = st.tuples(*(values.get(name, st.integers(0, 47)) for name in features))
    counts = st.dictionaries(numbers, st.integers(1, 9 * WHOLE), min_size=1)
    found = draw(st.dictionaries(key, counts, max_size=6))
    return Contexts(
        features=features,
        keys=[number for key in found for number in key],
        sizes=[len(row) for row in found.values()],
        destinations=[place for row in found.values() for place in row],
        counts=[count for row in found.values() for count in row.values()],
    )


@st.composite
def documents(draw: st.DrawFn) -> Document:
    tables = [draw(contexts(features)) for features in LEVELS]
    shares = [draw(st.integers(0, 3)) for _ in CHAINS]
    total = sum(shares)
    predictors = [
        Chain(
            name=str(number),
            levels=chain,
            strengths=tuple(draw(st.sampled_from([0.5, 4.0, 256.0])) for _ in chain),
            weight=share / total if total else 1 / len(CHAINS),
        )
        for number, (chain, share) in enumerate(zip(CHAINS, shares, strict=True))
    ]
    moves = draw(st.dictionaries(st.tuples(numbers, numbers), st.integers(1, 9)))
    return Document(
        sizes=Sizes(
            places=len(CELLS),
            clients=len(CLIENTS),
            moves=len(moves),
            counts=sum(len(each.counts) for each in tables),
        ),
        until_us=draw(times),
        grid=draw(st.sampled_from(["", "square:500"])),
        near=draw(st.sampled_from([0.0, 0.6])),
        places=list(CELLS),
        clients=list(CLIENTS),
        popularity=draw(st.lists(st.integers(0, 9 * WHOLE), min_size=4, max_size=4)),
        contexts=tables,
        predictors=predictors,
        moves=[(*pair, count) for pair, count in moves.items()],
        dwell={0: Dwell(count=2, mean_s=1.5, p10_s=1.1, p50_s=1.5, p90_s=1.9)},
        sharpness=draw(st.sampled_from([1.0, 0.5, 2.0])),
    )


questions = st.tuples(
    st.sampled_from([*CELLS, "9,9", "elsewhere"]),
    st.sampled_from([None, *CLIENTS, "nobody"]),
    st.sampled_from([None, *CELLS, "elsewhere"]),
    st.none() | times,
)
Question = tuple[str, str | None, str | None, int | None]


def plainly(document: Document, question: Question) -> dict[str, float]:
    """The definition, one level after the other: what each place's probability is."""
    place, client, previous, time_us = question
    given = {
        "place": CELLS.index(place) if place in CELLS else None,
        "client": CLIENTS.index(client) if client in CLIENTS else None,
        "previous": CELLS.index(previous) if previous in CELLS else None,
        "hour": None if time_us is None else buckets(time_us)[1],
    }
    around = neighbours(document.grid, place) if document.near else ()
    near = document.near if around else 0.0
    popular = [each + WHOLE for each in document.popularity]
    root = {
        name: (near / len(around) if name in around else 0.0)
        + ((1 - near) * popular[CELLS.index(name)] / sum(popular) if name in CELLS else 0.0)
        for name in {*CELLS, *around}
    }
    blend = dict.fromkeys(root, 0.0)
    for predictor in document.predictors:
        said = root
        for level, strength in zip(predictor.levels, predictor.strengths, strict=True):
            table = document.contexts[level]
            key = [given[name] for name in table.features]
            counts = rows(table).get(tuple(key), {})
            total = sum(counts.values()) / WHOLE
            if total:
                said = {
                    name: (counts.get(name, 0) / WHOLE + strength * before) / (total + strength)
                    for name, before in said.items()
                }
        for name, probability in said.items():
            blend[name] += predictor.weight * probability
    sharp = {name: probability**document.sharpness for name, probability in blend.items()}
    return {name: probability / sum(sharp.values()) for name, probability in sharp.items()}


def rows(table: Contexts) -> dict[tuple[int | None, ...], dict[str, int]]:
    found: dict[tuple[int | None, ...], dict[str, int]] = {}
    width, begin = len(table.features), 0
    for number, size in enumerate(table.sizes):
        places = [CELLS[each] for each in table.destinations[begin : begin + size]]
        counts = table.counts[begin : begin + size]
        key = tuple(table.keys[number * width : (number + 1) * width])
        found[key] = dict(zip(places, counts, strict=True))
        begin += size
    return found


@given(documents(), questions, st.integers(1, 6))
@examples(300)
def test_a_level_that_knows_little_asks_the_level_before_it(
    document: Document, question: Question, count: int
) -> None:
    """Back-off as defined; probabilities sum to 1 whatever is asked; the best come first."""
    model = MobilityModel(document)
    expected = plainly(document, question)
    found = model.probabilities(*question)
    best = model.next(*question, count=count)

    assert sum(found.values()) == pytest.approx(1)
    assert found == pytest.approx(expected)
    assert [each.probability for each in best] == pytest.approx(
        sorted(expected.values(), reverse=True)[:count]
    )
    assert dict(best) == pytest.approx({place: found[place] for place, _ in best})


@given(times)
@examples(300)
def test_hours_are_told_apart_by_working_day_and_weekend(time_us: int) -> None:
    part, hour, quarter = buckets(time_us)
    minute_us, day_us = 60_000_000, 86_400_000_000

    assert hour % 24 == time_us % day_us // (60 * minute_us)
    assert quarter % 96 == time_us % day_us // (15 * minute_us)
    saturday = 2 * day_us  # 1970-01-03.
    weekend = (time_us - saturday) % (7 * day_us) < 2 * day_us
    assert (part >= 4, hour >= 24, quarter >= 96) == (weekend, weekend, weekend)


def test_hexagons_have_neighbours() -> None:
    grid = mobility.neighbours("h3:9", "891f1d48863ffff")

    assert len(grid) == 6
    assert "891f1d48863ffff" not in grid
    assert mobility.neighbours("h3:9", "kitchen") == ()


def small() -> MobilityModel:
    """Three rooms; who is in the hall goes to the study, but Bob to the kitchen."""
    table = Contexts(
        features=("place",),
        keys=[0, 1, 2],
        sizes=[1, 2, 1],
        destinations=[1, 0, 2, 1],
        counts=[3 * WHOLE, WHOLE, 3 * WHOLE, 3 * WHOLE],
    )
    own = Contexts(
        features=("place", "client"), keys=[1, 0], sizes=[1], destinations=[0], counts=[9 * WHOLE]
    )
    return MobilityModel(
        Document(
            sizes=Sizes(places=3, clients=1, moves=4, counts=5),
            until_us=7,
            grid="",
            near=0.0,
            places=["kitchen", "hall", "study"],
            clients=["bob"],
            popularity=[WHOLE, 6 * WHOLE, 3 * WHOLE],
            contexts=[table, own],
            predictors=[Chain(name="client", levels=(0, 1), strengths=(1.0, 1.0), weight=1.0)],
            moves=[(0, 1, 3), (1, 0, 1), (1, 2, 3), (2, 1, 3)],
            dwell={1: Dwell(count=4, mean_s=9.0, p10_s=1.0, p50_s=8.0, p90_s=20.0)},
        )
    )


def test_a_model_answers_from_its_file(tmp_path: Path) -> None:
    """Next places, dwell, reach and graph, after a round trip through the file."""
    path = tmp_path / "rooms.sterna-model"
    small().save(path)
    model = MobilityModel.load(path)

    assert [place for place, _ in model.next("hall")] == ["study", "kitchen", "hall"]
    assert model.next("hall", client="bob", count=1)[0].place == "kitchen"
    assert model.next("hall", client="eve") == model.next("hall")
    dwell = model.dwell("hall")
    assert dwell is not None
    assert dwell.p50_s == 8.0
    assert model.dwell("kitchen") is model.dwell("attic") is None
    assert model.ploc("kitchen", 1) == {"kitchen", "hall"}
    assert model.graph().neighbours("hall") == ("kitchen", "study")
    assert model.places == ("kitchen", "hall", "study")
    assert model.document == small().document
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@given(documents())
@examples(50)
def test_a_file_holds_all_of_a_model(document: Document) -> None:
    model = MobilityModel(document)
    again = MobilityModel.from_bytes(model.to_bytes())

    assert again.document == document
    assert again.to_bytes() == model.to_bytes()


def test_every_changed_byte_and_every_cut_is_noticed() -> None:
    """A damaged file is refused in one sentence, wherever the damage is."""
    whole = small().to_bytes()
    damaged = [whole[:end] for end in range(len(whole))] + [whole + b"\0"]
    for position in range(len(whole)):
        for bit in (1, 128):
            changed = bytearray(whole)
            changed[position] ^= bit
            damaged.append(bytes(changed))

    for each in damaged:
        with pytest.raises(MobilityModelError) as caught:
            MobilityModel.from_bytes(each)
        assert "\n" not in str(caught.value)


def test_a_file_of_another_version_says_so() -> None:
    whole = bytearray(small().to_bytes())
    whole[8] = 3

    with pytest.raises(MobilityModelError, match="version 3, but this Sterna reads versions 1"):
        MobilityModel.from_bytes(bytes(whole))


def test_a_file_of_the_first_version_is_read() -> None:
    """It has no sharpness, and predicts as it did."""
    fields = msgspec.to_builtins(small().document)
    del fields["sharpness"]
    body = msgspec.msgpack.encode(fields)
    checksum = zlib.crc32(body, zlib.crc32(struct.pack("<HQ", 1, len(body))))
    old = struct.pack("<8sHQI", b"STERNAMM", 1, len(body), checksum) + body

    model = MobilityModel.from_bytes(old)

    assert model.document == small().document
    assert model.document.sharpness == 1


DOCUMENT = small().document
LYING = {
    "places": replace(DOCUMENT, places=["kitchen"]),
    "sizes": replace(DOCUMENT, sizes=replace(DOCUMENT.sizes, counts=6)),
    "moves": replace(DOCUMENT, moves=[(0, 1, 3), (1, 0, 1), (1, 2, 3), (2, 3, 3)]),
    "popularity": replace(DOCUMENT, popularity=[1, 2, -3]),
    "near": replace(DOCUMENT, near=1.0),
    "sharpness": replace(DOCUMENT, sharpness=0.0),
    "shortest stay": replace(DOCUMENT, dwell={1: replace(DOCUMENT.dwell[1], min_s=-1.0)}),
    "level": replace(DOCUMENT, predictors=[replace(DOCUMENT.predictors[0], levels=(0, 2))]),
    "strength": replace(
        DOCUMENT, predictors=[replace(DOCUMENT.predictors[0], strengths=(1.0, math.nan))]
    ),
    "destination": replace(
        DOCUMENT,
        contexts=[replace(DOCUMENT.contexts[0], destinations=[1, 0, 3, 1]), DOCUMENT.contexts[1]],
    ),
    "ranges": replace(
        DOCUMENT, contexts=[replace(DOCUMENT.contexts[0], sizes=[2, 2, 1]), DOCUMENT.contexts[1]]
    ),
    "counts": replace(
        DOCUMENT,
        contexts=[replace(DOCUMENT.contexts[0], counts=[1, 0, 1, 1]), DOCUMENT.contexts[1]],
    ),
    "feature": replace(
        DOCUMENT, contexts=[replace(DOCUMENT.contexts[0], features=("mood",)), DOCUMENT.contexts[1]]
    ),
}


@pytest.mark.parametrize("name", LYING)
def test_a_model_that_contradicts_itself_is_refused(name: str) -> None:
    """Whoever made the file: numbers in it point at something, or it is not used."""
    body = msgspec.msgpack.encode(LYING[name])
    head = mobility._HEAD.pack(mobility.MAGIC, 1, len(body), mobility._checksum(1, body))

    with pytest.raises(MobilityModelError, match="contradicts itself"):
        MobilityModel.from_bytes(head + body)


def with_dwell(**least_s: float | None) -> MobilityModel:
    """The three rooms, with the shortest stay that was seen in each."""
    document = small().document
    dwell = {
        document.places.index(place): Dwell(
            count=4, mean_s=9.0, p10_s=1.0, p50_s=8.0, p90_s=20.0, min_s=seconds
        )
        for place, seconds in least_s.items()
    }
    return MobilityModel(replace(document, dwell=dwell))


@pytest.mark.spec("LM-3")
def test_the_mined_dwell_time_is_the_shortest_stay_of_all() -> None:
    """Every stay in the data respects it. Where one is not known, nothing is."""
    assert with_dwell(hall=2.5, study=0.75).least_dwell_us == 750_000
    assert with_dwell(hall=0.0000004).least_dwell_us == 1
    assert with_dwell(hall=2.5, study=None).least_dwell_us is None
    assert with_dwell().least_dwell_us is None
    assert small().least_dwell_us is None, "mined before the shortest stay was kept"


@given(st.dictionaries(st.sampled_from(["kitchen", "hall", "study"]), st.floats(1e-6, 1e9)))
@examples(100)
def test_no_stay_is_shorter_than_the_mined_dwell_time(stays_s: dict[str, float]) -> None:
    model = MobilityModel.from_bytes(with_dwell(**stays_s).to_bytes())

    found = model.least_dwell_us
    assert (found is None) == (not stays_s)
    if found is not None:
        assert max(1, found) == found
        assert all(found <= max(1, seconds * 1e6) for seconds in stays_s.values())
        assert any(found > seconds * 1e6 - 2 for seconds in stays_s.values())


@pytest.mark.spec("LM-3")
def test_a_broker_takes_the_dwell_time_of_a_model_unless_it_is_told_one(tmp_path: Path) -> None:
    with_dwell(hall=2.5, study=0.75).save(tmp_path / "rooms.sterna-model")
    (tmp_path / "rooms.csv").write_text("kitchen,hall\n")

    def dwell_us(**places: object) -> int | None:
        given = {"name": "b1", "places": places}
        options = BrokerConfig.from_mapping(given, directory=tmp_path).places_options(None)
        assert options is not None
        return options.dwell_us

    assert dwell_us(graph="rooms.sterna-model") == 750_000
    assert dwell_us(graph="rooms.sterna-model", dwell_s=4.0) == 4_000_000
    assert dwell_us(graph="rooms.csv") is None
    assert dwell_us(grid=9) is None


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    body = msgspec.msgpack.encode({"places": 3})
    head = mobility._HEAD.pack(mobility.MAGIC, 1, len(body), mobility._checksum(1, body))

    with pytest.raises(MobilityModelError, match="not what a mobility model holds"):
        MobilityModel.from_bytes(head + body)
    with pytest.raises(MobilityModelError, match="not a mobility model"):
        MobilityModel.from_bytes(b"PAR1" * 20)
    with pytest.raises(MobilityModelError, match="cannot read"):
        MobilityModel.load(tmp_path / "none.sterna-model")
    with pytest.raises(MobilityModelError, match="cannot write"):
        small().save(tmp_path / "none" / "none.sterna-model")


def test_a_broker_takes_a_model_as_its_movement_graph(tmp_path: Path) -> None:
    """`places.graph` may be a mined model; a damaged one is named when the broker is set up."""
    path = tmp_path / "rooms.sterna-model"
    small().save(path)
    given = {"name": "b1", "places": {"graph": path.name}}

    options = BrokerConfig.from_mapping(given, directory=tmp_path).places_options(None)
    assert options is not None
    assert sorted(options.edges) == [
        ("hall", "kitchen"),
        ("hall", "study"),
        ("kitchen", "hall"),
        ("study", "hall"),
    ]
    assert MovementGraph.load(path).ploc("study", 2) == {"study", "hall", "kitchen"}

    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="damaged: copy or mine it again"):
        BrokerConfig.from_mapping(given, directory=tmp_path)
    with pytest.raises(LocationError):
        MovementGraph.load(path)


def test_a_simulation_moves_clients_on_a_mined_graph() -> None:
    """Subscriptions follow a client that goes where the model says clients go."""
    graph = small().graph()
    edges = tuple((place, other) for place in graph.locations for other in graph.neighbours(place))
    script = Script(
        topology=line(3),
        clients={"ann": "B1", "lamp": "B3"},
        places=PlacesOptions(edges=edges, directed=True),
        locations={"ann": "kitchen"},
        steps=(
            Do(client="ann", what=Subscribe(subscription="1", filter=Filter("room IN myloc"))),
            Settle(),
            Do(client="ann", what=MoveTo(location=small().next("kitchen")[0].place)),
            Do(client="lamp", what=Publish(attributes={"room": "hall"})),
        ),
    )
    simulation = Simulation(script)

    assert simulation.run().findings == []
    assert simulation.oracle.received("ann") == [("lamp", 1)]
