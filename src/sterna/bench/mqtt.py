"""MQTT 3.1.1 for the load generator, as much of it as publishing and subscribing needs."""

from collections.abc import Sequence
from enum import IntEnum

from sterna.bench.speaker import Chunk, Content, Speaker, SpeakerError, payload, together

TOPICS = "bench/#"


class Qos(IntEnum):
    """The quality of service of a delivery."""

    AT_MOST_ONCE = 0
    AT_LEAST_ONCE = 1
    EXACTLY_ONCE = 2


class MqttSpeaker(Speaker):
    """A client of an MQTT broker. With QoS 1 and 2 it has a session that the broker keeps."""

    def __init__(self, name: str, filters: Sequence[str], qos: Qos) -> None:
        super().__init__(name, filters)
        self.acknowledges = qos is not Qos.AT_MOST_ONCE
        self._qos = qos
        self._number = 0
        self._rest = b""
        self._confirmations: list[bytes] = []
        self._received_head = b"\x50\x02" if qos is Qos.EXACTLY_ONCE else b"\x40\x02"

    def begin(self) -> None:
        self.is_ready = False
        self._rest = b""
        self._confirmations.clear()
        self.unconfirmed = 0
        is_clean = self._qos is Qos.AT_MOST_ONCE
        variable = _text("MQTT") + bytes([4, 2 if is_clean else 0, 0, 0])
        self._outgoing.append(_packet(_CONNECT, variable + _text(self.name)))

    def feed(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        start, end = 0, len(data)
        while end - start >= 2:
            kind, length, at = data[start], data[start + 1], start + 2
            if length & 0x80:
                if at == end:
                    break
                length, at = (length & 0x7F) | data[at] << 7, at + 1
                if length & 1 << 14:
                    raise SpeakerError("a packet longer than any the benchmark sends")
            if at + length > end:
                break
            if kind & 0xF0 == _PUBLISH:
                self._event_came(data, at)
            else:
                self._packet_came(kind & 0xF0, data[at : at + length])
            start = at + length
        self._rest = data[start:]

    def confirm(self) -> None:
        self.unconfirmed = 0
        self._outgoing += self._confirmations
        self._confirmations.clear()

    def encode(self, contents: Sequence[Content], batch: int) -> list[Chunk]:
        del batch  # MQTT has none: packets are only written together.
        frames = []
        for symbol, _price in contents:
            self._number += 1
            body = _text(f"bench/{symbol}")
            if self._qos:
                body += (self._number % _IDS_MAX + 1).to_bytes(2, "big")
            frames.append((_packet(_PUBLISH | self._qos << 1, body + payload(self._number)), 1))
        return together(frames)

    # ---- Incoming packets

    def _event_came(self, data: bytes, at: int) -> None:
        self.received += 1
        if not self._qos and self.numbers is None:
            return
        after = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if self._qos:
            self._confirmations.append(self._received_head + data[after : after + 2])
            self.unconfirmed += 1
            after += 2
        if self.numbers is not None:
            self.numbers.append(int.from_bytes(data[after : after + 8], "big"))

    def _packet_came(self, kind: int, body: bytes) -> None:
        if kind in (_PUBACK, _PUBCOMP):
            self.acknowledged += 1
        elif kind == _PUBREC:
            self._outgoing.append(b"\x62\x02" + body[:2])
        elif kind == _PUBREL:
            self._outgoing.append(b"\x70\x02" + body[:2])
        elif kind == _CONNACK:
            if body[1]:
                raise SpeakerError(f"the MQTT broker refused {self.name} with code {body[1]}")
            if self.filters and not body[0]:  # It does not know the session.
                wanted = _text(TOPICS) + bytes([self._qos])
                self._outgoing.append(_packet(_SUBSCRIBE | 2, b"\x00\x01" + wanted))
            else:
                self.is_ready = True
        elif kind == _SUBACK:
            self.is_ready = True


_CONNECT, _CONNACK, _PUBLISH, _PUBACK = 0x10, 0x20, 0x30, 0x40
_PUBREC, _PUBREL, _PUBCOMP = 0x50, 0x60, 0x70
_SUBSCRIBE, _SUBACK = 0x80, 0x90
_IDS_MAX = 65_535


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def _packet(kind: int, body: bytes) -> bytes:
    length = len(body)
    size = bytes([length]) if length < 0x80 else bytes([length & 0x7F | 0x80, length >> 7])
    return bytes([kind]) + size + body
