"""Subscriptions in bulk: parsed by all workers, compiled into shares that workers load."""

import gc
import hashlib
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name.
from pyspark.sql.types import DataType, StringType, StructType

from sterna.matching import MatchIndex
from sterna.model.filters import Filter
from sterna.model.filters.errors import FilterError, UnboundError
from sterna.model.filters.normal_form import NormalForm, Term, usual_form
from sterna.model.filters.tree import Always, Condition
from sterna.model.filters.values import MISSING, PRESENT, ValueSet, union
from sterna.model.filters.wording import in_words
from sterna.pipeline.errors import PipelineError

PARTS_A_CORE = 2
"""Into how many parts subscriptions are divided for each core when they are parsed."""

ALONE_S = 2.0
"""For so many seconds the driver parses by itself, about as long as the first job and its workers
take to start; that is enough for 20,000 plain filters. Workers parse the rest."""

PORTION = 500
"""How many filters the driver parses before it looks at the time."""

ALONE_SHARES_MAX = 3
"""So many shares are compiled by the driver itself: with two, bringing filters to workers and
compiled shares back takes longer than the half that is saved."""

ROW_BYTES = 512
"""About how many bytes an alternative of a filter takes in the index, at most."""

WORDS_MAX = 100
"""A condition on events before they are matched lists at most so many cuts for an attribute."""

UNIONS_AT_A_TIME = 1000

Given = TypeVar("Given")
Done = TypeVar("Done")

Cuts = tuple[Any, ...]
"""The accepted values, as in `ValueSet`."""

Form = tuple[tuple[tuple[tuple[str, Cuts], ...], tuple[Condition, ...]], ...]
"""A normal form without its classes, which pickle slowly: alternatives, each with the cuts of its
attributes and the conditions that those do not express."""


@dataclass(frozen=True)
class Part:
    """Some parsed subscriptions."""

    forms: list[Form | Condition]
    attributes: frozenset[str]
    problems: list[tuple[int, str]]
    """The place of each filter that cannot be used, and why."""


@dataclass(frozen=True)
class SubscriptionShare:
    """Compiled subscriptions, pickled; `digest` names the content."""

    data: bytes
    digest: str
    subscriptions: int
    index_bytes: int


@dataclass(frozen=True)
class Parsed:
    """Parsed subscriptions, ready to be compiled."""

    ids: pa.Array
    id_type: DataType
    forms: list[Form | Condition]
    attributes: frozenset[str]
    """All attributes that some filter refers to."""

    def __len__(self) -> int:
        return len(self.forms)

    def without(self, missing: Callable[[str], bool]) -> "Parsed":
        """Only the subscriptions that can match an event without the attributes for which `missing`
        holds.
        """
        needless = {name for name in self.attributes if missing(name)}
        ids, forms = [], []
        for place, form in enumerate(self.forms):
            left = form
            if isinstance(form, tuple):
                left = tuple(term for term in form if needless.isdisjoint(_needs(term)))
            if left != ():
                ids.append(place)
                forms.append(left)
        return Parsed(
            self.ids.take(pa.array(ids, pa.int64())),
            self.id_type,
            forms,
            self.attributes - needless,
        )

    def estimate_bytes(self) -> int:
        """About how many bytes an index of all of them takes."""
        return sum(len(form) if isinstance(form, tuple) else 1 for form in self.forms) * ROW_BYTES

    def compiled(self, shares: int, spark: SparkSession) -> list[SubscriptionShare]:
        """So many shares, about equally large; if there are several, workers compile them."""
        divided = [
            Uncompiled(
                self.forms[first::shares],
                self.ids.take(pa.array(range(first, len(self), shares), pa.int64())),
                sorted(self.attributes),
            )
            for first in range(shares)
        ]
        if shares <= ALONE_SHARES_MAX:
            return [each.compiled() for each in divided]
        return by_workers(spark, divided, Uncompiled.compiled)

    def cover(self) -> Filter | None:
        """A short filter that matches every event that some subscription matches.

        None if there is an alternative that needs no attribute. Each is covered by what it accepts
        of one attribute: the one that most of them need.
        """
        needs: list[dict[str, Cuts]] = []
        for form in self.forms:
            if not isinstance(form, tuple):
                return None
            needs += map(_needs, form)
        if not needs or not all(needs):
            return None
        left = Counter(frozenset(need) for need in needs)
        terms = []
        while left:
            popular: Counter[str] = Counter()
            for names, count in left.items():
                popular.update(dict.fromkeys(names, count))
            best = min(popular, key=lambda name: (-popular[name], name))
            left = Counter({names: n for names, n in left.items() if best not in names})
            terms.append(Term({best: _short_union(need[best] for need in needs if best in need)}))
            needs = [need for need in needs if best not in need]
        return Filter.from_condition(in_words(tuple(terms)))


@dataclass(frozen=True)
class Uncompiled:
    """The subscriptions of one share."""

    forms: list[Form | Condition]
    ids: pa.Array
    attributes: list[str]

    def compiled(self) -> SubscriptionShare:
        with no_search_for_garbage():
            index: MatchIndex[int] = MatchIndex()
            index.compiled()  # However few there are: the workers query the table.
            index.add_all((key, _filter(form)) for key, form in enumerate(self.forms))
            data = pickle.dumps((index, self.ids, self.attributes), protocol=5)
        return SubscriptionShare(
            data, hashlib.sha256(data).hexdigest(), len(self.forms), index.memory()
        )


@dataclass(frozen=True)
class SubscriptionTable:
    """The rows of a table of subscriptions."""

    ids: pa.Array
    id_type: DataType
    texts: pa.ChunkedArray

    @classmethod
    def read(cls, subscriptions: DataFrame) -> "SubscriptionTable":
        """Read the columns `id` and `filter`; this runs a Spark job."""
        id_type = _checked(subscriptions.schema)
        rows = subscriptions.select(F.col("id"), F.col("filter")).toArrow()
        return cls(rows.column(0).combine_chunks(), id_type, rows.column(1))

    @property
    def digest(self) -> str:
        """A hash of all rows, in their order."""
        found = hashlib.sha256(self.id_type.json().encode())
        for each in (self.ids, *self.texts.chunks):
            batch = pa.RecordBatch.from_arrays([each], ["column"])
            found.update(batch.schema.serialize())
            found.update(batch.serialize())
        return found.hexdigest()

    def parsed(self, spark: SparkSession) -> Parsed:
        """Parse the filters; if that takes long, on all cores.

        A filter that cannot be used is an error that names the id, and so is an id that occurs
        twice.
        """
        parts = self._parts(spark)
        self._require_usable(parts)
        _require_unique(self.ids)
        forms = [form for part in parts for form in part.forms]
        attributes = frozenset[str]().union(*(part.attributes for part in parts))
        return Parsed(self.ids, self.id_type, forms, attributes)

    def _parts(self, spark: SparkSession) -> list[Part]:
        parts: list[Part] = []
        first, count = 0, len(self.ids)
        ends = time.monotonic() + ALONE_S
        while first < count and time.monotonic() < ends:
            parts.append(parsed_texts(self.texts.slice(first, PORTION).to_pylist()))
            first += PORTION
        if first < count:
            size = -(-(count - first) // (spark.sparkContext.defaultParallelism * PARTS_A_CORE))
            starts = range(first, count, size)
            left = [self.texts.slice(start, size).to_pylist() for start in starts]
            parts += by_workers(spark, left, parsed_texts)
        return parts

    def _require_usable(self, parts: Iterable[Part]) -> None:
        reasons: dict[int, str] = {}
        first = 0
        for part in parts:
            reasons |= {first + place: reason for place, reason in part.problems}
            first += len(part.forms) + len(part.problems)
        for place in pc.indices_nonzero(self.ids.is_null()).to_pylist():
            reasons[place] = f"it has no id (its filter is {self.texts[place].as_py()!r})"
        if reasons:
            problems = [(repr(self.ids[place].as_py()), why) for place, why in reasons.items()]
            id_, reason = min(problems)
            more = f" ({len(problems) - 1:,} more are bad)" if len(problems) > 1 else ""
            raise PipelineError(
                f"subscription {id_} cannot be used: {reason}{more}; correct it first"
            )


def _checked(schema: StructType) -> DataType:
    """The type of the ids."""
    for name in ("id", "filter"):
        if name not in schema.names:
            found = ", ".join(schema.names) or "none"
            raise PipelineError(
                f"subscriptions need the columns id and filter, but {name} is missing "
                f"(there are: {found}); rename the columns"
            )
    if not isinstance(schema["filter"].dataType, StringType):
        kind = schema["filter"].dataType.simpleString()
        raise PipelineError(f"the column filter is a {kind}; give filters as text")
    return schema["id"].dataType


def parsed_texts(texts: Sequence[str | None]) -> Part:
    """Parse some filters."""
    forms: list[Form | Condition] = []
    attributes: set[str] = set()
    problems: list[tuple[int, str]] = []
    with no_search_for_garbage():
        for place, text in enumerate(texts):
            try:
                form, named = _understood(text)
            except (FilterError, UnboundError, ValueError) as error:
                problem = getattr(error, "problem", str(error))
                if isinstance(error, FilterError):
                    problem += f" at column {error.column} of {text!r}"
                problems.append((place, problem))
            else:
                forms.append(form)
                attributes.update(named)
    return Part(forms, frozenset(attributes), problems)


def _understood(text: str | None) -> tuple[Form | Condition, Iterable[str]]:
    """A filter's form, and the attributes that it refers to."""
    if text is None:
        raise ValueError("it has no filter")
    filter_ = Filter(text)
    usual = usual_form(filter_.condition)
    if usual is not None:  # It has nothing but constants, so it is bound.
        return _form(usual), usual[0].constraints
    filter_.require_bound()
    form = filter_.normal_form
    return filter_.condition if form is None else _form(form), filter_.attributes


def _form(form: NormalForm) -> Form:
    return tuple(
        (tuple((name, accepted.cuts) for name, accepted in t.constraints.items()), t.residuals)
        for t in form
    )


def _filter(form: Form | Condition) -> Filter:
    """A filter with its normal form, or without one."""
    if not isinstance(form, tuple):
        return Filter.from_condition(form)
    made = Filter.from_condition(Always(verdict=False))
    made.normal_form = _terms(form)
    return made


def _terms(form: Form) -> NormalForm:
    return tuple(
        Term({name: ValueSet(cuts) for name, cuts in constraints}, residuals)
        for constraints, residuals in form
    )


def _needs(term: tuple[tuple[tuple[str, Cuts], ...], tuple[Condition, ...]]) -> dict[str, Cuts]:
    """The attributes that an alternative needs, each with the values it accepts."""
    constraints, _ = term
    return {name: cuts for name, cuts in constraints if cuts[0] != MISSING}


def _short_union(accepted: Iterable[Cuts]) -> ValueSet:
    """The union of accepted values, or all that is not missing if the union would be long."""
    sets = map(ValueSet, accepted)
    found = ValueSet(())
    while portion := list(islice(sets, UNIONS_AT_A_TIME)):
        found = union([found, *portion])
        if len(found.cuts) > WORDS_MAX:
            return PRESENT
    return found


def _require_unique(ids: pa.Array) -> None:
    counted = pc.value_counts(ids)
    twice = counted.filter(pc.greater(counted.field("counts"), 1))
    if len(twice):
        raise PipelineError(
            f"subscription {twice.field('values')[0].as_py()!r} occurs "
            f"{twice.field('counts')[0].as_py()} times; give each an id of its own"
        )


# ---- Work in bulk


def by_workers(
    spark: SparkSession, given: Sequence[Given], work: Callable[[Given], Done]
) -> list[Done]:
    """What the work makes of each thing, in their order; each is a task of one Spark job."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number, data in zip(*batch.to_pydict().values(), strict=True):
                done = pickle.dumps(work(pickle.loads(data)), protocol=5)  # noqa: S301 - our own.
                yield pa.RecordBatch.from_pydict({"number": [number], "data": [done]})

    numbers = pa.array(range(len(given)), pa.int32())
    tasks = pa.table(
        {"number": numbers, "data": [pickle.dumps(each, protocol=5) for each in given]}
    )
    rows = (
        spark.createDataFrame(tasks)
        .repartitionById(len(given), F.col("number"))
        .mapInArrow(run, "number long, data binary")
        .collect()
    )
    rows.sort(key=lambda row: row.number)
    with no_search_for_garbage():
        return [pickle.loads(row.data) for row in rows]  # noqa: S301 - our own workers'.


@contextmanager
def no_search_for_garbage() -> Iterator[None]:
    """For work that makes much that stays and no cycles: Python searches it over and over."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
