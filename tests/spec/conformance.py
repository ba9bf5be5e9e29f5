"""Which tests prove which requirement: the table behind `make spec` and docs/conformance.md."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).with_name("requirements.toml")


def requirements() -> dict[str, str]:
    """Every id with its title, in the order of the list."""
    groups = tomllib.loads(REQUIREMENTS.read_text(encoding="utf-8"))
    return {id_: title for group in groups.values() for id_, title in group.items()}


def proofs(items: Sequence[pytest.Item]) -> dict[str, list[str]]:
    """The tests that carry each id; a parametrized test counts once."""
    found: dict[str, list[str]] = {id_: [] for id_ in requirements()}
    for item in items:
        for mark in item.iter_markers("spec"):
            for id_ in mark.args:
                test = item.nodeid.split("[")[0]
                if test not in found[id_]:
                    found[id_].append(test)
    return found


def check_ids(items: Sequence[pytest.Item]) -> None:
    """Refuse a test that claims a requirement that does not exist."""
    known = requirements()
    for item in items:
        for mark in item.iter_markers("spec"):
            unknown = [id_ for id_ in mark.args if id_ not in known]
            if unknown or not mark.args:
                raise pytest.UsageError(
                    f"{item.nodeid}: no such requirement {unknown}; see {REQUIREMENTS.name}"
                )


def report(items: Sequence[pytest.Item], *, page: Path | None, check: bool) -> None:
    """Print the table; write it as a page, or with `check` compare the page with it."""
    proven = proofs(items)
    text = as_page(proven)
    if page is not None and check:
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            raise pytest.UsageError(f"{page} is out of date: run make spec")
        return
    for id_, title in requirements().items():
        print(f"\n{id_:6} {title}")
        print("\n".join(f"         {test}" for test in proven[id_]) or "         -")
    met = sum(bool(tests) for tests in proven.values())
    print(f"\n{met} of {len(proven)} requirements have tests that prove them.")
    if page is not None:
        page.write_text(text, encoding="utf-8")


def as_page(proven: dict[str, list[str]]) -> str:
    lines = [
        "# Conformance",
        "",
        "Every requirement with the tests that prove it. Written by `make spec`; do not edit.",
        "",
        "| id | requirement | proven by |",
        "|---|---|---|",
    ]
    for id_, title in requirements().items():
        tests = "<br>".join(f"`{test}`" for test in proven[id_]) or "not yet"
        lines.append(f"| {id_} | {title} | {tests} |")
    met = sum(bool(tests) for tests in proven.values())
    return "\n".join([*lines, "", f"{met} of {len(proven)} requirements are proven."]) + "\n"
