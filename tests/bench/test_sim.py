"""The benchmarks of simulator and routing measure what they say."""

import json

from typer.testing import CliRunner

from sterna.bench import route
from sterna.bench.sim import Flood
from sterna.cli.main import app
from sterna.core.routing.options import Strategy


def test_a_flood_passes_every_broker() -> None:
    """84 links between brokers, one from the publisher, and those to interested subscribers."""
    flood = Flood(judged=True)
    before = flood.messages

    flood.publish(1)
    flood.settle()

    outcome = flood.outcome()
    assert outcome.published == 100
    assert outcome.findings == []
    assert flood.messages - before == 100 * 85 + outcome.delivered


def test_bench_sim_prints_one_json_document() -> None:
    ended = CliRunner().invoke(app, ["bench", "sim", "--rounds", "1", "--long", "10", "--json"])

    told = json.loads(ended.stdout)
    assert told["brokers"] == 85
    assert told["messages"] > 100 * 4 * 85
    assert 0 < told["simulator"] < told["bare"]


def test_changes_leave_as_many_entries_as_before() -> None:
    filters = route._filters(60)
    for strategy in Strategy:
        loaded = route.LoadedBroker(strategy, filters[:50])
        loaded.change(filters[50:])

        assert len(loaded.broker.router.subscriptions) == 50
        fresh = route.LoadedBroker(strategy, filters[10:])
        if strategy is not Strategy.MERGING and strategy is not Strategy.IMPERFECT:
            assert loaded.told == fresh.told  # Merging depends on the order of arrival.


def test_bench_route_shows_a_table() -> None:
    ended = CliRunner().invoke(
        app, ["bench", "route", "--subscriptions", "20"], env={"COLUMNS": "100"}
    )

    assert ended.exit_code == 0
    assert "imperfect-merging" in ended.stdout
