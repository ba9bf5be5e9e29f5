"""`sterna sim`: what people see, and the command that replays a run."""

import json
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sterna.cli.main import app
from sterna.core import protocol as protocols
from sterna.core.client import Client
from sterna.core.link import LinkSession
from sterna.core.names import NEVER

SMALL = ["--brokers", "4", "--clients", "4", "--subscriptions", "6", "--events", "10"]


def sterna(*words: str) -> Result:
    return CliRunner().invoke(app, ["sim", *words])


def test_a_run_is_judged_and_counted() -> None:
    ended = sterna("run", *SMALL, "--json")

    assert ended.exit_code == 0
    told = json.loads(ended.stdout)
    assert told["published"] == 10
    assert told["findings"] == []
    assert told["messages"]["Events"] == sum(
        sent.get("Events", 0) for sent in told["messages_by_link"].values()
    )
    assert told["tables"][-1]["entries"] > 0


def test_a_person_sees_a_table() -> None:
    ended = sterna("run", "line", *SMALL, "--faults", "heavy")

    assert ended.exit_code == 0
    assert "4 brokers, 4 clients, covering routing" in ended.stdout
    assert "Events messages" in ended.stdout


@pytest.mark.parametrize(
    "options",
    [
        ["--strategy", "merging", "--advertisements"],
        ["--hierarchical", "--faults", "light", "--degree", "2", "--height", "3"],
        ["--architecture", "centralized-quenching"],
        ["--topology", "random", "--loss", "0.2", "--duplication", "0.2"],
        ["star", "--drops", "3", "--pauses", "2", "--crashes", "2", "--partitions", "1"],
        ["--bytes-per-s", "20000", "--jitter-ms", "3", "--quenching"],
    ],
)
def test_every_kind_of_network_delivers_rightly(options: list[str]) -> None:
    ended = sterna("run", *SMALL, *options, "--runs", "3", "--json")

    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["seed"] == 2


def test_the_replay_command_repeats_a_run() -> None:
    first = sterna("run", "line", *SMALL, "--seed", "5", "--loss", "0.1", "--json")
    command = shlex.split(json.loads(first.stdout)["replay"])
    assert command[:4] == ["sterna", "sim", "replay", "5"]

    again = sterna(*command[2:], "--json")

    assert json.loads(again.stdout) == json.loads(first.stdout)


def test_replay_prints_the_trace() -> None:
    ended = sterna("replay", "3", *SMALL)

    assert ended.exit_code == 0
    assert "SubscriptionChange +c" in ended.stdout
    assert "settled" in ended.stdout


def test_a_kept_script_is_replayed_from_its_file(tmp_path: Path) -> None:
    kept, trace = tmp_path / "script.json", tmp_path / "trace.txt"
    first = sterna("run", *SMALL, "--faults", "heavy", "--keep", str(kept), "--trace", str(trace))
    assert first.exit_code == 0

    again = sterna("replay", str(kept))

    assert again.stdout.startswith(trace.read_text())


def test_the_trace_of_a_replay_goes_where_it_is_told(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"

    ended = sterna("replay", "3", *SMALL, f"--trace={trace}")

    assert "SubscriptionChange" in trace.read_text()
    assert "SubscriptionChange +" not in ended.stdout


def test_another_seed_is_another_random_overlay() -> None:
    def overlay(seed: str) -> list[str]:
        told = json.loads(sterna("run", "random", "--seed", seed, "--json").stdout)
        return [pipe for pipe in told["messages_by_link"] if "c" not in pipe]

    assert overlay("1") == overlay("1") != overlay("2")


def test_pictures(tmp_path: Path) -> None:
    for name in ("run.svg", "run.mmd"):
        assert sterna("run", *SMALL, "--picture", str(tmp_path / name)).exit_code == 0

    assert ET.parse(tmp_path / "run.svg").getroot().tag.endswith("svg")  # noqa: S314
    assert (tmp_path / "run.mmd").read_text().startswith("sequenceDiagram")


def size(picture: Path) -> tuple[int, int]:
    root = ET.parse(picture).getroot()  # noqa: S314
    return int(root.attrib["width"]), int(root.attrib["height"])


def test_a_picture_of_a_large_run_is_its_beginning_and_says_so(tmp_path: Path) -> None:
    """All of it would be 90,000 pixels high."""
    ended = sterna("run", "--picture", str(tmp_path / "run.svg"))

    assert ended.exit_code == 0
    width, height = size(tmp_path / "run.svg")
    assert width < 10_000
    assert height < 17_000
    assert "warning: " in ended.stderr
    assert "too large to look at. Choose a part, such as --from " in ended.stderr


def test_a_part_of_a_run_is_drawn_on_request(tmp_path: Path) -> None:
    picture = str(tmp_path / "run.mmd")

    ended = sterna(
        "run", "--picture", picture, "--from", "5ms", "--to", "0.02s", "--nodes", "B1,B2"
    )

    lines = (tmp_path / "run.mmd").read_text().splitlines()
    assert (ended.exit_code, ended.stderr) == (0, "")
    ones = {line.split()[1] for line in lines if line.split()[-1] in {"B1", "B2"}}
    assert len(ones) == 2
    for line in lines:
        if "->>" in line:
            assert set(line.strip().split(":")[0].split("->>")) & ones

    nothing = sterna("run", *SMALL, "--picture", picture, "--from", "5h")
    assert "is empty: nothing happens in this part" in nothing.stderr


def test_a_wrong_run_says_what_is_wrong_and_how_to_replay_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a client that takes every event twice."""
    arrived = Client.events_arrived

    def twice(self: Client, *given: object) -> None:
        arrived(self, *given)  # type: ignore[arg-type]
        arrived(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Client, "events_arrived", twice)
    ended = sterna("run", *SMALL, "--seed", "1", "--runs", "9", "--variety", "2")

    assert ended.exit_code == 1
    assert "duplicated: event" in ended.stderr
    assert "replay: sterna sim replay 1 --brokers 4" in ended.stderr
    assert "--variety 2" in ended.stderr


def test_a_run_that_never_settles_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With sessions that never acknowledge."""
    monkeypatch.setattr(LinkSession, "_acknowledge", lambda self: setattr(self, "_ack_at", NEVER))
    ended = sterna("run", "--brokers", "2", "--clients", "2", "--events", "1", "--seed", "3")

    assert ended.exit_code == 1
    assert "after ten minutes there is still something on its way at" in ended.stderr
    assert "replay: sterna sim replay 3 --brokers 2 --clients 2 --events 1" in ended.stderr


@pytest.mark.spec("LV-10")
def test_a_handover_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it a client that comes back in time misses nothing."""
    monkeypatch.setattr(protocols, "_protocols", dict(protocols._protocols))
    toy = ("--handover", "tests.net.protocols.patient:PATIENT")
    ended = sterna("run", *SMALL, "--naps", "2", *toy, "--seed", "1", "--json")

    assert ended.exit_code == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["findings"] == []
    assert " ".join(toy) in told["replay"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["run", "circle"], "no topology or file 'circle'; there are tree, line, star, random"),
        (["run", "--degree", "9", "--height", "9"], "such a tree has more than 10,000 brokers"),
        (["run", "--architecture", "x"], "no architecture 'x'; there are centralized"),
        (["run", "--picture", "run.png"], "--picture draws .svg and .mmd, not run.png"),
        (["run", "--from", "5ms"], "--from, --to and --nodes go with --picture FILE"),
        (["run", "--picture", "x.svg", "--from", "5"], "--from: a time is written 500ms"),
        (["run", "--picture", "x.svg", "--from", "5s", "--to", "1s"], "is before --from 5s"),
        (["run", "--picture", "x.svg", "--nodes", "b1"], "no node 'b1'; is it 'B1'?"),
        (["run", "--trace", "nowhere/t.txt"], "there is no folder nowhere for t.txt"),
        (
            ["run", "--handover", "fast"],
            "--handover is 'fast'; choose one of none, naive, relocation",
        ),
        (["run", "--handover", "past"], "--handover is 'past', which is for another purpose"),
        (["run", "--handover", "none", "--moves", "2"], "clients that move need a --handover"),
        (["replay", "nothing.json"], "nothing.json: No such file or directory; give a seed"),
        (["replay", "-1"], "No such"),
    ],
)
def test_bad_input_gets_one_clear_line(words: list[str], problem: str) -> None:
    ended = sterna(*words)

    assert ended.exit_code == 2
    assert problem in ended.stderr.replace("\n", " ")


ONE_STEP = """
{"topology": {"brokers": ["B1"], "links": []}, "clients": {"ann": "B1"},
 "steps": [{"type": "Do", "client": "ann", "what": WHAT}]}
"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is no script: "),
        ('{"topology": {"brokers": [], "links": []}}', "an overlay needs a broker"),
        ('{"topology": [], "clients": {}, "steps": []}', "Expected `object`, got `array`"),
        (
            ONE_STEP.replace("WHAT", '{"type": "Subscribe", "subscription": "1", "filter": "x >"}'),
            "bad filter",
        ),
        (
            ONE_STEP.replace("WHAT", '{"type": "Unsubscribe", "subscription": "1"}'),
            "asks for what cannot be: ann has no subscription '1'",
        ),
    ],
)
def test_a_bad_script_gets_one_clear_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)

    ended = sterna("replay", str(path))

    assert ended.exit_code == 2
    assert problem in ended.stderr.replace("\n", " ")


def test_a_topology_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "town.txt"
    path.write_text("tower harbour\ntower market\n")

    ended = sterna("run", str(path), "--events", "5", "--json")

    assert set(json.loads(ended.stdout)["messages_by_broker"]) == {"tower", "harbour", "market"}
    path.write_text("tower harbour\nharbour tower\n")
    assert "the overlay has a cycle" in sterna("run", str(path)).stderr


def test_json_and_a_printed_trace_do_not_mix() -> None:
    ended = sterna("run", "--json", "--trace", "-")

    assert ended.exit_code == 2
    assert "write the trace to a file" in json.loads(ended.stdout)["error"]
