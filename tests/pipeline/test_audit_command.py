"""`sterna pipeline audit`: what it tells of journals, and its exit status."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from sterna.bench.audit_journals import write_journals
from sterna.cli.main import app
from sterna.cli.pipeline import audit as command
from sterna.core.facts import (
    Accepted,
    Attached,
    ClientForgotten,
    Delivered,
    Detached,
    Fact,
    Left,
    Missed,
    Published,
    RecordBegun,
    Subscribed,
    Unsubscribed,
)
from sterna.core.names import Peer
from sterna.journal import Journal
from sterna.model.delivery import Fault
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.pipeline.audit import (
    Verdict,
    audit,
    audit_journals,
    in_journals,
    is_complete,
    kept,
)
from sterna.pipeline.audit.accounts import NOTHING, Account, Accounts
from sterna.pipeline.audit.verdict import Unjudged
from sterna.pipeline.audit.witnesses import Witnesses
from sterna.pipeline.errors import PipelineError

PUBLISHED = 600


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told, is told before Spark starts."""
    monkeypatch.setattr("sterna.cli.pipeline.audit.spark_for", None)


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["pipeline", "audit", *map(str, arguments)])
    return result.exit_code, result.stdout


@pytest.mark.spec("PL-5")
@pytest.mark.usefixtures("spark")
def test_planted_faults_are_found_and_named_exactly(tmp_path: Path) -> None:
    """One event lost, one twice, two that changed places; nothing else is wrong."""
    journals = tmp_path / "journals"
    written = write_journals(journals, PUBLISHED, batch=7, clients=10, publishers=4)
    out = tmp_path / "found.json"

    status, printed = run(journals, "--json", "--out", out)

    document = json.loads(printed)
    assert status == 1
    assert (document["published"], document["owed"]) == (PUBLISHED, 5 * PUBLISHED)
    assert document["delivered"] == 5 * PUBLISHED
    found = [
        (each["fault"], each["client"], each["publisher"], each["seq"])
        for each in document["findings"]
    ]
    assert sorted(found) == sorted((str(fault), *rest) for fault, *rest in written.planted)
    assert {tuple(each["path"]) for each in document["findings"]} == {
        ("B1 → B2", "B2 → B3", "B3 → client-0")
    }
    assert json.loads(out.read_text(encoding="utf-8")) == document
    assert {each.name for each in tmp_path.iterdir()} == {"journals", "found.json"}


@pytest.mark.spec("PL-5")
def test_little_is_judged_as_much_is(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark plans less for small journals, and reads as much; the session is as it was then."""
    before = {name: spark.conf.get(name) for name in kept.LITTLE_WORK}
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    written = write_journals(tmp_path, PUBLISHED // 2, batch=7, clients=10, publishers=4)
    little = audit_journals(spark, tmp_path)
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    for name, value in before.items():
        spark.conf.set(name, value or "")

    monkeypatch.setattr("sterna.pipeline.audit.stated.LITTLE_BYTES", 0)
    much = audit_journals(spark, tmp_path)

    assert little == much
    assert little.faults.total() == len(written.planted)
    assert little.compared > 0


@pytest.mark.spec("PL-5")
@pytest.mark.usefixtures("spark")
def test_a_simulation_is_judged_from_its_journal(tmp_path: Path) -> None:
    """The same numbers as the simulator's own, and exit status 0 if nothing is wrong."""
    options = ["--brokers", "3", "--clients", "4", "--events", "30", "--journal", str(tmp_path)]
    simulated = CliRunner().invoke(app, ["sim", "run", *options, "--json"])
    assert simulated.exit_code == 0, simulated.output

    status, printed = run(tmp_path, "--json")

    said, document = json.loads(simulated.stdout), json.loads(printed)
    assert status == 0
    assert document["clean"] is True
    assert document["owed"] > 0
    for name in ("published", "owed", "delivered", "findings"):
        assert document[name] == said[name]
    again = CliRunner().invoke(app, ["sim", "run", *options, "--json"])
    assert again.exit_code == 2
    assert "has a journal of simulation-0 already" in json.loads(again.stdout)["error"]


def at_second(second: int, *stated: Fact) -> list[Fact]:
    return [msgspec.structs.replace(fact, time=second * 1_000_000) for fact in stated]


def by(client: str, stated: list[Fact]) -> list[Fact]:
    return [msgspec.structs.replace(fact, at=client) for fact in stated]


def accepted(second: int) -> list[Fact]:
    """A broker has an event of a client that keeps no journal."""
    event = Event(publisher="ghost", seq=second, time_us=0, attributes={"x": 1})
    return at_second(second, Accepted(at="B1", time=0, link="ghost", events=(event,)))


def delivered(number: int, second: int | None = None) -> list[Fact]:
    event = Event(publisher="ghost", seq=number, time_us=0, attributes={"x": 1})
    return at_second(second or number, Delivered(at="c", time=0, events=(event,)))


def half(number: int) -> Event:
    return Event(publisher="half", seq=number, time_us=0, attributes={"y": 1})


BOTH = (half(1), half(2))
BEGUN = RecordBegun(at="c", time=0)
CAME = Attached(at="c", time=0, link="B1", peer=Peer.BROKER)
ASKED = Subscribed(at="c", time=0, subscription="s", filter=Filter("x > 0"))
ASKED_HALF = Subscribed(at="c", time=0, subscription="h", filter=Filter("y > 0"))
LEFT = Left(at="c", time=0, published=0)
WENT = Detached(at="c", time=0, link="B1", peer=Peer.BROKER)
FORGOTTEN = ClientForgotten(at="B1", time=0, client="ghost")


@pytest.mark.spec("PL-5")
def test_clients_without_a_journal_or_started_anew_are_not_accused(
    tmp_path: Path, spark: SparkSession
) -> None:
    """A publisher of which only brokers tell; a subscriber that left, and one that was killed, came
    back without what they knew, and asked again, but not at once.
    """
    times = (100, 200, 310, 400, 700, 800, 1010, 1100)
    told: dict[str, list[list[Fact]]] = {
        "B1": [*map(accepted, times), at_second(1150, FORGOTTEN)],
        "c": [
            *(at_second(50, CAME, ASKED), delivered(100), at_second(150, LEFT, WENT)),
            *(at_second(300, CAME), at_second(320, ASKED), delivered(400), at_second(500, WENT)),
            *(at_second(600, CAME, ASKED), delivered(700)),  # And then it was killed.
            *(at_second(1000, CAME), at_second(1020, ASKED), delivered(1100)),
            at_second(1200, WENT),
        ],
        "d": [  # It left, and did not ask again.
            *(by("d", at_second(50, CAME, ASKED)), by("d", delivered(100))),
            *(by("d", at_second(150, LEFT, WENT)), by("d", at_second(300, CAME))),
            by("d", at_second(500, WENT)),
        ],
        "e": [  # Another life, in which it gets again, and later, what the first one got.
            *(by("e", at_second(50, BEGUN, CAME, ASKED)), by("e", delivered(200))),
            *(by("e", at_second(300, BEGUN, CAME, ASKED)), by("e", delivered(100, 301))),
            by("e", delivered(200, 302)),
        ],
        "o": [  # The same, but its first life is from before journals said where one begins.
            *(by("o", at_second(50, CAME, ASKED)), by("o", delivered(200))),
            *(by("o", at_second(300, BEGUN, CAME, ASKED)), by("o", delivered(100, 301))),
            by("o", delivered(200, 302)),
        ],
        "half": [  # It was killed before it could write that it had published another event.
            by("half", at_second(50, BEGUN, CAME)),
            at_second(100, Published(at="half", time=0, events=(half(1),))),
        ],
        "f": [
            by("f", at_second(50, BEGUN, CAME, ASKED_HALF)),
            by("f", at_second(101, Delivered(at="f", time=0, events=(half(1), half(2))))),
        ],
    }
    told["B1"].insert(1, at_second(100, Accepted(at="B1", time=0, link="half", events=BOTH)))
    for node, inputs in told.items():
        for position, stated in enumerate(inputs, 1):
            journal = Journal(tmp_path, node)
            journal.record(position, stated)
            journal.close()  # Each in a file of its own.

    verdict = audit(in_journals(spark, tmp_path), partitions=2)
    assert (verdict.findings, verdict.delivered) == ([], 13)
    assert verdict.owed == 4 + 2, "of what c had asked when it was killed, nobody knows the end"

    first = min(tmp_path.glob("B1*.arrows"))
    first.unlink()  # As brokers do when they have too many.
    assert not is_complete(tmp_path)
    unattached = Journal(tmp_path, "u")  # No journal says which broker it had.
    unattached.record(1, by("u", [*at_second(50, BEGUN, ASKED), *delivered(60)]))
    unattached.close()
    verdict = audit(in_journals(spark, tmp_path), is_complete=False, partitions=2)
    assert (verdict.findings, verdict.delivered) == ([], 14)
    assert (verdict.unjudged.unattached, verdict.unjudged.lacks_beginning) == (("u",), True)


def connected(second: int, ahead: int, client: str) -> tuple[list[Fact], list[Fact]]:
    """A connection as the broker states it, and the client, whose clock is ahead."""
    broker = Attached(at="B1", time=0, link=client, peer=Peer.CLIENT)
    return at_second(second, broker), by(client, at_second(second + ahead, BEGUN, CAME))


def event_of(publisher: str, number: int) -> Event:
    return Event(publisher=publisher, seq=number, time_us=0, attributes={"x": 1})


def published_by(publisher: str, second: int, ahead: int) -> tuple[list[Fact], list[Fact]]:
    """An event, as its publisher states it and as its broker does."""
    events = (event_of(publisher, second),)
    accepted = Accepted(at="B1", time=0, link=publisher, events=events)
    return (
        at_second(second + ahead, Published(at=publisher, time=0, events=events)),
        at_second(second, accepted),
    )


@pytest.mark.spec("PL-5")
def test_clocks_that_differ_and_journals_that_are_missing_are_told(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """A publisher's clock is 8 s ahead; another client and another broker have no journal."""
    told: dict[str, list[list[Fact]]] = {name: [] for name in ("B1", "c", "fast", "right")}
    for client, ahead in (("c", 1), ("fast", 8), ("right", -1)):
        seen, own = connected(10, ahead, client)
        told["B1"].append(seen)
        told[client].append(own)
    told["c"].append(at_second(12, ASKED))
    for second in range(100, 110):
        for publisher, ahead in (("fast", 8), ("right", -1)):
            own, seen = published_by(publisher, second, ahead)
            told[publisher].append(own)
            told["B1"].append(seen)
        both = (event_of("fast", second), event_of("right", second))
        told["c"].append(
            at_second(second + 1, Delivered(at="c", time=0, events=both[second < 103 :]))
        )
    own, seen = published_by("right", 120, -1)
    told["right"].append(own)
    told["B1"].append(seen)
    told["c"].append(at_second(121, Missed(at="c", time=0, events=(EventId("right", 120),))))
    own, seen = published_by("right", 140, -1)  # It comes after the subscription has ended.
    told["right"].append(own)
    told["B1"].append(seen)
    ended = Unsubscribed(at="c", time=0, subscription="s")
    told["c"].append(at_second(141, ended))
    late = Delivered(at="c", time=0, events=(event_of("right", 140), event_of("fast", 109)))
    told["c"].append(at_second(143, late))
    for name, link, peer in (("B1", "silent", Peer.CLIENT), ("B1", "B2", Peer.BROKER)):
        told["B1"].append(at_second(130, Attached(at=name, time=0, link=link, peer=peer)))
    for client, ahead in (("c", 1), ("fast", 8), ("right", -1)):
        told[client].append(by(client, at_second(200 + ahead, WENT)))
    for node, inputs in told.items():
        journal = Journal(tmp_path, node)
        for position, stated in enumerate(inputs, 1):
            journal.record(position, stated)
        journal.close()

    verdict = audit(in_journals(spark, tmp_path), partitions=2)

    assert {(finding.fault, finding.client, finding.seq) for finding in verdict.findings} == {
        (Fault.UNASKED, "c", 140),
        (Fault.DUPLICATED, "c", 109),
    }
    assert verdict.unjudged.witnesses == Witnesses(("silent",), ("B2",), {"fast": 8_000_000})
    assert (verdict.owed, verdict.delivered, verdict.missed) == (10, 19, 1)
    assert verdict.unjudged.apart == 10, "three of them did not come, which nobody is accused of"
    assert verdict.accounts.clients == [Account("", "c", 10, 19, 1, 0, 10, 11)]
    assert verdict.accounts.publishers == [
        Account("", "fast", 0, 8, 0, 0, 10, 0),
        Account("", "right", 10, 11, 1, 0, 0, 11),
    ]
    assert not verdict.is_clean
    command._show(verdict, command.By.PUBLISHER)
    said = " ".join(capsys.readouterr().out.split())
    assert "fast is 8.0 s ahead" in said
    assert "clients without a journal: silent" in said
    assert "no journal of these brokers: B2" in said
    assert "│ fast │ 8 │ 0 │ 0 │ 0 │ 10 │" in said


@pytest.mark.spec("PL-5")
def test_what_was_not_judged_is_not_called_right() -> None:
    """It is said what was not judged, and why."""

    def told(owed: int, **left: Any) -> tuple[str, str]:
        numbers: dict[str, int] = dict.fromkeys(("published", "subscribed", "delivered"), 9)
        unjudged = Unjudged(**left)
        total = NOTHING._replace(judged=0 if unjudged.apart else 9)
        verdict = Verdict(
            owed=owed,
            faults=Counter(),
            findings=[],
            unjudged=unjudged,
            accounts=Accounts(total, [], []),
            **numbers,
        )
        assert command._document(verdict)["unjudged"].items() >= left.items()
        return command._in_words(verdict), " ".join(command._unjudged(verdict))

    assert told(1)[0].startswith("every delivery was right, and nothing")
    assert told(0)[0].startswith("no delivery was wrong; but nothing was owed")
    words, why = told(1, unknown=2, unattached=["u", "v"])
    assert words.startswith("no delivery that could be judged was wrong, and nothing")
    assert why.endswith(
        "2 deliveries of events that no journal has; no journal says which broker u, v had"
    )
    assert told(0, apart=9)[0].startswith("nothing could be judged")
    words, why = told(0, unknown=2, ends=["B1"], lacks_beginning=True)
    assert words.startswith("no delivery that could be judged was wrong; but nothing was owed")
    assert "the journals of B1 end before that, or are missing, and the beginning of some" in why


@pytest.mark.spec("PL-5")
def only_a_broker(directory: Path) -> None:
    """The journal of a broker that has accepted an event."""
    journal = Journal(directory, "B1")
    event = Event(publisher="pat", seq=1, time_us=0, attributes={"x": 1})
    journal.record(0, [Attached(at="B1", time=1, link="pat", peer=Peer.CLIENT)])
    journal.record(1, [Accepted(at="B1", time=2, link="pat", events=(event,))])
    journal.close()


@pytest.mark.usefixtures("no_spark")
def test_without_journals_of_clients_nothing_can_be_said(tmp_path: Path) -> None:
    """And that must not look like a clean audit. It is told before Spark starts."""
    only_a_broker(tmp_path)

    status, printed = run(tmp_path, "--json")

    assert status == 2
    assert "no client that subscribes has kept a journal" in json.loads(printed)["error"]


def test_it_is_told_in_the_end_if_it_is_not_quickly_seen(
    tmp_path: Path, spark: SparkSession
) -> None:
    only_a_broker(tmp_path)

    with pytest.raises(PipelineError, match="no client that subscribes has kept a journal"):
        audit_journals(spark, tmp_path)


@pytest.mark.spec("PL-5")
@pytest.mark.usefixtures("spark")
def test_a_damaged_journal_is_told(tmp_path: Path) -> None:
    """An audit of half of the facts would accuse wrongly."""
    write_journals(tmp_path / "journals", 60, batch=7, clients=5, publishers=2)
    file = next(iter((tmp_path / "journals").rglob("*client-1*.arrows")))
    file.write_bytes(file.read_bytes()[:-200])

    status, printed = run(tmp_path / "journals", "--json", "--out", tmp_path / "out.json")

    assert status == 2
    error = json.loads(printed)["error"]
    assert "is cut off" in error
    assert error.endswith(
        "; restore the file, or make tables of all that can be read with "
        "`sterna pipeline run --lossy`"
    )
    assert not (tmp_path / "out.json").exists()


@pytest.mark.spec("PL-5")
@pytest.mark.usefixtures("no_spark")
def test_an_empty_directory(tmp_path: Path) -> None:
    status, printed = run(tmp_path, "--json")
    assert status == 2
    assert "has no journal" in json.loads(printed)["error"]


@pytest.mark.usefixtures("no_spark")
def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    """It is reported at once, before Spark starts."""
    status, printed = run(tmp_path / "nowhere", "--json")
    assert status == 2
    assert "there is no directory" in json.loads(printed)["error"]

    status, printed = run(tmp_path, "--out", tmp_path / "no" / "out.json", "--json")
    assert status == 2
    assert "make it first" in json.loads(printed)["error"]
