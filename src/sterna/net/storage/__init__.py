"""The durable log: the inputs of a broker, kept on disk until a snapshot replaces them."""

from sterna.net.storage.disk import REAL, Disk, File
from sterna.net.storage.errors import (
    LogDamagedError,
    LogError,
    LogFailedError,
    LogFormatError,
    LogFullError,
    LogInUseError,
    SnapshotFailedError,
)
from sterna.net.storage.log import Log
from sterna.net.storage.options import LogOptions
from sterna.net.storage.recovery import Recovery, RecoveryReport

__all__ = [
    "REAL",
    "Disk",
    "File",
    "Log",
    "LogDamagedError",
    "LogError",
    "LogFailedError",
    "LogFormatError",
    "LogFullError",
    "LogInUseError",
    "LogOptions",
    "Recovery",
    "RecoveryReport",
    "SnapshotFailedError",
]
