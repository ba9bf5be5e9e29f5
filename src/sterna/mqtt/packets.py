"""The packets of MQTT 3.1.1 and 5.0: one record per kind of packet for both versions.

What only 5.0 has is absent by default. What is absent or equals its default is not sent. A packet
identifier of 0 stands for none.
"""

from enum import Enum, IntEnum

import msgspec

from sterna.errors import SternaError

UserProperties = tuple[tuple[str, str], ...]
"""Names and values in the order in which they were sent; a name may come more than once."""


class Version(IntEnum):
    """A version of the protocol, by the number that CONNECT gives it."""

    V311 = 4
    V5 = 5


class Role(Enum):
    """Which end of a connection somebody is."""

    CLIENT = "client"
    SERVER = "server"


class ReasonCode(IntEnum):
    """The result of a request, or the reason of a disconnection. From 0x80 on it is a failure."""

    SUCCESS = 0x00
    NORMAL_DISCONNECTION = 0x00
    GRANTED_QOS_0 = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2

    @property
    def is_failure(self) -> bool:
        """Whether what was asked for was not done."""
        return self >= 0x80


class MqttError(SternaError):
    """The other end has sent what MQTT forbids: it is told the reason code, and disconnected."""

    def __init__(
        self, reason_code: ReasonCode, what: str, *, before: "list[Packet] | None" = None
    ) -> None:
        super().__init__(what)
        self.reason_code = reason_code
        """What DISCONNECT, or the CONNACK that answers a bad CONNECT, says."""
        self.before: list[Packet] = before or []
        """The packets of the same bytes that came before, and are good."""


class Packet(msgspec.Struct, frozen=True, gc=False):
    """Anything that a client and a server send each other."""


class Will(Packet, frozen=True, gc=False):
    """Part of CONNECT: what the server publishes for the client when its connection breaks."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    delay_s: int = 0
    payload_is_text: bool = False
    """Payload Format Indicator: the publisher says that the payload is UTF-8."""
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: UserProperties = ()


class Connect(Packet, frozen=True, gc=False, kw_only=True):
    """Client -> server: the first packet of a connection."""

    version: Version = Version.V5
    client_id: str = ""
    """Empty: the server chooses one."""
    clean_start: bool = True
    """Called Clean Session in 3.1.1, where the session also ends with the connection."""
    keep_alive_s: int = 0
    user_name: str | None = None
    password: bytes | None = None
    will: Will | None = None
    session_expiry_s: int = 0
    """0xFFFFFFFF: never. A connection of 3.1.1 has 0 here; what counts there is `clean_start`."""
    receive_maximum: int = 65535
    maximum_packet_size: int | None = None
    topic_alias_maximum: int = 0
    wants_response_information: bool = False
    wants_problem_information: bool = True
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    user_properties: UserProperties = ()


class Connack(Packet, frozen=True, gc=False, kw_only=True):
    """Server -> client: the answer to CONNECT."""

    session_present: bool = False
    reason_code: ReasonCode = ReasonCode.SUCCESS
    """In 3.1.1 the nearest of its five return codes is sent, and read as the code it stands for."""
    session_expiry_s: int | None = None
    """What the server uses if it is not what the client has asked for."""
    receive_maximum: int = 65535
    maximum_qos: int = 2
    retain_available: bool = True
    maximum_packet_size: int | None = None
    assigned_client_id: str | None = None
    topic_alias_maximum: int = 0
    reason_string: str | None = None
    wildcard_subscription_available: bool = True
    subscription_identifiers_available: bool = True
    shared_subscription_available: bool = True
    server_keep_alive_s: int | None = None
    """What the client must use instead of the time it has asked for."""
    response_information: str | None = None
    server_reference: str | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    user_properties: UserProperties = ()


class Publish(Packet, frozen=True, gc=False):
    """Either way: an application message."""

    topic: str
    """Empty if the topic alias stands for it."""
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    payload_is_text: bool = False
    """Payload Format Indicator: the publisher says that the payload is UTF-8."""
    message_expiry_s: int | None = None
    topic_alias: int | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    content_type: str | None = None
    subscription_identifiers: tuple[int, ...] = ()
    user_properties: UserProperties = ()


class Acknowledgement(Packet, frozen=True, gc=False):
    """The answer to a PUBLISH, PUBREC or PUBREL."""

    packet_id: int
    reason_code: ReasonCode = ReasonCode.SUCCESS
    reason_string: str | None = None
    user_properties: UserProperties = ()


class Puback(Acknowledgement, frozen=True, gc=False):
    """Either way: a PUBLISH with QoS 1 has arrived."""


class Pubrec(Acknowledgement, frozen=True, gc=False):
    """Either way: a PUBLISH with QoS 2 has arrived."""


class Pubrel(Acknowledgement, frozen=True, gc=False):
    """Either way: PUBREC has arrived, the packet identifier will not be sent again."""


class Pubcomp(Acknowledgement, frozen=True, gc=False):
    """Either way: PUBREL has arrived, the packet identifier is free."""


class SubscriptionRequest(Packet, frozen=True, gc=False):
    """Part of SUBSCRIBE: a topic filter and how what matches it shall be sent."""

    topic_filter: str
    """As it was sent, with `$share/NAME/` in front if it is a shared subscription."""
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    """0: send what is retained; 1: only if the subscription is new; 2: do not."""


class Subscribe(Packet, frozen=True, gc=False):
    """Client -> server: subscriptions, at least one."""

    packet_id: int
    requests: tuple[SubscriptionRequest, ...]
    subscription_identifier: int | None = None
    user_properties: UserProperties = ()


class Suback(Packet, frozen=True, gc=False):
    """Server -> client: the result of each request of a SUBSCRIBE, in its order."""

    packet_id: int
    reason_codes: tuple[ReasonCode, ...]
    """In 3.1.1 any failure is sent as 0x80."""
    reason_string: str | None = None
    user_properties: UserProperties = ()


class Unsubscribe(Packet, frozen=True, gc=False):
    """Client -> server: topic filters of subscriptions that end, at least one."""

    packet_id: int
    topic_filters: tuple[str, ...]
    user_properties: UserProperties = ()


class Unsuback(Packet, frozen=True, gc=False):
    """Server -> client: the result for each topic filter of an UNSUBSCRIBE, in its order."""

    packet_id: int
    reason_codes: tuple[ReasonCode, ...] = ()
    """3.1.1 does not send them: empty there."""
    reason_string: str | None = None
    user_properties: UserProperties = ()


class Pingreq(Packet, frozen=True, gc=False):
    """Client -> server: are you there?"""


class Pingresp(Packet, frozen=True, gc=False):
    """Server -> client: yes."""


class Disconnect(Packet, frozen=True, gc=False):
    """The last packet of a connection: either way in 5.0, from the client in 3.1.1."""

    reason_code: ReasonCode = ReasonCode.NORMAL_DISCONNECTION
    session_expiry_s: int | None = None
    """What the client asks for instead of what its CONNECT has said."""
    reason_string: str | None = None
    server_reference: str | None = None
    user_properties: UserProperties = ()


class Auth(Packet, frozen=True, gc=False):
    """Either way, 5.0 only: a step of an enhanced authentication."""

    reason_code: ReasonCode = ReasonCode.SUCCESS
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    reason_string: str | None = None
    user_properties: UserProperties = ()
