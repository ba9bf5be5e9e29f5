"""Events and filters of many kinds, for networks whose data is kept."""

import math
from collections.abc import Iterator

from sterna.model.event import INT_MAX, INT_MIN, Scalar
from tests.data.making_0_1.recording import Publication

FILTERS = (
    "price > 10",
    "price BETWEEN 5 AND 20.5",
    "kind IN ('car', 'bus', 'tram')",
    "kind NOT IN ('car', 'walk')",
    "name LIKE 'St_rn%'",
    "NOT (price <= 3) AND kind <> 'bus'",
    "kind = 'car' OR price < 0 OR flag = TRUE",
    "topic MATCHES 'city/+/temp/#'",
    "near(lat, lon, 52.52, 13.405, 900)",
    "within(lat, lon, 52.3, 13.0, 52.7, 13.8)",
    "within(lat, lon, 52.4, 13.2, 52.6, 13.2, 52.5, 13.6)",
    "city = 'Zürich' OR city = '東京' OR city = 'Кострома'",
    "extra IS NULL AND n >= 0",
    "big = 9223372036854775807 OR big <= -9223372036854775808",
    "price * 2 + n > 30 AND n <> 7",
    "odd > 1e308 OR odd = 0",
    "\"two words\" = 'it''s 🐦'",
)
"""One of each kind of condition."""

_KINDS = ("car", "bus", "tram", "walk")
_CITIES = ("Zürich", "東京", "Berlin", "Кострома")
_ODD = (math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308)
_BIG = (INT_MAX, INT_MIN, 0, -1, 2**53 + 1)


def publications(count: int, first: int = 0) -> Iterator[Publication]:
    """Events with attributes of all types, hard values among them, and with payloads."""
    for n in range(first, first + count):
        attributes: dict[str, Scalar] = {
            "n": n,
            "price": n * 1.25 - 6,
            "kind": _KINDS[n % 4],
            "name": ("Sterna", "Starn", "Tern")[n % 3],
            "topic": ("city/north/temp", "city/south/temp/now", "city/x")[n % 3],
            "lat": 52.5 + n % 7 / 100,
            "lon": 13.4 + n % 5 / 100,
            "city": _CITIES[n % 4],
            "flag": n % 3 == 0,
            "big": _BIG[n % 5],
            "odd": _ODD[n % 6],
        }
        if n % 4 == 1:
            attributes["extra"] = "here"
            attributes["two words"] = "it's 🐦"
        yield attributes, bytes(range(256)) if n == 13 else bytes(range(n % 5 * 4))


AFTERWARDS = [attributes for attributes, _ in publications(6, first=12)]
"""Events to be published when a network is open again."""
