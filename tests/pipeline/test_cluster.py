"""The pipeline on a real cluster, and the errors where none can be used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sterna.cli.main import app
from sterna.core.facts import Delivered, Fact, Published, Settled, Subscribed
from sterna.journal import Journal
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.pipeline.errors import SparkUnavailable
from sterna.pipeline.session import check_master, settings
from tests.pipeline.cluster import cluster
from tests.scale import CAMPAIGN

STERNA = Path(sys.executable).with_name("sterna")


def _written(directory: Path) -> Path:
    """A journal in which one event was lost."""
    events = tuple(
        Event(publisher="p", seq=seq, time_us=seq, attributes={"number": seq}) for seq in (1, 2, 3)
    )
    told: list[Fact] = [
        Subscribed(at="s", time=0, subscription="all", filter=Filter("number > 0")),
        Settled(at="", time=1),
        Published(at="p", time=2, events=events),
        Delivered(at="s", time=3, events=(events[0], events[2])),
        Settled(at="", time=4),
    ]
    journal = Journal(directory, "simulation")
    for position, fact in enumerate(told):
        journal.record(position, [fact])
    journal.close()
    return directory


@pytest.mark.skipif(CAMPAIGN == 1, reason="five Java processes for a minute; make test-long")
@pytest.mark.spec("PL-7", "PL-3", "PL-4", "PL-5")
def test_match_mine_and_audit_on_a_cluster(tmp_path: Path) -> None:
    """A master and two workers get the package sent, and give the answers of a local run."""
    events, wanted, fixes = (tmp_path / name for name in ("e.csv", "filters.txt", "fixes.csv"))
    events.write_text("id,price\n1,5\n2,50\n3,7\n", encoding="utf-8")
    wanted.write_text("price < 10\nprice > 10\n", encoding="utf-8")
    rows = [f"c{n % 3},{n * 600},{(n // 2 % 4) * 600},0" for n in range(120)]
    fixes.write_text("client,time,x,y\n" + "\n".join(rows), encoding="utf-8")
    journal = _written(tmp_path / "journal")
    commands = [
        ["match", "--events", str(events), "--subscriptions", str(wanted), "--count"],
        ["mine", "--fixes", str(fixes), "--grid", "500", "--out", str(tmp_path / "mined")],
        ["audit", str(journal)],
    ]
    with cluster(tmp_path / "cluster") as master:
        ran = subprocess.run(
            [sys.executable, "-m", "tests.pipeline.on_cluster", master, json.dumps(commands)],
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
    assert ran.returncode == 0, ran.stderr[-4000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert len(set(told["where"])) == 2, "each worker has a folder of its own"
    assert all(".zip" in place for place in told["where"]), "workers use what was sent to them"
    matched, mined, audited = told["said"]
    assert (matched["exit_code"], matched["output"]["pairs"]) == (0, 3)
    assert mined["exit_code"] == 0
    assert mined["output"]["accuracy_at_3"] > 0
    assert audited["exit_code"] == 1
    (finding,) = audited["output"]["findings"]
    assert (finding["fault"], finding["client"], finding["seq"]) == ("lost", "s", 2)


ALONE = """
import sys
from sterna.pipeline import session
session.WORKERS_S = 5.0
try:
    session.spark_session(master=sys.argv[1])
except session.SparkUnavailable as error:
    print(error)
"""


@pytest.mark.skipif(CAMPAIGN == 1, reason="two Java processes for half a minute; make test-long")
@pytest.mark.spec("PL-7")
def test_a_cluster_without_a_worker(tmp_path: Path) -> None:
    """After a while, one line that says what to do."""
    with cluster(tmp_path, workers=0) as master:
        ran = subprocess.run(
            [sys.executable, "-c", ALONE, master],
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )

    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.startswith(f"{master} has no worker with free cores and memory; start one")
    assert "Traceback" not in ran.stderr


@pytest.mark.spec("PL-7")
@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("spark://127.0.0.1:1", "no Spark master answers at 127.0.0.1:1 (Connection refused)"),
        ("spark://127.0.0.1", "write spark://HOST:PORT, usually 7077"),
        ("moon", "is none that Spark knows; use local[*]"),
        ("yarn", "--master yarn needs HADOOP_CONF_DIR"),
    ],
)
def test_a_cluster_that_cannot_be_used(
    master: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that says what to do, before Spark tries for a minute."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(SparkUnavailable) as error:
        check_master(master)
    assert said in str(error.value)
    environment = {**os.environ, "COLUMNS": "400"}
    ran = subprocess.run(
        [STERNA, "pipeline", "audit", _written(tmp_path), "--master", master],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.strip().splitlines()
    assert said in line


@pytest.mark.spec("PL-7")
@pytest.mark.parametrize("command", ["run", "audit"])
def test_without_java(command: str, tmp_path: Path) -> None:
    """One line that says what to install; nothing is written."""
    journal = _written(tmp_path / "journal")
    environment = {**os.environ, "PATH": str(tmp_path), "COLUMNS": "400"}
    environment.pop("JAVA_HOME", None)
    before = sorted(tmp_path.rglob("*"))
    ran = subprocess.run(
        [STERNA, "pipeline", command, journal],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.strip().splitlines()
    assert "Spark needs Java 17 or newer, and none was found in the PATH. Install one" in line
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.spec("PL-7")
def test_help_needs_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks what there is needs neither Java nor a minute."""
    for name in list(sys.modules):
        if name.startswith("pyspark"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for command in ("run", "match", "mine", "audit", "report"):
        result = CliRunner().invoke(app, ["pipeline", command, "--help"])
        assert result.exit_code == 0, result.output


def test_only_local_sessions_hide_on_loopback() -> None:
    """A driver that workers on other machines must reach does not say that it is at 127.0.0.1."""
    assert settings("local[2]")["spark.driver.host"] == "127.0.0.1"
    assert settings("spark://127.0.0.1:7077")["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in settings("spark://cluster.example:7077")
    assert "spark.driver.host" not in settings("yarn")
