"""Reads each kind of packet but PUBLISH from what follows its fixed header."""

from collections.abc import Callable
from functools import lru_cache

from sterna.mqtt import reasons
from sterna.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    MqttError,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
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
from sterna.mqtt.properties import FORBIDDEN
from sterna.mqtt.reading import (
    Fields,
    breach,
    malformed,
    read_binary,
    read_int16,
    read_packet_id,
    read_properties,
    read_text,
)
from sterna.mqtt.topics import why_no_topic_name

CheckFilter = Callable[[str, Version], str | None]
"""Says what is wrong with a topic filter; None if nothing is."""


def protocol_version(body: bytes) -> tuple[Version | None, bool]:
    """In which version to answer a CONNECT, None if it is not MQTT; and whether it can be read."""
    name, at = read_text(body, 0, len(body))
    if name not in {"MQTT", "MQIsdp"}:
        return None, False
    # Some bridges set the highest bit.
    level = body[at] & 0x7F
    version = Version.V311 if level <= Version.V311 else Version.V5
    return version, name == "MQTT" and body[at] == version


def read_connect(body: bytes, version: Version) -> Connect:
    """A CONNECT whose version is known."""
    end, at = len(body), 7  # Behind the name and the level.
    flags, keep_alive_s, at = body[at], read_int16(body, at + 1), at + 3
    has_will, will_qos, will_retain = flags & 4, flags >> 3 & 3, bool(flags & 0x20)
    has_password, has_user_name = flags & 0x40, flags & 0x80
    if flags & 1:
        raise malformed("the reserved flag of CONNECT is set")
    if will_qos == 3 or (not has_will and flags & 0x38):
        raise malformed("CONNECT has a will with QoS 3, or flags of a will without one")
    if version is Version.V311 and has_password and not has_user_name:
        raise malformed("CONNECT has a password without a user name, which MQTT 3.1.1 forbids")
    fields, at = _properties(Connect, body, at, version)
    client_id, at = read_text(body, at, end)
    will = None
    if has_will:
        of_will, at = _properties(Will, body, at, version)
        topic, at = read_text(body, at, end)
        if why := why_no_topic_name(topic):
            raise malformed(f"the will: {why}")
        payload, at = read_binary(body, at, end)
        will = Will(topic, payload, will_qos, will_retain, **of_will)
    user_name = password = None
    if has_user_name:
        user_name, at = read_text(body, at, end)
    if has_password:
        password, at = read_binary(body, at, end)
    _ends("CONNECT", body, at)
    clean_start = bool(flags & 2)
    if version is Version.V311 and not client_id and not clean_start:
        raise MqttError(
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            "a client without an identifier asks for a session that is kept",
        )
    if "authentication_data" in fields and "authentication_method" not in fields:
        raise breach("CONNECT has authentication data without a method")
    return Connect(
        version=version,
        client_id=client_id,
        clean_start=clean_start,
        keep_alive_s=keep_alive_s,
        user_name=user_name,
        password=password,
        will=will,
        **fields,
    )


class BodyReader:
    """Reads the packets that one end sends in one version."""

    def __init__(self, version: Version, sender: Role, check_filter: CheckFilter) -> None:
        self._version = version
        self._is_5 = version is Version.V5
        self._check_filter = check_filter
        self._reasons = reasons.ALLOWED | reasons.ALLOWED_FROM[sender]
        self._forbidden = FORBIDDEN[sender]

    def read_connack(self, body: bytes) -> Connack:
        flags, code = body[0], body[1]
        if flags > 1:
            raise malformed("the reserved flags of CONNACK are set")
        if self._is_5:
            reason_code = self._reason(Connack, code)
        elif code in reasons.CONNACK_311:
            reason_code = reasons.CONNACK_311[code]
        else:
            raise breach(f"CONNACK has the return code {code}, which MQTT 3.1.1 has not")
        if flags and reason_code.is_failure:
            raise breach("CONNACK refuses a connection and says that a session is present")
        fields, at = _properties(Connack, body, 2, self._version)
        _ends("CONNACK", body, at)
        return Connack(session_present=flags == 1, reason_code=reason_code, **fields)

    def read_puback(self, body: bytes) -> Acknowledgement:
        return self._acknowledgement(Puback, body)

    def read_pubrec(self, body: bytes) -> Acknowledgement:
        return self._acknowledgement(Pubrec, body)

    def read_pubrel(self, body: bytes) -> Acknowledgement:
        return self._acknowledgement(Pubrel, body)

    def read_pubcomp(self, body: bytes) -> Acknowledgement:
        return self._acknowledgement(Pubcomp, body)

    def read_subscribe(self, body: bytes) -> Subscribe:
        packet_id = read_packet_id(body, 0)
        fields, at = _properties(Subscribe, body, 2, self._version)
        requests = []
        while at < len(body):
            topic_filter, at = self._topic_filter(body, at)
            requests.append(self._request(topic_filter, body[at]))
            at += 1
        if not requests:
            raise breach("SUBSCRIBE has no topic filter")
        return Subscribe(packet_id, tuple(requests), **fields)

    def read_suback(self, body: bytes) -> Suback:
        packet_id = read_packet_id(body, 0)
        fields, at = _properties(Suback, body, 2, self._version)
        return Suback(packet_id, self._reason_codes(Suback, body[at:]), **fields)

    def read_unsubscribe(self, body: bytes) -> Unsubscribe:
        packet_id = read_packet_id(body, 0)
        fields, at = _properties(Unsubscribe, body, 2, self._version)
        topic_filters = []
        while at < len(body):
            topic_filter, at = self._topic_filter(body, at)
            topic_filters.append(topic_filter)
        if not topic_filters:
            raise breach("UNSUBSCRIBE has no topic filter")
        return Unsubscribe(packet_id, tuple(topic_filters), **fields)

    def read_unsuback(self, body: bytes) -> Unsuback:
        packet_id = read_packet_id(body, 0)
        if not self._is_5:
            _ends("UNSUBACK", body, 2)
            return Unsuback(packet_id)
        fields, at = _properties(Unsuback, body, 2, self._version)
        return Unsuback(packet_id, self._reason_codes(Unsuback, body[at:]), **fields)

    def read_pingreq(self, body: bytes) -> Pingreq:
        _ends("PINGREQ", body, 0)
        return Pingreq()

    def read_pingresp(self, body: bytes) -> Pingresp:
        _ends("PINGRESP", body, 0)
        return Pingresp()

    def read_disconnect(self, body: bytes) -> Disconnect:
        if not self._is_5:
            _ends("DISCONNECT", body, 0)
        if not body:
            return Disconnect()
        reason_code, fields = self._reason_and_properties(Disconnect, body, 0)
        return Disconnect(reason_code, **fields)

    def read_auth(self, body: bytes) -> Auth:
        # What is cut short says success, which only a server may say.
        reason_code, fields = self._reason_and_properties(Auth, body or b"\0", 0)
        if "authentication_method" not in fields and body:
            raise breach("AUTH has no authentication method")
        return Auth(reason_code, **fields)

    def _acknowledgement(self, kind: type[Acknowledgement], body: bytes) -> Acknowledgement:
        packet_id = read_packet_id(body, 0)
        if not self._is_5:
            _ends(kind.__name__.upper(), body, 2)
        if len(body) == 2:
            return kind(packet_id)
        reason_code, fields = self._reason_and_properties(kind, body, 2)
        return kind(packet_id, reason_code, **fields)

    def _reason_and_properties(
        self, kind: type[Packet], body: bytes, at: int
    ) -> tuple[ReasonCode, Fields]:
        """A reason code, and properties unless the packet ends before them."""
        reason_code = self._reason(kind, body[at])
        if len(body) == at + 1:
            return reason_code, {}
        fields, end = read_properties(kind, body, at + 1)
        _ends(kind.__name__.upper(), body, end)
        for field in self._forbidden.get(kind, ()):
            if field in fields:
                raise breach(f"{kind.__name__.upper()} has the property {field}, not from this end")
        return reason_code, fields

    def _reason(self, kind: type[Packet], code: int) -> ReasonCode:
        reason_code = self._reasons[kind].get(code)
        if reason_code is None:
            raise breach(f"{kind.__name__.upper()} has the reason code {code:#04x}")
        return reason_code

    def _reason_codes(self, kind: type[Packet], codes: bytes) -> tuple[ReasonCode, ...]:
        if not codes:
            raise breach(f"{kind.__name__.upper()} has no reason code")
        if self._is_5:
            return tuple([self._reason(kind, code) for code in codes])
        if any(code not in reasons.SUBACK_311 for code in codes):
            raise breach("SUBACK has a return code that MQTT 3.1.1 has not")
        return tuple([reasons.SUBACK_311[code] for code in codes])

    def _topic_filter(self, body: bytes, at: int) -> tuple[str, int]:
        topic_filter, at = read_text(body, at, len(body))
        if why := self._check_filter(topic_filter, self._version):
            raise malformed(why)
        return topic_filter, at

    def _request(self, topic_filter: str, options: int) -> SubscriptionRequest:
        qos = options & 3
        if options & (0xC0 if self._is_5 else 0xFC):
            raise malformed("a reserved bit of a subscription is set")
        if qos == 3:
            # The one version calls it malformed, the other one a protocol error.
            raise (breach if self._is_5 else malformed)("a subscription has QoS 3")
        if not options:
            return SubscriptionRequest(topic_filter)
        no_local, retain_handling = bool(options & 4), options >> 4
        if retain_handling == 3:
            raise breach("a subscription has the retain handling 3")
        if no_local and topic_filter.startswith("$share/"):
            raise breach("a shared subscription is without what the client itself publishes")
        return SubscriptionRequest(topic_filter, qos, no_local, bool(options & 8), retain_handling)


@lru_cache(maxsize=64)
def readers(
    version: Version, sender: Role, check_filter: CheckFilter
) -> dict[int, Callable[[bytes], Packet]]:
    """What reads the packets that one end sends after CONNECT, by their first byte."""
    of = BodyReader(version, sender, check_filter)
    found: dict[int, Callable[[bytes], Packet]] = {
        0x40: of.read_puback,
        0x50: of.read_pubrec,
        0x62: of.read_pubrel,
        0x70: of.read_pubcomp,
    }
    if sender is Role.CLIENT:
        found |= {0x82: of.read_subscribe, 0xA2: of.read_unsubscribe, 0xC0: of.read_pingreq}
        found |= {0xE0: of.read_disconnect}
    else:
        found |= {0x20: of.read_connack, 0x90: of.read_suback, 0xB0: of.read_unsuback}
        found |= {0xD0: of.read_pingresp}
    if version is Version.V5:
        found |= {0xE0: of.read_disconnect, 0xF0: of.read_auth}
    return found


def _properties(kind: type[Packet], body: bytes, at: int, version: Version) -> tuple[Fields, int]:
    return read_properties(kind, body, at) if version is Version.V5 else ({}, at)


def _ends(name: str, body: bytes, at: int) -> None:
    if len(body) != at:
        raise malformed(f"{name} has another length than its content")
