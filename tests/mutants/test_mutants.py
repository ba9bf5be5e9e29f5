"""The list of planted bugs fits the source it is for."""

from functools import cache
from types import CodeType

import pytest

from tests.mutants.run import ROOT, Mutant, mutants, mutated

MUTANTS = list(mutants())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_its_source(mutant: Mutant) -> None:
    source = source_of(mutant.file)

    changed = mutated(mutant, source)

    assert meaning(changed) != meaning_of(mutant.file)
    assert all((ROOT / test).exists() for test in mutant.tests)


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20


@cache
def source_of(file: str) -> str:
    return (ROOT / "src" / "sterna" / file).read_text(encoding="utf-8")


@cache
def meaning_of(file: str) -> CodeType:
    return meaning(source_of(file))


def meaning(source: str) -> CodeType:
    """What a source is compiled to, wherever its lines are."""
    return _without_places(compile(source, "", "exec"))


def _without_places(code: CodeType) -> CodeType:
    constants = [_without_places(c) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.replace(co_linetable=b"", co_firstlineno=1, co_consts=tuple(constants))
