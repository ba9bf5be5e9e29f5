"""What a user imports: documented, typed, and light to load."""

import subprocess
import sys
import tomllib
from pathlib import Path

import sterna

ROOT = Path(__file__).parent.parent


def test_every_public_name_is_there_and_documented() -> None:
    for name in sterna.__all__:
        if name != "__version__":
            assert getattr(sterna, name).__doc__, name


def test_the_version_is_the_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert sterna.__version__ == project["version"]


def test_importing_sterna_loads_neither_spark_nor_the_command_line() -> None:
    program = (
        "import sterna, sys; print([m for m in ('pyspark', 'typer', 'numpy') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert answer.stdout.strip() == "[]"
