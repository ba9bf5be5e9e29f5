"""Who wanted what was published: each event with the subscriptions in force that match it.

Time is divided into slices. A worker gets the events of a slice and the subscriptions that were in
force in it, and matches them with the brokers' own index. So a client that moves, or whose program
starts again and again, costs what it asked for meanwhile, however often it did so before.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.matching import MatchIndex
from sterna.model.delivery import FOREVER, Lifetime, is_settled
from sterna.model.filters import Filter
from sterna.pipeline.audit.conduct import FOLLOWING, OFFER, SUBSCRIPTION
from sterna.pipeline.audit.publications import Event, decode_events, published
from sterna.pipeline.audit.publishers import Publishers, Stretches
from sterna.pipeline.audit.stated import Stated, moments

EVENTS_AT_ONCE = 16_384
PAIRS_AT_ONCE = 262_144
"""About so many pairs of events and subscriptions are in memory at once."""

ASKS_MIN = 256
"""Slices are not made so short that fewer subscriptions end in one."""

INDEXES_MAX = 16
FILTERS_MAX = 65_536

WANTED = """
    world STRING, client STRING, publisher STRING, seq BIGINT, published BIGINT, is_owed BOOLEAN,
    span STRUCT<asked: BIGINT, ended: BIGINT, forgotten: BIGINT>, events BIGINT, pairs BIGINT
"""
"""An event and a subscription of a client that matches it and was in force when it was published.
Rows without a client say only how many `events` and `pairs` of events and subscriptions were looked
at."""


def wanted(
    stated: Stated,
    known: DataFrame,
    *,
    grace_us: int,
    advertisements: bool | None,
    partitions: int,
) -> DataFrame:
    """All events that were published, with who wanted them."""
    asks = known.select("world", "client", F.inline("asks")).where(F.col("role") != FOLLOWING)
    divided = F.broadcast(slices(asks, partitions))  # One row for each world.
    parts = ("world", "slice", "share")
    number = F.hash("world").cast("long") + F.col("slice") * F.col("shares") + F.col("share")
    partition = F.pmod(number, F.lit(partitions)).cast("int").alias("partition")
    share = F.pmod(F.hash("journal", "position", "turn"), F.coalesce("shares", F.lit(1)))
    facts = (
        published(stated, known, "events")
        .join(divided, "world", "left")
        .select(
            *("world", "kind", "at", "moment", "events"),
            F.coalesce(slice_of(F.col("moment")), F.lit(0)).alias("slice"),
            share.alias("share"),
            F.coalesce("shares", F.lit(1)).alias("shares"),
        )
        .select(*parts, "kind", "at", "moment", "events", partition)
    )
    asked = (
        asks.join(divided, "world")
        .select(
            *("world", "shares", F.struct("client", *_ASK).alias("ask")),
            F.explode(F.sequence(slice_of(F.col("asked")), slice_of(F.col("ended")))).alias(
                "slice"
            ),
        )
        .withColumn("share", F.explode(F.sequence(F.lit(0), F.col("shares") - 1)))
        .select(*parts, "ask", partition)
    )
    has_offers = F.exists("asks", lambda ask: ask["role"] == OFFER)
    everyone = F.explode(F.sequence(F.lit(0), F.lit(partitions - 1)))
    conducts = known.withColumn("has_offers", has_offers).drop(
        "asks", "sessions", "openings", "went_back"
    )
    rows = (
        facts.unionByName(asked, allowMissingColumns=True)
        .unionByName(
            conducts.select(F.struct("*").alias("conduct"), everyone.alias("partition")),
            allowMissingColumns=True,
        )
        .repartitionById(partitions, "partition")
        # What clients did comes first, then slice by slice what they asked for, and the events.
        .sortWithinPartitions(*parts, "kind")
    )
    match = partial(_wanted, grace=moments(grace_us), advertisements=advertisements)
    return rows.mapInArrow(match, WANTED)


_ASK = ("role", "filter_id", "filter", "asked", "settled", "ended", "forgotten", "lasted")


def slices(asks: DataFrame, partitions: int) -> DataFrame:
    """How the time of each world is divided: from `origin` on, so many `slices` of some `width`.

    In a slice, about as many subscriptions end as there are in force at once: so all slices
    together have at most about twice as many as there are. The events of a slice are divided in
    `shares`, if there are fewer slices than partitions.
    """
    does_end = F.col("ended") < FOREVER
    ended, asked = F.col("ended").cast("double"), F.col("asked").cast("double")
    length = F.col("end") - F.col("origin") + 1
    lasted = F.col("sum_ended") + (F.col("asks") - F.col("ending")) * F.col("end")
    at_once = F.greatest((lasted - F.col("sum_asked")) / length, F.lit(float(ASKS_MIN)))
    number = F.greatest(F.ceil(F.col("ending") / at_once), F.lit(1))
    everywhere = F.sum("slices").over(Window.partitionBy(F.lit(0)))
    return (
        asks.groupBy("world")
        .agg(
            F.min("asked").alias("origin"),
            F.max(F.greatest("asked", F.when(does_end, F.col("ended")))).alias("end"),
            F.count(F.lit(1)).alias("asks"),
            F.count_if(does_end).alias("ending"),
            F.coalesce(F.sum(F.when(does_end, ended)), F.lit(0.0)).alias("sum_ended"),
            F.sum(asked).alias("sum_asked"),
        )
        .withColumn("slices", number)
        .withColumn("width", F.ceil(length / F.col("slices")))
        .withColumn("shares", F.ceil(F.lit(partitions) / everywhere))
        .select("world", "origin", "slices", "width", "shares")
    )


def slice_of(moment: Column) -> Column:
    """The slice that a moment is in; what is before the first or after the last is in those."""
    place = (moment - F.col("origin")) / F.col("width")
    last = (F.col("slices") - 1).cast("double")
    return F.floor(F.least(F.greatest(place, F.lit(0.0)), last))


# ---- One partition


def _wanted(
    batches: Iterator[pa.RecordBatch], grace: int, *, advertisements: bool | None
) -> Iterator[pa.RecordBatch]:
    conducts: list[dict[str, Any]] = []
    worlds: dict[str, Publishers] | None = None
    here: tuple[str, int, int] | None = None
    part = _Part("", None)
    names = ("world", "slice", "share", "conduct", "ask", "kind", "at", "moment", "events")
    for batch in batches:
        columns = (batch[name].to_pylist() for name in names)
        for world, slice_, share, conduct, ask, kind, at, moment, content in zip(
            *columns, strict=True
        ):
            if conduct is not None:
                conducts.append(conduct)
                continue
            if worlds is None:
                worlds = _worlds(conducts, grace, advertisements=advertisements)
                conducts = []
            if here != (world, slice_, share):
                yield from part.answers()
                here = world, slice_, share
                part = _Part(world, worlds.get(world))
            if ask is not None:
                part.asks.append(ask)
                continue
            part.add(at, moment, decode_events(content), is_accepted=kind == "Accepted")
            if part.count >= EVENTS_AT_ONCE:
                yield from part.answers()
    yield from part.answers()


def _worlds(
    conducts: list[dict[str, Any]], grace: int, *, advertisements: bool | None
) -> dict[str, Publishers]:
    by_world: dict[str, list[dict[str, Any]]] = {}
    for each in conducts:
        by_world.setdefault(each["world"], []).append(each)
    return {
        name: Publishers(each, grace, advertisements=advertisements)
        for name, each in by_world.items()
    }


class _Said(NamedTuple):
    at: str
    is_out: bool
    moment: int
    events: list[Event]


class _Part:
    """A share of the events of a slice, and all subscriptions in force in it."""

    def __init__(self, world: str, publishers: Publishers | None) -> None:
        self._world, self._publishers = world, publishers
        self.asks: list[dict[str, Any]] = []
        self._asked: Asked | None = None
        self._facts: list[_Said] = []
        self.count = 0
        """How many events wait for an answer."""

    def add(self, at: str, moment: int, events: list[Event], *, is_accepted: bool) -> None:
        """Take the events of a fact, unless the journal of their publisher has them as well."""
        if is_accepted and self._publishers is not None:
            known = self._publishers
            events = [each for each in events if not known[each[0]].has_recorded(each[1])]
        self._facts.append(_Said(at, is_accepted, moment, events))
        self.count += len(events)

    def answers(self) -> Iterator[pa.RecordBatch]:
        """Who wanted the events so far."""
        facts, count = self._facts, self.count
        self._facts, self.count = [], 0
        if not count:
            return
        yield _counted(self._world, events=count)
        if self._publishers is None or not self.asks:
            return
        if self._asked is None:
            self._asked = Asked(self.asks)
        yield from _pairs(self._world, facts, self._asked, self._publishers)


_Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Asked:
    """What was asked for in a slice, by filters, and then by time."""

    def __init__(self, asks: Sequence[Mapping[str, Any]]) -> None:
        self.index = _index(asks)
        wishes = [ask for ask in asks if ask["role"] == SUBSCRIPTION]
        wishes.sort(key=lambda ask: (ask["filter_id"], ask["asked"]))
        self.clients = pa.array([ask["client"] for ask in wishes], pa.string())
        self._moments = [
            _numbers(wishes, name) for name in ("asked", "settled", "ended", "forgotten")
        ]
        self.lasted = _numbers(wishes, "lasted")
        asked, _, ended, _ = self._moments
        self._bounds = np.unique(np.concatenate([asked, ended]))
        self._ids, filters = np.unique(_numbers(wishes, "filter_id"), return_inverse=True)
        self._asked = self._key(filters, np.searchsorted(self._bounds, asked))
        # The last end so far: what is before the first that is late enough, has ended as well.
        ends = self._key(filters, np.searchsorted(self._bounds, ended))
        self._ended = np.maximum.accumulate(ends)
        offers: dict[str, list[tuple[int, int, int]]] = {}
        for ask in asks:
            if ask["role"] == OFFER:
                offer = ask["settled"], ask["ended"], ask["filter_id"]
                offers.setdefault(ask["client"], []).append(offer)
        self._offers = {client: Stretches(each) for client, each in offers.items()}

    def _key(self, filters: _Numbers, bounds: _Numbers) -> _Numbers:
        """The place of a filter and that of a moment as one number, which keeps their order."""
        return filters * (len(self._bounds) + 1) + bounds

    def candidates(
        self, whose: _Numbers, ids: _Numbers, moments: _Numbers
    ) -> Iterator[tuple[_Numbers, _Numbers]]:
        """The pairs of events and subscriptions with the same filter, if they may be in force.

        Given are events, the filter that matches each of them, and the moments of all events. So
        many pairs come at a time that they fit into memory.
        """
        filters = np.searchsorted(self._ids, ids)
        is_wish = filters < len(self._ids)
        is_wish[is_wish] = self._ids[filters[is_wish]] == ids[is_wish]  # Or an advertisement.
        whose, filters = whose[is_wish], filters[is_wish]
        when = moments[whose]
        since = self._key(filters, np.searchsorted(self._bounds, when, "left"))
        until = self._key(filters, np.searchsorted(self._bounds, when, "right"))
        first = np.searchsorted(self._ended, since, "left")
        many = np.maximum(np.searchsorted(self._asked, until, "left") - first, 0)
        before = np.concatenate([[0], np.cumsum(many)])
        start = 0
        while start < len(whose):
            end = int(np.searchsorted(before, before[start] + PAIRS_AT_ONCE, "right")) - 1
            end = max(end, start + 1)
            some = many[start:end]
            offset = np.repeat(first[start:end] - (before[start:end] - before[start]), some)
            yield np.repeat(whose[start:end], some), offset + np.arange(len(offset))
            start = end

    def lifetimes(self, places: _Numbers) -> Lifetime:
        """When some of the subscriptions were asked, settled, ended and forgotten."""
        return Lifetime(*(each[places] for each in self._moments))

    def offers(self, publisher: str, moment: int) -> frozenset[int]:
        """The advertisements that were in force everywhere when a client published something."""
        found = self._offers.get(publisher)
        return frozenset() if found is None else found.at(moment)


def _numbers(asks: Sequence[Mapping[str, Any]], name: str) -> _Numbers:
    """A column of subscriptions; what is missing is before all else."""
    values = (ask[name] for ask in asks)
    return np.fromiter((-1 if each is None else each for each in values), np.int64, len(asks))


_made: dict[frozenset[int], MatchIndex[int]] = {}
"""The indexes that this process has made last: the next share of a slice needs the same."""


def _index(asks: Sequence[Mapping[str, Any]]) -> MatchIndex[int]:
    filters = {ask["filter_id"]: ask["filter"] for ask in asks}
    key = frozenset(filters)
    if key not in _made:
        if len(_made) >= INDEXES_MAX:
            _made.clear()
        index: MatchIndex[int] = MatchIndex()
        for id_, text in filters.items():
            index.add(id_, _parsed(text))
        _made[key] = index
    return _made[key]


@lru_cache(maxsize=FILTERS_MAX)
def _parsed(text: str) -> Filter:
    return Filter(text)


def _pairs(
    world: str, facts: list[_Said], asked: Asked, publishers: Publishers
) -> Iterator[pa.RecordBatch]:
    """Each event with each subscription that matches it and was in force."""
    events = [event for fact in facts for event in fact.events]
    counts = [len(fact.events) for fact in facts]
    moment = np.repeat(np.fromiter((fact.moment for fact in facts), np.int64), counts)
    starts, ids = by_event(asked.index.match_each([event[3] for event in events]), len(events))
    outs = outs_of(facts, starts, ids, asked, publishers)
    is_out = np.fromiter((out is not None for out in outs), np.bool_, len(outs))
    out = np.fromiter((FOREVER if each is None else each for each in outs), np.int64, len(outs))
    names = pa.array([event[0] for event in events], pa.string())
    seqs = np.fromiter((event[1] for event in events), np.int64, len(events))
    whose = np.repeat(np.arange(len(events)), np.diff(starts))
    pairs = 0
    for event, ask in asked.candidates(whose, ids, moment):
        pairs += len(ask)
        when, span = moment[event], asked.lifetimes(ask)
        is_in_force = (span.asked <= when) & (when <= span.ended)
        event, ask = event[is_in_force], ask[is_in_force]  # noqa: PLW2901 - fewer of the same.
        when, span = moment[event], asked.lifetimes(ask)
        # It was calm before the end if it was out early enough for that.
        was_calm = is_out[event] & (out[event] <= asked.lasted[ask])
        yield _batch(
            world=pa.array([world] * len(event), pa.string()),
            client=asked.clients.take(pa.array(ask)),
            publisher=names.take(pa.array(event)),
            seq=pa.array(seqs[event]),
            published=pa.array(when),
            is_owed=pa.array(is_settled(span, when) & was_calm),
            span=pa.StructArray.from_arrays(
                [pa.array(each) for each in (span.asked, span.ended, span.forgotten)],
                names=["asked", "ended", "forgotten"],
            ),
        )
    yield _counted(world, pairs=pairs)


def by_event(found: Mapping[int, list[int]], count: int) -> tuple[_Numbers, _Numbers]:
    """Where the filters that match each event begin, and these filters, event by event.

    Given are the matching events of each filter.
    """
    lengths = [len(places) for places in found.values()]
    ids = np.repeat(np.fromiter(found, np.int64, len(found)), lengths)
    places = np.fromiter(chain.from_iterable(found.values()), np.int64, sum(lengths))
    order = np.argsort(places, kind="stable")
    ends = np.cumsum(np.bincount(places, minlength=count))
    return np.concatenate([[0], ends]), ids[order]


def outs_of(
    facts: list[_Said], starts: _Numbers, ids: _Numbers, asked: Asked, publishers: Publishers
) -> list[int | None]:
    """When each event had left its publisher; None if it has not, or nobody is owed it."""
    outs: list[int | None] = []
    place = 0
    for fact in facts:
        name = fact.events[0][0] if fact.events else fact.at
        publisher = publishers[name]
        calm = fact.moment if fact.is_out else publisher.out(fact.moment)
        farewells = publisher.farewells(fact.moment)
        heard = publisher.heard(fact.moment)
        discarded = publisher.discarded
        offers = asked.offers(name, fact.moment) if publishers.needs_offers else None
        if not (farewells or discarded or offers is not None):
            outs += [calm] * len(fact.events)
            place += len(fact.events)
            continue
        for _, seq, *_ in fact.events:
            left = [moment for moment, last in farewells if seq <= last]
            out = min([*left, *([] if calm is None else [calm])], default=None)
            if seq in discarded:
                out = None  # Its publisher had no room for it, and stated that.
            if offers is not None and (
                (heard is not None and seq > heard)
                or offers.isdisjoint(ids[starts[place] : starts[place + 1]].tolist())
            ):
                out = None
            outs.append(out)
            place += 1
    return outs


_ARROW = pa.schema(
    {
        **dict.fromkeys(("world", "client", "publisher"), pa.string()),
        **dict.fromkeys(("seq", "published"), pa.int64()),
        "is_owed": pa.bool_(),
        "span": pa.struct(dict.fromkeys(("asked", "ended", "forgotten"), pa.int64())),
        **dict.fromkeys(("events", "pairs"), pa.int64()),
    }
)


def _counted(world: str, **counts: int) -> pa.RecordBatch:
    columns = {name: pa.array([count], pa.int64()) for name, count in counts.items()}
    return _batch(world=pa.array([world]), **columns)


def _batch(**columns: pa.Array) -> pa.RecordBatch:
    count = len(columns["world"])
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in _ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
