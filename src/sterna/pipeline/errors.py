"""Errors of the pipeline that a user can do something about."""

from sterna.errors import SternaError


class PipelineError(SternaError):
    """An error whose message says in one sentence what is wrong, and what to do."""


class SparkUnavailable(PipelineError):  # noqa: N818 - a state of the machine, not a fault of the code.
    """Spark cannot start here; the message says what to install."""
