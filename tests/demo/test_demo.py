"""`sterna demo`: a network of processes, clients that roam, a broker that dies, and the audit."""

import json
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sterna.cli import performing
from sterna.cli.main import app
from sterna.core.facts import Delivered, Published, Settled, Subscribed
from sterna.demo.city import City
from sterna.demo.pipeline import Review
from sterna.demo.play import Audit, Play, Scene, judge
from sterna.demo.screen import line, picture, review_line, verdict
from sterna.model.delivery import Fault
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.local import LocalNetwork
from sterna.sim.oracle import Oracle


@pytest.mark.spec("LV-1", "LV-3", "PM-4")
@pytest.mark.usefixtures("spark")
def test_a_round_ends_with_a_clean_audit(tmp_path: Path) -> None:
    """Real brokers, one of them killed while clients roam: nothing lost, nothing twice."""
    arguments = ["--brokers", "3", "--vehicles", "8", "--sensors", "3", "--seconds", "3"]
    result = CliRunner().invoke(
        app, ["demo", *arguments, "--rounds", "1", "--data", str(tmp_path), "--json"]
    )

    assert result.exit_code == 0, result.output
    (audit,) = json.loads(result.stdout)["rounds"]
    assert audit["kills"] == 1
    assert audit["handovers"] > 5
    assert audit["moves"] > 5
    assert audit["published"] > 50
    assert audit["delivered"] >= audit["owed"] > 50
    assert audit["findings"] == []
    assert audit["holds"] == [], "no event loop stood still"
    review = audit["pipeline"]
    assert {name: review[name] for name in ("published", "owed", "delivered", "findings")} == {
        name: audit[name] for name in ("published", "owed", "delivered", "findings")
    }, "the pipeline says the same, from journals"
    assert review["steps"] == audit["moves"]
    assert review["graph_is_what_was_walked"]


@pytest.mark.spec("LV-3", "PM-4", "DO-4")
def test_a_round_with_another_handover() -> None:
    """Vehicles have a plain and a moving subscription each, and visit other brokers."""
    arguments = ["--brokers", "3", "--vehicles", "6", "--sensors", "3", "--seconds", "2"]
    result = CliRunner().invoke(
        app,
        ["demo", *arguments, "--handover", "home", "--rounds", "1", "--no-pipeline", "--json"],
    )

    assert result.exit_code == 0, result.output
    (audit,) = json.loads(result.stdout)["rounds"]
    assert audit["handovers"] > 3
    assert audit["delivered"] >= audit["owed"] > 20


def test_the_audit_sees_what_is_lost() -> None:
    """Else a clean audit would mean nothing."""
    event = Event(publisher="s", seq=1, time_us=0, attributes={"price": 1})
    oracle = Oracle()
    oracle.fact(Subscribed(at="v", time=0, subscription="x", filter=Filter("price = 1")))
    oracle.fact(Settled(at="", time=0))
    oracle.fact(Published(at="s", time=0, events=(event, *_later(event, 2))))
    oracle.fact(Delivered(at="v", time=0, events=(*_later(event, 2), *_later(event, 2))))
    oracle.fact(Settled(at="", time=0))
    city = City({}, sensors=0, vehicles=0, seed=0, facts=oracle.fact)

    audit = judge(oracle, city, 0)

    assert audit.faults == Counter({Fault.LOST: 1, Fault.DUPLICATED: 1})
    assert not audit.is_clean
    assert "lost 1, duplicated 1, out of order 0" in line(audit)


def test_a_clean_audit_says_so() -> None:
    audit = Audit(
        published=3, owed=2, delivered=2, faults=Counter(), findings=[],
        roamed=1, moved=0, kills=1,
    )  # fmt: skip

    assert audit.is_clean
    assert "lost 0, duplicated 0, out of order 0" in line(audit)


def test_an_event_loop_that_was_held_is_not_clean() -> None:
    """Even if nothing was lost; the picture says what held it."""
    hold = "B1 was held for 0.312 s by engine.py:288 give"
    audit = Audit(
        published=3, owed=2, delivered=2, faults=Counter(), findings=[],
        roamed=1, moved=0, kills=1, holds=[hold],
    )  # fmt: skip

    assert not audit.is_clean
    assert hold in str(verdict(audit, 1).renderable)


def test_a_graph_that_was_not_walked_is_not_clean() -> None:
    steps = Counter({("Park", "Museum"): 2})
    same = Review(published=3, walked=steps, mined=Counter(steps))
    other = Review(published=3, walked=steps, mined=Counter({("Park", "Museum"): 1}))

    assert same.is_clean
    assert "graph is what" in review_line(same)
    assert not other.is_clean
    assert "graph IS NOT what" in review_line(other)
    assert not Review(findings=["lost: …"]).is_clean


def test_the_demo_goes_on_without_spark() -> None:
    """Whoever has no Java sees the brokers at work, and is told what is missing."""
    review = Review(problem="Spark needs Java")

    assert review.is_clean
    assert "no verdict: Spark needs Java" in review_line(review)


# ---- On the screen


def terminal() -> Console:
    return Console(file=StringIO(), force_terminal=True, width=80, height=50, color_system=None)


def printed(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_table_of_brokers_keeps_its_words_in_80_columns(tmp_path: Path) -> None:
    network = LocalNetwork(4, directory=tmp_path, first_port=17461)
    status = {
        "neighbours": {"B1": True, "B2": True, "B3": False, "B14": True},
        "clients_here": 123,
        "clients_away": 24,
        "subscriptions": 1234,
        "inputs": 1234567,
    }
    scene = Scene(network, statuses={"B1": status, "B2": None, "B3": status})
    console = terminal()

    console.print(picture(scene))

    drawn = printed(console)
    assert "…" not in drawn
    for words in (
        "broker ", " address ", " neighbours ", " here ", " away ", " subscriptions ", " inputs ",
        "127.0.0.1:17461", "dead", " 1,234,567 ",
    ):  # fmt: skip
        assert words in drawn, drawn


def test_the_end_shows_each_audit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = terminal()
    monkeypatch.setattr(performing, "console", console)
    play = Play(tmp_path, brokers=1, vehicles=1, sensors=1, seconds=0.2, pipeline=False)

    (audit,) = performing.perform(play, 1, shows=True)

    left = printed(console).rsplit("\x1b[2K", 1)[1]  # What nothing was drawn over.
    assert audit.is_clean, audit
    assert left.count("audit of round 1") == 1
    assert left.count("Sterna   round 1") == 1


def _later(event: Event, seq: int) -> tuple[Event]:
    return (Event(publisher=event.publisher, seq=seq, time_us=0, attributes=event.attributes),)
