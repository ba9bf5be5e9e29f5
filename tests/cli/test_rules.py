"""One grammar for all commands: docs/reference/command-rules.md, checked for each of them."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sterna.cli.attributes import parse_assignments
from sterna.cli.main import app
from sterna.cli.pipeline.options import seconds
from sterna.cli.rules import OTHER_VARIABLES, known_variables
from tests.cli.conftest import COMMAND, WAIT_S, sterna

pytestmark = pytest.mark.spec("LV-7")

SOURCE = Path(__file__).parent.parent.parent / "src" / "sterna"


def commands() -> Iterator[tuple[str, Any]]:
    """All commands with their names, and groups of commands as well."""

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        yield " ".join(path), command
        for name, below in getattr(command, "commands", {}).items():
            yield from walk(below, (*path, name))

    return walk(typer.main.get_command(app), ())


ALL = dict(commands())
BENCHES = [name for name in ALL if name.startswith("bench ")]


def options(name: str) -> dict[str, Any]:
    return {option: parameter for parameter in ALL[name].params for option in parameter.opts}


def help_of(name: str, option: str = "--help") -> str:
    ended = CliRunner().invoke(app, [*name.split(), option], env={"COLUMNS": "80"})
    assert ended.exit_code == 0
    return ended.stdout


def test_all_commands_are_found() -> None:
    assert len(ALL) > 30
    assert len(BENCHES) == 7


# ---- Help


@pytest.mark.parametrize("name", ALL)
def test_both_words_for_help_say_the_same(name: str) -> None:
    assert help_of(name, "-h") == help_of(name, "--help")


@pytest.mark.parametrize("name", ALL)
def test_help_speaks_of_values_and_not_of_types(name: str) -> None:
    odd = re.findall(r"<\w[^>]*>|list\[|\[\[|<bool|<int|<str", help_of(name))

    assert not odd


@pytest.mark.parametrize("name", ALL)
def test_everything_has_a_help_that_is_a_sentence(name: str) -> None:
    assert re.search(r"[.?]$", (ALL[name].help or "").split("\n\n")[0].strip())
    for parameter in ALL[name].params:
        assert re.search(r"[.\])]$", parameter.help or ""), parameter.opts


# ---- The same words for the same things


@pytest.mark.parametrize("name", BENCHES)
def test_every_benchmark_has_a_quick_form_and_writes_its_figures(name: str) -> None:
    assert {"--quick", "--json", "--out"} <= set(options(name))


PLACES = {
    **dict.fromkeys(("--data", "--state", "--journal", "--tables"), ("DIR",)),
    **dict.fromkeys(("--config", "--keep", "--script", "--graph", "--trace"), ("FILE",)),
    "--out": ("DIR", "FILE"),
    "--client": ("NAME",),
    "--at": ("LOCATION",),
    "--set": ("NAME=VALUE",),
    "--master": ("URL",),
    "--also": ("URL",),
}


@pytest.mark.parametrize("name", ALL)
def test_the_same_option_takes_the_same_kind_of_value(name: str) -> None:
    for option, parameter in options(name).items():
        if option in PLACES:
            assert parameter.metavar in PLACES[option], option


READ = {"--config", "--events", "--fixes", "--graph", "--script", "--subscriptions", "--trips"}
WRITTEN = {"--journal", "--keep", "--model", "--out", "--picture", "--plot", "--trace"}
BOTH = {"--cache", "--data", "--state", "--tables"}
"""Where a network, a client or a job keeps what it has, and finds it again."""


@pytest.mark.parametrize("name", ALL)
def test_durations_have_units(name: str) -> None:
    """Those of the option's name, or those that are written; earlier releases took bare seconds."""
    for option, parameter in options(name).items():
        assert parameter.metavar != "SECONDS" or option.endswith("-s"), option


@pytest.mark.parametrize(("text", "expected"), [("500ms", 0.5), ("2m", 120), ("30", 30), ("0", 0)])
def test_a_duration_without_a_unit_is_in_seconds_as_before(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("name", ALL)
def test_options_of_files_are_read_or_written_and_the_same_everywhere(name: str) -> None:
    for parameter in ALL[name].params:
        if parameter.param_type_name == "option" and parameter.metavar in {"DIR", "FILE", "PATH"}:
            (option,) = parameter.opts
            assert option in READ | WRITTEN | BOTH or parameter.hidden
            if option in WRITTEN and not parameter.hidden:
                assert re.match(r"(Write|Keep|Draw|The|Where)\b", parameter.help)


@pytest.mark.parametrize("name", ["run", "audit", "mine", "report"])
def test_what_a_command_of_the_pipeline_reads_is_its_argument(name: str) -> None:
    parameters = ALL[f"pipeline {name}"].params
    arguments = [each for each in parameters if each.param_type_name == "argument"]

    assert [each.metavar for each in arguments] == ["DIR"]
    assert not {"--journals", "--tables"} & {
        option for each in parameters if not getattr(each, "hidden", False) for option in each.opts
    }


@pytest.mark.parametrize("former", ["pipeline mine --journal", "pipeline report --tables"])
def test_former_words_are_accepted_and_no_longer_shown(former: str) -> None:
    name, _, option = former.rpartition(" ")

    assert options(name)[option].hidden
    assert option not in help_of(name)


# ---- Output that nobody reads


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "sim run --help",
        "filter explain a",
        "filter check a --json",
        "experiment list",
        "broker --name b --print-config",
        "sim replay 1 --brokers 2 --events 5",
        "tour",
    ],
)
def test_a_reader_that_has_seen_enough_is_no_error(words: str) -> None:
    """As with `| head -1`, but the reader is certainly gone."""
    nobody, out = os.pipe()
    os.close(nobody)
    try:
        ended = subprocess.run(
            [COMMAND, *words.split()],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=WAIT_S,
        )
    finally:
        os.close(out)

    assert (ended.returncode, ended.stderr) == (0, "")


# ---- What would be ignored silently


def test_variables_that_mean_nothing_are_told_once() -> None:
    ended = CliRunner().invoke(
        app,
        ["filter", "check", "a"],
        env={"STERNA_NONSENSE": "1", "STERNA_LIMITS_KEPT": "5", "STERNA_LOG_LEVEL": "info"},
    )

    assert (ended.exit_code, ended.stdout) == (0, "valid  a\n")
    mistyped, nonsense = ended.stderr.splitlines()
    assert mistyped.startswith("warning: STERNA_LIMITS_KEPT is set, and is not a variable of")
    assert mistyped.endswith("; did you mean STERNA_LIMITS_KEPT_S?")
    assert nonsense == "warning: STERNA_NONSENSE is set, and is not a variable of Sterna"


def test_a_broker_refuses_them_and_says_it_once() -> None:
    ended = CliRunner().invoke(
        app, ["broker", "--name", "b", "--check"], env={"STERNA_LIMITS_KEPT": "5"}
    )

    assert ended.exit_code == 2
    assert ended.stderr.startswith("error: STERNA_LIMITS_KEPT: is not a variable of Sterna")
    assert ended.stderr.count("STERNA_LIMITS_KEPT:") == 1
    assert "warning" not in ended.stderr


def test_all_variables_that_are_read_are_known() -> None:
    """Whoever reads a new one adds it to `OTHER_VARIABLES`, or to an option as its `envvar`."""
    read = {
        name
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r"\bSTERNA_[A-Z][A-Z0-9_]*\b", path.read_text(encoding="utf-8"))
    }
    own = {parameter.envvar for command in ALL.values() for parameter in command.params}

    assert read <= {*known_variables(), *own}
    assert set(OTHER_VARIABLES) <= set(known_variables())


@pytest.mark.parametrize(
    "words",
    [
        "pub sterna://127.0.0.1:1 price=2 name=x price=3",
        "filter match a price=2 price=2",
        "sub sterna://127.0.0.1:1 a<$price --set price=1 --set price=2",
    ],
)
def test_what_is_given_twice_is_refused(words: str) -> None:
    status, _, err = sterna(*words.split())

    assert status == 2
    assert err.startswith("error: price is given twice")


def test_spaces_make_no_other_name() -> None:
    with pytest.raises(ValueError, match="price is given twice, the second time as 'price =3'"):
        parse_assignments(["price=2", "price =3"])
