"""An archive that release 0.1 has begun goes on when its brokers write later journals."""

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from sterna.core.facts import Accepted, Fact, Subscribed
from sterna.journal import Journal
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.pipeline.declared.run import run
from sterna.pipeline.tables import read
from sterna.pipeline.tables.schemas import GROWING
from tests.data.kept import MANIFEST, TablesManifest, unpack

CASE = Path(__file__).parents[1] / "data" / "release-0.1" / "tables"


class Weighed(Fact, frozen=True, kw_only=True):
    """A fact of a protocol that release 0.1 did not have."""

    weight_kg: float


@pytest.mark.spec("LV-9", "LV-10")
def test_tables_grow_with_journals_of_a_later_version(spark: SparkSession, tmp_path: Path) -> None:
    """All that was archived stays, what is new comes once, and nothing is bad about it."""
    unpack(CASE, tmp_path)
    manifest = msgspec.json.decode((CASE / MANIFEST).read_bytes(), type=TablesManifest)
    file = min((tmp_path / "journals").rglob("*.arrows"))
    node = file.name.rsplit("-", 2)[0]
    journal = Journal(file.parent, node)
    event = Event(publisher="later", seq=1, time_us=0)
    journal.record(
        journal.last_position.position + 1,
        [
            Weighed(at=node, time=0, weight_kg=1.5),
            Accepted(at=node, time=0, link="later", events=(event,)),
            Subscribed(at=node, time=0, subscription="s", filter=Filter("TRUE"), past_events_max=3),
        ],
    )
    journal.close()

    summary = run(spark, tmp_path / "journals", tmp_path / "tables", only=[*GROWING])

    new = {"events": 1, "subscriptions": 1, "statistics": 1}
    assert {name: summary.tables[name].new for name in GROWING} == dict.fromkeys(GROWING, 0) | new
    for name in GROWING:
        count = manifest.rows[name] + new.get(name, 0)
        assert read(spark, tmp_path / "tables", name).count() == count, name
    asked = read(spark, tmp_path / "tables", "subscriptions").select("past_events_max").collect()
    assert [row[0] for row in asked if row[0] is not None] == [3], "release 0.1 did not write it"
    given = read(spark, tmp_path / "tables", "deliveries")
    assert given.where("subscription IS NOT NULL").count() == 0

    run(spark, tmp_path / "journals", tmp_path / "tables", only=["bootstrap_latency"])

    latencies = read(spark, tmp_path / "tables", "bootstrap_latency")
    assert latencies.count() > 1
    assert [row.asked for row in latencies.where("asked IS NOT NULL").collect()] == [3]
