"""Where queries begin and end: for each journal, the position to read next."""

import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np

from sterna.net.remote import Extent
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source.options import (
    EARLIEST,
    FIRST,
    LATEST,
    NEXT,
    NoneAtTimestamp,
    Offset,
    Offsets,
    ReadOptions,
)
from sterna.pipeline.source.origins import Extents, Origin, Span

log = logging.getLogger("sterna.pipeline")


def starts(options: ReadOptions, origin: Origin, extents: Extents) -> Offsets:
    """Where a new query begins."""
    if options.starting_timestamp_ms is not None:
        at_time = {
            node: _position_at(origin, node, there, options.starting_timestamp_ms * 1000)
            for node, there in extents.items()
        }
        for node, position in at_time.items():
            if position is None and options.none_at_timestamp is NoneAtTimestamp.ERROR:
                raise PipelineError(
                    f"the journal of {node} has nothing from startingTimestamp="
                    f"{options.starting_timestamp_ms} on: give an earlier one or set "
                    "startingOffsetsByTimestampStrategy=latest"
                )
        return _offsets(at_time, extents)
    found = _given(options.starting_offsets, "startingOffsets", EARLIEST, extents)
    for node, offset in found.items():
        if offset.position > extents[node].end:
            raise PipelineError(
                f"startingOffsets of {node} is {offset.position}, which is beyond the end of its "
                f"journal, {extents[node].end}: give a position up to that, or {NEXT} for the end"
            )
    return found


def ends(options: ReadOptions, origin: Origin, extents: Extents) -> Offsets:
    """Where a batch query ends."""
    if options.ending_timestamp_ms is not None:
        found = {
            node: _position_at(origin, node, there, options.ending_timestamp_ms * 1000)
            for node, there in extents.items()
        }
        return _offsets(found, extents)
    return _given(options.ending_offsets, "endingOffsets", LATEST, extents)


def spans(start: Offsets, end: Offsets, extents: Extents, options: ReadOptions) -> dict[str, Span]:
    """The stretch to read of each journal; missing facts are an error, or reported and skipped.

    A journal without a start is new, and is read from its beginning, as is another incarnation than
    that of the start.
    """
    found: dict[str, Span] = {}
    for node, until in end.items():
        there = extents.get(node)
        known = start.get(node)
        is_new = known is None or _is_other(known, until)
        if known is not None and not is_new and known.position >= until.position:
            continue
        if there is None:
            _lost(f"the journal of {node} is not in {options.origin} any more", options)
            continue
        if _differ(until.incarnation, there.incarnation):
            _begun_anew(node, until, there, options)
            continue
        since = there.start if known is None else there.own_start if is_new else known.position
        if since < there.start:
            gone = f"positions {since} to {min(until.position, there.start) - 1} of {node} are"
            _lost(f"{gone} not in {options.origin} any more", options)
        if until.position > there.end:
            gone = f"positions {max(since, there.end)} to {until.position - 1} of {node} are"
            _lost(f"{gone} not in {options.origin}, whose journal ends before", options)
        span = Span(max(since, there.start), min(until.position, there.end))
        if span.start < span.end:
            found[node] = span
    return found


def limited(start: Offsets, extents: Extents, count_max: int | None) -> Offsets:
    """How far a stream goes next: to the end, or so many positions, a share of each journal."""
    begin = {node: _beginning(start.get(node), there) for node, there in extents.items()}
    ahead = {node: max(0, there.end - begin[node].position) for node, there in extents.items()}
    total = sum(ahead.values())
    end = dict(start)
    for node, since in begin.items():
        step = ahead[node]
        if count_max is not None and total > count_max:
            share = count_max * step / total
            step = min(step, math.ceil(share) if share < 1 else math.floor(share))
        end[node] = since._replace(position=since.position + step)
    return end


def check_same(start: Offsets, extents: Extents, options: ReadOptions) -> None:
    """Refuse a journal that is gone, was begun anew, or ends before what was read of it."""
    for node, since in start.items():
        there = extents.get(node)
        if there is None:
            _lost(f"the journal of {node} is not in {options.origin} any more", options)
        elif _differ(since.incarnation, there.incarnation):
            _begun_anew(node, since, there, options)
        elif there.end < since.position:
            _lost(
                f"the journal of {node} ends at position {there.end}, and {since.position} was "
                "reached before: it has lost facts or is another one",
                options,
                "it from its beginning" if _is_other(since, _end(there)) else "what there is",
            )


def _beginning(start: Offset | None, there: Extent) -> Offset:
    """Where to go on in a journal as it is now."""
    if start is None:
        return Offset(there.start, there.incarnation)
    if _is_other(start, _end(there)):
        return Offset(there.own_start, there.incarnation)
    return Offset(start.position, start.incarnation or there.incarnation)


def _is_other(start: Offset, end: Offset) -> bool:
    """Whether an offset is not of the journal that another, later one is of.

    Positions of one journal never go back; that has to do where the incarnations are not known.
    """
    if start.incarnation is None or end.incarnation is None:
        return end.position < start.position
    return start.incarnation != end.incarnation


def _differ(one: int | None, other: int | None) -> bool:
    """Whether two incarnations are known and are not the same."""
    return one is not None and other is not None and one != other


def _end(there: Extent) -> Offset:
    return Offset(there.end, there.incarnation)


def _begun_anew(node: str, read: Offset, there: Extent, options: ReadOptions) -> None:
    before, now = (_moment(each or 0) for each in (read.incarnation, there.incarnation))
    _lost(
        f"the journal of {node} in {options.origin} was begun anew at {now}, and what was read "
        f"before, up to position {read.position}, is of one that was begun at {before}: what that "
        "one had besides is lost",
        options,
        "the new one from its beginning",
        ", or start with another checkpoint",
    )


def _moment(time_us: int) -> str:
    moment = datetime.fromtimestamp(time_us / 1e6, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _lost(
    what: str, options: ReadOptions, rest: str = "what there is", otherwise: str = ""
) -> None:
    if options.fail_on_data_loss:
        raise PipelineError(f"{what}; set failOnDataLoss=false to go on with {rest}{otherwise}")
    log.warning("%s; going on with %s", what, rest)


def _given(given: str | Offsets, option: str, default: str, extents: Extents) -> Offsets:
    offsets = {} if isinstance(given, str) else given
    unknown = sorted(set(offsets) - set(extents))
    if unknown:
        raise PipelineError(
            f"{option} names {unknown[0]!r}, and there is no such journal; there are "
            f"{', '.join(extents)}"
        )
    word = given if isinstance(given, str) else default
    found: Offsets = {}
    for node, there in extents.items():
        offset = offsets.get(node, Offset(FIRST if word == EARLIEST else NEXT))
        if _differ(offset.incarnation, there.incarnation):
            raise PipelineError(
                f"{option} is of incarnation {offset.incarnation} of the journal of {node}, and "
                f"this is {there.incarnation}, which was begun anew: give positions of this one"
            )
        ends = {FIRST: there.start, NEXT: there.end}
        found[node] = Offset(ends.get(offset.position, offset.position), there.incarnation)
    return found


def _offsets(positions: Mapping[str, int | None], extents: Extents) -> Offsets:
    """These positions; the end of the journal where there is none."""
    found: Offsets = {}
    for node, there in extents.items():
        position = positions[node]
        found[node] = _end(there) if position is None else Offset(position, there.incarnation)
    return found


def _position_at(origin: Origin, node: str, there: Extent, time_us: int) -> int | None:
    """The first position at or after a point in time, by the node's clock; None if there is none.

    Times ascend like positions, up to steps of the clock, so bisection finds it.
    """
    found: int | None = None
    low, high = there.start, there.end
    while low < high:
        middle = (low + high) // 2
        batch = origin.first_batch(node, Span(middle, high))
        if batch is None:
            high = middle
            continue
        positions, times = batch["position"].to_numpy(), batch["time_us"].to_numpy()
        late = np.flatnonzero(times >= time_us)
        if not len(late):
            low = int(positions[-1]) + 1
        elif late[0] > 0:
            return int(positions[late[0]])
        else:
            found, high = int(positions[0]), middle
    return found
