"""The notebooks of the docs run, print what is stored in them, and can be opened by Jupyter."""

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import msgspec
import pytest

from tests.notebooks import NOTEBOOKS, VARIES, Displayed, Notebook, Result, Stream, load, run
from tests.notebooks import encoded as normal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIMULATED, ON_SPARK = NOTEBOOKS

BYTES_MAX = 100_000


@pytest.fixture(autouse=True)
def pictures_in_files() -> None:
    mpl.use("agg")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_has_the_format_of_jupyter(path: Path) -> None:
    notebook = load(path)

    assert path.read_bytes() == normal(notebook), "make notebooks writes it in its usual form"
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert "".join(notebook.cells[0].source).startswith("# ")
    assert [cell.execution_count for cell in notebook.code] == [
        number for number, _ in enumerate(notebook.code, 1)
    ]
    assert path.stat().st_size < BYTES_MAX


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "two words"},
        {"cell_type": "graph"},
        {"source": None},
        {"outputs": [{"output_type": "stream", "name": "stdout"}]},
        {"colour": "blue"},
    ],
    ids=str,
)
def test_another_format_is_refused(wrong: dict[str, object]) -> None:
    document = msgspec.to_builtins(load(SIMULATED))
    cell = next(cell for cell in document["cells"] if cell["cell_type"] == "code")
    cell.update(wrong)

    with pytest.raises(msgspec.ValidationError, match="cells"):
        msgspec.convert(document, Notebook)


def shown(outputs: list[Stream | Displayed | Result]) -> list[str]:
    """What can be read of a cell's output; of pictures, that they are there."""
    return [
        "".join(each.text) if isinstance(each, Stream) else "".join(each.data["text/plain"])
        for each in outputs
    ]


def check(path: Path) -> None:
    """A notebook runs, and prints what is stored in it, but for cells that say that it varies."""
    notebook = load(path)
    for cell, outputs in zip(notebook.code, run(notebook), strict=True):
        assert bool(outputs) == bool(cell.outputs), cell.id
        if VARIES not in cell.metadata.tags:
            assert shown(outputs) == shown(cell.outputs), f"{cell.id}: make notebooks"


def test_protocols_are_compared_in_the_simulator() -> None:
    """Its last cells assert the verdict."""
    check(SIMULATED)


def test_live_events_become_a_mined_model(spark: "SparkSession") -> None:
    """In the session of the tests: the notebook asks for the one that runs."""
    before = spark.conf.get("spark.sql.shuffle.partitions") or ""
    try:
        check(ON_SPARK)
    finally:  # Others go on with that session.
        spark.conf.set("spark.sql.shuffle.partitions", before)
