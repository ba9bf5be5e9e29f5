"""The list of normative statements is complete, its tests exist, and its page is up to date."""

import re
from collections import Counter

import pytest

from tests.mqtt.conformance import PAGE, as_page, exists, statements

ALL = [(version, each) for version, listed in statements().items() for each in listed]


def test_every_statement_is_listed_once() -> None:
    """Appendix B of MQTT 5.0 has 251 statements, that of 3.1.1 has 141."""
    counts = {version: len(listed) for version, listed in statements().items()}
    assert counts == {"5.0": 251, "3.1.1": 141}
    assert max(Counter((version, each.id) for version, each in ALL).values()) == 1


def test_the_numbers_of_a_section_have_no_gap() -> None:
    """But for 2.2.1-1 of MQTT 5.0, which the specification does not have."""
    found: dict[tuple[str, str], list[int]] = {}
    for version, each in ALL:
        section, number = each.id.rsplit("-", 1)
        assert re.fullmatch(r"[1-7]\.\d+\.\d", section)
        found.setdefault((version, section), []).append(int(number))
    for (version, section), numbers in found.items():
        first = 2 if (version, section) == ("5.0", "2.2.1") else 1
        assert numbers == list(range(first, first + len(numbers))), (version, section)


@pytest.mark.spec("LV-4")
def test_every_named_test_exists() -> None:
    missing = {test for _, each in ALL for test in each.tests if not exists(test)}
    assert not missing
    assert not exists("mqtt/test_conformance.py::test_nothing")
    assert not exists("mqtt/no_file.py::test_nothing")


def test_every_statement_says_something() -> None:
    for version, each in ALL:
        assert each.says, (version, each.id)
        assert each.on in {"server", "client"}, (version, each.id)
        assert each.met or not each.tests, f"{version} {each.id}: how is it met?"


@pytest.mark.spec("LV-4")
def test_no_statement_is_missing() -> None:
    """And one that does not apply has no test, for there is nothing to meet."""
    assert [f"{version} {each.id}" for version, each in ALL if each.is_missing] == []
    assert not [each.id for _, each in ALL if each.outside and (each.tests or each.met)]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == as_page(), "run python -m tests.mqtt.conformance"
