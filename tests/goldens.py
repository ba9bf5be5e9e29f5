"""Golden files: what a run looked like when someone read it line by line and found it right.

To change one on purpose, run the test with STERNA_GOLDEN=write, then read the difference.
"""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """Compare with the file of that name."""
    path = FOLDER / name
    if os.environ.get("STERNA_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; see tests/goldens.py"
