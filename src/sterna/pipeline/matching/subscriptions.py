"""Subscriptions in bulk: parsed by all workers, compiled into shares that workers load."""

import hashlib
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.
from pyspark.sql.types import DataType, StringType, StructType

from sterna.matching import MatchIndex
from sterna.model.filters import Filter
from sterna.model.filters.errors import FilterError, UnboundError
from sterna.model.filters.normal_form import NormalForm, Term
from sterna.model.filters.tree import Always, Condition
from sterna.model.filters.values import MISSING, PRESENT, ValueSet, union
from sterna.model.filters.wording import in_words
from sterna.pipeline.errors import PipelineError

PARTS_A_CORE = 2
"""Into how many parts subscriptions are divided for each core; parsing is most of the work."""

ROW_BYTES = 512
"""About how many bytes an alternative of a filter takes in the index, at most."""

WORDS_MAX = 100
"""A condition on events before they are matched lists at most so many cuts for an attribute."""

UNIONS_AT_A_TIME = 1000

Cuts = tuple[Any, ...]
"""The accepted values, as in `ValueSet`."""

Form = tuple[tuple[tuple[tuple[str, Cuts], ...], tuple[Condition, ...]], ...]
"""A normal form without its classes, which pickle slowly: alternatives, each with the cuts of its
attributes and the conditions that those do not express."""


@dataclass(frozen=True)
class Part:
    """Some parsed subscriptions."""

    ids: pa.Array
    forms: list[Form | Condition]
    attributes: frozenset[str]
    problems: list[tuple[str, str]]
    """The id of each subscription that cannot be used, and why."""


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

    def compiled(self, shares: int) -> list[SubscriptionShare]:
        """So many shares, about equally large."""
        return [self._share(range(first, len(self), shares)) for first in range(shares)]

    def _share(self, places: range) -> SubscriptionShare:
        index: MatchIndex[int] = MatchIndex()
        index.compiled()  # However few there are: the workers query the table.
        for key, place in enumerate(places):
            index.add(key, _filter(self.forms[place]))
        ids = self.ids.take(pa.array(places, pa.int64()))
        data = pickle.dumps((index, ids, sorted(self.attributes)), protocol=5)
        return SubscriptionShare(
            data, hashlib.sha256(data).hexdigest(), len(places), index.memory()
        )

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


def parsed(subscriptions: DataFrame) -> Parsed:
    """Parse a table with the columns `id` and `filter`, on all cores; this runs a Spark job.

    A filter that cannot be used is an error that names the id, and so is an id that occurs twice.
    """
    id_type = _checked(subscriptions.schema)
    cores = subscriptions.sparkSession.sparkContext.defaultParallelism
    rows = (
        subscriptions.select(F.col("id"), F.col("filter"))
        .repartition(cores * PARTS_A_CORE)
        .mapInArrow(_parse, "part binary")
        .collect()
    )
    parts: list[Part] = [pickle.loads(row.part) for row in rows]  # noqa: S301 - our own workers'.
    problems = sorted(problem for part in parts for problem in part.problems)
    if problems:
        id_, reason = problems[0]
        more = f" ({len(problems) - 1:,} more are bad)" if len(problems) > 1 else ""
        raise PipelineError(f"subscription {id_} cannot be used: {reason}{more}; correct it first")
    if not parts:
        return Parsed(pa.array([], pa.string()), id_type, [], frozenset())
    ids = pa.concat_arrays([part.ids for part in parts])
    _require_unique(ids)
    forms = [form for part in parts for form in part.forms]
    return Parsed(ids, id_type, forms, frozenset().union(*(part.attributes for part in parts)))


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


def _parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        part = pickle.dumps(_parsed_batch(batch), protocol=5)
        yield pa.RecordBatch.from_arrays([pa.array([part], pa.binary())], ["part"])


def _parsed_batch(batch: pa.RecordBatch) -> Part:
    ids = batch.column(0)
    forms: list[Form | Condition] = []
    attributes: set[str] = set()
    problems: list[tuple[str, str]] = []
    for place, text in enumerate(batch.column(1).to_pylist()):
        try:
            filter_ = _understood(ids[place].is_valid, text)
            forms.append(_form(filter_))
        except (FilterError, UnboundError, ValueError) as error:
            problem = getattr(error, "problem", str(error))
            where = (
                f" at column {error.column} of {text!r}" if isinstance(error, FilterError) else ""
            )
            problems.append((repr(ids[place].as_py()), f"{problem}{where}"))
        else:
            attributes.update(filter_.attributes)
    return Part(ids, forms, frozenset(attributes), problems)


def _understood(has_id: bool, text: str | None) -> Filter:  # noqa: FBT001
    if not has_id:
        raise ValueError(f"it has no id (its filter is {text!r})")
    if text is None:
        raise ValueError("it has no filter")
    filter_ = Filter(text)
    filter_.require_bound()
    return filter_


def _form(filter_: Filter) -> Form | Condition:
    form = filter_.normal_form
    if form is None:
        return filter_.condition
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
