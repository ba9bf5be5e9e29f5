"""The options of the source, and what they mean."""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from sterna.model.duration import parse_duration
from sterna.model.filters import Filter, FilterError, UnboundError
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source.columns import AttributeColumn, attribute_columns

EARLIEST, LATEST = "earliest", "latest"
FIRST, NEXT = -2, -1
"""Offsets for the beginning and the end of a journal, as in Kafka."""


class Offset(NamedTuple):
    """A place in a journal: the position to read next."""

    position: int
    incarnation: int | None = None
    """The incarnation of the journal; None if it is not known: earlier releases did not say it."""


Offsets = dict[str, Offset]
"""A place for each journal."""


BROKER_TIMEOUT_S = 120.0
"""How long streams that have begun wait for a broker, unless they are told otherwise."""


class SourceTable(StrEnum):
    """The tables that can be made of the facts."""

    FACTS = "facts"
    EVENTS = "events"
    DELIVERIES = "deliveries"
    MOVEMENTS = "movements"
    STATISTICS = "statistics"


class BadRecords(StrEnum):
    """How facts and files that cannot be read are treated."""

    FAIL = "fail"
    SKIP = "skip"
    ONLY = "only"


class NoneAtTimestamp(StrEnum):
    """How a journal that ends before the starting timestamp is treated."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options of a query that reads."""

    path: str | None = None
    brokers: tuple[str, ...] = ()
    table: SourceTable = SourceTable.EVENTS
    publications: bool = False
    filter: Filter | None = None
    columns: tuple[AttributeColumn, ...] = ()
    bad_records: BadRecords = BadRecords.FAIL
    starting_offsets: str | Offsets = EARLIEST
    ending_offsets: str | Offsets = LATEST
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    none_at_timestamp: NoneAtTimestamp = NoneAtTimestamp.ERROR
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    push_down: bool = False
    broker_timeout_s: float | None = None

    def patience_s(self, *, has_begun: bool) -> float:
        """How long to wait for a broker that does not answer; `has_begun`: a stream that it knows.

        At the beginning of a query the address may be wrong, so then only if that is asked for.
        """
        if self.broker_timeout_s is not None:
            return self.broker_timeout_s
        return BROKER_TIMEOUT_S if has_begun else 0.0

    @property
    def origin(self) -> str:
        """The origin of the facts, for people."""
        return self.path if self.path is not None else ", ".join(self.brokers)


def read_options(given: Mapping[str, str], *, stream: bool | None) -> ReadOptions:
    """The options as given to Spark, whose names have any case; PipelineError if one is wrong.

    `stream` is None where only the table matters, for both kinds of query.
    """
    values: dict[str, Any] = {}
    for name, text in given.items():
        option = _OPTIONS.get(name.lower())
        if option is None:
            raise PipelineError(_unknown(name))
        if stream and option.batch_only:
            raise PipelineError(
                f"{option.name} is for batch queries: a stream has no end; leave it out"
            )
        if stream is False and option.stream_only:
            raise PipelineError(
                f"{option.name} is for streams: a batch query reads all at once; leave it out"
            )
        try:
            values[option.field] = option.read(text)
        except (ValueError, FilterError, UnboundError) as error:
            raise PipelineError(f"{option.name} is {text!r}: {_one_line(error)}") from None
    values.setdefault("starting_offsets", LATEST if stream else EARLIEST)
    options = ReadOptions(**values)
    _check_together(options, {name.lower() for name in given})
    return options


def _check_together(options: ReadOptions, given: set[str]) -> None:
    if (options.path is None) == (not options.brokers):
        raise PipelineError(
            "say where to read: either a directory with journals (load(path)) or "
            "brokers=sterna://HOST:PORT,…" + ("; not both" if options.path is not None else "")
        )
    for offsets, timestamp in (
        ("startingOffsets", "startingTimestamp"),
        ("endingOffsets", "endingTimestamp"),
    ):
        if {offsets.lower(), timestamp.lower()} <= given:
            raise PipelineError(f"{offsets} and {timestamp} say the same in two ways: give one")
    if options.table is not SourceTable.EVENTS or options.bad_records is BadRecords.ONLY:
        what = "bad records" if options.bad_records is BadRecords.ONLY else options.table
        for name in ("filter", "columns", "publications"):
            if name in given:
                raise PipelineError(f"{name} is for table=events, not for {what}: leave it out")


@dataclass(frozen=True)
class _Option:
    name: str
    field: str
    read: Callable[[str], Any]
    batch_only: bool = False
    stream_only: bool = False


_Choice = TypeVar("_Choice", bound=StrEnum)


def _one_of(choices: type[_Choice]) -> Callable[[str], _Choice]:
    def read(text: str) -> _Choice:
        try:
            return choices(text.strip().lower())
        except ValueError:
            raise ValueError(f"give one of {', '.join(choices)}") from None

    return read


def _truth(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("give true or false")


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) == 0:
        raise ValueError("give a whole number from 1 on")
    return int(text)


def _milliseconds(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,15}", text.strip()):
        raise ValueError("give milliseconds since 1970, such as 1700000000000")
    return int(text)


def _offsets(text: str, words: tuple[str, ...]) -> str | Offsets:
    if text.strip().lower() in words:
        return text.strip().lower()
    wanted = f'give {" or ".join(words)} or JSON such as {{"B1": 120, "B2": {NEXT}}}'
    try:
        offsets = json.loads(text)
    except ValueError:
        raise ValueError(wanted) from None
    lowest = FIRST if EARLIEST in words else NEXT
    try:
        found = decoded(offsets)
    except ValueError:
        raise ValueError(wanted) from None
    if any(offset.position < lowest for offset in found.values()):
        raise ValueError(wanted)
    return found


def decoded(said: object) -> Offsets:
    """Offsets from what JSON says: `120`, or `{"incarnation": 1700000000000000, "position": 120}`.

    Releases that did not know incarnations wrote positions only. ValueError if it is neither.
    """
    if not isinstance(said, dict):
        raise ValueError("offsets are JSON by journal")
    return {node: _decoded(offset) for node, offset in said.items()}


def _decoded(said: object) -> Offset:
    fields = said if isinstance(said, dict) else {"position": said}
    if not {"position"} <= set(fields) <= {"position", "incarnation"} or not all(
        type(value) is int and FIRST <= value < 2**63 for value in fields.values()
    ):
        raise ValueError("an offset is a position, or a position with an incarnation")
    return Offset(**fields)


def encoded(offsets: Offsets) -> dict[str, Any]:
    """Offsets as JSON says them."""
    return {
        node: offset.position
        if offset.incarnation is None
        else {"incarnation": offset.incarnation, "position": offset.position}
        for node, offset in offsets.items()
    }


def _starting(text: str) -> str | Offsets:
    return _offsets(text, (EARLIEST, LATEST))


def _ending(text: str) -> str | Offsets:
    return _offsets(text, (LATEST,))


def _duration(text: str) -> float:
    return parse_duration(text.strip(), may_be_zero=True)


def _filter(text: str) -> Filter:
    condition = Filter(text)
    condition.require_bound()
    return condition


def _brokers(text: str) -> tuple[str, ...]:
    urls = tuple(url.strip() for url in text.split(",") if url.strip())
    if not urls or not all(url.startswith("sterna://") for url in urls):
        raise ValueError("give addresses such as sterna://127.0.0.1:7461, with commas between")
    return tuple(dict.fromkeys(urls))


def _path(text: str) -> str:
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "file":
        return "/" + rest.lstrip("/")
    if colon and rest.startswith("//"):
        raise ValueError("give a directory that the driver and all workers see, not a URL")
    return text


_ALL = (
    _Option("path", "path", _path),
    _Option("brokers", "brokers", _brokers),
    _Option("table", "table", _one_of(SourceTable)),
    _Option("publications", "publications", _truth),
    _Option("filter", "filter", _filter),
    _Option("columns", "columns", attribute_columns),
    _Option("badRecords", "bad_records", _one_of(BadRecords)),
    _Option("startingOffsets", "starting_offsets", _starting),
    _Option("endingOffsets", "ending_offsets", _ending, batch_only=True),
    _Option("startingTimestamp", "starting_timestamp_ms", _milliseconds),
    _Option("endingTimestamp", "ending_timestamp_ms", _milliseconds, batch_only=True),
    _Option("startingOffsetsByTimestampStrategy", "none_at_timestamp", _one_of(NoneAtTimestamp)),
    _Option("maxOffsetsPerTrigger", "max_offsets_per_trigger", _count, stream_only=True),
    _Option("minPartitions", "min_partitions", _count),
    _Option("failOnDataLoss", "fail_on_data_loss", _truth),
    _Option("pushDown", "push_down", _truth, batch_only=True),
    _Option("brokerTimeout", "broker_timeout_s", _duration),
)
_OPTIONS = {option.name.lower(): option for option in _ALL}


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), _OPTIONS, 1, 0.5)
    names = _OPTIONS[near[0]].name if near else ", ".join(option.name for option in _ALL)
    return f"format sterna has no option {name!r}: " + (
        f"did you mean {names}?" if near else f"it knows {names}"
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
