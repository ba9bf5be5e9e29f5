"""The benchmark of brokers measures what it says."""

import json
import re
import sys
from contextlib import AbstractContextManager
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sterna.bench import broker, servers
from sterna.bench.contenders import RELAY, Contender, compared, contenders
from sterna.bench.latency import Pair, percentile
from sterna.bench.load import LoadError
from sterna.bench.native import NativeSpeaker
from sterna.bench.relay import Relay
from sterna.bench.scenarios import CONTENTS, EVERYTHING, ScenarioName, scenario
from sterna.bench.servers import RelayServer, SternaServer
from sterna.bench.worker import (
    Connect,
    Drop,
    Expect,
    Prepare,
    Protocol,
    Publish,
    Return,
    Worker,
)
from sterna.cli.bench import broker as cli_broker
from sterna.cli.main import app
from sterna.model.event import Scalar
from sterna.model.filters import Filter
from sterna.net.config import Durability
from tests.bench.serving import serving

COUNT = 50


class Holding(Relay):
    """Passes nothing on until it has all events."""

    held = b""

    def _pass_on(self, raw: bytes) -> None:
        self.held += raw
        if self._came - FIRST_WORDS == COUNT:
            super()._pass_on(self.held)


FIRST_WORDS = 1
"""Messages of a publisher before its events."""


def holding_relay() -> AbstractContextManager[int]:
    subscribers: dict[Relay, None] = {}
    return serving(lambda: Holding(subscribers))


def test_events_are_sent_in_time_while_the_broker_stalls() -> None:
    """No coordinated omission: sending waits for nothing, and each counts from its due time."""
    with holding_relay() as port:
        pair = Pair(NativeSpeaker("p", ()), NativeSpeaker("s", (EVERYTHING,)), port)
        latencies = pair.measure([("s1", 1.0)] * COUNT, rate=1_000)

    # All arrived together: each took a millisecond less than the one before it.
    steps = [earlier - later for earlier, later in pairwise(latencies.took_us)]
    assert steps == pytest.approx([1_000.0] * (COUNT - 1))


def test_percentiles() -> None:
    values = list(range(1000, 0, -1))

    assert percentile(values, 0.5) == 501
    assert percentile(values, 0.999) == 1000
    assert percentile([7.0], 0.99) == 7.0


def test_content_filters_match_one_event_in_a_hundred() -> None:
    """And the benchmark knows what each connection gets, as the filters themselves say."""
    made = scenario(ScenarioName.CONTENT, connections=50)
    attributes: list[dict[str, Scalar]] = [
        {"sym": symbol, "price": price} for symbol, price in made.contents
    ]
    matching = 0
    for filters, wanted in zip(made.filters.values(), made.wanted, strict=True):
        matches = [Filter(text).matches for text in filters]
        hits = [[asked(each) for each in attributes] for asked in matches]
        matching += sum(map(sum, hits))
        assert wanted == sum(map(any, zip(*hits, strict=True)))
    assert 0.009 < matching / 1000 / CONTENTS < 0.011


def test_a_round_has_whole_cycles_of_the_contents() -> None:
    for name in ScenarioName:
        made = scenario(name)
        for protocol in made.events:
            events = made.events_of(protocol, 0.001)
            assert events % (CONTENTS * made.publishers) == 0
            assert sum(made.deliveries(events)) * CONTENTS == sum(made.wanted) * events


def test_too_many_and_too_few_events_are_noticed(tmp_path: Path) -> None:
    with RelayServer(tmp_path) as relay, Worker() as publishing, Worker() as subscribing:
        port, native = relay.port, Protocol.NATIVE
        publishing.ask(Connect(protocol=native, port=port, filters={"p": []}))
        subscribing.ask(Connect(protocol=native, port=port, filters={"s": [EVERYTHING]}))
        subscribing.tell(Expect(counts=[50]))
        publishing.ask(Prepare(contents=[("s1", 1.0)], events=100, batch=100, window=100))

        published = publishing.ask(Publish())
        arrived = subscribing.hear()

        assert arrived.too_many == 50  # They came in one frame.
        assert published.began < arrived.ended
        subscribing.tell(Expect(counts=[60]))  # 50 of them are here already.
        relay.__exit__(None, None, None)
        with pytest.raises(LoadError, match="s was disconnected"):
            subscribing.hear()
        with pytest.raises(LoadError, match="s was disconnected"):  # Known before it is asked.
            subscribing.ask(Expect(counts=[1]))


def test_a_client_drains_what_was_kept_for_it(tmp_path: Path) -> None:
    with (
        SternaServer(tmp_path, Durability.NONE) as server,
        Worker() as publishing,
        Worker() as subscribing,
    ):
        port, native = server.port, Protocol.NATIVE
        publishing.ask(Connect(protocol=native, port=port, filters={"p": []}))
        subscribing.ask(Connect(protocol=native, port=port, filters={"s": [EVERYTHING]}))
        for _ in range(2):
            subscribing.ask(Drop())
            publishing.ask(Prepare(contents=[("s1", 1.0)], events=500, batch=50, window=100))
            publishing.ask(Publish())
            assert not subscribing.ask(Return(port=port, counts=[500])).too_many


def test_figures_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "find_mosquitto", lambda: None)
    options = broker.Options(
        scenarios=[ScenarioName.ONE_TO_ONE],
        rounds=1,
        scale=0.01,
        rate=500,
        seconds=0.1,
        queued=1_000,
        data=tmp_path,
    )

    said: list[str] = []
    report = broker.run(options, said.append)

    assert list(report.throughput["1-1"]) == ["sterna", "sterna durable", "relay"]
    assert report.throughput["1-1"]["sterna"].deliveries == 4_000
    assert list(report.ratios["1-1"]) == ["sterna durable / sterna"]
    assert list(report.latency) == list(report.drain) == ["sterna", "sterna durable"]
    assert report.drain["sterna"].events == 1_000
    assert "drain: sterna, round 1 of 1" in said
    assert json.loads(json.dumps(report.as_json()))["peer"] is None
    assert not list(tmp_path.iterdir())  # It cleans up.


def test_figures_of_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that got too many or too few would make the run fail."""
    monkeypatch.setattr(broker, "find_mosquitto", lambda: None)
    options = broker.Options(
        scenarios=[ScenarioName.FAN_OUT],
        latency=False,
        drain=False,
        idle=True,
        devices=True,
        rounds=1,
        scale=0.01,
        clients=200,
        data=tmp_path,
    )

    report = broker.run(options, lambda _: None)

    assert not report.failed
    qos_0, *_ = contenders = [f"sterna QoS {qos}" for qos in range(3)]
    assert {*contenders, "sterna durable QoS 1"} <= set(report.throughput["1-100"])
    assert report.throughput["1-100"][qos_0].deliveries == 100_000
    assert report.throughput["1-100"][qos_0].acknowledged_per_s is None
    assert list(report.idle) == [qos_0]
    assert 1_000 < report.idle[qos_0].bytes_each < 100_000


def test_what_is_compared() -> None:
    among = contenders(devices=True, other=True, mosquitto=True)

    pairs = [f"{one} / {other}" for one, other in compared(among)]

    assert pairs[:5] == [
        "sterna QoS 0 / mosquitto QoS 0",
        "sterna QoS 1 / mosquitto QoS 1",
        "sterna durable QoS 1 / mosquitto QoS 1",
        "sterna QoS 2 / mosquitto QoS 2",
        "sterna durable QoS 2 / mosquitto QoS 2",
    ]
    assert "sterna durable QoS 2 / sterna QoS 2" in pairs
    assert "sterna durable QoS 1 / other sterna durable QoS 1" in pairs
    native = contenders(devices=False, other=False, mosquitto=True)
    assert [f"{one} / {other}" for one, other in compared(native)] == [
        "sterna / mosquitto QoS 0",
        "sterna durable / mosquitto QoS 1",
        "sterna durable / sterna",
    ]


def test_another_version_is_measured_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, the other version is this one."""
    monkeypatch.setattr(broker, "find_mosquitto", lambda: None)
    options = ["--scenario", "1-1", "--quick", "--rounds", "1", "--beside", sys.executable]

    ended = CliRunner().invoke(
        app, ["bench", "broker", *options, "--data", str(tmp_path)], env={"COLUMNS": "100"}
    )

    assert ended.exit_code == 0, ended.output
    for level in ("", " durable"):
        ratio = rf"  sterna{level} / other sterna{level}: \d\.\d\d times the"
        assert re.search(f"{ratio} events/s: more is better", ended.stdout)
        assert re.search(f"{ratio} processor time: less is better", ended.stdout)


def test_the_other_version_has_to_be_there() -> None:
    ended = CliRunner().invoke(
        app, ["bench", "broker", "--beside", "nowhere/python"], env={"COLUMNS": "200"}
    )

    assert ended.exit_code == 2
    assert ended.stderr == "error: --beside: there is no program nowhere/python; give a Python\n"


def test_the_table_says_that_mosquitto_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "find_mosquitto", lambda: None)
    options = ["--scenario", "drain", "--quick", "--data", str(tmp_path)]
    out = tmp_path / "figures.json"

    ended = CliRunner().invoke(
        app, ["bench", "broker", *options, "--out", str(out)], env={"COLUMNS": "100"}
    )

    assert ended.exit_code == 0, ended.output
    assert "not installed" in ended.stdout
    assert json.loads(out.read_text())["drain"]["sterna durable"]["events"] == 100_000


def test_a_broker_that_does_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "_STERNA", "raise SystemExit('no more room')")

    with (
        pytest.raises(LoadError, match="SternaServer did not start: no more room"),
        SternaServer(tmp_path, Durability.NONE),
    ):
        pass


def test_a_scenario_that_fails_is_named_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "find_mosquitto", lambda: None)
    start = Contender.start

    def full(
        contender: Contender,
        directory: Path,
        *,
        other: Path | None = None,
        mosquitto: str | None = None,
    ) -> servers.Server:
        if contender == RELAY:  # It takes part in 1-1 only.
            raise LoadError("no more room")
        return start(contender, directory, other=other, mosquitto=mosquitto)

    monkeypatch.setattr(Contender, "start", full)
    out = tmp_path / "figures.json"
    options = ["--scenario", "1-1", "--scenario", "latency", "--quick", "--rounds", "1"]

    ended = CliRunner().invoke(
        app,
        ["bench", "broker", *options, "--data", str(tmp_path), "--out", str(out)],
        env={"COLUMNS": "100"},
    )

    figures = json.loads(out.read_text())
    assert ended.exit_code == 2
    problem = "no more room (at: 1-1: starting sterna, sterna durable, relay)"
    assert ended.stderr == f"error: 1-1 could not be measured: {problem}\n"
    assert figures["failed"] == {"1-1": problem}
    assert list(figures["latency"]) == ["sterna", "sterna durable"]
    assert "times the latency: less is better" in ended.stdout


def test_the_table_keeps_its_words_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=StringIO(), width=80, color_system=None)
    monkeypatch.setattr(cli_broker, "console", console)
    speed = broker.Speed(
        events=1_000_000,
        deliveries=100_000_000,
        events_per_s=623_000.0,
        events_per_s_spread=(500_000.0, 1_700_000.0),
        acknowledged_per_s=640_000.0,
        deliveries_per_s=118_300_000.0,
        cpu_us=112.3,
        rounds=[],
        cpu_rounds=[],
    )
    report = broker.BrokerReport(
        settings={},
        peer="2.0.11",
        about={"1-1": "one to one"},
        throughput={"1-1": {"mosquitto QoS 0": speed, "sterna durable": speed}},
        ratios={"1-1": {"sterna / mosquitto QoS 0": 6.7}},
    )

    cli_broker._show(report)

    assert isinstance(console.file, StringIO)
    drawn = console.file.getvalue()
    assert "…" not in drawn
    for words in ("acknowledged/s", "deliveries/s", "mosquitto QoS 0", " 118,300,000 "):
        assert words in drawn, drawn
    assert "sterna / mosquitto QoS 0: 6.70 times the events/s: more is better" in drawn


@pytest.mark.parametrize("command", ["broker", "handover"])
def test_folders_have_to_be_there(command: str) -> None:
    ended = CliRunner().invoke(
        app, ["bench", command, "--data", "nowhere/at-all"], env={"COLUMNS": "200"}
    )

    assert ended.exit_code == 2
    assert "there is no folder nowhere/at-all" in ended.output
