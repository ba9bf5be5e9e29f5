"""What can be said of journals before Spark starts: whether there is anything to judge."""

from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sterna.core.facts import Delivered, Subscribed
from sterna.errors import SegmentDamagedError
from sterna.journal.segments import read_segment
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source.journals import files_below

BATCHES_MAX = 200
"""Of more batches than these, nothing is said without reading all of them, which is for Spark."""

_TELLING = pa.array([Subscribed.__name__, Delivered.__name__])
"""The facts that only clients state, and that deliveries are judged by."""


def require_something_to_judge(directory: Path) -> None:
    """Raise PipelineError if no client that subscribes has kept a journal, as far as is quick."""
    left = BATCHES_MAX
    for segment in files_below(directory):
        try:
            for batch in islice(read_segment(segment.path), left):
                left -= 1
                known = pc.is_in(batch["kind"], value_set=_TELLING)
                if pc.any(known).as_py():
                    return
        except (SegmentDamagedError, OSError):
            return  # It is told where all is read.
        if not left:
            return
    raise nothing_to_judge(directory)


def nothing_to_judge(directory: Path) -> PipelineError:
    """Nothing is wrong where nothing is known; that must not look like a clean audit."""
    return PipelineError(
        f"no client that subscribes has kept a journal below {directory}, so nothing is known "
        "of deliveries: connect clients with journal=DIR (`sterna sub --journal DIR`), or use "
        "`sterna sim run --journal DIR`"
    )
