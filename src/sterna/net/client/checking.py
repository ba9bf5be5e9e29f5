"""Refuses what an application asks for if it could not be sent; the node never hears of it."""

import warnings
from datetime import timedelta
from typing import NamedTuple

from sterna.core import inputs
from sterna.core.inputs import Input, SetVariable
from sterna.core.names import LocalProtocolError
from sterna.core.replication.options import Filtering, MergingOptions
from sterna.core.terms.messages import Order, Terms
from sterna.errors import FilterWarning
from sterna.model.duration import parse_duration
from sterna.model.event import plain_scalar
from sterna.model.filters import Filter
from sterna.model.filters.advice import advice
from sterna.model.queue_policies import parse_policy
from sterna.net.records import encode_record
from sterna.wire.ranges import Check, check_of

CHECKED: tuple[type[Input], ...] = (
    *(inputs.Subscribe, inputs.Unsubscribe, inputs.Confirm, inputs.Advertise, inputs.Unadvertise),
    *(inputs.Attach, inputs.MoveTo, inputs.SetVariable),
)
"""What applications ask for now and then; events, which are many, are checked as they are made."""

_CHECKS: dict[type[Input], Check | None] = {kind: check_of(kind) for kind in CHECKED}


def check_sendable(given: Input) -> None:
    """Raise LocalProtocolError if an input holds a number or a text that no broker could read."""
    kind = type(given)
    if kind not in _CHECKS:
        return
    check = _CHECKS[kind]
    try:
        if check is not None:
            check(given)
        if isinstance(given, SetVariable):
            for value in (given.value, given.low, given.high):
                plain_scalar(f"${given.name}", value)
        encode_record(given, 0)
    except (ValueError, OverflowError) as error:
        raise LocalProtocolError(f"a broker could not read this {kind.__name__}: {error}") from None


def checked_filter(where: str | Filter) -> Filter:
    """Return the filter; warn the caller's caller if it is hardly what is meant."""
    filter_ = where if isinstance(where, Filter) else Filter(where)
    for sentence in advice(filter_):
        warnings.warn(sentence, FilterWarning, stacklevel=3)
    return filter_


def checked_terms(*, order: str, keep: str | None) -> Terms:
    """Return the terms of a subscription; ValueError if there are no such."""
    if keep is not None:
        parse_policy(keep)
    if order not in [*Order]:
        raise ValueError(f"order is {' or '.join(map(repr, map(str, Order)))}, not {order!r}")
    return Terms(keep=keep or "", order=Order(order))


def checked_merging(filtering: str, hold_s: float) -> MergingOptions:
    """Return how what several brokers bring is merged; ValueError if there is no such way."""
    if filtering not in [*Filtering]:
        known = " or ".join(repr(str(each)) for each in Filtering)
        raise ValueError(f"filtering is {known}, not {filtering!r}")
    if not 0 <= hold_s <= HOLD_S_MAX:
        raise ValueError(f"hold_s is a number of seconds from 0 to {HOLD_S_MAX:,}, not {hold_s}")
    return MergingOptions(filtering=Filtering(filtering), hold_us=round(hold_s * 1e6))


HOLD_S_MAX = 86_400
"""For how long events may be held back at most: a day."""

PastBounds = int | str | timedelta | tuple[int, str | timedelta]
"""How much of the past: so many events, a period, or both; then whichever ends first."""


class Beginning(NamedTuple):
    """How much of the past a subscription begins with."""

    events_max: int | None = None
    period: timedelta | None = None


def checked_past(past: PastBounds | None) -> Beginning | None:
    """Return `past` as bounds of number and time; TypeError or ValueError if it is none."""
    match past:
        case None:
            return None
        case bool():
            pass
        case int() if past >= 0:
            return Beginning(events_max=past)
        case timedelta() if past >= timedelta():
            return Beginning(period=past)
        case int() | timedelta():
            raise ValueError(f"past is not negative, as {past} is; {_RIGHT_PAST}")
        case (int() as events_max, (str() | timedelta()) as period):
            number, time = checked_past(events_max), checked_past(period)
            if number is not None and time is not None and time.events_max is None:
                return Beginning(number.events_max, time.period)
        case str():
            try:
                return _parsed_past(past)
            except (ValueError, OverflowError):
                raise ValueError(f"past={past!r} is no period; {_RIGHT_PAST}") from None
    raise TypeError(f"past cannot be {past!r}; {_RIGHT_PAST}")


def _parsed_past(text: str) -> Beginning:
    """A period, or a number of events and a period with a comma between."""
    count, comma, period = text.rpartition(",")
    if comma and not (count.isascii() and count.isdigit()):
        raise ValueError(text)
    return Beginning(int(count) if comma else None, timedelta(seconds=parse_duration(period)))


_RIGHT_PAST = (
    "write past=10 for the last ten events, past='5m' or past=timedelta(minutes=5) for those of "
    "five minutes, past=(10, '5m') for the last ten of these"
)
