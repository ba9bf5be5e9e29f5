"""Programs for Node with packages from npm; who needs them is skipped where they are not there."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "examples" / "browser"
"""Where `make test` has npm install mqtt.js, for this and for the page."""
SCRIPTS = ROOT / "tests" / "node"

NODE = shutil.which("node") or ""

needs_mqtt_js = pytest.mark.skipif(
    not NODE or not (PAGE / "node_modules" / "mqtt").is_dir(),
    reason="needs Node, and mqtt.js from npm: scripts/ensure-node-packages",
)
