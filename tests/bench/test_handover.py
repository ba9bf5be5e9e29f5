"""The benchmark of handovers measures what it says."""

import json
from pathlib import Path

from typer.testing import CliRunner

from sterna.cli.main import app


def test_handovers_between_live_brokers(tmp_path: Path) -> None:
    """Each event that is published while the client is away comes, once: else the run fails."""
    small = ["--handovers", "4", "--subscriptions", "40", "--brokers", "3"]
    ended = CliRunner().invoke(
        app, ["bench", "handover", *small, "--json", "--data", str(tmp_path)]
    )

    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert told["brokers"] == 3
    assert list(told["gaps_ms"]) == ["none", "batch"]
    for gap in told["gaps_ms"].values():
        assert 0 < gap["p50"] <= gap["p99"] <= gap["worst"]
    assert not list(tmp_path.iterdir())
