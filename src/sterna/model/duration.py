"""Durations as people write them: `30s`, `5m`."""

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str, *, may_be_zero: bool = False) -> float:
    """Parse `500ms`, `30s`, `5m`, `1.5h` or `2d`; return seconds."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text, re.ASCII)
    seconds = 0.0 if parts is None else float(parts[1]) * _UNITS[parts[2]]
    if parts is None or not (seconds or may_be_zero):
        raise ValueError(f"a time is written 500ms, 30s, 5m or 1h, not {text!r}")
    return seconds
