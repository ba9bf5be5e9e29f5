"""Prints the page about the configuration: `python -m sterna.net.config_reference`."""

import sys
from types import UnionType
from typing import get_args, get_origin

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo

from sterna.net.config import (
    BrokerConfig,
    Table,
    choices,
    description,
    is_size,
    keys,
    table_of,
    tables,
    value_as_toml,
    variable,
)

_BEGINNING = """\
# Configuration of a broker

`sterna broker --config FILE` reads a TOML file. Only `name` is needed; everything else has a
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

- Each key can be overridden by an environment variable: `STERNA_<TABLE>_<KEY>`, in capitals. Lists
  are separated by commas there.
- Sizes are numbers of bytes, or text such as `"64 MiB"` (`KiB`, `MiB`, `GiB`). Keys that end in
  `_s` are seconds.
- A relative path starts at the directory of the file.
- A key that does not exist, a value of the wrong type and a value that cannot be are errors; the
  broker names all of them and does not start.
"""


def reference() -> str:
    """The page, from the structs of the configuration."""
    parts = [_BEGINNING, _section("", BrokerConfig)]
    for field in tables():
        table = table_of(field)
        if table is not None:
            parts.append(_section(field.name, table))
    return "\n".join(parts)


def _section(name: str, table: type[Table]) -> str:
    heading = f"## `[{name}]`" if name else "## Before the first table"
    rows = [_row(name, field) for field in keys(table)]
    return "\n".join(
        [
            *(heading, "", table.__doc__ or "", ""),
            *("| key | type | default | meaning | variable |", "|---|---|---|---|---|", *rows, ""),
        ]
    )


def _row(table: str, field: FieldInfo) -> str:
    if field.default is NODEFAULT:
        default = "needed"
    elif field.default is None:
        default = "not set"
    else:
        default = f"`{value_as_toml(field, field.default)}`"
    cells = [f"`{field.name}`", _type(field), default, description(field)]
    return f"| {' | '.join([*cells, f'`{variable(table, field.name)}`'])} |"


def _type(field: FieldInfo) -> str:
    if allowed := choices(field):
        return ", ".join(f"`{choice}`" for choice in allowed)
    if is_size(field):
        return "size"
    return _WORDS[_plain(field.type)]


def _plain(kind: object) -> object:
    """The type below constraints and "or none"."""
    while hasattr(kind, "__metadata__") or isinstance(kind, UnionType) or _is_union(kind):
        kind = get_args(kind)[0]
    return kind


def _is_union(kind: object) -> bool:
    return getattr(get_origin(kind), "__name__", "") in {"Union", "UnionType"}


_WORDS: dict[object, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true`, `false`",
    tuple[str, ...]: "list of texts",
}


if __name__ == "__main__":
    sys.stdout.write(reference())
