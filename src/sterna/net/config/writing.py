"""Writes a configuration as a TOML file that explains each key."""

import textwrap
from collections.abc import Mapping

import msgspec
from msgspec.structs import FieldInfo, asdict

from sterna.net.config.schema import (
    UNITS,
    ConfigSection,
    choices,
    description,
    is_size,
    keys,
    sections,
)

_WIDTH = 96


def as_toml(config: ConfigSection) -> str:
    """A file with the keys of a configuration itself, and then its sections."""
    parts = [_keys_as_toml(config)]
    for name, kind in sections(type(config)).items():
        heading = "\n".join([f"[{name}]", *_comment(kind.__doc__ or "")])
        parts += [f"{heading}\n", _keys_as_toml(getattr(config, name))]
    return "\n".join(parts)


def value_as_toml(field: FieldInfo, value: object) -> str:
    """A value of a key as the file holds it. Sizes have the largest unit that is exact."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _size_as_toml(value) if is_size(field) else str(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(value_as_toml(field, item) for item in value)}]"
    if isinstance(value, ConfigSection):
        value = {name: each for name, each in asdict(value).items() if each is not None}
    if isinstance(value, Mapping):
        entries = (f"{_text(key)} = {value_as_toml(field, each)}" for key, each in value.items())
        return f"{{ {', '.join(entries)} }}" if value else "{}"
    return _text(value)


def _text(value: object) -> str:
    """Strings and floats are written as in JSON."""
    return msgspec.json.encode(value).decode()


def _size_as_toml(size: int) -> str:
    for unit, unit_bytes in reversed(UNITS.items()):
        if size and size % unit_bytes == 0 and unit_bytes > 1:
            return f'"{size // unit_bytes} {unit}"'
    return str(size)


def _keys_as_toml(section: ConfigSection) -> str:
    """The keys of a section, each below its description. A key that is not set is a comment.

    So is an empty table: beside it, the file could not have the same table with a heading.
    """
    paragraphs = []
    for field in keys(type(section)):
        meaning = description(field)
        if allowed := choices(field):
            meaning += f" One of: {', '.join(allowed)}."
        value = getattr(section, field.name)
        entry = (
            f"# {field.name} ="
            if value is None or value == {}
            else f"{field.name} = {value_as_toml(field, value)}"
        )
        paragraphs.append("\n".join([*_comment(meaning), entry]) + "\n")
    return "\n".join(paragraphs)


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]
