"""The benchmark of pauses measures what it says."""

import json
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sterna.bench import stops
from sterna.bench.load import LoadError
from sterna.bench.pause import Options, index_rows, run
from sterna.bench.relay import Relay
from sterna.bench.stops import watch_snapshot
from sterna.cli.main import app
from sterna.wire.frames import Answer, Ask, Ping, Pong, control, decode_control, is_control, split
from tests.bench.serving import serving

CALM_S = 0.3
STOP_S = 0.25
NEVER = 10**9


class Stopping(Relay):
    """A broker that takes a "snapshot" when it is due, and answers nobody meanwhile."""

    inputs = since = pings = 0
    due_inputs = due_pings = NEVER

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        for body in split(data):
            if not is_control(body):
                Stopping.inputs += 1
                Stopping.since += 1
                if Stopping.since > self.due_inputs:
                    self._snapshot()
                continue
            match decode_control(body):
                case Ping():
                    Stopping.pings += 1
                    if Stopping.pings == self.due_pings:
                        self._snapshot()
                    self._write(control(Pong()))
                case Ask():
                    log = {"inputs_since_snapshot": Stopping.since}
                    status = {"inputs": Stopping.inputs, "log": log}
                    self._write(control(Answer(what="status", answer=status)))

    def _snapshot(self) -> None:
        time.sleep(STOP_S)
        Stopping.since = 0


def stopping(*, due_inputs: int = NEVER, due_pings: int = NEVER) -> AbstractContextManager[int]:
    """The port of such a broker."""
    Stopping.inputs = Stopping.since = Stopping.pings = 0
    Stopping.due_inputs, Stopping.due_pings = due_inputs, due_pings
    return serving(lambda: Stopping({}))


def test_a_stop_is_seen_as_long_as_it_is_and_only_with_the_snapshot() -> None:
    due = 400
    with stopping(due_inputs=due) as port:
        trips = watch_snapshot(port, due, CALM_S)

    assert max(trips.snapshot_ms) / 1e3 >= STOP_S - 0.01
    assert max(trips.calm_ms) < max(trips.snapshot_ms)
    # Pings go on while the broker stops: many are late, each by what was left of the stop.
    late = [took for took in trips.snapshot_ms if took > STOP_S * 1e3 / 2]
    assert len(late) > STOP_S / stops.PING_EVERY_S / 10


def test_a_snapshot_that_comes_too_early_is_no_measurement() -> None:
    with stopping(due_pings=20) as port, pytest.raises(LoadError, match="before it was due"):
        watch_snapshot(port, 400, CALM_S)


def test_no_snapshot_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "SNAPSHOT_S", 0.5)
    with stopping() as port, pytest.raises(LoadError, match="took no snapshot"):
        watch_snapshot(port, 400, CALM_S)


def test_pauses_of_live_brokers(tmp_path: Path) -> None:
    """Brokers have what they should, or the run fails; and each took a snapshot."""
    small = ["--sizes", "300", "--subscriptions", "40", "--calm-s", "0.5"]
    ended = CliRunner().invoke(app, ["bench", "pause", *small, "--json", "--data", str(tmp_path)])

    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert [(row["what"], row["size"]) for row in told["rows"]][:2] == [
        ("snapshot, kept events", 300),
        ("snapshot, subscriptions", 40),
    ]
    for row in told["rows"][:2]:
        assert 0 < row["p999_ms"] <= row["longest_ms"]
        assert row["baseline_ms"] > 0
    assert not list(tmp_path.iterdir())


def test_the_longest_calls_of_the_index_are_rows_as_well() -> None:
    rows = index_rows("index", 100, time.monotonic())

    assert [row.what for row in rows] == [
        *("index, add", "index, replace", "index, match", "index, new attribute"),
    ]
    for row in rows:
        assert row.size == 100
        assert row.longest_ms > 0
        assert row.baseline_ms >= 0


def test_what_there_is_no_time_for_is_skipped() -> None:
    options = Options(events=[10], subscriptions=[20], at_most_s=-1.0)

    report = run(options, lambda _: None)

    assert not report.rows
    assert [(each.what, each.size) for each in report.skipped] == [
        ("snapshot, kept events", 10),
        ("snapshot, subscriptions", 20),
        ("index", 20),
    ]
