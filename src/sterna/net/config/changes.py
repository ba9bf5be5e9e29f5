"""Which keys differ between two configurations of one broker."""

from typing import TypeVar

from msgspec.structs import replace

from sterna.net.config.schema import ConfigSection, is_for_start, keys, sections

Config = TypeVar("Config", bound=ConfigSection)


def all_keys(kind: type[ConfigSection]) -> tuple[str, ...]:
    """All keys of a configuration as `section.key`, in the order of the file."""
    inner = [
        f"{name}.{field.name}"
        for name, section in sections(kind).items()
        for field in keys(section)
    ]
    return (*(field.name for field in keys(kind)), *inner)


def changed_keys(old: ConfigSection, new: ConfigSection) -> tuple[str, ...]:
    """The keys that have different values, as `section.key`."""
    return tuple(key for key in all_keys(type(old)) if _value(old, key) != _value(new, key))


def with_start_keys_of(running: Config, new: Config) -> Config:
    """A new configuration as far as a running broker can apply it.

    Keys that a broker reads only when it starts keep the values that it was started with.
    """
    kind = type(running)
    values = {
        name: _with_start_keys_of(getattr(running, name), getattr(new, name))
        for name in sections(kind)
    }
    return replace(_with_start_keys_of(running, new), **values)


def _with_start_keys_of(running: Config, new: Config) -> Config:
    kept = [field.name for field in keys(type(running)) if is_for_start(field)]
    return replace(new, **{name: getattr(running, name) for name in kept})


def _value(config: ConfigSection, key: str) -> object:
    value: object = config
    for name in key.split("."):
        value = getattr(value, name)
    return value
