"""What each client did: when it was connected, its subscriptions and advertisements, its end."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.delivery import FOREVER
from sterna.model.filters import Filter
from sterna.pipeline.audit.presence import Presence, connections_of
from sterna.pipeline.audit.stated import BEGUN, LIVE, STARTS, Stated, moments

SUBSCRIPTION = "subscription"
FOLLOWING = "following"
"""Everything that a subscription which depends on its client may mean while it lasts."""
OFFER = "offer"
"""An advertisement."""

CLIENTS_AT_ONCE = 1_000

_COLUMNS = ("link", "name", "filter", "published", "publishers", "seqs")

FORGOTTEN = "Forgotten"
"""The network had forgotten the client before it came back, and knows it from here on."""

_OF_BROKERS = ("Accepted", "Forwarded", "Discarded")
"""Facts that only brokers state, and of which they state many."""

WENT_BACK = "went back"

SPREAD = 64
"""In how many parts such facts of a broker are looked at."""


_LONG = pa.int64()


def _list_of(**fields: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct(list(fields.items())))


_ARROW = pa.schema(
    {
        "world": pa.string(),
        "client": pa.string(),
        "connections": _list_of(since=_LONG, until=_LONG),
        "sessions": _list_of(broker=_LONG, since=_LONG, until=_LONG, begun=_LONG),
        "asks": _list_of(
            role=pa.string(),
            filter_id=_LONG,
            filter=pa.string(),
            **dict.fromkeys(("asked", "settled", "ended", "forgotten", "lasted"), _LONG),
        ),
        "farewells": _list_of(moment=_LONG, last=_LONG),
        "oblivions": _list_of(moment=_LONG, heard=_LONG),
        "lives": pa.list_(_LONG),
        "discarded": pa.list_(_LONG),
        "went_back": pa.bool_(),
        "settled": pa.list_(_LONG),
    }
)

CONDUCT = """
    world STRING, client STRING,
    connections ARRAY<STRUCT<since: BIGINT, until: BIGINT>>,
    sessions ARRAY<STRUCT<broker: BIGINT, since: BIGINT, until: BIGINT, begun: BIGINT>>,
    asks ARRAY<STRUCT<role: STRING, filter_id: BIGINT, filter: STRING,
        asked: BIGINT, settled: BIGINT, ended: BIGINT, forgotten: BIGINT, lasted: BIGINT>>,
    farewells ARRAY<STRUCT<moment: BIGINT, last: BIGINT>>,
    oblivions ARRAY<STRUCT<moment: BIGINT, heard: BIGINT>>,
    lives ARRAY<BIGINT>,
    discarded ARRAY<BIGINT>,
    went_back BOOLEAN,
    settled ARRAY<BIGINT>
"""
"""A client: its connections; those in which its journal is complete, with their brokers, without a
grace period at each end, and when the run of its program had `begun`; its asks with the moments of
`sterna.model.delivery.Lifetime`, and the last moment (`lasted`) at which an event may have left its
publisher to arrive before the end; when it left for good, and its last event that had arrived; when
it was forgotten, and its last event that had reached the network; when its program began without a
memory, its journal anew, or the network did not know it any more; its events that it discarded;
whether its clock went back during a run. The row without a client has the moments at which nothing
was on its way in a world."""


WATCHES = "WatchBegun"
"""The fact of an application that several clients watch for; it is no client itself."""


def controls(stated: Stated) -> DataFrame:
    """The facts about connections, subscriptions and advertisements, but not about events."""
    return stated(
        (
            *("Subscribed", "Adapted", "Unsubscribed", "Advertised", "Unadvertised"),
            *("Attached", "Detached", "Left", "Purged", "ClientForgotten", "Settled"),
            *(*STARTS, FORGOTTEN, WATCHES),
        ),
        *("client", "peer", *_COLUMNS),
    )


def conducts(
    control: DataFrame,
    seen: DataFrame | None,
    heard: DataFrame | None,
    *,
    grace_us: int,
    partitions: int,
) -> DataFrame:
    """What every client did.

    From facts that state it, and the signs of life and the events that brokers received (`heard`),
    if they matter: where no fact states that nothing was on its way, and with advertisements.
    """
    own = control.where("kind NOT IN ('ClientForgotten', 'Settled')").withColumn(
        "client", F.col("at")
    )
    rows = own.unionByName(_oblivions(control, heard), allowMissingColumns=True)
    if seen is not None:
        rows = rows.unionByName(seen, allowMissingColumns=True)
    share = F.pmod(F.hash("world", "client"), F.lit(partitions)).cast("int")
    everyone = F.explode(F.sequence(F.lit(0), F.lit(partitions - 1)))
    settled = control.where("kind = 'Settled'").select("world", "moment", everyone.alias("share"))
    rows = (
        rows.withColumn("share", share)
        .select("world", "client", "kind", "moment", "position", "turn", "share", *_COLUMNS)
        .unionByName(settled, allowMissingColumns=True)
    )
    return (
        rows.repartitionById(partitions, "share")
        # By moments: what brokers tell of a client has positions in their own journals.
        .sortWithinPartitions("client", "world", "moment", "position", "turn")
        .mapInArrow(partial(_conducts, grace=moments(grace_us)), CONDUCT)
    )


def signs_of_life(stated: Stated) -> DataFrame:
    """The first and the last fact of each run of each program (`moment`, `published`).

    Its `name` is `WENT_BACK` if the clock of the client did during the run: the times of its facts
    are not in the order in which they were written.
    """
    # One sort tells the runs apart, however many there are. Brokers have none: the facts that only
    # they state need not be in one place.
    anywhere = F.when(F.col("kind").isin(*_OF_BROKERS), F.pmod("position", F.lit(SPREAD)))
    in_order = Window.partitionBy("at", "anywhere").orderBy("moment", "position", "turn")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_start = F.col("kind").isin(*STARTS)
    # Another run may be in a journal of the same name elsewhere, with positions of its own.
    is_back = ~F.col("is_start") & (F.col("position") < F.lag("position").over(in_order))
    went_back = F.when((F.col("run") > 0) & F.max("is_back"), WENT_BACK)
    return (
        stated(None)
        .where(F.col("world") == LIVE)
        .select(
            *("world", "at", "moment", "position", "turn"),
            is_start.alias("is_start"),
            anywhere.alias("anywhere"),
        )
        .withColumns({"run": F.count_if("is_start").over(so_far), "is_back": is_back})
        .groupBy("world", F.col("at").alias("client"), "run")
        .agg(
            F.min("moment").alias("moment"),
            F.max("moment").alias("published"),
            went_back.alias("name"),
        )
        .withColumn("kind", F.lit("Seen"))
        .drop("run")
    )


def hearings(stated: Stated) -> DataFrame:
    """When events of clients had reached the network, up to which number."""
    taken = stated(["Accepted", "Quenched"], "link", "seqs")
    whose = F.when(F.col("kind") == "Accepted", F.col("link")).otherwise(F.col("at"))
    return taken.select(
        "world",
        whose.alias("client"),
        "moment",
        F.array_max("seqs").alias("heard"),
    )


def _oblivions(control: DataFrame, heard: DataFrame | None) -> DataFrame:
    """When each client was forgotten, with the last of its events in the network by then."""
    forgotten = control.where("kind = 'ClientForgotten'").select("world", "client", "moment")
    if heard is None:
        known = forgotten.withColumn("published", F.lit(None).cast("long"))
    else:
        before = (
            Window.partitionBy("world", "client")
            .orderBy("moment")
            .rangeBetween(Window.unboundedPreceding, -1)
        )
        known = (
            forgotten.withColumn("is_forgotten", F.lit(col=True))
            .unionByName(heard, allowMissingColumns=True)
            .withColumn("published", F.max("heard").over(before))
            .where("is_forgotten")
            .drop("is_forgotten", "heard")
        )
    return known.distinct().withColumn("kind", F.lit("ClientForgotten"))


def name_id(name: str) -> int:
    """The number that represents a node where only numbers are compared."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


def filter_id(world: str, text: str, role: str) -> int:
    """The number that represents a filter in tables.

    It has 64 bits: of a million filters, two are taken for one in one of 30 million audits.
    """
    name = "\0".join((world, text, str(role == FOLLOWING)))
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


# ---- One partition

_Row = dict[str, Any]


def _conducts(batches: Iterator[pa.RecordBatch], grace: int) -> Iterator[pa.RecordBatch]:
    settled: dict[str, list[int]] = {}
    is_first_share = False
    told: list[_Row] = []
    rows = (row for batch in batches for row in batch.to_pylist())
    for client, of_client in groupby(rows, key=itemgetter("client")):
        if client is None:
            for row in of_client:
                settled.setdefault(row["world"], []).append(row["moment"])
                is_first_share = row["share"] == 0
            for world, known in settled.items():
                known.sort()
                if is_first_share:
                    told.append({"world": world, "client": "", "settled": known})
            continue
        for world, given in groupby(of_client, key=itemgetter("world")):
            facts = list(given)
            if any(row["kind"] != "ClientForgotten" for row in facts):  # It has a journal.
                conduct = _conduct(facts, settled.get(world), grace)
                told.append({"world": world, "client": client, **conduct})
        if len(told) >= CLIENTS_AT_ONCE:
            yield _batch(told)
            told = []
    if told:
        yield _batch(told)


def _batch(told: list[_Row]) -> pa.RecordBatch:
    empty: _Row = {name: [] for name in _ARROW.names} | {"went_back": False}
    return pa.RecordBatch.from_pylist([empty | each for each in told], _ARROW)


def _conduct(rows: Sequence[_Row], settled: list[int] | None, grace: int) -> _Row:
    links = [(row["moment"], _IS_THERE[row["kind"]]) for row in rows if row["kind"] in _IS_THERE]
    world, client = rows[0]["world"], rows[0]["client"]
    is_by_clock = settled is None
    connections = connections_of(links, unbroken=not is_by_clock)
    if is_by_clock:
        connections = _seen(connections, rows) if world == LIVE else []
    presence = Presence(connections, settled=settled, grace=grace)
    oblivions = [row for row in rows if row["kind"] == "ClientForgotten"]
    # A simulation knows better than its clients when they were forgotten.
    learned = [row["moment"] for row in rows if row["kind"] == FORGOTTEN and is_by_clock]
    cuts = sorted([*(row["moment"] for row in oblivions), *learned])
    return {
        "connections": [{"since": since, "until": until} for since, until in connections],
        "sessions": list(_sessions(rows, grace)) if is_by_clock and world == LIVE else [],
        "asks": [
            _ask(world, presence, *span)
            for asked in _asks(rows, leaving_ends=is_by_clock)
            for span in _cut(asked, cuts)
        ],
        "farewells": [
            {"moment": row["moment"], "last": row["published"]}
            for row in rows
            if row["kind"] == "Left"
        ],
        "oblivions": [
            {"moment": row["moment"], "heard": row["published"] or 0} for row in oblivions
        ],
        "lives": sorted([*(row["moment"] for row in rows if row["kind"] == BEGUN), *learned]),
        "discarded": [
            seq
            for row in rows
            if row["kind"] == "Purged"
            for publisher, seq in zip(
                row["publishers"] * (len(row["seqs"]) if len(row["publishers"]) == 1 else 1),
                row["seqs"],
                strict=True,
            )
            if publisher == client
        ],
        "went_back": any(row["name"] == WENT_BACK for row in rows if row["kind"] == "Seen"),
    }


_IS_THERE = {"Attached": True, "Detached": False, FORGOTTEN: True, **dict.fromkeys(STARTS)}
"""Whether a link is there after a fact; None: if there was one, its end is unknown. Nothing comes
over the link to a client that was forgotten before it learns that."""


def _seen(connections: list[tuple[int, int]], rows: Sequence[_Row]) -> list[tuple[int, int]]:
    """Connections as far as the client gave signs of life in that run: it may have been killed."""
    runs = sorted((row["moment"], row["published"]) for row in rows if row["kind"] == "Seen")
    if not runs:
        return []
    found = []
    for since, until in connections:
        first, last = runs[max(0, bisect_right(runs, (since, FOREVER)) - 1)]
        found.append((max(since, first), min(until, last)))
    return found


def _sessions(rows: Sequence[_Row], grace: int) -> Iterator[_Row]:
    """The connections in runs of which the journal has the beginning."""
    starts = {row["moment"] for row in rows if row["kind"] in STARTS}
    seen = ((row["moment"], row["published"]) for row in rows if row["kind"] == "Seen")
    runs = sorted(run for run in seen if run[0] in starts)
    links = [row for row in rows if row["kind"] in ("Attached", "Detached", *STARTS)]
    for row, following in pairwise([*links, {"moment": FOREVER}]):
        place = bisect_right(runs, (row["moment"], FOREVER)) - 1
        if row["kind"] == "Attached" and place >= 0:
            begun, last = runs[place]
            until = min(last, following["moment"]) - grace
            if row["moment"] + grace <= until:
                broker, since = name_id(row["link"]), row["moment"] + grace
                yield {"broker": broker, "since": since, "until": until, "begun": begun}


_Asked = tuple[str, str, int, int]
"""Role, filter, since when, until when."""


def _asks(rows: Iterable[_Row], *, leaving_ends: bool) -> Iterator[_Asked]:
    """What a client subscribed to and advertised, each time it meant something else.

    A client that subscribes again under the same name has lost its state: it was started anew, and
    the earlier subscription ended at the latest when it came back.
    """
    open_: dict[tuple[str, str], tuple[str, int]] = {}
    came = 0

    def end(role: str, name: str, moment: int) -> Iterator[_Asked]:
        if (role, name) in open_:
            text, asked = open_.pop((role, name))
            yield role, text, asked, moment

    def end_forgotten(role: str, name: str, moment: int) -> Iterator[_Asked]:
        if (role, name) in open_:
            _, asked = open_[role, name]
            yield from end(role, name, came if came > asked else moment)

    for row in rows:
        name, text, moment = row["name"], row["filter"], row["moment"]
        match row["kind"]:
            case "Attached":
                came = moment
            case "Left" if leaving_ends:
                for role, name in list(open_):
                    yield from end(role, name, moment)
            case "RecordBegun":  # What is in force is stated again.
                for role, name in list(open_):
                    yield from end(role, name, moment)
            case "Subscribed":
                yield from end_forgotten(SUBSCRIPTION, name, moment)
                yield from end_forgotten(FOLLOWING, name, moment)
                role = SUBSCRIPTION if _is_bound(text) else FOLLOWING
                open_[role, name] = text, moment
            case "Adapted":
                yield from end(SUBSCRIPTION, name, moment)
                open_[SUBSCRIPTION, name] = text, moment
            case "Unsubscribed":
                yield from end(SUBSCRIPTION, name, moment)
                yield from end(FOLLOWING, name, moment)
            case "Advertised":
                yield from end_forgotten(OFFER, name, moment)
                open_[OFFER, name] = text, moment
            case "Unadvertised":
                yield from end(OFFER, name, moment)
    for role, name in list(open_):
        yield from end(role, name, FOREVER)


def _cut(asked: _Asked, cuts: Sequence[int]) -> Iterator[_Asked]:
    """The network has to learn again what a client still wants after it was forgotten."""
    role, text, since, until = asked
    if role == FOLLOWING:
        yield asked
        return
    between = cuts[bisect_right(cuts, since) : bisect_left(cuts, until)]
    ends = [since, *between, until]
    yield from ((role, text, start, end) for start, end in pairwise(ends))


def _ask(world: str, presence: Presence, role: str, text: str, asked: int, ended: int) -> _Row:
    settled, forgotten = presence.after(asked), presence.after(ended)
    return {
        "role": role,
        "filter_id": filter_id(world, text, role),
        "filter": text,
        "asked": asked,
        "settled": FOREVER if settled is None else settled,
        "ended": ended,
        "forgotten": FOREVER if forgotten is None else forgotten,
        "lasted": presence.before(ended),
    }


_DEPENDS = re.compile(r"\$|myloc", re.IGNORECASE)


def _is_bound(text: str) -> bool:
    """Whether a filter depends on no variable; most need not be parsed to see that."""
    return _DEPENDS.search(text) is None or Filter(text).is_bound
