"""Runs that must be right; one that is not is kept, and the failure says how to replay it."""

import hashlib
import tempfile
from pathlib import Path

import pytest

from sterna.sim.run import Outcome, run
from sterna.sim.script import Script
from sterna.wire.codec import to_json


def run_rightly(script: Script) -> Outcome:
    """Run a script whose every delivery must be right."""
    outcome = run(script)
    if outcome.findings:
        text = to_json(script)
        name = f"sterna-{hashlib.sha256(text).hexdigest()[:12]}.json"
        path = Path(tempfile.gettempdir()) / name
        path.write_bytes(text)
        listed = "\n".join(str(finding) for finding in outcome.findings)
        pytest.fail(f"{listed}\nreplay: sterna sim replay {path}", pytrace=False)
    return outcome
