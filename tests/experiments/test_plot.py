"""Pictures of experiments."""

from pathlib import Path

import pytest
from matplotlib import pyplot as plt

from sterna.experiments.plot import panels


def test_a_picture_that_cannot_be_written_is_not_left_open(tmp_path: Path) -> None:
    """An open figure is shown by the next one who shows all, such as a notebook."""
    before = plt.get_fignums()

    with (
        pytest.raises(FileNotFoundError),
        panels(tmp_path / "missing" / "picture", 1, 1, (4, 3)) as (axes,),
    ):
        axes.plot([1, 2], [3, 4])

    assert plt.get_fignums() == before
