"""Runs of the data pipeline over journals, as `sterna pipeline` does them."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any


async def pipeline(*arguments: object) -> Any:
    """What a command of the pipeline says to programs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from sterna.cli.main import run; run()", "pipeline"),
        *(str(argument) for argument in arguments),
        "--json",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "CLOCK_BACK_S": "0"},  # Java has the right time, and they must agree.
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said
    return json.loads(said)


async def archive(journals: Path, tables: Path, *only: str) -> Any:
    """Bring tables up to date with journals, all or only some."""
    chosen = [part for name in only for part in ("--only", name)]
    return await pipeline("run", journals, "--out", tables, *chosen)
