"""What a client's subscriptions depend on: its location and its variables."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from sterna.core.inputs import SetVariable
from sterna.core.names import LocalProtocolError
from sterna.model.event import Scalar
from sterna.model.filters import Filter
from sterna.model.location import LocationSpace, MovementGraph


class Variable(NamedTuple):
    """A value, and the range within which changes are not announced to brokers."""

    value: Scalar
    low: Scalar
    high: Scalar

    def changed(self, given: SetVariable) -> "Variable":
        """The variable with another value; its range stays if the value is within it."""
        if (given.low, given.high) == (None, None) and _is_range(self.low, given.value, self.high):
            return self._replace(value=given.value)
        return variable(given)


def variable(given: SetVariable) -> Variable:
    """A variable that is set for the first time."""
    low = given.value if given.low is None else given.low
    high = given.value if given.high is None else given.high
    if not _is_range(low, given.value, high):
        raise LocalProtocolError(
            f"${given.name} = {given.value!r} does not lie between {low!r} and {high!r}; "
            "give a range of finite numbers or of strings with the value in it"
        )
    return Variable(given.value, low, high)


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Where a client is and what values its variables have."""

    space: LocationSpace
    location: str | None = None
    variables: Mapping[str, Variable] = {}

    def exact(self, filter_: Filter) -> Filter:
        """What a filter means to the client now."""
        if filter_.uses_myloc and self.location is None:
            raise LocalProtocolError(
                f"the filter {filter_} depends on the client's location: set it first, with "
                "move() in Python, --at on the command line, or MoveTo in a script"
            )
        for name in filter_.variables:
            if name not in self.variables:
                raise LocalProtocolError(
                    f"the filter {filter_} depends on ${name}: set it first, with "
                    f"set({name!r}, …) in Python, --set {name}=… on the command line, or "
                    "SetVariable in a script"
                )
        try:
            space = space_at(self.space, self.location)
            return filter_.bind(self._values(), location=self.location, space=space)
        except ValueError as error:
            raise LocalProtocolError(f"the filter {filter_} cannot be used here: {error}") from None

    def exact_or_anywhere(self, filter_: Filter) -> Filter:
        """What a filter means to the client now, or wherever it is if that is too much to list.

        So a subscription outlasts a change of the places.
        """
        try:
            return self.exact(filter_)
        except LocalProtocolError:
            return self.exact(filter_.anywhere)

    def told(self, filter_: Filter) -> Filter:
        """The filter for brokers: it covers all values in the ranges, and `myloc` remains."""
        return filter_.widen({name: (v.low, v.high) for name, v in self.variables.items()})

    def _values(self) -> dict[str, Scalar]:
        return {name: variable.value for name, variable in self.variables.items()}


def space_at(space: LocationSpace, location: str | None) -> LocationSpace:
    """The space, or only the location if the space does not have it (any more).

    So a client at a location that the new places lack wants events from exactly there.
    """
    if location is None or location in space:
        return space
    return MovementGraph((), locations=(location,))


def _is_range(low: Scalar, value: Scalar, high: Scalar) -> bool:
    if isinstance(value, bool):
        return low is value is high
    kind = str if isinstance(value, str) else int | float
    if any(isinstance(end, bool) or not isinstance(end, kind) for end in (low, high)):
        return False
    if any(isinstance(end, float) and not math.isfinite(end) for end in (low, high)):
        return False
    return low <= value <= high  # type: ignore[operator]
