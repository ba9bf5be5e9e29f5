"""Figures of the workers: how much memory they took, and where the time went."""

import os
import resource
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark import Accumulator, SparkContext
from pyspark.accumulators import AccumulatorParam

WorkerFigures = dict[str, dict[str, Any]]
"""The reported figures, by worker process."""

_UNIT = 1 if sys.platform == "darwin" else 1024
"""The unit in which the system counts memory, in bytes."""


@dataclass
class Work:
    """The work of a process in one task."""

    loaded: int = 0
    """How many shares it had to load."""
    load_s: float = 0.0
    decode_s: float = 0.0
    """Seconds for decoding Arrow into what the index reads."""
    match_s: float = 0.0
    encode_s: float = 0.0
    """Seconds for encoding the results as Arrow."""
    cpu_s: float = field(default_factory=lambda: -time.process_time())
    """Processor time of the whole task, with that of Spark's own part of the process."""
    events: int = 0
    pairs: int = 0
    index_bytes: int = 0
    memory_bytes: int = 0
    """The most memory that the process has ever had."""

    def tell(self, listener: "Accumulator[WorkerFigures] | None") -> None:
        if listener is None:
            return
        self.cpu_s += time.process_time()
        self.memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
        listener.add({f"{os.uname().nodename}:{os.getpid()}": asdict(self)})


class _Sum(AccumulatorParam[WorkerFigures]):
    def zero(self, value: WorkerFigures) -> WorkerFigures:  # noqa: ARG002
        return {}

    def addInPlace(self, value1: WorkerFigures, value2: WorkerFigures) -> WorkerFigures:  # noqa: N802 - Spark's name.
        for worker, told in value2.items():
            known = value1.get(worker)
            value1[worker] = told if known is None else _together(known, told)
        return value1


def _together(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {name: max(a[name], b[name]) if "bytes" in name else a[name] + b[name] for name in a}


def listener(context: SparkContext) -> "Accumulator[WorkerFigures]":
    """An accumulator to which workers report their figures; its `value` has them by process."""
    return context.accumulator({}, _Sum())
