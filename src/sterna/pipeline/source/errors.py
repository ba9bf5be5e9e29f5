"""Finds Sterna's own message in an error of Spark."""

import re

from sterna.pipeline.errors import PipelineError


def reason(error: BaseException) -> str | None:
    """The message with which Sterna's data source failed; None if something else went wrong.

    Spark runs the source in processes of its own and hands on their tracebacks as text.
    """
    if isinstance(error, PipelineError):
        return str(error)
    found = _SENTENCE.findall(str(error))
    return found[-1].strip() if found else None


_SENTENCE = re.compile(rf"\b{re.escape(PipelineError.__module__)}\.\w+: (.+)")
