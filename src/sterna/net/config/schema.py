"""What a section of the configuration consists of: its keys, their meanings and their variables."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo, fields

PREFIX = "STERNA_"
"""Environment variables that override the file are called `STERNA_<SECTION>_<KEY>`."""

KIB, MIB, GIB = 2**10, 2**20, 2**30
UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
"""The units of sizes, smallest first."""

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]
INT_MAX = 2**63 - 1
"""The greatest whole number: larger ones have no form on the network."""
Count = Annotated[int, Meta(ge=1, le=INT_MAX)]
Size = Annotated[int, Meta(ge=1, le=INT_MAX)]
Bound = Annotated[int, Meta(ge=0, le=INT_MAX)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]


class ConfigSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the TOML file.

    The docstrings of its subclasses and the descriptions of their keys are the manual: comments in
    printed files and the reference page are made from them.
    """

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """The keys whose values do not fit the other keys of this section, each with a problem."""
        yield from ()


_FOR_START = "for start"


def means(description: str, *, example: str | None = None, for_start: bool = False) -> Meta:
    """Describe a key. A key without a default has an example, which an error message shows.

    A key that is `for_start` is read only when the broker starts: a reload cannot change it.
    """
    return Meta(
        description=description,
        examples=None if example is None else [example],
        extra={_FOR_START: for_start},
    )


def sections(config: type[ConfigSection]) -> dict[str, type[ConfigSection]]:
    """The sections of a configuration by name, in the order of the file."""
    return {
        field.name: field.type
        for field in fields(config)
        if isinstance(field.type, type) and issubclass(field.type, ConfigSection)
    }


def keys(section: type[ConfigSection]) -> list[FieldInfo]:
    """The keys of a section itself, in the order of the file."""
    inner = sections(section)
    return [field for field in fields(section) if field.name not in inner]


def description(field: FieldInfo) -> str:
    """What a key means."""
    return next(str(meta.description) for meta in field.type.__metadata__ if meta.description)


def example(field: FieldInfo) -> str:
    """A value that a key without a default could have."""
    return next(str(meta.examples[0]) for meta in field.type.__metadata__ if meta.examples)


def is_for_start(field: FieldInfo) -> bool:
    """Whether the broker reads a key only when it starts."""
    return any((meta.extra or {}).get(_FOR_START) for meta in field.type.__metadata__)


def choices(field: FieldInfo) -> list[str]:
    """The values that a key may have, or nothing if they cannot be listed."""
    kind = get_args(field.type)[0]
    is_choice = isinstance(kind, type) and issubclass(kind, StrEnum)
    return [choice.value for choice in kind] if is_choice else []


def is_size(field: FieldInfo) -> bool:
    """Whether a key holds a number of bytes, which may be written with a unit."""
    return "bytes" in field.name


def variable(section: str, key: str) -> str:
    """The environment variable that overrides a key."""
    return PREFIX + "_".join(filter(None, [section, key])).upper()
