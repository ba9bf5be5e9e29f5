"""Which rows are filed, and under which values or parts of strings."""

from collections.abc import Iterable

from sterna.matching.records import EncodedTest
from sterna.matching.tokens import required
from sterna.matching.vocabulary import Attribute, Vocabulary
from sterna.model.filters.normal_form import Term

FILED_VALUES_MIN = 1000
"""An attribute with so many known values is like an identifier: rows are filed under them."""

FILED_ROWS_MAX = 64
"""How many rows may be filed under a value; tiles handle more of them faster."""

FILED_TOKEN_ROWS_MAX = 2048
"""How many rows may be filed under a part of a string, where tiles help less."""

FILED_POINTS_MAX = 4
"""A row may be filed under so many values, if its test accepts any of them."""


def values_to_file_under(
    tests: Iterable[tuple[Attribute, EncodedTest]], vocabulary: Vocabulary
) -> list[int]:
    """The values of the test that few other rows name, if there is such a test."""
    filed = vocabulary.filed
    best: list[int] = []
    fewest = FILED_ROWS_MAX
    for attribute, test in tests:
        if (
            test.selects
            and len(attribute.ids) >= FILED_VALUES_MIN
            and len(test.named) <= FILED_POINTS_MAX
        ):
            most = max(int(filed[value]) for value in test.named)
            if most < fewest:
                fewest = most
                best = list(test.named)
    return best


def token_to_file_under(term: Term, vocabulary: Vocabulary) -> list[int]:
    """A part of a string that every match has and few other rows need, if there is one."""
    known = vocabulary.attributes
    choices = [
        (*known[name].tokens.rarest(tokens), name)
        for name, tokens in required(term)
        if name in known  # Not if it has more tests than a record.
    ]
    if not choices:
        return []
    *_, token, name = min(choices)
    number = vocabulary.token(known[name], token)
    return [] if vocabulary.filed[number] >= FILED_TOKEN_ROWS_MAX else [number]
