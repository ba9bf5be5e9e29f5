"""Packets as real clients and servers send them, for the tests that damage them."""

from sterna.mqtt.encoder import encode
from sterna.mqtt.packets import (
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

_USER = (("unit", "m"), ("unit", "s"))

BOTH: list[Packet] = [
    Publish("fleet/car-17/position", b'{"lat": 52.5, "lon": 13.4}'),
    Publish("fleet/car-17/position", b"x" * 200, 1, packet_id=17, retain=True),
    Publish("a", b"", 2, dup=True, packet_id=65535),
    Puback(17),
    Pubrec(18),
    Pubrel(18),
    Pubcomp(18),
]
BOTH_5: list[Packet] = [
    Publish(
        *("fleet/car-17/position", b"text", 1, False, False, 9, True, 3600, 5, "answers/17"),
        *(b"\0\1\2", "text/plain", (), _USER),
    ),
    Publish("", b"by alias", topic_alias=5),
    Puback(17, ReasonCode.NO_MATCHING_SUBSCRIBERS),
    Pubrec(17, ReasonCode.QUOTA_EXCEEDED, "too many", _USER),
    Auth(ReasonCode.CONTINUE_AUTHENTICATION, "SCRAM-SHA-1", b"data", "go on", _USER),
]
OF_CLIENTS: list[Packet] = [
    Subscribe(
        3, (SubscriptionRequest("fleet/+/position", 1), SubscriptionRequest("$share/g/#", 2))
    ),
    Unsubscribe(4, ("fleet/+/position", "#")),
    Pingreq(),
    Disconnect(),
]
OF_CLIENTS_5: list[Packet] = [
    Subscribe(
        5,
        (SubscriptionRequest("fleet/#", 2, no_local=True, retain_handling=2),),
        subscription_identifier=300,
        user_properties=(("where", "speed > 50"),),
    ),
    Unsubscribe(6, ("fleet/#",), _USER),
    Disconnect(ReasonCode.DISCONNECT_WITH_WILL, 120, "bye", None, _USER),
]
OF_SERVERS: list[Packet] = [
    Connack(session_present=True),
    Connack(reason_code=ReasonCode.NOT_AUTHORIZED),
    Suback(3, (ReasonCode.GRANTED_QOS_1, ReasonCode.UNSPECIFIED_ERROR)),
    Pingresp(),
]
OF_SERVERS_5: list[Packet] = [
    Connack(
        session_expiry_s=60,
        receive_maximum=20,
        maximum_qos=1,
        maximum_packet_size=100_000,
        assigned_client_id="auto-7",
        topic_alias_maximum=16,
        reason_string="welcome",
        server_keep_alive_s=30,
        response_information="answers/",
        server_reference="127.0.0.1:1884",
        shared_subscription_available=False,
        user_properties=_USER,
    ),
    Publish("fleet/car-17/position", b"text", subscription_identifiers=(1, 300, 70_000)),
    Suback(5, (ReasonCode.QUOTA_EXCEEDED, ReasonCode.GRANTED_QOS_2), "too many", _USER),
    Unsuback(6, (ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED), "gone", _USER),
    Disconnect(ReasonCode.SERVER_MOVED, None, "go", "127.0.0.1:1885", _USER),
]


def connect(version: Version) -> Connect:
    """A CONNECT with everything."""
    will = Will("fleet/car-17/gone", b"gone", 1, retain=True)
    if version is Version.V311:
        return Connect(
            version=version, client_id="car-17", will=will, user_name="car", password=b"secret"
        )
    return Connect(
        client_id="car-17",
        clean_start=False,
        keep_alive_s=60,
        user_name="car",
        password=b"secret",
        will=Will(
            *("fleet/car-17/gone", b"gone", 2, False, 30, True, 600, "text/plain", "answers"),
            *(b"17", _USER),
        ),
        session_expiry_s=3600,
        receive_maximum=10,
        maximum_packet_size=65536,
        topic_alias_maximum=8,
        wants_response_information=True,
        wants_problem_information=False,
        authentication_method="SCRAM-SHA-1",
        authentication_data=b"data",
        user_properties=_USER,
    )


def packets(version: Version, sender: Role) -> list[Packet]:
    """All kinds of packets that one end sends; a client begins with CONNECT."""
    found = list(BOTH)
    is_5 = version is Version.V5
    found += BOTH_5 if is_5 else []
    if sender is Role.CLIENT:
        found += [*OF_CLIENTS, *(OF_CLIENTS_5 if is_5 else [])]
        return [connect(version), *found]
    found += [*OF_SERVERS, *(OF_SERVERS_5 if is_5 else [Unsuback(6)])]
    return found


def stream(version: Version, sender: Role) -> list[bytes]:
    return [encode(packet, version) for packet in packets(version, sender)]
