"""Why a filter matches an event or does not, one condition at a time."""

from collections.abc import Mapping
from dataclasses import dataclass

from sterna.model.event import Scalar, describe
from sterna.model.filters.logic import Verdict, compute, evaluate
from sterna.model.filters.tree import (
    And,
    Attribute,
    Condition,
    Not,
    Or,
    attributes,
    write,
    write_name,
    write_scalar,
)


@dataclass(frozen=True)
class Explanation:
    """The verdict on a condition, the reason, and the verdicts on what it is made of."""

    condition: Condition
    verdict: Verdict
    reason: str
    parts: tuple["Explanation", ...] = ()
    decisive: bool = True
    """Whether the filter's verdict rests on this part."""

    @property
    def text(self) -> str:
        return write(self.condition)


def explain(
    condition: Condition, event: Mapping[str, Scalar | None], *, decisive: bool = True
) -> Explanation:
    """The explanation of a condition for an event's attributes."""
    verdict = evaluate(condition, event)
    match condition:
        case And(operands) | Or(operands):
            parts = tuple(
                explain(operand, event, decisive=decisive and evaluate(operand, event) is verdict)
                for operand in operands
            )
            word = "all of" if isinstance(condition, And) else "at least one of"
            return Explanation(condition, verdict, word, parts, decisive)
        case Not(And() | Or() | Not() as operand):
            inner = explain(operand, event, decisive=decisive)
            return Explanation(condition, verdict, "the opposite of", (inner,), decisive)
    return Explanation(condition, verdict, _values(condition, event), decisive=decisive)


def _values(condition: Condition, event: Mapping[str, Scalar | None]) -> str:
    """What the event has for each attribute of a single test."""
    found = []
    for name in attributes(condition):
        value = compute(Attribute(name), event)
        shown = f"is {describe(value)}"
        if value is not None and value == value:  # noqa: PLR0124 - NaN differs from itself.
            shown = f"= {write_scalar(value)}"
            if evaluate(condition, event) is None:
                shown += f", {describe(value)}"
        found.append(f"{write_name(name)} {shown}")
    return "; ".join(found)
