"""MOD-6: location spaces and ploc."""

import json
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna import HexGrid, LocationError, MovementGraph
from sterna.model import location
from tests.scale import examples, soon

pytestmark = pytest.mark.spec("MOD-6")

edges = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh")), min_size=1)


@given(edges, st.booleans(), st.integers(0, 9))
@examples(500)
def test_ploc_is_what_so_many_steps_can_reach(
    pairs: list[tuple[str, str]], directed: bool, steps: int
) -> None:
    graph = MovementGraph(pairs, directed=directed)
    start = pairs[0][0]
    reached = {start}
    for _ in range(steps):
        forth = {b for a, b in pairs if a in reached}
        back = set() if directed else {a for a, b in pairs if b in reached}
        reached |= forth | back

    assert graph.ploc(start, steps) == reached
    assert graph.ploc(start, steps) <= graph.ploc(start, steps + 1)


def test_one_way_streets() -> None:
    graph = MovementGraph([("a", "b"), ("b", "c")], directed=True)

    assert graph.ploc("a", 2) == {"a", "b", "c"}
    assert graph.ploc("c", 2) == {"c"}
    assert graph.neighbours("b") == ("c",)


def test_ploc_is_fast_for_thousands_of_locations() -> None:
    side = 70
    graph = MovementGraph(
        [(f"{x},{y}", f"{x + 1},{y}") for x in range(side) for y in range(side)]
        + [(f"{x},{y}", f"{x},{y + 1}") for x in range(side) for y in range(side)]
    )
    with soon():
        for _ in range(20):
            for place in graph.locations:
                graph.ploc(place, 3)

        assert len(graph) > 4_900


def test_hexagons() -> None:
    grid = HexGrid(8)
    here = grid.locate(52.52, 13.405)

    assert here in grid
    assert grid.ploc(here, 0) == {here}
    assert len(grid.ploc(here, 1)) == 7
    assert len(grid.ploc(here, 2)) == 19
    assert grid.ploc(here, 1) < grid.ploc(here, 2)
    assert grid.locate(*grid.centre(here)) == here


def test_graphs_load_from_csv_and_json(tmp_path: Path) -> None:
    table = tmp_path / "rooms.csv"
    table.write_text('from,to\nkitchen,hall\n\nhall,"living room"\nattic\n', encoding="utf-8")
    document = tmp_path / "rooms.json"
    document.write_text(
        json.dumps(
            {"edges": [["kitchen", "hall"], ["hall", "living room"]], "locations": ["attic"]}
        )
    )

    for path in (table, document):
        graph = MovementGraph.load(path)
        assert sorted(graph.locations) == ["attic", "hall", "kitchen", "living room"]
        assert graph.ploc("kitchen", 1) == {"kitchen", "hall"}
        assert graph.ploc("attic", 5) == {"attic"}


def test_a_table_as_other_programs_write_it(tmp_path: Path) -> None:
    table = tmp_path / "rooms.csv"
    table.write_bytes(
        '\ufeff\r\nfrom, to\r\nkitchen,"the ""big"" hall"\r\nhall\u2028,attic\r\n'.encode()
    )

    graph = MovementGraph.load(table)

    assert graph.locations == ("kitchen", 'the "big" hall', "hall", "attic")


def test_spaces_travel_by_pickle() -> None:
    graph, grid = MovementGraph([("a", "b")]), HexGrid(9)
    here = grid.locate(52.5, 13.4)
    assert graph.ploc("a", 1) == {"a", "b"}

    again, grid_again = pickle.loads(pickle.dumps((graph, grid)))  # noqa: S301 - made here.

    assert again.ploc("a", 1) == {"a", "b"}
    assert grid_again.ploc(here, 1) == grid.ploc(here, 1)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "REMEMBERED_MAX", 100)
    graph = MovementGraph([(str(i), str(i + 1)) for i in range(50)])
    for start in graph.locations:
        assert len(graph.ploc(start, 2)) in (3, 4, 5)
    memory = graph._memory
    memory.keep("x", 0, frozenset("x"))
    memory.keep("x", 0, frozenset("x"))

    assert memory._size == sum(len(result) + 16 for result in memory._results.values()) <= 100


def test_a_cell_has_one_spelling() -> None:
    grid = HexGrid(9)
    here = grid.locate(52.5, 13.4)

    for spelling in (here.upper(), "0x" + here, " " + here, "0" + here):
        assert spelling not in grid
    with pytest.raises(LocationError, match="use a coarser grid"):
        grid.ploc(here, 1_000)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "a,b\na,b,c\n", "a.csv, line 2: expected two locations"),
        ("a.csv", "a,\n", "line 1"),
        ("a.csv", "\n\n", "holds no locations"),
        ("a.json", "{", "not valid JSON"),
        ("a.json", "[]", "expected an object with directed, edges, locations"),
        ("a.json", '{"edge": []}', "expected an object"),
        ("a.json", '{"edges": [["a"]]}', "edge 0"),
        ("a.json", '{"locations": [1]}', "list of names"),
        ("a.json", '{"edges": 5}', "list of pairs"),
        ("a.json", '{"edges": [], "directed": "no"}', "true or false"),
        ("a.json", "[" * 100_000, "not valid JSON"),
        ("a.json", '{"edges": [["a", "\\ud800"]]}', "expected two names"),
        ("a.csv", 'a,b\n"b,c\n', "line 2"),
        ("a.csv", "a," + "x" * 200_000, "line 1"),
        ("a.csv", "a,b\nb;c\n", "line 2: a comma goes between"),
    ],
)
def test_a_bad_file_is_said_clearly(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)

    with pytest.raises(LocationError, match=message):
        MovementGraph.load(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="cannot read"):
        MovementGraph.load(tmp_path / "absent.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LocationError, match="UTF-8"):
        MovementGraph.load(binary)


def test_unknown_places_are_said_clearly() -> None:
    with pytest.raises(LocationError, match="there is no place 'x'"):
        MovementGraph([("a", "b")]).ploc("x", 0)
    with pytest.raises(LocationError, match="not negative"):
        MovementGraph([("a", "b")]).ploc("a", -1)
    with pytest.raises(LocationError, match="H3 cell of resolution 8"):
        HexGrid(8).ploc(HexGrid(9).locate(0, 0), 1)
    for resolution in (16, -1, 5.0, True, "5"):
        with pytest.raises(LocationError, match="0 to 15"):
            HexGrid(resolution)  # type: ignore[arg-type]
    for edge in ("ab", ("a", "b", "c")):
        with pytest.raises(LocationError, match="pair of locations"):
            MovementGraph([edge])  # type: ignore[list-item]
    with pytest.raises(LocationError, match="not a latitude"):
        HexGrid(8).locate(91, 0)


# ---- Places that are not there


def test_a_place_that_is_not_there_is_told_with_those_like_it() -> None:
    streets = MovementGraph([("Elm Street", "Oak Street"), ("Oak Street", "Fir Lane")])

    for wrong, hint in [
        ("elm street", "is it 'Elm Street'?"),
        ("Fir Line", "is it 'Fir Lane'?"),
        ("Street", "is it "),
        ("xyz", "there are 'Elm Street', 'Oak Street', 'Fir Lane'"),
    ]:
        with pytest.raises(
            LocationError, match=f"there is no place '{wrong}': .*{re.escape(hint)}"
        ):
            streets.ploc(wrong, 1)


def test_among_very_many_places_no_time_is_lost() -> None:
    many = MovementGraph([], locations=[f"place {number}" for number in range(100_000)])

    with pytest.raises(LocationError, match="none of the 100,000 places; is it 'place 7'"):
        many.ploc("Place 7", 0)
    with pytest.raises(LocationError, match=r"none of the 100,000 places$"):
        many.ploc("plaice 7", 0)


def test_an_empty_graph_says_where_places_come_from() -> None:
    with pytest.raises(LocationError, match="the movement graph is empty: give brokers places"):
        MovementGraph([]).ploc("x", 0)
