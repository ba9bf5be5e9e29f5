"""Pictures of runs: what they show, where, and that any text can be in them."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.inputs import Publish, Subscribe, Unsubscribe
from sterna.model.filters import Filter
from sterna.sim.network import Fate
from sterna.sim.picture import Arrow, Note, Picture
from sterna.sim.run import run
from sterna.sim.script import Crash, Do, Drop, LinkModel, Script, Settle
from sterna.sim.topology import Topology, line, star
from tests.goldens import assert_golden
from tests.test_docs import ROOT, blocks

SVG = "{http://www.w3.org/2000/svg}"


def subscribes(client: str, filter_: str) -> Do:
    return Do(client=client, what=Subscribe(subscription="1", filter=Filter(filter_)))


def publishes(client: str, **attributes: int | str) -> Do:
    return Do(client=client, what=Publish(attributes=attributes))


TINY = Script(
    topology=line(2),
    clients={"ann": "B1", "bob": "B2"},
    steps=(
        subscribes("ann", "price < 3"),
        Settle(),
        publishes("bob", price=2),
        Drop(a="B1", b="B2", us=50_000),
        Settle(),
        Do(client="ann", what=Unsubscribe(subscription="1")),
    ),
)


def picture_of(script: Script) -> Picture:
    picture = Picture()
    run(script, [picture])
    return picture


def texts(svg: str) -> list[str]:
    """All that can be read in an image, without what only shows under the mouse."""
    return [(element.text or "") for element in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314


@pytest.mark.parametrize(("draw", "kept"), [("mermaid", "picture.mmd"), ("svg", "picture.svg")])
def test_a_tiny_run(draw: str, kept: str) -> None:
    drawn = getattr(picture_of(TINY), draw)()

    assert_golden(kept, drawn)


@pytest.mark.parametrize(
    ("page", "figure"), [("how-to/simulate.md", "run.svg"), ("concepts/roaming.md", "handover.svg")]
)
def test_the_pictures_in_the_documentation_are_up_to_date(page: str, figure: str) -> None:
    program: dict[str, Picture] = {}
    exec("\n".join(blocks(ROOT / "docs" / page, "python")), program)  # noqa: S102

    drawn = program["picture"].svg()
    assert drawn == (ROOT / "docs/figures" / figure).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "paper"),
    [
        ("concepts/disconnected.md", "burcea"),
        ("concepts/past.md", "cilia"),
        ("concepts/delivery-order.md", "huang"),
    ],
)
def test_the_pictures_of_papers_in_the_documentation_are_up_to_date(page: str, paper: str) -> None:
    program: dict[str, dict[str, Picture]] = {}
    exec("\n".join(blocks(ROOT / "docs" / page, "python")), program)  # noqa: S102

    for name, picture in program["pictures"].items():
        figure = ROOT / "docs/figures" / f"{paper}-{name}.svg"
        assert picture.svg() == figure.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("topology", "clients", "order"),
    [
        (line(3), {"ann": "B1", "bob": "B3"}, "ann B1 B2 B3 bob"),
        (line(3), {"ann": "B1", "eve": "B2", "bob": "B3"}, "ann B1 B2 eve B3 bob"),
        (star(3), {"ann": "B2", "bob": "B3"}, "ann B2 B1 B3 bob"),
        (star(1), {"ann": "B1", "bob": "B1"}, "ann B1 bob"),
    ],
)
def test_neighbours_stand_side_by_side(
    topology: Topology, clients: dict[str, str], order: str
) -> None:
    steps = tuple(subscribes(client, "x = 1") for client in clients)
    picture = picture_of(Script(topology=topology, clients=clients, steps=steps))

    assert picture.nodes() == order.split()


def test_those_who_say_nothing_are_not_in_the_picture() -> None:
    script = Script(
        topology=star(9),
        clients={"ann": "B3", "bob": "B3"},
        steps=(publishes("ann", x=1),),
    )

    assert sorted(picture_of(script).nodes()) == ["B3", "ann"]


def test_what_got_lost_and_what_was_repeated_looks_different() -> None:
    script = Script(
        topology=line(2),
        clients={"ann": "B1"},
        steps=(subscribes("ann", "x = 1"), Crash(broker="B1", us=1_000)),
        link=LinkModel(loss=0.5),
        seed=1,
    )
    picture = picture_of(script)
    fates = [row.fate for row in picture.rows if isinstance(row, Arrow)]

    assert any(fate.again for fate in fates)
    assert any(fate.lost for fate in fates)
    assert any(fate == Fate() for fate in fates)
    assert all(arrow in picture.mermaid() for arrow in ("->>", "-->>", "-x"))
    assert picture.svg().count("stroke-dasharray") == sum(
        isinstance(row, Arrow) and row.fate.again for row in picture.rows
    )


def test_a_long_filter_is_shortened_and_shown_in_full_under_the_mouse() -> None:
    filter_ = f"x IN ({', '.join(map(str, range(100)))})"
    script = Script(topology=line(1), clients={"ann": "B1"}, steps=(subscribes("ann", filter_),))
    picture = picture_of(script)
    titles = ET.fromstring(picture.svg()).iter(f"{SVG}title")  # noqa: S314

    assert any((title.text or "").endswith(f"+ann/1: {filter_}") for title in titles)
    assert max(map(len, picture.mermaid().splitlines())) < 120


@pytest.mark.parametrize("text", ["a; b", "B#1", "x < 3 AND y <> 4", "100 %% sure", 'say "hi"'])
def test_mermaid_gets_codes_for_what_means_something_to_it(text: str) -> None:
    picture = Picture()
    picture.rows = [Note(0, "a;b<", text), Arrow(0, "a;b<", "wrap: c", text, Fate())]
    for drawn in picture.mermaid().splitlines():
        statement = drawn.replace("->>", "").replace(": ", " ", 1)
        for code in "35", "59", "60", "62", "37", "34", "58":
            statement = statement.replace(f"#{code};", "")

        assert not set(statement) & set(';#<>%":')


@given(st.lists(st.tuples(*[st.text(min_size=1, max_size=80)] * 3), max_size=5))
def test_any_text_can_be_drawn(rows: list[tuple[str, str, str]]) -> None:
    """An SVG is XML whatever nodes and messages are called, and says all of it."""
    picture = Picture()
    for source, target, text in rows:
        picture.rows += [Arrow(0, source, target, text, Fate()), Note(0, source, text)]

    read = texts(picture.svg())

    assert len(read) >= 2 * len(rows)
    assert len(picture.mermaid().splitlines()) == 1 + len(picture.nodes()) + 2 * len(rows)
