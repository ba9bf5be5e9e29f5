"""The experiments on brokers and subscribers that move."""

import msgspec
import pytest

from sterna.core.handover.options import Handover
from sterna.experiments.experiment import DeliveryError, Point, summarize
from sterna.experiments.mft import clients, protocols, sequences
from sterna.experiments.mft.clients import MftClients
from sterna.experiments.mft.network import PROTOCOLS, begin, moved, ways, wrong_ways
from sterna.experiments.mft.protocols import MftProtocols, migration
from sterna.experiments.mft.sequences import NETWORK, MftSequences
from sterna.sim.script import Migrate


@pytest.mark.spec("MB-4", "MB-5")
def test_the_printed_sequences_have_the_printed_messages() -> None:
    experiment = MftSequences()
    points = [
        summarize(setting, [experiment.measure(setting, seed=1)])
        for setting in experiment.settings(quick=False)
    ]

    assert all(claim.holds for claim in experiment.claims(points))
    assert len(experiment.claims(points)) == 4
    measured = {(p.setting.protocol, p.setting.figure): p.median for p in points}
    figure_4 = measured["efficient", "1b"].sequence.splitlines()
    assert figure_4[:2] == ["b6 → b5: BMIG", "b5 → b2: BMIG"]
    assert [line.split(": ")[1] for line in figure_4] == ["BMIG"] * 7 + ["BSUB"] * 6
    assert measured["reversing", "1b"].messages == 7
    assert not any(each.wrong for each in measured.values())
    table = experiment.tables(points)[1]
    assert (table.title, table.rows[0]) == ("Fig. 1a, modular: Fig. 2a", ("1", "b3 → b2", "BMIG"))


@pytest.fixture(scope="module")
def migrations() -> list[Point[protocols.Setting, protocols.Measures]]:
    experiment = MftProtocols()
    return [
        summarize(setting, [experiment.measure(setting, seed) for seed in range(1, 6)])
        for setting in experiment.settings(quick=True)
    ]


@pytest.mark.spec("MB-5")
def test_a_migration_costs_least_where_ways_turn_around(
    migrations: list[Point[protocols.Setting, protocols.Measures]],
) -> None:
    """One message for each link of the old way, and one more."""
    for point in migrations:
        setting = point.setting
        if setting.protocol == "reversing":
            assert point.high.messages <= setting.distance + 2
            assert not point.high.is_wrong
    less, detects = MftProtocols().claims(migrations)
    assert less.holds
    assert not detects.holds


@pytest.mark.spec("MB-5")
def test_the_printed_rule_fails_as_soon_as_the_new_parent_is_three_hops_away(
    migrations: list[Point[protocols.Setting, protocols.Measures]],
) -> None:
    found = {
        point.setting.distance: point.mean.is_wrong
        for point in migrations
        if point.setting.protocol == "efficient"
    }
    assert found == {1: 0, 3: 1}


def test_a_random_migration_is_one_over_so_many_hops() -> None:
    for seed in range(20):
        topology, step, branch = migration(16, 3, seed)
        assert branch <= 8
        after = moved(topology.links, step.broker, step.before, step.to)
        assert len(after) == 15
        assert ways(after, step.broker)[step.to] == step.to


def test_tables_that_are_wrong_are_counted() -> None:
    simulation = begin(NETWORK, "reversing")
    assert not wrong_ways(simulation, "reversing", NETWORK.links)
    simulation.do(Migrate(broker="b3", before="b1", to="b2"))
    simulation.settle()
    assert wrong_ways(simulation, "reversing", NETWORK.links) == 10


@pytest.mark.spec("MB-3")
def test_phoenix_delivers_what_the_other_handover_protocols_deliver() -> None:
    """Each run is judged: all events, once and in order. Beside that, what it costs."""
    experiment = MftClients()
    points = [
        summarize(setting, [experiment.measure(setting, seed=1)])
        for setting in experiment.settings(quick=True)
    ]
    found = {(p.setting.protocol, p.setting.distance, p.setting.events): p.median for p in points}

    assert {m.delivered for (*_, events), m in found.items() if events} == {12}
    cheap, many = experiment.claims(points)
    assert cheap.holds  # One notice for each hop of the old way, and what the subscriber says.
    assert found["phoenix", 4, 0].messages == 6
    assert found[Handover.RELOCATION, 4, 0].messages == 18
    assert not many.holds
    assert found["phoenix", 4, 10].messages == 6 + 10 * (4 + 1)
    assert experiment.summary(points)["phoenix 4 0"] == 6
    assert all(len(table.rows) == 4 for table in experiment.tables(points))


def test_a_subscriber_that_misses_something_is_an_error() -> None:
    setting = clients.Setting(protocol=Handover.NAIVE, distance=2, events=3)
    with pytest.raises(DeliveryError) as raised:
        MftClients().measure(setting, seed=1)
    assert "got 2 of 5 events, or in disorder" in raised.value.findings


def test_settings_are_distinct() -> None:
    for experiment in (MftSequences(), MftProtocols(), MftClients()):
        for quick in (True, False):
            settings = [msgspec.json.encode(s) for s in experiment.settings(quick=quick)]
            assert len(set(settings)) == len(settings)
    assert set(PROTOCOLS) == {name for name, _ in sequences.PRINTED} | {"reversing"}
