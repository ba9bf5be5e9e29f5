"""`sterna bench`: figures for people and for programs, and errors that help."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sterna.cli.main import app

SMALL = ["bench", "match", "--subscriptions", "1200", "--events", "20", "--workload", "ids"]


def test_figures_for_people() -> None:
    answer = CliRunner().invoke(app, SMALL, env={"COLUMNS": "100"})

    assert answer.exit_code == 0, answer.output
    assert "ids: 1,200 subscriptions" in answer.output
    assert "brute force" in answer.output
    assert "after replacing half of them" in answer.output
    assert "few filters" in answer.output


def test_one_json_document_and_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "curve.svg"
    answer = CliRunner().invoke(app, [*SMALL, "--json", "--plot", str(picture)])

    document = json.loads(answer.stdout)
    (report,) = document["workloads"]
    assert report["workload"] == "ids"
    assert [each["subscriptions"] for each in report["curve"]] == [1000]
    assert document["machine"]["cores"] >= 1
    assert picture.read_text().count("<svg") == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--plot", "curve.gif"], "--plot draws .svg and .png, not curve.gif"),
        (["--plot", "nowhere/curve.svg"], "there is no folder nowhere"),
        (["--match-rate", "2"], "should be less than or equal to 0.5"),
        (["--subscriptions", "5"], "should be greater than or equal to 100"),
        (["--workload", "idz"], "'idz' is not one of"),
    ],
)
def test_bad_options(options: list[str], problem: str) -> None:
    answer = CliRunner().invoke(app, ["bench", "match", *options], env={"COLUMNS": "200"})

    assert answer.exit_code == 2
    assert problem in answer.output
