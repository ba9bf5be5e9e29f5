"""Snapshots of release 0.1 become records: all they hold is there, and nothing in them runs."""

import json
import os
import pickle
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sterna.core.absence import Absence
from sterna.core.assembly import make_broker, make_client
from sterna.core.client import Client
from sterna.core.handover.guests import Presence
from sterna.core.history.recall import Recall
from sterna.core.inputs import Input, LinkDown, LinkUp, Subscribe
from sterna.core.keeping import Writer
from sterna.core.link import LinkTiming
from sterna.core.messages import Route, SubscriptionChange
from sterna.core.names import LinkId, LocalProtocolError, Time
from sterna.core.node import Node, Turn
from sterna.core.quenching import Interest
from sterna.core.routing.covering import Maximal
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.engine import loading
from sterna.net.nodes import AT_A_BROKER, AT_A_CLIENT
from sterna.net.records import Began, decode_record
from sterna.net.release_0_1 import BROKER_STATE, CLIENT_STATE, converted
from sterna.net.release_0_1.nodes import guest, interest
from sterna.net.release_0_1.reading import Old, read
from sterna.net.release_0_1.routing import maximal
from sterna.net.state import decode_memory, decode_state
from sterna.net.storage import Log
from sterna.net.storage.errors import LogFormatError
from sterna.net.storage.format import decode_snapshot, encode_snapshot
from sterna.wire.snapshots import _Decoding, _kept, _Snapshot, encode_node, restore_node
from tests.data.kept import ARCHIVE, MANIFEST, KeptTurn, NodesManifest, plain_record, unpack

RELEASE = Path(__file__).parents[1] / "data" / "release-0.1"

CASES = sorted(
    str(path.parent.relative_to(RELEASE))
    for path in RELEASE.rglob(ARCHIVE)
    if path.parent.name not in {"journal", "nodes", "tables"}
)

LATER_KIND = "broker state 3"

pytestmark = pytest.mark.spec("LV-9")


@pytest.mark.parametrize("case", CASES)
def test_a_converted_node_keeps_what_it_was_given(case: str) -> None:
    """What a node restored from it keeps is the same, and so is what that one restores."""
    for name, kind, data in _snapshots(case):
        state = decode_state(converted(kind, data))

        node = restore_node(state.node, _made(kind, state.began))

        kept = encode_node(node)
        assert _current(kept, node) == _current(state.node, node), name
        assert _unchanged(kept, node) >= _unchanged(state.node, node), name
        assert encode_node(restore_node(kept, _made(kind, state.began))) == kept, name
        assert (state.release, state.settings) == ("0.1.0", node.settings)
        if isinstance(node, Client):
            assert node.published >= state.began.seq
            remembered = {each.name: each.where for each in decode_memory(state.memory)}
            assert remembered == node.subscriptions, name


def _current(data: bytes, node: Node) -> tuple[object, ...]:
    """What a snapshot holds, each part as a record of the latest version.

    Release 0.1 did not keep who is away: a node finds that out when it is restored.
    """
    found, records, decode = (
        msgspec.msgpack.decode(data, type=_Snapshot),
        node.records(),
        _Decoding(),
    )
    kept = {
        part.name: _kept(part, records[part.name], decode)
        for part in found.parts
        if part.name != Absence.name
    }
    return repr(found.events), bytes(found.messages), kept  # Events may hold NaN.


def _unchanged(data: bytes, node: Node) -> set[tuple[str, bytes]]:
    """The parts of a snapshot that have the latest version already, byte for byte."""
    found, records = msgspec.msgpack.decode(data, type=_Snapshot), node.records()
    return {
        (part.name, bytes(part.kept))
        for part in found.parts
        if part.version == records[part.name].version
    }


def test_a_converted_node_goes_on_exactly_as_the_old_one(tmp_path: Path) -> None:
    """Simulated nodes of release 0.1 were pickled in the middle of something. With each input that
    came then, today's nodes do what they did, but for the order in which links are served. What
    has arrived too early is forgotten with its connection, and comes again: that differs today.
    So does how long events wait for a past, and when a subscription that asks for one is announced.
    """
    whole = 0
    case = RELEASE / "nodes"
    manifest = msgspec.json.decode((case / MANIFEST).read_bytes(), type=NodesManifest)
    unpack(case, tmp_path)
    for name, kind in manifest.nodes.items():
        files = tmp_path / name
        state = decode_state(converted(kind, files.with_suffix(".pickle").read_bytes()))
        node = restore_node(state.node, _made(kind, state.began, LinkTiming()))
        inputs = msgspec.msgpack.decode(files.with_suffix(".inputs").read_bytes())
        turns = msgspec.json.decode(files.with_suffix(".turns").read_bytes(), type=list[KeptTurn])
        for number, (record, kept_turn) in enumerate(zip(inputs, turns, strict=True)):
            given, now = decode_record(record)
            if isinstance(given, LinkUp | LinkDown) and _has_early(node, given.link):
                break
            if _awaits_past(node) or _asks_for_past(given):
                break
            turn = _turn(node, given, now, manifest.kinds)
            assert _by_link(turn.actions) == _by_link(kept_turn.actions), (name, number)
            assert _sorted(turn.facts) == _sorted(kept_turn.facts), (name, number)
            assert turn.deadline == kept_turn.deadline, (name, number)
            assert turn.is_settled == kept_turn.is_settled, (name, number)
        else:
            whole += 1
    assert whole >= 0.9 * len(manifest.nodes)


def _has_early(node: Node, link: LinkId) -> bool:
    session = node._sessions.get(link)
    return session is not None and bool(session._early)


def _awaits_past(node: Node) -> bool:
    recall = node.part(Recall.name)
    return isinstance(recall, Recall) and not recall.is_settled


def _asks_for_past(given: Input) -> bool:
    if not isinstance(given, Subscribe):
        return False
    return given.past_events_max is not None or given.past_since_us is not None


def _turn(node: Node, given: Input, now: Time, kinds: Mapping[str, Sequence[str]]) -> KeptTurn:
    """What a node does, with no more fields than records had then."""
    try:
        turn = node.handle(given, now)
    except LocalProtocolError:
        turn = Turn([], [], given)
    return KeptTurn(
        actions=[plain_record(each, kinds) for each in turn.actions],
        facts=[plain_record(each, kinds) for each in turn.facts],
        deadline=node.deadline,
        is_settled=node.is_settled,
    )


def _by_link(actions: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for action in actions:
        if action["kind"] == "Deliver":  # The order of an event's subscriptions is unspecified.
            action["subscriptions"] = [sorted(names) for names in action["subscriptions"]]
        found.setdefault(action.get("link", ""), []).append(action)
    return found


def _sorted(facts: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(fact, sort_keys=True) for fact in facts)


def test_nothing_in_a_snapshot_is_run(tmp_path: Path) -> None:
    """A name that release 0.1 never wrote is refused, wherever it occurs."""
    proof = tmp_path / "it ran"

    class Foreign:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(proof),)

    for kind in (BROKER_STATE, CLIENT_STATE):
        with pytest.raises(LogFormatError, match=r"names posix\.mkdir, which release 0\.1 never"):
            converted(kind, pickle.dumps((1, Foreign(), None, None), protocol=5))
    assert not proof.exists()


@pytest.mark.parametrize(
    ("named", "instead"),
    [
        ("sterna.core.broker", "sterna.core.bricks"),
        ("Router", "Routes"),
        ("getattr", "compile"),
        ("deque", "chain"),
        ("Filter", "filter"),
    ],
)
def test_each_name_in_a_snapshot_is_looked_at(named: str, instead: str) -> None:
    data = _a_snapshot("B1")

    changed = data.replace(_text(named), _text(instead))

    assert changed != data
    with pytest.raises(LogFormatError, match=f"it names .*{instead}.*, which release 0.1 never"):
        converted(BROKER_STATE, changed)


@pytest.mark.parametrize("name", ["stored", "__init__", "__subclasses__"])
def test_getattr_finds_nothing_but_how_filters_are_made(name: str) -> None:
    class Finding:
        def __reduce__(self) -> tuple[Any, tuple[object, str]]:
            return getattr, (Filter, name)

    assert read(pickle.dumps(Finding())) is None
    assert read(pickle.dumps(Filter("x = 1"))) == Filter("x = 1")


def test_a_snapshot_that_is_cut_off_is_refused() -> None:
    """Wherever it ends, there is one sentence and no half of a node."""
    data = _a_snapshot("B1")
    for end in range(0, len(data), len(data) // 100):
        with pytest.raises(LogFormatError, match=r"^the snapshot that release 0\.1 wrote cannot"):
            converted(BROKER_STATE, data[:end])


def test_snapshots_of_today_are_left_as_they_are() -> None:
    assert converted(LATER_KIND, b"as it is") == b"as it is"


def test_a_client_that_cannot_tell_what_is_wanted_publishes_everything() -> None:
    """Of many filters, release 0.1 kept the compiled form. Its broker tells only what changes, so
    until it withdraws them, events may be wanted.
    """
    table = Old(_rows={"a": 0, "b": (1, 2)})
    told = Old(asked=2, current=True, version=7, _filters=Old(_few={}, _table=table))
    event = Event(publisher="p", seq=1, time_us=0, attributes={"x": 1})
    wanted = Interest()

    wanted.restore(interest(told))

    for removed in ("a", "b"):
        assert wanted.wants(event)
        wanted.change(SubscriptionChange(removed=(removed,)))
    assert not wanted.wants(event)
    assert (wanted.asked, wanted.current, wanted.version) == (2, True, 9)


@pytest.mark.parametrize(
    ("is_here", "has_forgotten", "presence"),
    [
        (True, False, Presence.HERE),
        (False, False, Presence.AWAY),
        (False, True, Presence.FORGETFUL),
    ],
)
def test_flags_of_a_guest_become_its_presence(
    is_here: bool, has_forgotten: bool, presence: Presence
) -> None:
    names = ("visit", "born", "awaits", "stay", "sent", "published", "departing", "away_since")
    kept = {"cache": Old(_kept={}, _rings={}, _count=0), "lost": [], "missed": [], "moving": {}}
    old = Old(is_here=is_here, has_forgotten=has_forgotten, **dict.fromkeys(names, 1), **kept)

    assert guest("c", old, Writer()).presence is presence


def test_filters_that_match_nothing_can_be_withdrawn() -> None:
    """Covering waits for them to go, although nobody was told of them."""
    nothing = Route("r1", Filter("x > 3 AND x < 1"))
    stage = Maximal()

    stage.restore(maximal(Old(_maximal={}, _followers={}, _coverer={"r1": None})))

    stage.remove(nothing)
    assert stage.keep() == Maximal().keep()


# ---- What cannot be read is refused before anything on disk is changed


@pytest.mark.parametrize("damage", ["cut off", "foreign"])
def test_release_0_1_can_go_on_if_its_snapshot_is_refused(tmp_path: Path, damage: str) -> None:
    """Its log is as it was: no segment of a later format is begun."""
    directory = unpack(RELEASE / "broker-snapshot", tmp_path) / "B1" / "data" / "log"
    (path,) = directory.glob("*.snapshot")
    position, kind, data = decode_snapshot(path.read_bytes())
    changed = data[:-100] if damage == "cut off" else data.replace(_text("Router"), _text("Routes"))
    path.write_bytes(encode_snapshot(changed, position, kind) + changed)

    _refused(directory, "the snapshot that release 0.1 wrote cannot be read", kind=kind)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("state", r"written by release 9\.9 in version 99, and this release reads up to 1: start"),
        ("node", r"has version 99, and this release reads up to 1: start the release that wrote"),
        ("part", r"version 99 of what 'routing' keeps, and this release reads up to 1: start"),
        ("protocol", r"what a protocol 'later' kept, which is not there now: install the package"),
    ],
)
def test_what_a_later_release_wrote_is_refused(tmp_path: Path, what: str, says: str) -> None:
    """Whichever part of a snapshot has changed by then: one sentence says what to do."""
    state = msgspec.msgpack.decode(converted(BROKER_STATE, _a_snapshot("B1")))
    node = msgspec.msgpack.decode(state["node"])
    if what == "state":
        state |= {"version": 99, "release": "9.9"}
    elif what == "node":
        node["version"] = 99
    else:
        (routing,) = (part for part in node["parts"] if part[0] == "routing")
        routing[:2] = ["routing", 99] if what == "part" else ["later", 1]
    state["node"] = msgspec.msgpack.encode(node)
    log, _ = Log.open(tmp_path, kind=LATER_KIND)
    log.append(b"began")
    log.snapshot(msgspec.msgpack.encode(state), 1)
    log.close()

    _refused(tmp_path, says, kind=LATER_KIND)


def _refused(directory: Path, says: str, *, kind: str) -> None:
    before = _files(directory)
    with pytest.raises(LogFormatError, match=says) as refused:
        Log.open(directory, kind=LATER_KIND, older=[kind], load=loading(partial(_made, kind)))
    assert str(refused.value).endswith(". Nothing was changed.")
    assert "\n" not in str(refused.value)
    assert _files(directory) == before


# ---- Snapshots


def _snapshots(case: str) -> Iterator[tuple[str, str, bytes]]:
    """The snapshots of a case: their file, kind and state."""
    with tarfile.open(RELEASE / case / ARCHIVE) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".snapshot") else None
            if file is not None:
                _, kind, data = decode_snapshot(file.read())
                yield member.name, kind, data


def _a_snapshot(broker: str) -> bytes:
    return next(data for name, _, data in _snapshots("broker-snapshot") if name.startswith(broker))


def _made(kind: str, began: Began, timing: LinkTiming | None = None) -> Node:
    """A fresh node, as a driver makes it."""
    if kind == CLIENT_STATE:
        return make_client(
            began.node,
            began.settings,
            timing=timing or AT_A_CLIENT,
            incarnation=began.incarnation,
            seq=began.seq,
        )
    return make_broker(
        began.node, began.settings, timing=timing or AT_A_BROKER, incarnation=began.incarnation
    )


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}


def _text(name: str) -> bytes:
    """A short text as pickles have it."""
    return b"\x8c" + bytes([len(name)]) + name.encode()
