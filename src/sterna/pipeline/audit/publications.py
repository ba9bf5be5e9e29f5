"""What was published: each event with the time when it left, and the filters that match it."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.matching import MatchIndex
from sterna.model.delivery import FOREVER, Lifetime, is_settled
from sterna.model.filters import Filter
from sterna.pipeline.audit.conduct import FOLLOWING, OFFER, PARTITIONS
from sterna.pipeline.audit.presence import Presence
from sterna.pipeline.audit.stated import LIVE, Stated, moments

EVENTS_AT_ONCE = 16_384

INDEXES_MAX = 1_000

PUBLICATIONS = """
    world STRING, publisher STRING, seq BIGINT, published BIGINT, out BIGINT, matched ARRAY<BIGINT>
"""
"""An event: when it was published, when it left its publisher (null: nobody is owed it), and all
filters of its world that match it."""


def published(stated: Stated, conducts: DataFrame, *columns: str) -> DataFrame:
    """The facts that state what was published, with these columns.

    What a publisher's journal lacks is in its broker's, among the events it has accepted: all of
    them if there is no such journal, some if the publisher was killed or ran without it.
    """
    speakers = conducts.select("world", F.col("client").alias("link"), "recorded")
    first, last = F.array_min("seqs"), F.array_max("seqs")
    is_recorded = F.exists(
        "recorded", lambda part: (part["first"] <= first) & (last <= part["last"])
    )
    is_news = (F.col("world") == LIVE) & ~F.coalesce(is_recorded, F.lit(col=False))
    return (
        stated(["Published", "Accepted"], "link", *dict.fromkeys(("seqs", *columns)))
        .join(F.broadcast(speakers), ["world", "link"], "left")
        .where((F.col("kind") == "Published") | is_news)
    )


def recorded(stated: Stated) -> DataFrame:
    """Of each client, the numbers of the events that it has recorded, as ranges without a gap."""
    facts = stated(["Published"], "seqs").select(
        "world",
        F.col("at").alias("client"),
        F.array_min("seqs").alias("first"),
        F.array_max("seqs").alias("last"),
    )
    in_order = Window.partitionBy("world", "client").orderBy("first")
    before = F.max("last").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    is_apart = F.coalesce(F.col("first") > before + 1, F.lit(col=True))
    return (
        facts.withColumn("is_apart", is_apart)
        .withColumn("part", F.count_if("is_apart").over(in_order))
        .groupBy("world", "client", "part")
        .agg(F.min("first").alias("first"), F.max("last").alias("last"))
        .groupBy("world", "client")
        .agg(F.sort_array(F.collect_list(F.struct("first", "last"))).alias("recorded"))
    )


def publications(
    stated: Stated,
    conducts: DataFrame,
    *,
    grace_us: int,
    advertisements: bool | None,
    partitions: int = PARTITIONS,
) -> DataFrame:
    """All events that were published; matching is done by the brokers' own index."""
    # What clients did comes first in each partition; the events after it are passed through.
    share = F.pmod(F.hash("journal", "position", "turn"), F.lit(partitions)).cast("int")
    everyone = F.explode(F.sequence(F.lit(0), F.lit(partitions - 1)))
    rows = (
        published(stated, conducts, "events")
        .select("world", "at", "kind", "moment", "events", share.alias("share"))
        .unionByName(
            conducts.select("world", F.struct("*").alias("conduct"), everyone.alias("share")),
            allowMissingColumns=True,
        )
    )
    match = partial(_publications, grace=moments(grace_us), advertisements=advertisements)
    return (
        rows.repartitionById(partitions, "share")
        .sortWithinPartitions(F.col("kind").asc_nulls_first())
        .mapInArrow(match, PUBLICATIONS)
    )


# ---- One partition

_Event = tuple[str, int, int, dict[str, bool | int | float | str], bytes]
_decode = msgspec.msgpack.Decoder(list[_Event]).decode


def _publications(
    batches: Iterator[pa.RecordBatch], grace: int, *, advertisements: bool | None
) -> Iterator[pa.RecordBatch]:
    worlds: dict[str, _World] = {}
    conducts: list[dict[str, Any]] = []
    for batch in batches:
        is_fact = pc.is_valid(batch["kind"])
        conducts += batch.filter(pc.invert(is_fact))["conduct"].to_pylist()
        stated = batch.filter(is_fact)
        if not stated.num_rows:
            continue
        if conducts:
            worlds = _worlds(conducts, grace, advertisements=advertisements)
            conducts = []
        yield from _answers(stated, worlds)


class _World:
    """What all clients of a world did, as far as events depend on it."""

    def __init__(
        self, conducts: list[dict[str, Any]], grace: int, *, advertisements: bool | None
    ) -> None:
        self.slack = grace if conducts[0]["world"] == LIVE else 0
        self.settled = next((each["settled"] for each in conducts if not each["client"]), None)
        self.grace = grace
        self.conducts = {each["client"]: each for each in conducts}
        self.index = _index(conducts)
        self.needs_offers = advertisements
        if advertisements is None:
            asks = (ask for each in conducts for ask in each["asks"])
            self.needs_offers = any(ask["role"] == OFFER for ask in asks)
        self._presences: dict[str, Presence] = {}
        self._discarded: dict[str, frozenset[int]] = {}
        self._recorded: dict[str, list[tuple[int, int]]] = {}

    def out(self, publisher: str, moment: int) -> int | None:
        """When what a client published at a moment had left it; None if its life never sent it."""
        conduct = self.conducts.get(publisher, _NOBODY)
        presence = self._presences.get(publisher)
        if presence is None:
            pairs = conduct["connections"]
            presence = self._presences[publisher] = Presence(
                ((pair["since"], pair["until"]) for pair in pairs),
                settled=self.settled,
                grace=self.grace,
            )
        out = presence.after(moment)
        if out is not None and any(moment < begun <= out for begun in conduct["lives"]):
            return None  # It was gone with the memory of the program.
        return out

    def discarded(self, publisher: str) -> frozenset[int]:
        """The events that a client had no room for."""
        if publisher not in self._discarded:
            seqs = self.conducts.get(publisher, _NOBODY)["discarded"]
            self._discarded[publisher] = frozenset(seqs)
        return self._discarded[publisher]

    def news(self, events: list[_Event]) -> list[_Event]:
        """Of the events that a broker has accepted, those that their publishers' journals lack."""
        return [event for event in events if not self._is_recorded(event[0], event[1])]

    def _is_recorded(self, publisher: str, seq: int) -> bool:
        parts = self._recorded.get(publisher)
        if parts is None:
            found = self.conducts.get(publisher, _NOBODY)["recorded"] or ()
            parts = self._recorded[publisher] = [(each["first"], each["last"]) for each in found]
        place = bisect_right(parts, (seq, FOREVER)) - 1
        return place >= 0 and seq <= parts[place][1]

    def offers(self, publisher: str, moment: int) -> set[int]:
        """The advertisements that were in force everywhere when a client published something."""
        return {
            ask["filter_id"]
            for ask in self.conducts.get(publisher, _NOBODY)["asks"]
            if ask["role"] == OFFER
            and is_settled(Lifetime(ask["asked"], ask["settled"], ask["ended"]), moment)
        }


_made: dict[frozenset[int], MatchIndex[int]] = {}
"""The indexes that this process has made for one audit: its next partition needs the same."""


def _index(conducts: list[dict[str, Any]]) -> MatchIndex[int]:
    asks = {ask["filter_id"]: ask for each in conducts for ask in each["asks"]}
    key = frozenset(asks)
    if key not in _made:
        if len(_made) >= INDEXES_MAX:
            _made.clear()
        index: MatchIndex[int] = MatchIndex()
        for id_, ask in asks.items():
            filter_ = Filter(ask["filter"])
            index.add(id_, filter_.widen({}).anywhere if ask["role"] == FOLLOWING else filter_)
        _made[key] = index
    return _made[key]


def _worlds(
    conducts: list[dict[str, Any]], grace: int, *, advertisements: bool | None
) -> dict[str, _World]:
    by_world: dict[str, list[dict[str, Any]]] = {}
    for each in conducts:
        by_world.setdefault(each["world"], []).append(each)
    return {
        name: _World(each, grace, advertisements=advertisements) for name, each in by_world.items()
    }


def _answers(stated: pa.RecordBatch, worlds: dict[str, _World]) -> Iterator[pa.RecordBatch]:
    """Match the events of one world together, a few thousand at a time."""
    facts: list[_Said] = []
    count = 0
    columns = (stated[name].to_pylist() for name in ("world", "at", "kind", "moment", "events"))
    for world, at, kind, moment, content in zip(*columns, strict=True):
        if facts and (world != facts[0].world or count >= EVENTS_AT_ONCE):
            yield _answer(facts, worlds.get(facts[0].world))
            facts, count = [], 0
        events, is_accepted = _decode(content), kind == "Accepted"
        if is_accepted and world in worlds:
            events = worlds[world].news(events)
        facts.append(_Said(world, at, is_accepted, moment, events))
        count += len(facts[-1].events)
    if count:
        yield _answer(facts, worlds.get(facts[0].world))


class _Said(NamedTuple):
    world: str
    at: str
    is_out: bool
    moment: int
    events: list[_Event]


def _answer(facts: list[_Said], world: _World | None) -> pa.RecordBatch:
    events = [event for fact in facts for event in fact.events]
    counts = [len(fact.events) for fact in facts]
    moment = np.repeat(np.fromiter((fact.moment for fact in facts), np.int64), counts)
    found = {} if world is None else world.index.match_each([event[3] for event in events])
    matched = _by_event(found, len(events))
    out: list[int | None] = [None] * len(events)
    if world is not None:
        out = _outs(facts, matched.offsets.to_numpy(), matched.values.to_numpy(), world)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([facts[0].world] * len(events), pa.string()),
            pa.array([event[0] for event in events], pa.string()),
            pa.array([event[1] for event in events], pa.int64()),
            pa.array(moment),
            pa.array(out, pa.int64()),
            matched,
        ],
        names=["world", "publisher", "seq", "published", "out", "matched"],
    )


def _by_event(found: Mapping[int, list[int]], count: int) -> pa.ListArray:
    """The filters that match each event; given are the matching events of each filter."""
    lengths = [len(places) for places in found.values()]
    ids = np.repeat(np.fromiter(found, np.int64, len(found)), lengths)
    places = np.fromiter(chain.from_iterable(found.values()), np.int64, sum(lengths))
    order = np.argsort(places, kind="stable")
    ends = np.cumsum(np.bincount(places, minlength=count))
    return pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], ends]), pa.int32()),
        pa.array(ids[order]),
    )


def _outs(
    facts: list[_Said], starts: np.ndarray[Any, Any], ids: np.ndarray[Any, Any], world: _World
) -> list[int | None]:
    """When each event had left its publisher; None if it has not, or nobody is owed it."""
    outs: list[int | None] = []
    place = 0
    for fact in facts:
        publisher = fact.events[0][0] if fact.events else fact.at
        conduct = world.conducts.get(publisher, _NOBODY)
        calm = fact.moment if fact.is_out else world.out(publisher, fact.moment)
        following = (begun for begun in conduct["lives"] if begun > fact.moment)
        life_ended = min(following, default=FOREVER)
        farewells = [
            left for left in conduct["farewells"] if fact.moment < left["moment"] < life_ended
        ]
        oblivions = [
            each for each in conduct["oblivions"] if fact.moment <= each["moment"] + world.slack
        ]
        discarded = world.discarded(publisher)
        offers = world.offers(publisher, fact.moment) if world.needs_offers else None
        if not (farewells or oblivions or discarded or offers is not None):
            outs += [calm] * len(fact.events)
            place += len(fact.events)
            continue
        for _, seq, *_ in fact.events:
            left = [each["moment"] for each in farewells if seq <= each["last"]]
            out = min([*left, *([] if calm is None else [calm])], default=None)
            if seq in discarded:
                out = None  # Its publisher had no room for it, and stated that.
            if offers is not None and (
                any(seq > each["heard"] for each in oblivions)
                or offers.isdisjoint(ids[starts[place] : starts[place + 1]].tolist())
            ):
                out = None
            outs.append(out)
            place += 1
    return outs


_NOBODY: dict[str, Any] = dict.fromkeys(
    ("connections", "asks", "farewells", "oblivions", "discarded", "recorded", "lives"), ()
)
