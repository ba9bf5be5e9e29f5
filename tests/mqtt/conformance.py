"""The normative statements of MQTT as a page: `python -m tests.mqtt.conformance` writes it."""

import ast
import tomllib
from functools import lru_cache
from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent.parent
STATEMENTS = Path(__file__).with_name("statements.toml")
PAGE = ROOT / "docs" / "reference" / "mqtt-conformance.md"

INTRODUCTION = """\
What both specifications demand of a server, in our words, by the numbers of their appendix B; how
Sterna meets it; and the test that shows it. A packet that is refused is one that the decoder does
not pass on: its sender is told why and disconnected (MQTT-4.13.1-1; MQTT-4.8.0-1 in 3.1.1). What
only a client can meet is listed apart. A statement does not apply if it is about a server
that lacks something, or offers something that the specification leaves to it. Written by
`make docs` from `tests/mqtt/statements.toml`; do not edit."""


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One normative statement, and what shows that it is met."""

    id: str
    says: str
    met: str = ""
    test: str | tuple[str, ...] = ""
    on: str = "server"
    """`client` if only a client can meet it."""
    outside: str = ""
    """Why it says nothing about a server that offers what Sterna offers."""

    @property
    def tests(self) -> tuple[str, ...]:
        if isinstance(self.test, str):
            return (self.test,) if self.test else ()
        return self.test

    @property
    def is_missing(self) -> bool:
        return self.on == "server" and not self.tests and not self.outside


def statements() -> dict[str, list[Statement]]:
    """The statements of each version, in the order of the specification."""
    listed = tomllib.loads(STATEMENTS.read_text(encoding="utf-8"))
    return msgspec.convert(listed, dict[str, list[Statement]])


@lru_cache
def functions(file: Path) -> frozenset[str]:
    """The test functions of a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def exists(test: str) -> bool:
    """Whether there is a test of that name."""
    file, _, name = test.partition("::")
    path = ROOT / "tests" / file
    return path.is_file() and name.startswith("test_") and name in functions(path)


def as_page() -> str:
    found = statements()
    lines = [
        "# MQTT: the normative statements",
        "",
        INTRODUCTION,
        "",
        "| version | statements for a server | of them met | do not apply | not yet |",
        "|---|---|---|---|---|",
    ]
    for version, listed in found.items():
        ours = [each for each in listed if each.on == "server"]
        met = sum(bool(each.tests) for each in ours)
        outside = sum(bool(each.outside) for each in ours)
        missing = sum(each.is_missing for each in ours)
        lines.append(f"| {version} | {len(ours)} | {met} | {outside} | {missing} |")
    for version, listed in found.items():
        lines += [
            "",
            f"## MQTT {version}",
            "",
            "| statement | what it says | how it is met | test |",
            "|---|---|---|---|",
        ]
        for each in listed:
            if each.on == "server":
                tests = "<br>".join(f"`tests/{test}`" for test in each.tests)
                tests = tests or ("–" if each.outside else "not yet")
                how = each.met or (f"does not apply: {each.outside}" if each.outside else "")
                lines.append(f"| MQTT-{each.id} | {_cell(each.says)} | {_cell(how)} | {tests} |")
        lines += [
            "",
            f"### MQTT {version}: what clients do",
            "",
            "| statement | what it says | what the server does about it |",
            "|---|---|---|",
        ]
        for each in listed:
            if each.on == "client":
                lines.append(f"| MQTT-{each.id} | {_cell(each.says)} | {_cell(each.met)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(as_page(), encoding="utf-8")
    for version, listed in statements().items():
        missing = [each.id for each in listed if each.is_missing]
        print(f"MQTT {version}: {len(listed)} statements, {len(missing)} not yet met")
        print("  " + " ".join(missing))
