"""Covering, overlap and merging of filters, on their normal forms.

Always sound; exact wherever the normal forms have no residual conditions and the limits are kept.
Outside of that the answer is the safe one: "does not cover", "may overlap", a merge that is the
plain OR.
"""

from collections.abc import Iterable, Sequence

from sterna.model.filters import values
from sterna.model.filters.normal_form import NormalForm, Term, simplify

PIECES_MAX = 1_000
"""Pieces that a term may fall into while alternatives are cut from it, before `covers` gives up."""


def covers(wide: NormalForm, narrow: NormalForm) -> bool:
    """Whether every event of `narrow` is one of `wide`; False when not sure."""
    return all(_covered(term, wide) for term in narrow)


def overlaps(one: NormalForm, other: NormalForm) -> bool:
    """Whether some event is in both; True when not sure."""
    return any(a.meet(b) is not None for a in one for b in other)


def merge_exactly(forms: Iterable[NormalForm]) -> NormalForm:
    """The union, in as few terms as perfect merging gives."""
    return simplify(term for form in forms for term in form)


def merge_widely(forms: Iterable[NormalForm]) -> NormalForm:
    """A superset of the union, with one term for each combination of constrained attributes.

    The over-approximation is bounded: each attribute that is constrained in the inputs stays
    constrained, to values that one of the merged inputs accepts; only new combinations come in.
    """
    shapes: dict[object, list[Term]] = {}
    for term in merge_exactly(forms):
        shape = (frozenset(term.constraints), frozenset(term.residuals))
        shapes.setdefault(shape, []).append(term)
    return simplify(_hull(terms) for terms in shapes.values())


def _hull(terms: Sequence[Term]) -> Term:
    return Term(
        {name: values.union(term.accepts(name) for term in terms) for name in terms[0].constraints},
        terms[0].residuals,
    )


def _covered(term: Term, by: NormalForm) -> bool:
    if any(alternative.contains(term) for alternative in by):
        return True
    # No alternative alone covers the term: cut them away one after the other and see what is left.
    left = [term]
    made = 0
    for alternative in by:
        if not alternative.implied_by(term):
            continue
        pieces: list[Term] = []
        for piece in left:
            pieces += piece.without(alternative) if alternative.meet(piece) else [piece]
            if made + len(pieces) > PIECES_MAX:
                return False
        made += len(pieces)
        left = pieces
        if not left:
            return True
    return False
