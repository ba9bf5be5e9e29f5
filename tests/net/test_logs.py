"""What the log looks like to programs and to people."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from sterna.net.config import LogConfig, LogFormat, LogLevel
from sterna.net.logs import LOGGER, LOOP, set_up_logging

pytestmark = pytest.mark.spec("LV-6")

log = logging.getLogger("sterna.test")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (LOGGER, LOOP)]
    before = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, was in zip(loggers, before, strict=True):
        logger.handlers, logger.level, logger.propagate = was


def logged(format_: LogFormat) -> io.StringIO:
    stream = io.StringIO()
    set_up_logging(LogConfig(format=format_, level=LogLevel.INFO), stream)
    return stream


def test_programs_get_an_object_a_line() -> None:
    """Time, level, logger, message and the caller's own fields, whatever they hold."""
    stream = logged(LogFormat.JSON)
    log.debug("not this")
    log.warning("slow %s", "c1\n{", extra={"client": "c1", "level": "x", "bytes": b"\xff"})
    log.info("half a pair: \ud800", extra={"where": {"a": ["\udc00"], 3: {1, 2}}})
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")

    first, second, third = map(json.loads, stream.getvalue().splitlines())

    assert first["time"].endswith("Z")
    assert first["level"] == "warning"
    assert (first["logger"], first["message"]) == ("sterna.test", "slow c1\n{")
    assert first["client"] == "c1"
    assert second["where"]["a"] == ["\\udc00"]
    assert "ValueError: broken" in third["exception"]


def test_a_peer_cannot_forge_a_line() -> None:
    """Text from outside stays on its line, and terminals get no control characters."""
    stream = logged(LogFormat.TEXT)

    log.info("hello %s", "x\n2026-01-01 error sterna: forged\x1b[2J", extra={"link": "é"})

    (line,) = stream.getvalue().splitlines()
    assert line.endswith(
        "info    sterna.test: hello x\\n2026-01-01 error sterna: forged\\x1b[2J link=é"
    )
