"""LV-7 for filters: `sterna filter …` answers people, programs and shell scripts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sterna.cli.attributes import parse_assignments
from sterna.cli.main import app

COMMAND = Path(sys.executable).with_name("sterna")


def sterna(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments, input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def sterna_json(*arguments: str, stdin: str = "") -> tuple[int, Any]:
    status, out, err = sterna(*arguments, "--json", stdin=stdin)
    assert not err
    return status, json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["check", "price > 10"], 0),
        (["check", "price >"], 2),
        (["match", "price > 10", "price=11"], 0),
        (["match", "price > 10", "price=10"], 1),
        (["match", "price > 10"], 1),
        (["match", "price > 10", "price"], 2),
        (["match", "price > $x", "price=1"], 2),
        (["match", "price > $x", "price=1", "--set", "x=0"], 0),
        (["covers", "x > 1", "x > 2"], 0),
        (["covers", "x > 2", "x > 1"], 1),
        (["covers", "x > 2", "x >"], 2),
        (["overlaps", "x > 1", "x < 3"], 0),
        (["overlaps", "x > 3", "x < 1"], 1),
        (["overlaps", "x > $a", "x < 1"], 2),
        (["merge", "x = 1", "x = 2"], 0),
        (["merge", "x = 1", "x = "], 2),
        (["explain", "x = 1", "x=2"], 0),
        (["explain", "x = = 1"], 2),
        (["covers", "x > 2"], 2),
        (["nonsense"], 2),
    ],
)
def test_exit_statuses(arguments: list[str], status: int) -> None:
    assert sterna("filter", *arguments)[0] == status


def test_check_reports_what_the_filter_needs() -> None:
    status, document = sterna_json("filter", "check", "a > $x AND loc IN myloc(2)")

    assert status == 0
    assert document == {
        "valid": True,
        "filter": "a > $x AND loc IN myloc(2)",
        "attributes": ["a", "loc"],
        "variables": ["x"],
        "uses_myloc": True,
        "advice": [],
    }


def test_a_string_in_double_quotes_is_warned_about() -> None:
    """Users of SQL fall into it: the filter compares two attributes, and never matches."""
    status, out, err = sterna("filter", "check", 'service = "parking"')
    _, document = sterna_json("filter", "check", 'service = "parking"')

    assert (status, out) == (0, "valid  service = parking\n")
    assert err.startswith('warning: "parking" in double quotes is the name of an attribute')
    assert err.endswith("single quotes: service = 'parking'\n")
    assert document["advice"] == [err.removeprefix("warning: ").strip()]
    assert "single quotes" in sterna("filter", "match", 'a = "b"', "a=b")[2]
    assert sterna("filter", "check", "service = 'parking'")[2] == ""


def test_an_error_is_shown_with_a_caret_on_standard_error() -> None:
    status, out, err = sterna("filter", "check", "speed > 50 AND lane == 2")

    assert (status, out) == (2, "")
    assert "line 1, column 22" in err
    assert err.rstrip().endswith("^")


def test_an_error_in_json_names_the_place() -> None:
    status, document = sterna_json("filter", "check", "lane == 2")

    assert status == 2
    assert (document["line"], document["column"]) == (1, 7)
    assert "equality is written =" in document["error"]


def test_match_tells_false_from_unknown() -> None:
    assert sterna_json("filter", "match", "x > 1", "x=0")[1]["verdict"] == "FALSE"
    assert sterna_json("filter", "match", "x > 1")[1]["verdict"] == "UNKNOWN"
    assert sterna_json("filter", "match", "x > 1", "x=2")[1] == {"matches": True, "verdict": "TRUE"}


def test_match_filters_json_lines(tmp_path: Path) -> None:
    lines = '{"speed": 60}\n\n{"speed": 40}\n{"speed": 70, "x": null}\n'
    events = tmp_path / "events.jsonl"
    events.write_text(lines)

    for source, stdin in ((str(events), ""), ("-", lines)):
        status, out, _ = sterna("filter", "match", "speed > 50", "--events", source, stdin=stdin)
        assert (status, out) == (0, '{"speed": 60}\n{"speed": 70, "x": null}\n')
    assert sterna_json("filter", "match", "speed > 99", "--events", str(events)) == (
        1,
        {"matches": False, "matched": 0},
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"a": 1}\n{', "line 2: not valid JSON"),
        ("[1]", "line 1: an event is a JSON object"),
        ('{"a": [1]}', "attribute 'a' is a list"),
        ('{"a": 99999999999999999999}', "does not fit in 64 bits"),
    ],
)
def test_a_bad_line_is_named(content: str, problem: str) -> None:
    status, _, err = sterna("filter", "match", "a = 1", "--events", "-", stdin=content)

    assert status == 2
    assert problem in " ".join(err.split())


def test_an_absent_file_is_one_line() -> None:
    status, out, err = sterna("filter", "match", "a = 1", "--events", "absent.jsonl")

    assert (status, out) == (2, "")
    assert "cannot read absent.jsonl" in err


def test_match_at_a_location(tmp_path: Path) -> None:
    graph = tmp_path / "streets.csv"
    graph.write_text("1st,2nd\n2nd,3rd\n")
    where = ["--at", "1st", "--graph", str(graph)]

    assert sterna("filter", "match", "loc IN myloc(1)", "loc=2nd", *where)[0] == 0
    assert sterna("filter", "match", "loc IN myloc(1)", "loc=3rd", *where)[0] == 1
    cell = "891f1d48863ffff"
    assert sterna("filter", "match", "c IN myloc", f"c={cell}", "--at", cell, "--h3", "9")[0] == 0
    for wrong in (["--at", "1st"], ["--at", "x", "--graph", str(graph)], []):
        assert sterna("filter", "match", "loc IN myloc(1)", "loc=2nd", *wrong)[0] == 2


def test_covers_says_when_it_is_not_sure() -> None:
    assert sterna_json("filter", "covers", "a + 1 > 2", "a > 1") == (
        1,
        {"covers": False, "exact": False},
    )
    assert sterna_json("filter", "covers", "a > 2", "a > 1") == (
        1,
        {"covers": False, "exact": True},
    )
    assert "not sure" in sterna("filter", "overlaps", "a LIKE '%x'", "a LIKE '%y'")[1]


def test_merge_exactly_and_widely() -> None:
    filters = ["x = 1 AND y = 1", "x = 2 AND y = 2"]

    assert sterna("filter", "merge", *filters)[1] == "x = 1 AND y = 1 OR x = 2 AND y = 2\n"
    assert sterna_json("filter", "merge", "--wide", *filters)[1] == {
        "filter": "x IN (1, 2) AND y IN (1, 2)",
        "exact": False,
    }


def test_explain_shows_the_normal_form_and_the_failing_predicate() -> None:
    status, document = sterna_json(
        "filter", "explain", "a = 1 AND (b > 2 OR c LIKE 'x%')", "a=1", "b=2", "c=5"
    )

    assert status == 0
    assert document["normal_form"] == ["a = 1 AND b > 2", "a = 1 AND c LIKE 'x%'"]
    assert document["verdict"] == "UNKNOWN"
    first, second = document["explanation"]["parts"]
    assert first == {
        "condition": "a = 1",
        "verdict": "TRUE",
        "decisive": False,
        "values": "a = 1",
    }
    assert [part["verdict"] for part in second["parts"]] == ["FALSE", "UNKNOWN"]
    assert second["parts"][1]["values"] == "c = 5, a number"


def test_explain_for_people() -> None:
    _, out, _ = sterna("filter", "explain", "a = 1 AND NOT (b > 2 OR c)", "a=1", "b=3", "c=nan")

    assert "FALSE" in out
    assert "the opposite of" in out
    assert "c is not a number (NaN)" in out


def test_explain_beyond_the_normal_form() -> None:
    huge = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(40))

    assert sterna_json("filter", "explain", huge)[1]["normal_form"] is None
    assert "more than 64 alternatives" in sterna("filter", "explain", huge)[1]


@pytest.mark.parametrize("text", ["x = ':car:'", "x = '[bold]'", "x = '\\[/]'", "x = 'é😀'"])
def test_text_is_printed_as_it_is(text: str) -> None:
    assert sterna("filter", "merge", text)[1] == text + "\n"
    assert text in sterna("filter", "check", text)[1]
    assert text in sterna("filter", "check", text + " =")[2]
    assert sterna_json("filter", "check", text)[1]["filter"] == text


def run(
    *arguments: str, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_odd_terminals_and_odd_bytes_are_no_accident() -> None:
    plain = run("filter", "check", "x = 'é'", "--json", PYTHONIOENCODING="ascii")
    assert json.loads(plain.stdout)["filter"] == "x = 'é'"
    assert run("filter", "merge", "x = 'é'", PYTHONIOENCODING="ascii").returncode == 0
    binary = run("filter", "match", "a = 1", "--events", "-", stdin=b'{"a": 2}\n\xff\n')
    assert (binary.returncode, b"not text in UTF-8" in binary.stderr) == (2, True)
    deep = run("filter", "match", "a = 1", "--events", "-", stdin=b"[" * 100_000)
    assert (deep.returncode, b"nested too deeply" in deep.stderr) == (2, True)


def test_a_reader_that_has_seen_enough_is_no_failure(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"a": 1}\n' * 100_000)
    pipeline = 'set -o pipefail; "$0" filter match "a = 1" --events "$1" | head -1'
    piped = subprocess.run(
        ["bash", "-c", pipeline, COMMAND, events],  # noqa: S607
        capture_output=True,
        check=False,
    )

    assert (piped.returncode, piped.stdout, piped.stderr) == (0, b'{"a": 1}\n', b"")


def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [COMMAND, "filter", "merge", "a = 1"], stdout=full, stderr=subprocess.PIPE, check=False
        )

    assert (ended.returncode, ended.stderr) == (2, b"error: No space left on device\n")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--set", "y=1"], "does not refer to $y"),
        (["--graph", "a.csv", "--h3", "9"], "not both"),
        (["--set", "x='t'"], "works on numbers"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: list[str], problem: str) -> None:
    status, document = sterna_json("filter", "match", "a + $x > 1", "a=1", *options)

    assert status == 2
    assert problem in document["error"]


def test_one_way_streets(tmp_path: Path) -> None:
    graph = tmp_path / "streets.csv"
    graph.write_text("1st,2nd\n")
    where = ["--at", "2nd", "--graph", str(graph)]

    assert sterna("filter", "match", "loc IN myloc(1)", "loc=1st", *where)[0] == 0
    assert sterna("filter", "match", "loc IN myloc(1)", "loc=1st", *where, "--directed")[0] == 1


def test_a_number_out_of_range_is_refused() -> None:
    assert sterna("filter", "match", "a > 1", "a=1e400")[0] == 2


def test_values_on_the_command_line() -> None:
    written = ["a=1", "b=1.5", "c=true", "d='1'", "e=text", "f=", "g=null", "h=1_000", "i=x=y"]

    assert parse_assignments(written) == {
        "a": 1,
        "b": 1.5,
        "c": True,
        "d": "1",
        "e": "text",
        "f": "",
        "h": "1_000",
        "i": "x=y",
    }


@pytest.mark.parametrize("command", ["check", "match", "covers", "overlaps", "merge", "explain"])
def test_help_has_examples(command: str) -> None:
    status, out, _ = sterna("filter", command, "--help")

    assert status == 0
    assert "Example" in out


def test_the_installed_command_and_the_tour() -> None:
    version, tour = run("--version"), run("tour")

    assert version.stdout.startswith(b"sterna ")
    assert b"What to try next" in tour.stdout
    assert (tour.stderr, tour.returncode) == (b"", 0)
