"""Which tests prove which requirement: the table behind `make spec` and docs/conformance.md."""

import contextlib
import io
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

import sterna
from sterna.core import catalogue, component, facts, messages
from sterna.core.protocol import Protocol

ROOT = Path(__file__).parent.parent.parent
REQUIREMENTS = Path(__file__).with_name("requirements.toml")
PAGE = ROOT / "docs" / "conformance.md"
COMMON = {module.__name__ for module in (component, facts, messages)}
"""What all protocols are made with."""


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


def collect() -> list[pytest.Item]:
    """All tests of the project, without running them."""

    class Collector:
        items: Sequence[pytest.Item] = ()

        def pytest_collection_finish(self, session: pytest.Session) -> None:
            self.items = session.items

    collector = Collector()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = pytest.main(["--collect-only", "-q", str(ROOT / "tests")], plugins=[collector])
    if status != pytest.ExitCode.OK:
        sys.exit(said.getvalue())
    return list(collector.items)


def main() -> None:
    """Print the table and write the page; with --check only see whether the page is up to date."""
    proven = proofs(collect())
    text = as_page(proven)
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit(f"{PAGE.relative_to(ROOT)} is out of date: run make spec")
        return
    PAGE.write_text(text, encoding="utf-8")
    for id_, title in requirements().items():
        print(f"{id_:6} {title}")
        print("\n".join(f"         {test}" for test in proven[id_]) or "         -")
    print(next(line for line in text.splitlines() if line.endswith("requirements are proven.")))


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
    lines += ["", f"{met} of {len(proven)} requirements are proven.", "", *protocol_files()]
    return "\n".join(lines) + "\n"


def protocol_files() -> list[str]:
    """A table of Sterna's own protocols, with the files that each consists of."""
    rows = []
    for protocol in catalogue.PROTOCOLS:
        files = _files_of(protocol)
        if files:
            shown = ", ".join(f"`{file}`" for file in files)
            rows.append(f"| `{protocol.name}` | {len(files)} | {shown} |")
    return [
        "## Files of each protocol",
        "",
        "Where the parts of each protocol, what they inherit from, and their messages are defined.",
        "",
        *("| protocol | files | which |", "|---|---|---|", *rows),
    ]


def _files_of(protocol: Protocol) -> list[str]:
    classes = [
        each
        for part in protocol.parts
        for each in (*part.__mro__, *part.handles, *part.facts)
        if each.__module__.startswith("sterna.") and each.__module__ not in COMMON
    ]
    modules = {sys.modules[each.__module__].__file__ or "" for each in classes}
    return sorted(str(Path(file).relative_to(Path(sterna.__file__).parent)) for file in modules)


if __name__ == "__main__":
    main()
