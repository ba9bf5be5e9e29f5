"""Candidates for covering: nothing that covers is missed, and little else is asked."""

from itertools import product

import pytest

from sterna.core.routing.candidates import Candidates
from sterna.model.filters import Filter

pytestmark = pytest.mark.spec("RT-1")

BOXES = ["TRUE", "n > 3", "n = 5", "n < 9 AND m = 'a'", "m >= 'a' AND m < 'c'", "n IS NULL", "b"]
RESIDUALS = [
    *("x LIKE '%a_b%'", "x LIKE 'a_b%'", "NOT x LIKE '%a_b%'", "n + m > 5", "n * 2 > k"),
    *("x MATCHES '+/a/#'", "x MATCHES '+/a/+/bb'", "x MATCHES '+/+/c/bb'", "x MATCHES '+'"),
    *("x MATCHES 'r/+/a'", "x MATCHES '#'", "y MATCHES '+/a/#'", "x MATCHES 'q/a/c/bb'"),
    *("NOT x MATCHES '+/a/#'", "NOT x MATCHES '+/a/+/bb'", "NOT x MATCHES '+/b/#'"),
    *(f"x MATCHES '{'+/' * deep}bb/#'" for deep in (6, 7, 8, 9)),
    *(f"x MATCHES '{'a/' * deep}+/bb'" for deep in (6, 7, 8, 9)),
    *("NEAR(lat, lon, 52.5, 13.4, 5000)", "n IN (1, 2) OR x LIKE '%z_%'"),
]
TEXTS = [
    *BOXES,
    *RESIDUALS,
    *(f"({box}) AND ({residual})" for box, residual in product(BOXES[1:], RESIDUALS)),
    *(f"({box}) OR ({residual})" for box, residual in product(BOXES[1:3], RESIDUALS)),
    *(f"{RESIDUALS[0]} AND {residual}" for residual in RESIDUALS[3:]),
    "(n > 3 AND x LIKE '%a_b%') OR (n <= 3 AND x LIKE '%a_b%')",
    " AND ".join(f"(a{number} > 1 OR b{number} > 1)" for number in range(8)),
]


def test_all_that_cover_are_candidates() -> None:
    """In both directions, for each pair of filters."""
    filters = {str(number): Filter(text) for number, text in enumerate(TEXTS)}
    filters = {id_: each for id_, each in filters.items() if each.normal_form != ()}
    candidates = Candidates()
    for id_, filter_ in filters.items():
        candidates.add(id_, filter_)

    for id_, filter_ in filters.items():
        covering = {other for other, each in filters.items() if each.covers(filter_)}
        covered = {other for other, each in filters.items() if filter_.covers(each)}
        assert covering - {id_} <= set(candidates.covering(filter_))
        assert covered - {id_} <= set(candidates.covered(filter_))


@pytest.mark.parametrize(
    "text",
    [
        "x LIKE '%a_{0}%'",
        "n + m > {0}",
        "n = {0} AND x LIKE '%a_b%'",
        "x MATCHES '+/a/+/b{0}'",
        "NOT x MATCHES '+/a/+/b{0}'",
        "n < {0} AND m > {0} AND x LIKE '%a_{0}%'",
    ],
)
def test_filters_that_have_little_in_common_are_not_asked(text: str) -> None:
    """Comparing each with each took minutes."""
    filters = {str(number): Filter(text.format(number)) for number in range(300)}
    candidates = Candidates()
    for id_, filter_ in filters.items():
        candidates.add(id_, filter_)

    asked = sum(
        len(list(candidates.covering(each))) + len(list(candidates.covered(each)))
        for each in filters.values()
    )

    assert asked <= 2 * len(filters)

    for id_ in filters:
        candidates.remove(id_)
    assert not list(candidates.covering(Filter("n = 1")))
    assert not list(candidates.covered(Filter("TRUE")))
