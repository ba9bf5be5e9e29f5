"""Refuses what an application asks for if it could not be sent; the node never hears of it."""

from sterna.core import inputs
from sterna.core.inputs import Input, SetVariable
from sterna.core.names import LocalProtocolError
from sterna.model.event import plain_scalar
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
