"""Reads a configuration from a TOML file and environment variables, and names all mistakes."""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_origin

import msgspec
from msgspec.structs import FieldInfo

from sterna import plugins
from sterna.core.protocol import Kind
from sterna.devices.templates import why_no_template
from sterna.errors import SternaError
from sterna.model.filters import Filter
from sterna.model.location import LocationError, MovementGraph
from sterna.mqtt.packets import Version
from sterna.mqtt.topics import why_no_topic_filter
from sterna.net.address import PORT, Address, AddressError
from sterna.net.config.mobility import mobility_in
from sterna.net.config.schema import (
    UNITS,
    ConfigSection,
    choices,
    example,
    is_size,
    keys,
    sections,
    variable,
)

Config = TypeVar("Config", bound=ConfigSection)


class ConfigError(SternaError, ValueError):
    """A configuration cannot be used. Each problem names its file or variable, and its key."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def document_in(path: Path) -> dict[str, object]:
    """Parse a TOML file. Raises ConfigError if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"cannot read {path}: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"{path} is not a text file in UTF-8"]) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{path} is not valid TOML: {error}"]) from None


def read(
    kind: type[Config],
    document: Mapping[str, object],
    environment: Mapping[str, str],
    *,
    source: str,
    directory: Path,
) -> Config:
    """Make a configuration from a parsed file and environment variables.

    Raises ConfigError with all problems, in which `source` names the file.
    """
    return _Reading(source, directory, environment).config(kind, document)


def contradictions_in(config: ConfigSection) -> Iterator[tuple[str, str]]:
    """The keys, as `section.key`, whose values do not fit the other keys, each with a problem."""
    parts = {"": config, **{name: getattr(config, name) for name in sections(type(config))}}
    for name, part in parts.items():
        for key, problem in part.contradictions():
            yield _dotted(name, key), problem


class _Reading:
    """One reading of a configuration, which continues after a problem to find all of them."""

    def __init__(self, source: str, directory: Path, environment: Mapping[str, str]) -> None:
        self._source = source
        self._directory = directory
        self._environment = environment
        self._problems: list[str] = []

    def config(self, kind: type[Config], document: Mapping[str, object]) -> Config:
        inner = sections(kind)
        own = {name: value for name, value in document.items() if name not in inner}
        values = self._values("", kind, own, also=list(inner))
        for name, section in inner.items():
            entries = document.get(name, {})
            if isinstance(entries, Mapping):
                values[name] = section(**self._values(name, section, entries))
            else:
                self._problem(self._source, name, f"is a table: write its keys below [{name}]")
        self._check_required(kind, values)
        self._raise_problems()
        config = kind(**values)
        self._check_contradictions(config)
        self._raise_problems()
        return config

    def _values(
        self,
        section: str,
        kind: type[ConfigSection],
        entries: Mapping[str, object],
        also: list[str] | None = None,
    ) -> dict[str, Any]:
        """The values of a section's keys that are set and valid.

        `also` are more names that an unknown key may have been meant to be.
        """
        known = {field.name: field for field in keys(kind)}
        names = [*known, *(also or [])]
        for name in entries:
            if name not in known:
                key = _dotted(section, name)
                self._problem(self._source, key, "is not a key" + _meant(name, names))
        if section:
            self._check_variables(section, list(known))
        values: dict[str, Any] = {}
        for name, field in known.items():
            override = self._environment.get(variable(section, name))
            if override is not None:
                self._take(values, variable(section, name), section, field, override)
            elif name in entries:
                self._take(values, self._source, section, field, entries[name])
        return values

    def _take(
        self, values: dict[str, Any], source: str, section: str, field: FieldInfo, given: object
    ) -> None:
        key = _dotted(section, field.name)
        is_from_environment = source != self._source
        try:
            value = _converted(field, given, is_text=is_from_environment)
            check = _CHECKS.get(key)
            if check is not None and value is not None:
                value = check(value, self._directory)
        except ValueError as error:  # Errors of msgspec, addresses and locations are ValueErrors.
            self._problem(source, key, str(error))
        else:
            values[field.name] = value

    def _check_variables(self, section: str, names: list[str]) -> None:
        beginning = variable(section, "") + "_"
        known = [variable(section, name) for name in names]
        for name in self._environment:
            if name.startswith(beginning) and name not in known:
                self._problems.append(f"{name}: is not a variable of Sterna{_meant(name, known)}")

    def _check_required(self, kind: type[ConfigSection], values: dict[str, Any]) -> None:
        for field in keys(kind):
            name = field.name
            if field.required and name not in values and not self._complains_about(name):
                self._problem(
                    self._source,
                    name,
                    f'is missing: every broker needs one, such as {name} = "{example(field)}" '
                    f"(or {variable('', name)} in the environment)",
                )

    def _check_contradictions(self, config: ConfigSection) -> None:
        for key, problem in contradictions_in(config):
            self._problem(self._source, key, problem)

    def _problem(self, source: str, key: str, problem: str) -> None:
        self._problems.append(f"{source}: {key}: {problem}")

    def _complains_about(self, key: str) -> bool:
        return any(f": {key}: " in problem for problem in self._problems)

    def _raise_problems(self) -> None:
        if self._problems:
            raise ConfigError(self._problems)


def _converted(field: FieldInfo, given: object, *, is_text: bool) -> object:
    """A value as the key's type, or a ValueError whose text continues after the key."""
    allowed = choices(field)
    if allowed and given not in allowed:
        raise ValueError(f"is {_shown(given)}; choose one of {', '.join(allowed)}")
    if is_size(field) and isinstance(given, str):
        given = _size(given)
    elif is_text and isinstance(given, str) and field.type.__origin__ == tuple[str, ...]:
        given = [part.strip() for part in given.split(",") if part.strip()]
    elif is_text and isinstance(given, str) and _has_tables(field):
        given = tomllib.loads(f"tables = {given}")["tables"]
    if isinstance(given, list):
        given = [_with_sizes(each) for each in given]
    try:
        return msgspec.convert(given, field.type, strict=not is_text)
    except msgspec.ValidationError as error:
        if isinstance(given, str) and "matching regex" in str(error):
            raise ValueError(
                f"is {given!r}; write letters, digits, '-', '_' and '.', a letter or digit first"
            ) from None
        raise ValueError(f"is {_shown(given)}; {_wanted(str(error))}") from None


def _has_tables(field: FieldInfo) -> bool:
    """Whether a key holds a table, or a list of them."""
    kind = field.type.__origin__
    return get_origin(kind) in {dict, tuple}


def _with_sizes(given: object) -> object:
    """A table in a list, whose sizes may be written with units as well."""
    if not isinstance(given, Mapping):
        return given
    return {
        key: _size(value) if "bytes" in key and isinstance(value, str) else value
        for key, value in given.items()
    }


def _size(text: str) -> int:
    parts = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text.strip(), re.ASCII)
    units = {unit.lower(): size for unit, size in UNITS.items()}
    size = units.get((parts[2] or "B").lower()) if parts else None
    if parts is None or size is None:
        raise ValueError(f'is {text!r}; write bytes as a number, or as in "64 MiB" (KiB, MiB, GiB)')
    return int(parts[1]) * size


def _wanted(complaint: str) -> str:
    """A complaint of msgspec, such as "Expected `int | null`, got `str`", without type names."""
    complaint = complaint.partition(" - at ")[0]
    text = re.sub(r"`([^`]*)`", lambda kind: _in_english(kind[1]), complaint)
    return text[0].lower() + text[1:]


def _in_english(kind: str) -> str:
    names = {"int": "a whole number", "float": "a number", "str": "a string in quotes"}
    names |= {"bool": "true or false", "array": "a list"}
    kind = kind.removesuffix(" | null")
    return names.get(kind, kind)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _dotted(section: str, key: str) -> str:
    return f"{section}.{key}" if section else key


def _meant(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def _listen(value: Any, directory: Path) -> object:
    if not value:
        raise AddressError(f"is empty; write host:port, such as 127.0.0.1:{PORT}")
    return _listen_or_empty(value, directory)


def _listen_or_empty(value: Any, _directory: Path) -> object:
    if value:
        Address.parse(value)
    return value


def _reachable(value: Any, _directory: Path) -> object:
    if not Address.parse(value).port:
        raise AddressError(f"{value!r} needs a port that others can connect to")
    return value


def _urls(value: Any, _directory: Path) -> object:
    for url in value:
        Address.from_url(url)
    return value


def _handover(value: Any, _directory: Path) -> object:
    plugins.choose(value, Kind.HANDOVER)
    return value


def _protocols(value: Any, _directory: Path) -> object:
    if len({plugins.choose(name, Kind.LISTED).name for name in value}) < len(value):
        raise ValueError("names a protocol twice")
    return value


def _path(value: Any, directory: Path) -> object:
    if not value:
        raise ValueError("is empty; write a directory")
    return str(directory / value)


def _path_or_empty(value: Any, directory: Path) -> object:
    return str(directory / value) if value else value


def _graph(value: Any, directory: Path) -> object:
    path = directory / value
    try:
        MovementGraph.load(path)
    except LocationError as error:
        raise ValueError(str(error)) from None
    return str(path)


def _model(value: Any, directory: Path) -> object:
    path = directory / value
    mobility_in(path)  # Its errors say what to do.
    return str(path)


def _buffers(value: Any, _directory: Path) -> object:
    for buffer in value:
        if not Filter(buffer.filter).is_bound:
            raise ValueError(
                f"{buffer.filter!r} depends on a client; a buffer is the same for all of them"
            )
    return value


def _lift(value: Any, _directory: Path) -> object:
    for rule in value:
        problem = why_no_topic_filter(rule.topics, Version.V311)
        if problem is not None:
            raise ValueError(f"the topics {rule.topics!r} are no topic filter: {problem}")
    return value


def _template(value: Any, _directory: Path) -> object:
    problem = why_no_template(value) if value else None
    if problem is not None:
        raise ValueError(f"{value!r} is no template for topics: {problem}")
    return value


_CHECKS: dict[str, Callable[[Any, Path], object]] = {
    "listen": _listen,
    "advertised_address": _reachable,
    "data": _path,
    "network.neighbours": _urls,
    "network.handover": _handover,
    "network.protocols": _protocols,
    "places.graph": _graph,
    "mobility.model": _model,
    "history.archive": _path_or_empty,
    "history.buffers": _buffers,
    "http.listen": _listen_or_empty,
    "mqtt.lift": _lift,
    "mqtt.topic": _template,
}
"""For keys whose values need more than a type. A check returns the value, or raises ValueError."""
