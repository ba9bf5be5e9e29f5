"""The log that people and programs read: lines of text, or a JSON object a line."""

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from sterna.net.config import LogConfig, LogFormat
from sterna.net.limited_log import LimitedHandler

LOGGER = "sterna"
"""All loggers of the package are below this one."""
LOOP = "asyncio"
"""The logger of the event loop, which logs what it does not expect about connections."""
MESSAGE_CHARACTERS_MAX = 4_000
"""How much of a message is logged: peers may have written it."""


def set_up_logging(config: LogConfig, stream: TextIO | None = None) -> None:
    """Write log messages to standard error as configured."""
    handler = LimitedHandler(stream or sys.stderr)
    is_json = config.format is LogFormat.JSON
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter())
    logger = logging.getLogger(LOGGER)
    logger.handlers = [handler]
    logger.setLevel(config.level.upper())
    logger.propagate = False
    logging.getLogger(LOOP).handlers = [handler]
    logging.getLogger(LOOP).propagate = False


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, and what the caller gave as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        fields |= {name: value for name, value in _extra(record).items() if name not in fields}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(_encodable(fields), enc_hook=repr).decode()


class TextFormatter(logging.Formatter):
    """One line a message, whatever a peer has written into it; only tracebacks take more."""

    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(f" {name}={value}" for name, value in _extra(record).items())
        line = f"{record.levelname.lower():7} {record.name}: {_message(record)}{extra}"
        plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{_time(record)} {plain}{trace}"


_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _ORDINARY}


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if len(message) <= MESSAGE_CHARACTERS_MAX:
        return message
    return f"{message[:MESSAGE_CHARACTERS_MAX]}… ({len(message):,} characters)"


def _encodable(value: object) -> object:
    """Escape halves of surrogate pairs, which no encoding has."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {str(_encodable(str(key))): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
