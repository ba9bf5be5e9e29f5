"""What can be wrong with a log, each error with what to do about it."""

from sterna.errors import SternaError


class LogError(SternaError):
    """The log cannot be used; the message says why and what to do."""


class LogInUseError(LogError):
    """Another process has this log open."""


class LogFormatError(LogError):
    """Written by another version, or for another kind of state; nothing was read or changed."""


class LogDamagedError(LogError):
    """Records that were durable are not there, or not as they were written."""


class LogFailedError(LogError):
    """A write or sync failed: the log takes nothing more until it is opened anew."""


class LogFullError(LogFailedError):
    """The disk, or what the log may use of it, is full."""


class SnapshotFailedError(LogError):
    """No snapshot was made; the message says why. The log is as it was, and continues."""
