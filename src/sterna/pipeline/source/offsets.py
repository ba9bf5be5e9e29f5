"""Where queries begin and end: an offset is, for each journal, the position to read next."""

import logging
import math
from collections.abc import Mapping

import numpy as np

from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source.options import (
    EARLIEST,
    FIRST,
    LATEST,
    NEXT,
    NoneAtTimestamp,
    Offsets,
    ReadOptions,
)
from sterna.pipeline.source.origins import Origin, Span, Spans

log = logging.getLogger("sterna.pipeline")


def starts(options: ReadOptions, origin: Origin, extents: Spans) -> Offsets:
    """Where a new query begins."""
    if options.starting_timestamp_ms is not None:
        found = {
            node: _position_at(origin, node, span, options.starting_timestamp_ms * 1000)
            for node, span in extents.items()
        }
        for node, position in found.items():
            if position is None and options.none_at_timestamp is NoneAtTimestamp.ERROR:
                raise PipelineError(
                    f"the journal of {node} has nothing from startingTimestamp="
                    f"{options.starting_timestamp_ms} on: give an earlier one or set "
                    "startingOffsetsByTimestampStrategy=latest"
                )
        return {n: extents[n].end if p is None else p for n, p in found.items()}
    return _given(options.starting_offsets, "startingOffsets", EARLIEST, extents)


def ends(options: ReadOptions, origin: Origin, extents: Spans) -> Offsets:
    """Where a batch query ends."""
    if options.ending_timestamp_ms is not None:
        found = {
            node: _position_at(origin, node, span, options.ending_timestamp_ms * 1000)
            for node, span in extents.items()
        }
        return {n: extents[n].end if p is None else p for n, p in found.items()}
    return _given(options.ending_offsets, "endingOffsets", LATEST, extents)


def spans(
    start: Mapping[str, int], end: Mapping[str, int], extents: Spans, options: ReadOptions
) -> dict[str, Span]:
    """The stretch to read of each journal; missing facts are an error, or reported and skipped.

    A journal without a start is new, and is read from its beginning.
    """
    found: dict[str, Span] = {}
    for node, until in end.items():
        there = extents.get(node)
        since = start.get(node, there.start if there is not None else 0)
        if since >= until:
            continue
        if there is None:
            _lost(f"the journal of {node} is not in {options.origin} any more", options)
            continue
        if since < there.start:
            gone = f"positions {since} to {min(until, there.start) - 1} of {node} are"
            _lost(f"{gone} not in {options.origin} any more", options)
        if until > there.end:
            gone = f"positions {max(since, there.end)} to {until - 1} of {node} are"
            _lost(f"{gone} not in {options.origin}, whose journal ends before", options)
        span = Span(max(since, there.start), min(until, there.end))
        if span.start < span.end:
            found[node] = span
    return found


def limited(start: Mapping[str, int], extents: Spans, count_max: int | None) -> Offsets:
    """How far a stream goes next: to the end, or so many positions, a share of each journal."""
    ahead = {node: max(0, span.end - start.get(node, span.start)) for node, span in extents.items()}
    total = sum(ahead.values())
    end = dict(start)
    for node, span in extents.items():
        step = ahead[node]
        if count_max is not None and total > count_max:
            share = count_max * step / total
            step = min(step, math.ceil(share) if share < 1 else math.floor(share))
        end[node] = start.get(node, span.start) + step
    return end


def check_not_back(start: Mapping[str, int], extents: Spans, options: ReadOptions) -> None:
    """Refuse a journal that is gone, or ends before what was read of it: it is another one."""
    for node, since in start.items():
        there = extents.get(node)
        if there is None:
            _lost(f"the journal of {node} is not in {options.origin} any more", options)
        elif there.end < since:
            _lost(
                f"the journal of {node} ends at position {there.end}, and {since} was reached "
                "before: it has lost facts or is another one",
                options,
            )


def _lost(what: str, options: ReadOptions) -> None:
    if options.fail_on_data_loss:
        raise PipelineError(f"{what}; set failOnDataLoss=false to go on with what there is")
    log.warning("%s; going on with what there is", what)


def _given(given: str | Offsets, option: str, default: str, extents: Spans) -> Offsets:
    offsets = {} if isinstance(given, str) else given
    unknown = sorted(set(offsets) - set(extents))
    if unknown:
        raise PipelineError(
            f"{option} names {unknown[0]!r}, and there is no such journal; there are "
            f"{', '.join(extents)}"
        )
    word = given if isinstance(given, str) else default
    found: Offsets = {}
    for node, span in extents.items():
        position = offsets.get(node, FIRST if word == EARLIEST else NEXT)
        found[node] = {FIRST: span.start, NEXT: span.end}.get(position, position)
    return found


def _position_at(origin: Origin, node: str, span: Span, time_us: int) -> int | None:
    """The first position at or after a point in time, by the node's clock; None if there is none.

    Times ascend like positions, up to steps of the clock, so bisection finds it.
    """
    found: int | None = None
    low, high = span
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
