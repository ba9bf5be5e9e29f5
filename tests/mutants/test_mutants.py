"""The list of planted bugs fits the source it is for."""

import ast

import pytest

from tests.mutants.run import ROOT, Mutant, mutants, mutated

MUTANTS = list(mutants())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_its_source(mutant: Mutant) -> None:
    source = (ROOT / "src" / "sterna" / mutant.file).read_text(encoding="utf-8")

    changed = mutated(mutant, source)

    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    assert all((ROOT / test).exists() for test in mutant.tests)


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
