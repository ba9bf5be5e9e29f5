"""Prints the reference page of the configuration: `python -m sterna.net.config_reference`."""

import sys
from types import UnionType
from typing import Any, get_args, get_origin

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo

from sterna.net.config import (
    BrokerConfig,
    BufferConfig,
    ConfigSection,
    LiftConfig,
    choices,
    description,
    is_for_start,
    is_size,
    keys,
    sections,
    value_as_toml,
    variable,
)

_BEGINNING = """\
# Configuration of a broker

`sterna broker --config FILE` reads a TOML file. Only `name` is required; everything else has a
default. `sterna broker --print-config` prints a file with all keys and their defaults, ready to
edit.

```toml
name = "b1"
listen = "127.0.0.1:7461"
data = "/var/lib/sterna/b1"

[network]
neighbours = ["sterna://127.0.0.1:7462"]

[http]
listen = "127.0.0.1:7480"
```

- Each key can be overridden by an environment variable: `STERNA_<SECTION>_<KEY>`, in capitals. A
  list is written there with commas between its items, a table as `{ name = { key = 1 } }`, a list
  of tables as `[{ key = 1 }, { key = 2 }]`.
- Sizes are numbers of bytes, or strings such as `"64 MiB"` (`KiB`, `MiB`, `GiB`). Keys that end in
  `_s` are in seconds, keys that end in `_us` in microseconds.
- A relative path starts at the directory of the file.
- An unknown key, a value of the wrong type and an impossible value are errors. The broker names all
  of them and does not start.
- `sterna reload` (or SIGHUP) has a running broker read the file again. Changes take effect
  at once, except for keys marked with †: those need a restart.
"""


def reference() -> str:
    """The page, made from the sections of the configuration and the descriptions of their keys."""
    every: dict[str, type[ConfigSection]] = {"": BrokerConfig, **sections(BrokerConfig)}
    return "\n".join([_BEGINNING, *(_section(name, kind) for name, kind in every.items())])


def _section(name: str, section: type[ConfigSection]) -> str:
    heading = f"## `[{name}]`" if name else "## Before the first section"
    rows = [_row(name, field) for field in keys(section)]
    return "\n".join(
        [
            *(heading, "", section.__doc__ or "", ""),
            *("| key | type | default | meaning | variable |", "|---|---|---|---|---|", *rows, ""),
        ]
    )


def _row(section: str, field: FieldInfo) -> str:
    if field.required:
        default = "required"
    elif field.default is None:
        default = "not set"
    else:
        value = field.default_factory() if field.default is NODEFAULT else field.default
        default = f"`{value_as_toml(field, value)}`"
    meaning = f"{description(field)} †" if is_for_start(field) else description(field)
    cells = [f"`{field.name}`", _type(field), default, meaning]
    return f"| {' | '.join([*cells, f'`{variable(section, field.name)}`'])} |"


def _type(field: FieldInfo) -> str:
    if allowed := choices(field):
        return ", ".join(f"`{choice}`" for choice in allowed)
    if is_size(field):
        return "size"
    return _WORDS[_plain(field.type)]


def _plain(kind: object) -> object:
    """A type without its constraints and without "or None"."""
    while hasattr(kind, "__metadata__") or isinstance(kind, UnionType) or _is_union(kind):
        kind = get_args(kind)[0]
    return kind


def _is_union(kind: object) -> bool:
    return getattr(get_origin(kind), "__name__", "") in {"Union", "UnionType"}


_WORDS: dict[object, str] = {
    str: "string",
    int: "whole number",
    float: "number",
    bool: "`true`, `false`",
    tuple[str, ...]: "list of strings",
    dict[str, dict[str, Any]]: "table of tables",
    tuple[BufferConfig, ...]: "list of tables",
    tuple[LiftConfig, ...]: "list of tables",
}


if __name__ == "__main__":
    sys.stdout.write(reference())
