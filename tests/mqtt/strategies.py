"""Packets of both versions and both ends, as hypothesis draws them."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from sterna.mqtt import reasons
from sterna.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Role,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from sterna.mqtt.properties import ALLOWED, FORBIDDEN, Kind, Property

texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12
) | st.sampled_from(["", "\ufeff", "é" * 100, "a\tb", "x" * 65535])
blobs = st.binary(max_size=12) | st.sampled_from([b"\0" * 300, b"x" * 65535])
topics = (
    st.lists(st.sampled_from(["", "a", "$SYS", "é", " ", "a b"]), min_size=2, max_size=4)
    .map("/".join)
    .filter(bool)
) | st.sampled_from(["t", "/", "$share/g", "a" * 200, "a/" * 20000])
_levels = st.lists(st.sampled_from(["", "a", "+", "$SYS", "é"]), min_size=2, max_size=4)
filters = (
    st.builds(lambda levels, end: "/".join(levels) + end, _levels, st.sampled_from(["", "/#"]))
    | st.sampled_from(["#", "+", "/", "$share/g/a/+", "$share/g/#", "$share/g//"])
).filter(lambda text: not text.startswith("$share") or text.count("/") > 1)
ids = st.integers(1, 65535)
pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)

_NUMBERS = {
    Kind.INT16: 65535,
    Kind.INT32: 0xFFFFFFFF,
    Kind.VARINT: 268_435_455,
}


def _value(rule: Property) -> st.SearchStrategy[Any]:
    match rule.kind:
        case Kind.FLAG:
            return st.booleans()
        case Kind.BIT:
            return st.integers(0, 1)
        case Kind.TEXT:
            return texts
        case Kind.TOPIC:
            return topics
        case Kind.BINARY:
            return blobs
        case Kind.PAIR:
            return pairs
        case kind:
            return st.integers(rule.least, _NUMBERS[kind])


@st.composite
def properties(
    draw: st.DrawFn, kind: type[Packet], version: Version, sender: Role | None = None
) -> dict[str, Any]:
    """Some of the properties that a packet may have."""
    if version is Version.V311:
        return {}
    found = {}
    forbidden = FORBIDDEN[sender].get(kind, ()) if sender else ()
    for rule in ALLOWED[kind].values():
        if rule.field == "subscription_identifier" and kind is Publish:
            if "subscription_identifiers" not in forbidden:
                found["subscription_identifiers"] = tuple(draw(st.lists(_value(rule), max_size=3)))
        elif rule.field not in forbidden and draw(st.booleans()):
            found[rule.field] = draw(_value(rule))
    return found


@st.composite
def wills(draw: st.DrawFn, version: Version) -> Will:
    return Will(
        *(draw(topics), draw(blobs), draw(st.integers(0, 2)), draw(st.booleans())),
        **draw(properties(Will, version)),
    )


@st.composite
def connects(draw: st.DrawFn, version: Version) -> Connect:
    user_name = draw(st.none() | texts)
    fields = draw(properties(Connect, version))
    if "authentication_method" not in fields:
        fields.pop("authentication_data", None)
    client_id = draw(texts)
    return Connect(
        version=version,
        client_id=client_id,
        clean_start=draw(st.booleans()) or (version is Version.V311 and not client_id),
        keep_alive_s=draw(st.integers(0, 65535)),
        user_name=user_name,
        password=None if user_name is None and version is Version.V311 else draw(st.none() | blobs),
        will=draw(st.none() | wills(version)),
        **fields,
    )


@st.composite
def connacks(draw: st.DrawFn, version: Version) -> Connack:
    codes = reasons.ALLOWED[Connack] if version is Version.V5 else reasons.CONNACK_311
    reason_code = draw(st.sampled_from(sorted(codes.values())))
    return Connack(
        session_present=not reason_code and draw(st.booleans()),
        reason_code=reason_code,
        **draw(properties(Connack, version)),
    )


@st.composite
def publishes(draw: st.DrawFn, version: Version, sender: Role = Role.SERVER) -> Publish:
    qos = draw(st.integers(0, 2))
    fields = draw(properties(Publish, version, sender))
    return Publish(
        draw(topics | st.just("")) if "topic_alias" in fields else draw(topics),
        draw(blobs),
        qos,
        draw(st.booleans()),
        qos > 0 and draw(st.booleans()),
        draw(ids) if qos else 0,
        **fields,
    )


@st.composite
def acknowledgements(draw: st.DrawFn, version: Version) -> Packet:
    kinds: list[type[Acknowledgement]] = [Puback, Pubrec, Pubrel, Pubcomp]
    kind = draw(st.sampled_from(kinds))
    code = ReasonCode.SUCCESS
    if version is Version.V5:
        code = draw(st.sampled_from(sorted(reasons.ALLOWED[kind].values())))
    return kind(draw(ids), code, **draw(properties(kind, version)))


@st.composite
def _requests(draw: st.DrawFn, version: Version) -> SubscriptionRequest:
    topic_filter, qos = draw(filters), draw(st.integers(0, 2))
    if version is Version.V311:
        return SubscriptionRequest(topic_filter, qos)
    return SubscriptionRequest(
        *(topic_filter, qos, not topic_filter.startswith("$share/") and draw(st.booleans())),
        *(draw(st.booleans()), draw(st.integers(0, 2))),
    )


@st.composite
def subscribes(draw: st.DrawFn, version: Version) -> Subscribe:
    requests = draw(st.lists(_requests(version), min_size=1, max_size=4))
    return Subscribe(draw(ids), tuple(requests), **draw(properties(Subscribe, version)))


@st.composite
def unsubscribes(draw: st.DrawFn, version: Version) -> Unsubscribe:
    found = draw(st.lists(filters, min_size=1, max_size=4))
    return Unsubscribe(draw(ids), tuple(found), **draw(properties(Unsubscribe, version)))


@st.composite
def _results(draw: st.DrawFn, version: Version) -> Packet:
    ends = draw(st.booleans())
    kind: type[Packet] = Unsuback if ends else Suback
    codes = reasons.ALLOWED[kind] if version is Version.V5 else reasons.SUBACK_311
    found = draw(st.lists(st.sampled_from(sorted(codes.values())), min_size=1, max_size=4))
    if kind is Unsuback:
        found = found if version is Version.V5 else []
        return Unsuback(draw(ids), tuple(found), **draw(properties(Unsuback, version)))
    return Suback(draw(ids), tuple(found), **draw(properties(Suback, version)))


@st.composite
def _ends(draw: st.DrawFn, version: Version, sender: Role) -> Packet:
    if version is Version.V311:
        return Disconnect() if sender is Role.CLIENT else Pingresp()
    kind: type[Packet] = Disconnect if draw(st.booleans()) else Auth
    code = draw(st.sampled_from(sorted(reasons.ALLOWED_FROM[sender][kind].values())))
    fields = draw(properties(kind, version, sender))
    if kind is Disconnect:
        return Disconnect(code, **fields)
    fields.setdefault("authentication_method", draw(texts))
    return Auth(code, **fields)


def packets(version: Version, sender: Role) -> st.SearchStrategy[Packet]:
    """What one end may send once the connection is accepted."""
    both = publishes(version, sender) | acknowledgements(version) | _ends(version, sender)
    if sender is Role.CLIENT:
        return both | subscribes(version) | unsubscribes(version) | st.just(Pingreq())
    return both | connacks(version) | _results(version) | st.just(Pingresp())


@st.composite
def conversations(draw: st.DrawFn, version: Version, sender: Role) -> list[Packet]:
    """What one end sends over a connection: a client begins with CONNECT."""
    found = draw(st.lists(packets(version, sender), max_size=6))
    return [draw(connects(version)), *found] if sender is Role.CLIENT else found


def without_defaults(packet: Packet) -> dict[str, Any]:
    """The fields of a packet that say something."""
    fields = msgspec.structs.fields(type(packet))
    return {
        field.name: value
        for field in fields
        if (value := getattr(packet, field.name)) != field.default
    }
