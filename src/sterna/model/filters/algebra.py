"""Covering, overlap and merging of filters, on their normal forms.

Always sound; exact wherever the normal forms have no residual conditions and the limits are kept.
Outside of that the answer is the safe one: "does not cover", "may overlap", a merge that is the
plain OR.
"""

from collections.abc import Iterable, Sequence

from sterna.model.filters import values
from sterna.model.filters.normal_form import NormalForm, Term, simplify

WORK_MAX = 100_000
"""Cuts in the pieces that a term may fall into while alternatives are cut from it, before `covers`
gives up."""

Verdict = bool | None
"""None: not sure."""


def covers(wide: NormalForm, narrow: NormalForm) -> Verdict:
    """Whether every event of `narrow` is one of `wide`."""
    verdict: Verdict = True
    for term in narrow:
        covered = _covered(term, wide)
        if covered is False:
            return False
        verdict = verdict and covered
    return verdict


def overlaps(one: NormalForm, other: NormalForm) -> Verdict:
    """Whether some event is in both."""
    verdict: Verdict = False
    for a in one:
        for b in other:
            if a.meets(b):
                if not a.residuals and not b.residuals:
                    return True
                verdict = None
    return verdict


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


def _covered(term: Term, by: NormalForm) -> Verdict:
    relevant = [alternative for alternative in by if alternative.meets(term)]
    if any(alternative.contains(term) for alternative in relevant):
        return True
    # No alternative alone covers the term: cut them away one after the other and see what is left.
    # Those that ask for nothing else than the term does leave the fewest pieces.
    relevant.sort(
        key=lambda alternative: len(alternative.constraints.keys() - term.constraints.keys())
    )
    left = [term]
    work = 0
    for alternative in relevant:
        if not alternative.implied_by(term):
            continue
        pieces: list[Term] = []
        for piece in left:
            new = list(piece.without(alternative)) if alternative.meets(piece) else [piece]
            work += sum(part.size for part in new)
            if work > WORK_MAX:
                return None
            pieces += new
        left = pieces
        if not left:
            return True
    # What is left is certainly outside only if no residual has a say in it.
    uncut = [alternative for alternative in relevant if alternative.residuals]
    sure = not term.residuals and not any(a.meets(piece) for a in uncut for piece in left)
    return False if sure else None
