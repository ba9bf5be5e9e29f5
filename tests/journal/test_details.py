"""Facts that protocols of other packages declare: fields without a column are in `details`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sterna.core import protocol as protocols
from sterna.core.component import BrokerComponent
from sterna.core.facts import (
    Accepted,
    Attached,
    Discarded,
    Fact,
    MemoriesDiffer,
    Recalled,
    Subscribed,
    WatchBegun,
)
from sterna.core.names import LinkId, Peer
from sterna.core.protocol import Protocol, register
from sterna.journal import SCHEMA, Journal, OtherFact, facts_in, read_journal, rows_of
from sterna.journal.columns import DETAILS, form_of
from sterna.journal.rows import SCHEMAS, events_in, problem_with
from sterna.model.event import Event, EventId, Scalar
from sterna.model.filters import Filter
from tests.data.kept import unpack
from tests.strategies import scalars

pytestmark = pytest.mark.spec("LV-10")

RELEASE = Path(__file__).parents[1] / "data" / "release-0.1"


class Weighed(Fact, frozen=True, kw_only=True):
    """Has fields of all sorts: some with a column, some without, some of another type than it."""

    link: LinkId
    peer: Peer | None = None
    subscription: str
    name: str
    held: str
    events: tuple[Event, ...] = ()
    weight_kg: float
    limits: Mapping[str, Scalar] = {}
    only: Filter | None = None
    last: EventId | None = None


class Counted(Fact, frozen=True, kw_only=True):
    """Its `events` are a number, and its `to` is no mapping."""

    events: int
    to: str


class Weighing(BrokerComponent):
    name = "weighing"
    facts = (Weighed, Counted)


@pytest.fixture
def weighing(monkeypatch: pytest.MonkeyPatch) -> Protocol:
    monkeypatch.setattr(protocols, "_protocols", dict(protocols._protocols))
    return register(Protocol(name="weighing", broker=Weighing))


def weighed(**values: Any) -> Weighed:
    some: dict[str, Any] = {"subscription": "s", "name": "n", "held": "firmly", "weight_kg": 1.5}
    return Weighed(**{"at": "b1", "time": 7, "link": "b2", **some, **values})


@given(
    weight_kg=st.floats(),
    limits=st.dictionaries(st.text(st.characters(codec="utf-8")), scalars, max_size=3),
    only=st.sampled_from([None, Filter("a > 1")]),
    last=st.sampled_from([None, EventId("p", 3)]),
    peer=st.sampled_from([None, *Peer]),
)
def test_what_has_no_column_comes_back_from_the_details(**values: Any) -> None:
    fact = weighed(**values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocols, "_protocols", dict(protocols._protocols))
        register(Protocol(name="weighing", broker=Weighing))

        (back,) = facts_in(rows_of([(1, 0, fact)]))

    assert repr(back) == repr(fact)  # NaN is not equal to itself.


def test_a_field_stands_in_the_column_of_its_name_if_that_has_its_type() -> None:
    """The first field that a column is for has it; Sterna's own facts need no details, but for
    fields that are younger than the columns.
    """
    assert form_of(Weighed).filled == ["link", "peer", "name", "publishers", "seqs", DETAILS]
    (row,) = rows_of([(1, 0, weighed())]).to_pylist()

    assert (row["link"], row["name"], row["held"]) == ("b2", "s", None)
    assert '"name": "n"' in row[DETAILS]
    assert '"held": "firmly"' in row[DETAILS]
    own = [kind for kind in protocols.fact_types() if kind.__module__ == "sterna.core.facts"]
    younger = [kind for kind in own if DETAILS in form_of(kind).filled]
    assert younger == [WatchBegun, Subscribed, Discarded, MemoriesDiffer]


@pytest.mark.usefixtures("weighing")
def test_events_that_are_no_events_are_not_counted() -> None:
    fact = Counted(at="b1", time=7, events=5, to="nobody")

    assert events_in(fact) == 0
    assert list(facts_in(rows_of([(1, 0, fact)]))) == [fact]
    assert events_in(weighed(events=(Event(publisher="p", seq=1, time_us=0),))) == 1


def test_a_kind_that_is_not_known_here_is_told_all_the_same() -> None:
    """Reading does not fail where the package of a protocol is not installed."""
    event = Event(publisher="p", seq=1, time_us=0)
    batch = rows_of(
        [
            (1, 0, weighed(events=(event,))),
            (2, 0, Attached(at="b1", time=8, link="b2", peer=Peer.BROKER)),
        ]
    )

    other, attached = facts_in(batch)

    assert isinstance(other, OtherFact)
    assert (other.kind, other.at, other.time) == ("Weighed", "b1", 7)
    assert other.details["weight_kg"] == 1.5
    assert (other.details["link"], other.details["seqs"]) == ("b2", [1])
    assert isinstance(attached, Attached)


@pytest.mark.usefixtures("weighing")
def test_a_kind_that_has_changed_since_is_told_all_the_same() -> None:
    batch = rows_of([(1, 0, weighed())])
    place = SCHEMA.get_field_index(DETAILS)
    changed = pa.array(['{"weight_kg": "much"}'])

    (other,) = facts_in(batch.set_column(place, SCHEMA.field(place), changed))

    assert isinstance(other, OtherFact)
    assert other.details["weight_kg"] == "much"


def test_what_a_journal_cannot_hold_is_said_clearly() -> None:
    with pytest.raises(TypeError, match="a journal cannot hold a object"):
        rows_of([(1, 0, weighed(limits={"a": object()}))])


# ---- Version 2


def test_the_columns_of_version_2_are_as_release_0_1_wrote_them(tmp_path: Path) -> None:
    unpack(RELEASE / "journal", tmp_path)
    files = list(tmp_path.rglob("*.arrows"))
    assert files
    for file in files:
        with pa.ipc.open_stream(file) as stream:
            assert stream.schema.equals(SCHEMAS["2"])
            assert problem_with(stream.schema) is None


@pytest.mark.spec("LV-9")
def test_fields_that_release_0_1_did_not_write_have_their_defaults(tmp_path: Path) -> None:
    """How many past events a subscription asks for, and whose past events were."""
    unpack(RELEASE / "journal", tmp_path)
    folders = sorted({file.parent for file in tmp_path.rglob("*.arrows")})
    found = [fact for folder in folders for b in read_journal(folder) for fact in facts_in(b)]

    asked = [fact for fact in found if isinstance(fact, Subscribed)]
    recalled = [fact for fact in found if isinstance(fact, Recalled)]
    assert asked
    assert recalled
    assert {fact.past_events_max for fact in asked} == {None}
    assert {fact.subscription for fact in recalled} == {None}
    assert not any(isinstance(fact, OtherFact) for fact in found)


def test_a_request_for_the_past_is_in_the_journal() -> None:
    asked = Subscribed(at="c", time=1, subscription="s", filter=Filter("a > 1"), past_events_max=7)
    event = Event(publisher="p", seq=4, time_us=0)
    recalled = Recalled(at="c", time=2, events=(event,), subscription="s")

    batch = rows_of([(1, 0, asked), (2, 0, recalled)])

    assert list(facts_in(batch, {event.id: event})) == [asked, recalled]
    assert batch["name"].to_pylist() == ["s", "s"]


def test_spark_reads_both_versions_together(spark: SparkSession, tmp_path: Path) -> None:
    """A broker of release 0.1 was upgraded, and has a protocol of another package now."""
    unpack(RELEASE / "journal", tmp_path)
    folder = min(tmp_path.rglob("*.arrows")).parent
    old = sum(batch.num_rows for batch in read_journal(folder))
    nodes = {file.name.rsplit("-", 2)[0] for file in folder.glob("*.arrows*")}
    with_new = Journal(folder, min(nodes))
    place = with_new.last_position.position + 1
    event = Event(publisher="p", seq=1, time_us=0)
    with_new.record(place, [weighed(), Accepted(at="b1", time=9, link="c", events=(event,))])
    with_new.close()

    for push_down in ("false", "true"):
        options = {"table": "facts", "pushDown": push_down}
        facts = spark.read.format("sterna").options(**options).load(str(folder))

        assert facts.count() == old + 2
        new = facts.where("details IS NOT NULL")
        weights = new.selectExpr("get_json_object(details, '$.weight_kg')").collect()
        assert [tuple(row) for row in weights] == [("1.5",)]
        assert facts.select("details", "kind").where("kind = 'Accepted'").count() >= 1
