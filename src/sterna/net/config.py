"""How a broker is set up: a TOML file, and environment variables over it."""

import difflib
import re
import textwrap
import tomllib
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo, fields

from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.location import LocationError, MovementGraph
from sterna.model.mobility import mined_dwell_us
from sterna.net.address import PORT, Address, AddressError

KIB, MIB, GIB = 2**10, 2**20, 2**30

PREFIX = "STERNA_"
"""Environment variables that override the file are called `STERNA_<TABLE>_<KEY>`."""

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]
Count = Annotated[int, Meta(ge=1)]
Size = Annotated[int, Meta(ge=1)]
Bound = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]


_DATA = "data"


class ConfigError(ValueError):
    """The configuration cannot be used; each problem names its file or variable and its key."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Durability(StrEnum):
    """What an acknowledgement means."""

    NONE = "none"
    """Nothing is written to disk: a restart forgets all."""
    BATCH = "batch"
    """Synced to disk; everything that arrived meanwhile shares the next sync."""
    SYNC = "sync"
    """Synced to disk, each input on its own."""


class SlowConsumer(StrEnum):
    """What happens to a client that reads too slowly for its queue."""

    DISCONNECT = "disconnect"
    """It is disconnected, and comes back for what is kept for it."""
    BLOCK = "block"
    """Its publishers wait for it."""


class LogLevel(StrEnum):
    """From which importance on messages are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How messages are logged."""

    TEXT = "text"
    """A line for people."""
    JSON = "json"
    """A JSON object a line, for programs."""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file. The first line of its docstring and the descriptions are the manual."""


class NetworkConfig(Table, frozen=True, kw_only=True):
    """The broker network. All brokers of a network need the same, but for their neighbours."""

    neighbours: Annotated[
        tuple[str, ...],
        Meta(
            description="Brokers that this one connects to, as `sterna://host:port`. "
            "The network is a tree: of two neighbours, one names the other."
        ),
    ] = ()
    accept_brokers: Annotated[
        bool, Meta(description="Whether other brokers may connect to this one.")
    ] = True
    strategy: Annotated[
        Strategy, Meta(description="What brokers tell each other about subscriptions.")
    ] = Strategy.COVERING
    advertisements: Annotated[
        bool, Meta(description="Subscriptions go only to where matching events are advertised.")
    ] = False
    quenching: Annotated[
        bool, Meta(description="Clients discard events at the source that nobody wants.")
    ] = False
    handover: Annotated[
        Handover, Meta(description="How clients move from one broker to another.")
    ] = Handover.RELOCATION


class PlacesConfig(Table, frozen=True, kw_only=True):
    """Where clients can be, for subscriptions that follow them. Without grid and graph: nowhere."""

    grid: Annotated[
        Annotated[int, Meta(ge=0, le=15)] | None,
        Meta(description="The resolution of the H3 hexagons that are the locations."),
    ] = None
    graph: Annotated[
        str | None,
        Meta(
            description="A file with the movement graph: JSON, CSV or a mined model. "
            "Instead of a grid."
        ),
    ] = None
    rule: Annotated[
        StepRule, Meta(description="How far around a client a distant broker asks for events.")
    ] = StepRule.SAFE
    dwell: Annotated[
        Dwell, Meta(description="What is taken for the time that a client stays at a location.")
    ] = Dwell.LEAST
    dwell_s: Annotated[
        Seconds | None,
        Meta(
            description="How long clients stay at a location, at least. Without it: the shortest "
            "stay in a mined model, else what each client measures; until then it may be anywhere."
        ),
    ] = None
    probe_s: Annotated[
        Seconds,
        Meta(description="How often a link is measured that carries moving subscriptions."),
    ] = 1.0
    away_steps_max: Annotated[
        Bound,
        Meta(description="Moves that a client may make while its link is down without a miss."),
    ] = 8
    grain_us: Annotated[
        Count, Meta(description="Round trips are rounded up to a multiple of this.")
    ] = 1_000


class DurabilityConfig(Table, frozen=True, kw_only=True):
    """What survives when the broker or its machine dies."""

    level: Annotated[
        Durability,
        Meta(
            description="What an acknowledgement means: `none`, only received; `batch`, synced to "
            "disk together with what arrived meanwhile; `sync`, synced on its own."
        ),
    ] = Durability.BATCH
    snapshot_bytes: Annotated[
        Size, Meta(description="A snapshot is taken when the log has grown by this …")
    ] = 64 * MIB
    snapshot_inputs: Annotated[Count, Meta(description="… or by this many inputs.")] = 1_000_000
    segment_bytes: Annotated[Size, Meta(description="The size of a file of the log.")] = 64 * MIB
    bytes_max: Annotated[
        Bound,
        Meta(description="What log and snapshots may take on disk; beyond it the broker stops."),
    ] = 4 * GIB
    salvage: Annotated[
        bool,
        Meta(
            description="Start in spite of a damaged log, with what stands before the damage. "
            "What was acknowledged after it is lost; the damaged files are set aside."
        ),
    ] = False


class LimitsConfig(Table, frozen=True, kw_only=True):
    """What the broker bears. A peer that goes beyond is told so and disconnected."""

    frame_bytes_max: Annotated[Size, Meta(description="The largest frame.")] = MIB
    connections_max: Annotated[
        Count, Meta(description="Connections at the same time, of clients and brokers.")
    ] = 10_000
    handshake_s: Annotated[
        Seconds, Meta(description="How long a new connection may take to say who it is …")
    ] = 5.0
    handshake_bytes_max: Annotated[Size, Meta(description="… and how much it may send before.")] = (
        64 * KIB
    )
    subscriptions_per_client_max: Annotated[
        Count, Meta(description="Subscriptions of one client.")
    ] = 10_000
    queue_events_per_client_max: Annotated[
        Count,
        Meta(description="Events that are kept for each subscription of a client that is away."),
    ] = 100_000
    queue_bytes_per_client_max: Annotated[
        Size, Meta(description="What waits for one client, connected or away.")
    ] = 64 * MIB
    queue_bytes_max: Annotated[
        Size, Meta(description="What waits for all clients and neighbours together.")
    ] = 512 * MIB
    in_flight_bytes_max: Annotated[
        Size,
        Meta(
            description="What is received and not yet durable and routed; beyond it the broker "
            "reads no more until it has caught up."
        ),
    ] = 16 * MIB
    kept_s: Annotated[
        Seconds | None,
        Meta(description="How long events are kept for a client that is away; not set: forever."),
    ] = None
    away_s: Annotated[
        Seconds | None,
        Meta(description="A client that is away for longer is forgotten; not set: none is."),
    ] = 86_400.0
    slow_consumer: Annotated[
        SlowConsumer,
        Meta(
            description="What happens when a connected client's queue is full: `disconnect` it, "
            "or `block` those who publish to it."
        ),
    ] = SlowConsumer.DISCONNECT


class HeartbeatConfig(Table, frozen=True, kw_only=True):
    """How a dead connection is noticed."""

    every_s: Annotated[
        Seconds, Meta(description="After so long without sending, a sign of life is sent.")
    ] = 5.0
    missed_max: Annotated[
        Count, Meta(description="A peer is given up when it misses more than this in a row.")
    ] = 3


class HttpConfig(Table, frozen=True, kw_only=True):
    """Health, readiness, metrics and status for those who run the broker."""

    listen: Annotated[
        str,
        Meta(
            description="Address, such as `127.0.0.1:7480`; port 0: any that is free. Empty: off."
        ),
    ] = ""


class JournalConfig(Table, frozen=True, kw_only=True):
    """The facts journal, which the data pipeline reads."""

    enabled: Annotated[bool, Meta(description="Whether facts are written.")] = True
    segment_bytes: Annotated[Size, Meta(description="A file is finished at this size …")] = 64 * MIB
    segment_s: Annotated[Seconds, Meta(description="… or at this age.")] = 60.0
    flush_s: Annotated[
        Seconds, Meta(description="How long facts may wait in memory before they are written.")
    ] = 1.0
    bytes_max: Annotated[
        Bound,
        Meta(description="The oldest files are removed beyond this. 0: none is removed."),
    ] = 4 * GIB


class HistoryConfig(Table, frozen=True, kw_only=True):
    """The past that subscriptions may begin with."""

    archive: Annotated[
        str,
        Meta(
            description="The folder of tables that `sterna pipeline run` writes (its `--out`): "
            "what lies before the broker's own memory comes from there. Empty: there is none."
        ),
    ] = ""
    events_max: Annotated[
        Count, Meta(description="How many events of the archive one subscription may begin with.")
    ] = 100_000


class LogConfig(Table, frozen=True, kw_only=True):
    """Messages to those who run the broker, on standard error."""

    level: Annotated[LogLevel, Meta(description="The least important messages.")] = LogLevel.INFO
    format: Annotated[
        LogFormat, Meta(description="`text` for people, `json` for programs (an object a line).")
    ] = LogFormat.TEXT


class BrokerConfig(Table, frozen=True, kw_only=True):
    """The broker itself."""

    name: Annotated[
        Name,
        Meta(
            description="What the broker is called, unique in the network: "
            "letters, digits, `-`, `_` and `.`."
        ),
    ]
    listen: Annotated[
        str, Meta(description="Where clients and brokers connect; port 0: any that is free.")
    ] = f"127.0.0.1:{PORT}"
    advertised_address: Annotated[
        str | None,
        Meta(description="How others reach this broker, if not at `listen` (as `host:port`)."),
    ] = None
    data: Annotated[str, Meta(description="The directory of its log, snapshots and journal.")] = (
        _DATA
    )

    network: NetworkConfig = msgspec.field(default_factory=NetworkConfig)
    places: PlacesConfig = msgspec.field(default_factory=PlacesConfig)
    durability: DurabilityConfig = msgspec.field(default_factory=DurabilityConfig)
    limits: LimitsConfig = msgspec.field(default_factory=LimitsConfig)
    heartbeat: HeartbeatConfig = msgspec.field(default_factory=HeartbeatConfig)
    http: HttpConfig = msgspec.field(default_factory=HttpConfig)
    journal: JournalConfig = msgspec.field(default_factory=JournalConfig)
    history: HistoryConfig = msgspec.field(default_factory=HistoryConfig)
    log: LogConfig = msgspec.field(default_factory=LogConfig)

    @classmethod
    def load(
        cls, path: Path | None, environment: Mapping[str, str] | None = None
    ) -> "BrokerConfig":
        """Read a file, if one is given, with the environment's variables over it.

        Relative paths in it start at its directory, without a file at the working directory.
        ConfigError names all that is wrong.
        """
        document: dict[str, object] = {}
        if path is not None:
            try:
                document = tomllib.loads(path.read_text(encoding="utf-8"))
            except OSError as error:
                raise ConfigError([f"cannot read {path}: {error.strerror}"]) from None
            except UnicodeDecodeError:
                raise ConfigError([f"{path} is not a text file in UTF-8"]) from None
            except tomllib.TOMLDecodeError as error:
                raise ConfigError([f"{path} is not valid TOML: {error}"]) from None
        return cls.from_mapping(
            document,
            environment or {},
            source=str(path) if path is not None else "configuration",
            directory=path.parent if path is not None else Path(),
        )

    @classmethod
    def from_mapping(
        cls,
        document: Mapping[str, object],
        environment: Mapping[str, str] | None = None,
        *,
        source: str = "configuration",
        directory: Path = Path(),
    ) -> "BrokerConfig":
        """The configuration of tables and keys as they stand in a file."""
        return _Reading(source, directory).config(document, environment or {})

    def to_toml(self) -> str:
        """A file with this configuration, each key explained. Reading it gives the same again."""
        rest = (f"[{f.name}]\n" + _table_as_toml(f.name, getattr(self, f.name)) for f in tables())
        return "\n".join([_table_as_toml("", self), *rest])

    @property
    def routing_options(self) -> RoutingOptions:
        return RoutingOptions(
            strategy=self.network.strategy, advertisements=self.network.advertisements
        )

    @property
    def handover_options(self) -> HandoverOptions:
        kept_s, away_s = self.limits.kept_s, self.limits.away_s
        return HandoverOptions(
            protocol=self.network.handover,
            cache_events_max=self.limits.queue_events_per_client_max,
            cache_bytes_max=self.limits.queue_bytes_per_client_max,
            cache_ttl_us=None if kept_s is None else max(1, round(kept_s * 1e6)),
            away_max_us=None if away_s is None else max(1, round(away_s * 1e6)),
        )

    def _dwell_us(self) -> int | None:
        """The dwell time that was told or mined."""
        places = self.places
        if places.dwell_s is not None:
            return max(1, round(places.dwell_s * 1e6))
        return None if places.graph is None else mined_dwell_us(places.graph)

    def places_options(self) -> PlacesOptions | None:
        """The locations of the network, read from the graph's file if they stand there."""
        places = self.places
        if places.grid is None and places.graph is None:
            return None
        # The file has said which way its edges go. A location that leads nowhere leads to itself,
        # which every location does.
        graph = MovementGraph.load(places.graph) if places.graph is not None else None
        edges = (
            ()
            if graph is None
            else tuple(
                (place, other)
                for place in graph.locations
                for other in graph.neighbours(place) or (place,)
            )
        )
        return PlacesOptions(
            edges=edges,
            directed=True,
            h3_resolution=places.grid,
            rule=places.rule,
            dwell=places.dwell,
            dwell_us=self._dwell_us(),
            probe_us=max(1, round(places.probe_s * 1e6)),
            away_steps_max=places.away_steps_max,
            grain_us=places.grain_us,
        )


def tables() -> list[FieldInfo]:
    """The tables of the file, in order; keys of the broker itself stand before them."""
    return [field for field in fields(BrokerConfig) if table_of(field) is not None]


def table_of(field: FieldInfo) -> type[Table] | None:
    """What a field of the configuration holds, if that is a table."""
    kind = field.type
    return kind if isinstance(kind, type) and issubclass(kind, Table) else None


def keys(table: type[Table]) -> list[FieldInfo]:
    """The keys of a table, in order."""
    return [field for field in fields(table) if table_of(field) is None]


def description(field: FieldInfo) -> str:
    """What a key means."""
    return next(str(meta.description) for meta in field.type.__metadata__ if meta.description)


def choices(field: FieldInfo) -> list[str]:
    """The values that a key may have, if they can be listed."""
    kind = get_args(field.type)[0]
    is_choice = isinstance(kind, type) and issubclass(kind, StrEnum)
    return [choice.value for choice in kind] if is_choice else []


def is_size(field: FieldInfo) -> bool:
    """Whether a key holds bytes, which may be written with a unit."""
    return "bytes" in field.name


def variable(table: str, key: str) -> str:
    """The environment variable that overrides a key."""
    return PREFIX + "_".join(filter(None, [table, key])).upper()


def value_as_toml(field: FieldInfo, value: object) -> str:
    """A value as it stands in a file; sizes in the largest unit that says them exactly."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if is_size(field):
            for unit, size in reversed(_UNITS.items()):
                if value and value % size == 0 and size > 1:
                    return f'"{value // size} {unit}"'
        return str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(value_as_toml(field, item) for item in value)}]"
    return msgspec.json.encode(value).decode()  # Strings and floats are written as in JSON.


_UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}


class _Reading:
    """One reading of a configuration, which goes on after a problem to find them all."""

    def __init__(self, source: str, directory: Path) -> None:
        self._source = source
        self._directory = directory
        self._problems: list[str] = []

    def config(
        self, document: Mapping[str, object], environment: Mapping[str, str]
    ) -> BrokerConfig:
        given = {field.name: field for field in tables()}
        own = {name: value for name, value in document.items() if name not in given}
        known_tables = list(given)
        values = self._values("", BrokerConfig, own, environment, also=known_tables)
        for name, field in given.items():
            table = table_of(field)
            assert table is not None  # noqa: S101 - tables() lists nothing else.
            entries = document.get(name, {})
            if not isinstance(entries, Mapping):
                self._problem(self._source, name, f"is a table: write its keys below [{name}]")
                continue
            values[name] = table(**self._values(name, table, entries, environment))
        values.setdefault("data", str(self._directory / _DATA))
        if "name" not in values and not self._complains_about("name"):
            self._problem(
                self._source,
                "name",
                f'is missing: every broker needs one, such as name = "b1" '
                f"(or {variable('', 'name')} in the environment)",
            )
        if self._problems:
            raise ConfigError(self._problems)
        config = BrokerConfig(**values)
        self._check_sizes(config)
        if self._problems:
            raise ConfigError(self._problems)
        return config

    def _values(
        self,
        table: str,
        kind: type[Table],
        entries: Mapping[str, object],
        environment: Mapping[str, str],
        also: list[str] | None = None,
    ) -> dict[str, Any]:
        known = {field.name: field for field in keys(kind)}
        names = [*known, *(also or [])]
        for name in entries:
            if name not in known:
                self._problem(self._source, _dotted(table, name), "is no key" + _meant(name, names))
        if table:
            self._check_variables(table, list(known), environment)
        values: dict[str, Any] = {}
        for name, field in known.items():
            override = environment.get(variable(table, name))
            if override is not None:
                self._take(values, variable(table, name), table, field, override)
            elif name in entries:
                self._take(values, self._source, table, field, entries[name])
        return values

    def _check_variables(
        self, table: str, names: list[str], environment: Mapping[str, str]
    ) -> None:
        beginning = variable(table, "") + "_"
        known = [variable(table, name) for name in names]
        for name in environment:
            if name.startswith(beginning) and name not in known:
                self._problems.append(f"{name}: is no variable of Sterna{_meant(name, known)}")

    def _take(
        self, values: dict[str, Any], source: str, table: str, field: FieldInfo, given: object
    ) -> None:
        key = _dotted(table, field.name)
        from_environment = source != self._source
        try:
            value = _converted(field, given, is_text=from_environment)
            check = _CHECKS.get(key)
            if check is not None and value is not None:
                value = check(value, self._directory)
        except ValueError as error:  # All of msgspec's, of addresses and of locations are.
            self._problem(source, key, str(error))
        else:
            values[field.name] = value

    def _check_sizes(self, config: BrokerConfig) -> None:
        """Limits that would leave no room for a single frame, or for a single segment."""
        limits, durability = config.limits, config.durability
        for name in ("in_flight_bytes_max", "queue_bytes_per_client_max", "queue_bytes_max"):
            if getattr(limits, name) < limits.frame_bytes_max:
                self._problem(
                    self._source,
                    f"limits.{name}",
                    "is less than limits.frame_bytes_max: no room for one frame",
                )
        least = durability.segment_bytes + durability.snapshot_bytes
        if 0 < durability.bytes_max < least:
            self._problem(
                self._source,
                "durability.bytes_max",
                f"is less than segment_bytes and snapshot_bytes together: needs at least {least}",
            )
        if 0 < config.journal.bytes_max < config.journal.segment_bytes:
            self._problem(
                self._source, "journal.bytes_max", "is less than one file: see segment_bytes"
            )
        if config.places.grid is not None and config.places.graph is not None:
            self._problem(
                self._source, "places.graph", "excludes places.grid: leave one of them out"
            )

    def _problem(self, source: str, key: str, problem: str) -> None:
        self._problems.append(f"{source}: {key}: {problem}")

    def _complains_about(self, key: str) -> bool:
        return any(f": {key}: " in problem for problem in self._problems)


def _converted(field: FieldInfo, given: object, *, is_text: bool) -> object:
    """A value as the key's type, or ValueError in words that fit behind the key."""
    allowed = choices(field)
    if allowed and given not in allowed:
        raise ValueError(f"is {_shown(given)}; choose one of {', '.join(allowed)}")
    if is_size(field) and isinstance(given, str):
        given = _size(given)
    elif is_text and isinstance(given, str) and field.type.__origin__ == tuple[str, ...]:
        given = [part.strip() for part in given.split(",") if part.strip()]
    try:
        return msgspec.convert(given, field.type, strict=not is_text)
    except msgspec.ValidationError as error:
        if isinstance(given, str) and "matching regex" in str(error):
            raise ValueError(
                f"is {given!r}; write letters, digits, '-', '_' and '.', the first no sign"
            ) from None
        raise ValueError(f"is {_shown(given)}; {_wanted(str(error))}") from None


def _wanted(complaint: str) -> str:
    """What msgspec expects, in the words of the file: "Expected `int | null`, got `str`"."""
    complaint = complaint.partition(" - at ")[0]
    text = re.sub(r"`([^`]*)`", lambda kind: _words(kind[1]), complaint)
    return text[0].lower() + text[1:]


def _words(kind: str) -> str:
    words = {"int": "a whole number", "float": "a number", "str": "a text in quotes"}
    words |= {"bool": "true or false", "array": "a list"}
    kind = kind.removesuffix(" | null")
    return words.get(kind, kind)


def _size(text: str) -> int:
    parts = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text.strip(), re.ASCII)
    units = {unit.lower(): size for unit, size in _UNITS.items()}
    size = units.get((parts[2] or "B").lower()) if parts else None
    if parts is None or size is None:
        raise ValueError(f'is {text!r}; write bytes as a number, or as in "64 MiB" (KiB, MiB, GiB)')
    return int(parts[1]) * size


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _dotted(table: str, key: str) -> str:
    return f"{table}.{key}" if table else key


def _meant(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def _listening(value: Any, _directory: Path) -> object:
    if value:
        Address.parse(value)
    return value


def _address(value: Any, _directory: Path) -> object:
    if not Address.parse(value).port:
        raise AddressError(f"{value!r} needs a port that others can connect to")
    return value


def _urls(value: Any, _directory: Path) -> object:
    for url in value:
        Address.from_url(url)
    return value


def _path(value: Any, directory: Path) -> object:
    if not value:
        raise ValueError("is empty; write a directory")
    return str(directory / value)


def _folder(value: Any, directory: Path) -> object:
    return str(directory / value) if value else value


def _graph(value: Any, directory: Path) -> object:
    path = directory / value
    try:
        MovementGraph.load(path)
    except LocationError as error:
        raise ValueError(str(error)) from None
    return str(path)


def _listen(value: Any, directory: Path) -> object:
    if not value:
        raise AddressError(f"is empty; write host:port, such as 127.0.0.1:{PORT}")
    return _listening(value, directory)


_CHECKS: dict[str, Callable[[Any, Path], object]] = {
    "listen": _listen,
    "advertised_address": _address,
    "data": _path,
    "network.neighbours": _urls,
    "places.graph": _graph,
    "history.archive": _folder,
    "http.listen": _listening,
}
"""For keys whose values need more than a type: gives the value to use, or raises ValueError."""


def _table_as_toml(name: str, table: Table) -> str:
    comment = textwrap.wrap(type(table).__doc__ or "", 96)
    lines = [f"# {line}" for line in comment] if name else []
    for field in keys(type(table)):
        said = description(field)
        if allowed := choices(field):
            said += f" One of: {', '.join(allowed)}."
        lines += ["", *(f"# {line}" for line in textwrap.wrap(said, 96))]
        value = getattr(table, field.name)
        lines.append(
            f"# {field.name} ="
            if value is None
            else f"{field.name} = {value_as_toml(field, value)}"
        )
    return "\n".join(lines).lstrip("\n") + "\n"
