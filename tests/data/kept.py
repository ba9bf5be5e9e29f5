"""Cases of kept data: the files that a release wrote, and what must be true of them for ever."""

import json
import math
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sterna.core.facts import Fact
from sterna.core.names import Peer
from sterna.journal import facts_in, read_journal
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter

ARCHIVE = "data.tar.xz"
MANIFEST = "manifest.json"


class KeptEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that was published, as JSON can say it."""

    publisher: str
    seq: int
    attributes: dict[str, Any]
    payload: str
    """In hexadecimal digits."""


class KeptSubscription(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a client has subscribed to, and what it is owed."""

    name: str
    where: str
    means: str | None = None
    """The filter with the client's location and variables filled in, if it has any."""
    receives: list[int] = []
    """Which of the manifest's `events` it must get once all is open again. Those of each publisher
    come in this order; between publishers there is none."""
    afterwards: list[int] = []
    """Which of the manifest's `afterwards` it must get after that."""


class KeptClient(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A client with a state, in `clients/` below its name."""

    was_at: str
    """The broker that it was connected to last."""
    comes_back_at: str
    """The broker that it is to connect to."""
    published: int
    """The number of the last event that it has published, sent or not."""
    how: str
    """How its process ended."""
    goes_on: bool = False
    """Whether it publishes what is in `afterwards`, too; all of that is advertised already."""
    subscriptions: list[KeptSubscription] = []


class KeptGuest(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says of a client when its process ends."""

    subscriptions: int
    kept_events: int | None
    """None: that was changing when the process ended."""


class KeptBroker(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A broker, in the directory of its name: `broker.toml` and `data`."""

    connects_to: str | None
    how: str
    """How its process ended."""
    guests: dict[str, KeptGuest] = {}


class KeptQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription that a new client makes, and the past that it must begin with."""

    at: str
    where: str
    past: int
    receives: list[KeptEvent]


class NetworkManifest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What must be true of a network that is opened again."""

    case: str
    about: str
    must_hold: list[str]
    release: str = "0.1"
    is_at_rest: bool = True
    """Whether brokers do nothing by themselves when they start, so that `guests` is still true."""
    brokers: dict[str, KeptBroker] = {}
    clients: dict[str, KeptClient] = {}
    events: list[KeptEvent] = []
    """What was published before all processes ended."""
    questions: list[KeptQuestion] = []
    afterwards: list[dict[str, Any]] = []
    """The attributes of events that are to be published when all is open again: all of them by a
    new client at each broker, and by each client that goes on."""


class JournalManifest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What journals must say."""

    case: str
    about: str
    must_hold: list[str]
    release: str = "0.1"
    kinds: dict[str, int] = {}
    """How many facts of each kind there are in all journals."""
    journals: dict[str, list[dict[str, Any]]] = {}
    """By directory, all facts in order."""


class TablesManifest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the tables of the pipeline, a mobility model and a movement graph must say."""

    case: str
    about: str
    must_hold: list[str]
    release: str = "0.1"
    rows: dict[str, int] = {}
    """How many rows each table has."""
    events: list[KeptEvent] = []
    """What the archive of events must answer with, for a filter that matches all."""
    samples: dict[str, list[dict[str, Any]]] = {}
    """Of some tables, some columns of all rows, sorted by all of these columns."""
    predictions: dict[str, str] = {}
    """For places of the mobility model, the most probable next one."""
    graphs: dict[str, dict[str, list[str]]] = {}
    """By file, for each location where one step leads."""


class KeptTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What a node did with an input."""

    actions: list[Any]
    facts: list[Any]
    deadline: int
    is_settled: bool


class NodesManifest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What nodes must do that are restored from pickles."""

    case: str
    about: str
    must_hold: list[str]
    release: str = "0.1"
    nodes: dict[str, str] = {}
    """By the name of its files in the archive, what the snapshot of each is called. The files are
    its pickle, the inputs that came then as a log holds them, and its turns (`KeptTurn`)."""
    kinds: dict[str, list[str]] = {}
    """The fields of each record that turns have; what later releases add does not matter."""


# ---- Files


def pack(directory: Path, target: Path) -> None:
    """Keep the content of a directory as an archive, without owners and times."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in sorted(directory.rglob("*")):
            archive.add(path, str(path.relative_to(directory)), recursive=False, filter=_nobodys)


def unpack(case: Path, directory: Path) -> Path:
    """Put the files of a case into a directory, where they may be changed."""
    with tarfile.open(case / ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory


def _nobodys(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.isdir() else 0o644
    return info


def save(manifest: msgspec.Struct, case: Path) -> None:
    case.mkdir(parents=True, exist_ok=True)
    text = _lines(msgspec.json.decode(msgspec.json.encode(manifest)), depth=3)
    (case / MANIFEST).write_text(text + "\n", encoding="utf-8")


def _lines(value: Any, depth: int, indent: str = "\n") -> str:
    """JSON with a line for each member down to some depth, so that differences can be read."""
    if not depth or not value or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    inner = indent + " "
    if isinstance(value, dict):
        members = [
            f"{json.dumps(name, ensure_ascii=False)}: {_lines(each, depth - 1, inner)}"
            for name, each in value.items()
        ]
        return "{" + inner + f",{inner}".join(members) + indent + "}"
    return "[" + inner + f",{inner}".join(_lines(e, depth - 1, inner) for e in value) + indent + "]"


# ---- Values


def plain(value: object) -> Any:
    """A value as JSON can say it, so that no two different ones look alike."""
    match value:
        case float() if not math.isfinite(value):
            return {"float": repr(value)}
        case bytes():
            return {"bytes": value.hex()}
        case Filter() | Peer():
            return str(value)
        case Event():
            return [
                value.publisher,
                value.seq,
                value.time_us,
                plain(value.attributes),
                plain(value.payload),
            ]
        case EventId():
            return [value.publisher, value.seq]
        case Mapping():
            return {name: plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            return value


def value_of(said: Any) -> Any:
    """The attribute value that `plain` has written."""
    return float(said["float"]) if isinstance(said, dict) else said


def kept_event(event: Event) -> KeptEvent:
    """An event as a manifest has it."""
    return KeptEvent(
        publisher=event.publisher,
        seq=event.seq,
        attributes=plain(event.attributes),
        payload=event.payload.hex(),
    )


def plain_fact(fact: Fact) -> dict[str, Any]:
    """A fact as a manifest has it."""
    values = {name: plain(getattr(fact, name)) for name in fact.__struct_fields__}
    return {"kind": type(fact).__name__, **values}


_kinds: dict[str, list[str]] = {}


def record_kinds() -> dict[str, list[str]]:
    """The fields of all records that `plain_record` has written."""
    return dict(sorted(_kinds.items()))


def plain_record(value: object, kinds: Mapping[str, Sequence[str]] | None = None) -> Any:
    """An action or a fact with all that is in it, or only the fields that are named by kind."""
    match value:
        case msgspec.Struct() if not isinstance(value, Event):
            kind = type(value).__name__
            fields = list(value.__struct_fields__)
            if kinds is None:
                _kinds[kind] = fields
            kept = fields if kinds is None else kinds.get(kind, fields)
            return {"kind": kind} | {n: plain_record(getattr(value, n), kinds) for n in kept}
        case EventId():
            return plain(value)
        case Mapping():
            return {name: plain_record(each, kinds) for name, each in value.items()}
        case list() | tuple():
            return [plain_record(each, kinds) for each in value]
        case _:
            return plain(value)


def journals_below(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """By directory, all facts of the journals in it."""
    folders = sorted({file.parent for file in directory.rglob("*.arrows*")})
    return {
        str(folder.relative_to(directory)): [
            plain_fact(fact) for batch in read_journal(folder) for fact in facts_in(batch)
        ]
        for folder in folders
    }


def sample(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> list[dict[str, Any]]:
    """Some columns of the rows of a table, sorted."""
    names = list(columns)
    return sorted(({name: plain(row[name]) for name in names} for row in rows), key=_text)


def same(found: object, kept: object) -> bool:
    """Whether two things are the same in JSON: 1 is not 1.0, and 0.0 is not -0.0."""
    return _text(found) == _text(kept)


def by_publisher(events: Iterable[KeptEvent]) -> dict[str, list[str]]:
    """The events of each publisher in their order, as texts that can be compared."""
    found: dict[str, list[str]] = {}
    for event in events:
        found.setdefault(event.publisher, []).append(_text(event))
    return found


def _text(value: object) -> str:
    return json.dumps(msgspec.to_builtins(value), sort_keys=True, ensure_ascii=False)
