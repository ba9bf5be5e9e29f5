"""What can go wrong in the pipeline that a user can do something about."""


class PipelineError(Exception):
    """Says in one sentence what is wrong, and what to do."""


class SparkUnavailable(PipelineError):  # noqa: N818 - a state of the machine, not a fault of the code.
    """Spark cannot start here; the message says what to install."""
