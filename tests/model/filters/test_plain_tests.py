"""Plain conjunctions are read without the grammar, and mean what the grammar says."""

from random import Random

import pytest
from hypothesis import given

from sterna.model.filters.errors import FilterError
from sterna.model.filters.parser import _parse_by_grammar, parse
from sterna.model.filters.plain_tests import LISTED_MAX, plain_conjunction
from tests.scale import examples
from tests.strategies import BATCH, batches, filter_text

NAMES = ("a", "A_1", "_", "a.b", "near", "inn", "andy")
ODD_NAMES = ("and", "In", "TRUE", "é", "a..b", '"a"', "NOT a", "(a")
SIGNS = ("=", "<>", "<", "<=", ">", ">=")
ODD_SIGNS = ("==", "< =", "!=")
CONSTANTS = (
    *("0", "1", "-1", "12", "-0", "1.5", "-0.0", "1.5e3", "1.5E-3", "999999999999999999"),
    *("''", "'a'", "'a, b'", "' AND '", "'é'", "'\n'"),
)
ODD_CONSTANTS = (
    *("01", "1e5", "1.", ".5", "1.e2", "9223372036854775808", "-9223372036854775808", "1.0e400"),
    *("0x1F", "7l", "- 1", "--1", "+1", "1.5.5", "١", "$v", "b", "TRUE", "NULL"),
    *("'it''s'", "'\ud800'", "'", "'a''"),
)
SPACES = (" ", " ", "  ", "\t", "\r\n", "\f")
ODD_SPACES = ("", "\v", "\xa0", "\u2003")


def nearly_plain(random: Random) -> str:
    """A plain conjunction, every other time with something odd in it."""
    oddness = random.choice((0.0, 0.1))

    def one_of(usual: tuple[str, ...], odd: tuple[str, ...]) -> str:
        return random.choice(odd if random.random() < oddness else usual)

    def space() -> str:
        return one_of(SPACES, ODD_SPACES)

    def constant() -> str:
        return one_of(kind, CONSTANTS + ODD_CONSTANTS)

    def word(text: str) -> str:
        return random.choice((text, text.lower(), text.title()))

    tests = []
    for _ in range(random.randint(1, 3)):
        kind = random.choice((CONSTANTS[:10], CONSTANTS[10:]))
        name = one_of(NAMES, ODD_NAMES) + space()
        match random.randrange(3):
            case 0:
                test = f"{one_of(SIGNS, ODD_SIGNS)}{space()}{constant()}"
            case 1:
                ends = space() + word("AND") + space()
                test = f"{word('BETWEEN')}{space()}{constant()}{ends}{constant()}"
            case _:
                listed = f"{space()},{space()}".join(
                    constant() for _ in range(random.randint(1, 3))
                )
                test = f"{word('IN')}{space()}({listed}{space()})"
        tests.append(name + test)
    return (space() + word(one_of(("AND",), ("OR", "ANDA"))) + space()).join(tests)


@given(batches(nearly_plain, filter_text))
@examples(4_000 // BATCH)
def test_what_is_read_without_the_grammar_is_what_the_grammar_reads(
    batch: list[tuple[str, str]],
) -> None:
    """Also what looks like it: other digits and spaces, keywords as names, numbers out of range."""
    for text in (text for pair in batch for text in pair):
        plain = plain_conjunction(text)
        if plain is not None:
            assert repr(plain) == repr(_parse_by_grammar(text)), text


@pytest.mark.parametrize(
    "text",
    [
        "a = 1",
        "a<-2 AND b.c >= 1.5e-3 and d <> ''",
        " price BETWEEN 1 AND 2.5 AND service IN ('a', 'b' ,'é') AND near\tin(1,-2)\n",
    ],
)
def test_most_filters_need_no_grammar(text: str) -> None:
    plain = plain_conjunction(text)

    assert repr(plain) == repr(_parse_by_grammar(text))
    assert parse(text) == plain


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a = 1 OR b = 2",
            "NOT a = 1",
            "a = 1 AND",
            "",
            "a = TRUE",
            "a = b",
            "TRUE = 1",
            "a + 1 = 2",
        ),
        *("a IN (1, 'b')", "a BETWEEN 1 AND 'b'", "a = 9223372036854775808", "a = 1.0e400"),
        *("a = 'half \ud800'", "a = 'it''s'", "a = 01", "a = ١", "a\xa0= 1", "a ıN (1)"),
        f"a IN ({', '.join(['1'] * (LISTED_MAX + 1))})",
    ],
)
def test_all_else_is_left_to_the_grammar(text: str) -> None:
    assert plain_conjunction(text) is None


def test_errors_are_those_of_the_grammar() -> None:
    with pytest.raises(FilterError) as raised:
        parse("a = 1 AND b IN (1, 'x')")

    assert "cannot mix numbers and strings" in str(raised.value)
