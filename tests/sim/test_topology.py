"""Overlays: their shapes, and what is no overlay."""

from pathlib import Path

import pytest

from sterna.sim import topology
from sterna.sim.topology import Topology, TopologyError


def test_the_tree_of_burcea_has_85_brokers_64_of_them_leaves() -> None:
    tree = topology.tree(4, 4)

    assert (len(tree.brokers), len(tree.leaves()), len(tree.links)) == (85, 64, 84)
    assert tree.parent("B1") is None
    assert tree.parent("B5") == "B1"
    assert tree.parent("B85") == "B21"


@pytest.mark.parametrize(
    ("made", "links"),
    [
        (topology.line(3), (("B1", "B2"), ("B2", "B3"))),
        (topology.star(3), (("B1", "B2"), ("B1", "B3"))),
        (topology.tree_of(4, 2), (("B1", "B2"), ("B1", "B3"), ("B2", "B4"))),
        (topology.line(1), ()),
    ],
)
def test_shapes(made: Topology, links: tuple[tuple[str, str], ...]) -> None:
    assert made.links == links


def test_a_random_tree_is_the_same_for_the_same_seed() -> None:
    assert topology.random_tree(20, 1) == topology.random_tree(20, 1)
    assert topology.random_tree(20, 1) != topology.random_tree(20, 2)


def test_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "overlay.txt"
    path.write_text("# a small town\ntower harbour\n\nmarket tower  # uphill\n")

    assert topology.from_file(path) == Topology(
        ("tower", "harbour", "market"), (("tower", "harbour"), ("tower", "market"))
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a b\nb c\nc a\n", "the overlay has a cycle: leave out a link"),
        ("a b\nc d\n", "c has no way to a"),
        ("a b c\n", "line 1: expected two broker names, found 'a b c'"),
        ("", "an overlay of several brokers needs links"),
        ("a a\n", "the overlay has a cycle"),
    ],
)
def test_what_is_no_overlay_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "overlay.txt"
    path.write_text(text)

    with pytest.raises(TopologyError, match=problem):
        topology.from_file(path)


@pytest.mark.parametrize(
    ("brokers", "links", "problem"),
    [
        ((), (), "an overlay needs a broker"),
        (("a", "a"), (), "each broker needs a name of its own"),
        (("a", "b"), (), "b has no way to a"),
        (("a", "b"), (("a", "c"),), "the link a - c ends at no broker"),
        (("a", "b", "c"), (("a", "b"), ("a", "c"), ("b", "c")), "c has two ways to the root"),
        (("a", "b", "c"), (("b", "c"), ("c", "b")), "b has no way to a|c has no way to a"),
    ],
)
def test_a_topology_is_connected_and_without_cycles(
    brokers: tuple[str, ...], links: tuple[tuple[str, str], ...], problem: str
) -> None:
    with pytest.raises(TopologyError, match=problem):
        Topology(brokers, links)
