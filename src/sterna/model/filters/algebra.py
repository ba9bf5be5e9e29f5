"""Covering, overlap and merging of filters, on their normal forms.

Always sound; exact wherever the normal forms have no residual conditions and the limits are kept.
Outside of that the answer is the safe one: "does not cover", "may overlap", a merge that is the
plain OR.
"""

from collections.abc import Iterable, Sequence

from sterna.model.filters import values
from sterna.model.filters.logic import Verdict
from sterna.model.filters.normal_form import NormalForm, Term, simplify

QUESTION_MAX = 1_000_000
"""How many cuts may be examined to answer one question; this bounds it to about a second."""


def covers(wide: NormalForm, narrow: NormalForm, work: "Work | None" = None) -> Verdict:
    """Whether every event of `narrow` is one of `wide`; None when not sure."""
    question = work or Work()
    verdict: Verdict = True
    for term in narrow:
        covered = question.covered(term, wide)
        if covered is False:
            return False
        verdict = verdict and covered
    return verdict


def overlaps(one: NormalForm, other: NormalForm, work: "Work | None" = None) -> Verdict:
    """Whether some event is in both; None when not sure."""
    question = work or Work()
    verdict: Verdict = False
    for a in one:
        for b in other:
            if question.meet(a, b):
                if not a.residuals and not b.residuals and not question.spent:
                    return True
                verdict = None
    return verdict


def merge_exactly(forms: Iterable[NormalForm]) -> NormalForm:
    """The union, in as few terms as perfect merging gives."""
    return simplify(term for form in forms for term in form)


def merge_widely(forms: Iterable[NormalForm]) -> NormalForm:
    """A superset of the union, with one term for each combination of constrained attributes.

    The over-approximation is bounded: each attribute that is constrained in the inputs stays
    constrained, to values that one of the merged terms accepts; only new combinations come in.
    (What a shared residual condition narrows further, it narrows in the result too.)
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


class Work:
    """The work that goes into one answer, or into several that have a limit together."""

    def __init__(self, work_max: int = QUESTION_MAX) -> None:
        self.work = 0
        self.work_max = work_max

    @property
    def spent(self) -> bool:
        """Whether the limit of work is reached, so that the answer is left open."""
        return self.work > self.work_max

    def meet(self, a: Term, b: Term) -> bool:
        """Whether two terms can hold at once; True if that is not certain."""
        self.work += min(a.size, b.size)
        return self.spent or a.meets(b)

    def covered(self, term: Term, by: NormalForm) -> Verdict:
        relevant = [alternative for alternative in by if self.meet(alternative, term)]
        for alternative in relevant:
            self.work += term.size
            if self.spent:
                return None
            if alternative.contains(term):
                return True
        if len(relevant) < 2 and not any(each.residuals for each in (term, *relevant)):
            return False
        # No alternative alone covers the term: cut them away one after the other and see what is
        # left. Those that ask for nothing else than the term does leave the fewest pieces.
        names = term.constraints.keys()
        relevant.sort(key=lambda alternative: len(alternative.constraints.keys() - names))
        left = [term]
        for alternative in relevant:
            if not alternative.implied_by(term):
                continue
            left = [rest for piece in left for rest in self._outside(piece, alternative)]
            if self.spent:
                return None
            if not left:
                return True
        # What is left is certainly outside only if no residual has a say in it.
        uncut = [alternative for alternative in relevant if alternative.residuals]
        sure = not term.residuals and not any(self.meet(a, piece) for a in uncut for piece in left)
        return False if sure and not self.spent else None

    def _outside(self, piece: Term, alternative: Term) -> list[Term]:
        if self.spent or not self.meet(piece, alternative):
            return [piece]
        rest = list(piece.without(alternative))
        self.work += sum(part.size for part in rest)
        return rest
