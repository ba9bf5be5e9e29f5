"""Devices that move: a filter with `myloc` follows where they say they are."""

import json
from typing import Any

import h3
import pytest

from sterna.devices.locating import LOCATION, place_in
from sterna.model.location import HexGrid, LocationError, LocationSpace, MovementGraph
from sterna.mqtt.packets import Puback, Pubrec, ReasonCode, Suback
from tests.devices.test_session import last
from tests.devices.world import Phone, World

pytestmark = pytest.mark.spec("LV-4", "LV-11")

GRID = HexGrid(9)
TOWN = MovementGraph([("hall", "kitchen"), ("kitchen", "garden")])
HERE = h3.latlng_to_cell(50.1, 8.7, 9)
TRACK = "owntracks/ann/phone"


def track(**more: Any) -> bytes:
    """A message of OwnTracks, with a few of its other members."""
    return json.dumps({"_type": "location", "tid": "an", "batt": 77, "tst": 1, **more}).encode()


@pytest.mark.parametrize(
    ("topic", "payload", "space", "expected"),
    [
        (LOCATION, b"hall", TOWN, "hall"),
        (LOCATION, HERE.encode(), GRID, HERE),
        (LOCATION, b"50.1,8.7", GRID, HERE),
        (LOCATION, b'{"lat": 50.1, "lon": 8.7}', GRID, HERE),
        (TRACK, track(lat=50.1, lon=8.7), GRID, HERE),
        (TRACK, track(lat=50.1, lon=8.7, inregions=["home", "hall"]), TOWN, "hall"),
        (TRACK, track(lat=50.1, lon=8.7), None, None),
        (TRACK, b'{"_type": "lwt", "tst": 1}', GRID, None),
        (TRACK, b"", GRID, None),
        (TRACK, b"[" * 9999, GRID, None),
        ("owntracks/ann/phone/event", track(lat=50.1, lon=8.7), GRID, None),
        ("owntracks/ann", track(lat=50.1, lon=8.7), GRID, None),
        ("$sterna/location/x", b"hall", TOWN, None),
    ],
)
def test_what_a_message_tells(
    topic: str, payload: bytes, space: LocationSpace | None, expected: str | None
) -> None:
    assert place_in(topic, payload, space) == expected


@pytest.mark.parametrize(
    ("topic", "payload", "space", "problem"),
    [
        (LOCATION, b"attic", TOWN, "no place 'attic'"),
        (LOCATION, b"hall", None, "has no places"),
        (LOCATION, b"\xff", TOWN, "UTF-8"),
        (LOCATION, b"", TOWN, "no place ''"),
        (LOCATION, b"hall", GRID, "H3 cell of resolution 9"),
        (LOCATION, b"91,0", GRID, "not a latitude"),
        (LOCATION, b"nan,0", GRID, "not a latitude"),
        (LOCATION, b'{"lat": 1}', GRID, "lat and lon"),
        (TRACK, track(lat=91, lon=0), GRID, "not a latitude"),
        (TRACK, track(lat=True, lon=0), GRID, "lat and lon"),
        (TRACK, track(lat=50.1, lon=8.7), TOWN, "none of its regions"),
        (TRACK, track(inregions="hall"), TOWN, "none of its regions"),
    ],
)
def test_what_is_no_location(
    topic: str, payload: bytes, space: LocationSpace | None, problem: str
) -> None:
    with pytest.raises(LocationError, match=problem):
        place_in(topic, payload, space)


def town(brokers: int, path: Any) -> World:
    graph = path / "town.csv"
    graph.write_text("hall,kitchen\nkitchen,garden\n")
    return World(brokers, places={"graph": str(graph)})


def say_everywhere(world: World, phone: Phone, word: str) -> None:
    """Publish something at each place."""
    for place in ("hall", "kitchen", "garden"):
        phone.publish("lamps", f"{word} {place}", user_properties=(("place", place),))
    world.run()


def test_a_filter_follows_the_device(tmp_path: Any) -> None:
    """Also when it has gone to another broker, and after a snapshot and kill -9 there."""
    world = town(3, tmp_path)
    bob = Phone(world, "bob").connect("b1")
    ann = Phone(world, "ann").connect("b3").publish(LOCATION, "hall")
    world.run()
    ann.publish(LOCATION, "hall").subscribe("$where(place IN myloc)/lamps")
    world.run()
    say_everywhere(world, bob, "1")
    ann.publish(LOCATION, "garden")
    world.run()
    say_everywhere(world, bob, "2")
    ann.connect("b2")
    world.run()
    say_everywhere(world, bob, "3")
    world.snapshot("b2")
    world.kill("b2")
    world.restart("b2")
    world.run()
    ann.connect("b2")
    world.wait(10)
    say_everywhere(world, bob, "4")
    ann.publish(LOCATION, "kitchen")
    world.run()
    say_everywhere(world, bob, "5")

    assert ann.received == ["1 hall", "2 garden", "3 garden", "4 garden", "5 kitchen"]


def test_owntracks_moves_a_device_and_is_published() -> None:
    world = World(1, places={"grid": 9})
    bob = Phone(world, "bob").connect("b1").subscribe("owntracks/#")
    ann = Phone(world, "ann").connect("b1")
    world.run()
    message = track(lat=50.1, lon=8.7).decode()
    ann.publish(TRACK, message)
    world.run()
    ann.subscribe("$where(cell IN myloc(1))/offers")
    world.run()
    assert last(ann, Suback).reason_codes == (ReasonCode.GRANTED_QOS_2,)
    near, far = h3.grid_ring(HERE, 1)[0], h3.grid_ring(HERE, 4)[0]
    for cell in (near, far):
        bob.publish("offers", cell, user_properties=(("cell", cell),))
    world.run()

    assert bob.received == [message]
    assert ann.received == [near]


def test_places_that_the_network_does_not_know(tmp_path: Any) -> None:
    """The device is told why, stays where it was, and goes on."""
    world = town(1, tmp_path)
    ann = Phone(world, "ann").connect("b1").publish(LOCATION, "hall")
    bob = Phone(world, "bob").connect("b1").subscribe(LOCATION)
    world.run()
    ann.subscribe("$where(place IN myloc)/lamps")
    world.run()
    ann.publish(LOCATION, "attic", 1)
    world.run()
    assert last(ann, Puback).reason_code is ReasonCode.PAYLOAD_FORMAT_INVALID
    assert "no place 'attic'" in last(ann, Puback).reason_string
    ann.publish(LOCATION, "cellar", 2)
    world.run()
    assert last(ann, Pubrec).reason_code is ReasonCode.PAYLOAD_FORMAT_INVALID
    ann.publish(LOCATION, "loft", 0).publish(TRACK, track(lat=1, lon=1).decode())
    world.run()
    assert world.devices_at("b1").ignored == {"place": 4}
    say_everywhere(world, bob, "still")

    assert ann.received == ["still hall"]
    assert bob.received == []


def test_a_filter_with_myloc_needs_a_place(tmp_path: Any) -> None:
    """Without one, it is refused with the reason; the session goes on."""
    world = town(1, tmp_path)
    ann = Phone(world, "ann").connect("b1").subscribe("$where(place IN myloc)/lamps", "lamps")
    world.run()
    suback = last(ann, Suback)
    assert suback.reason_codes == (ReasonCode.TOPIC_FILTER_INVALID, ReasonCode.GRANTED_QOS_2)
    assert LOCATION in suback.reason_string
    ann.publish(LOCATION, "hall").subscribe("$share/s/$where(place IN myloc)/lamps")
    world.run()
    assert last(ann, Suback).reason_codes == (ReasonCode.TOPIC_FILTER_INVALID,)
    nowhere = World(1)
    bob = Phone(nowhere, "bob").connect("b1").subscribe("$where(place IN myloc)/lamps")
    nowhere.run()
    assert last(bob, Suback).reason_codes == (ReasonCode.TOPIC_FILTER_INVALID,)
    assert "no places" in last(bob, Suback).reason_string


def test_retained_messages_of_the_place_come_first(tmp_path: Any) -> None:
    world = town(1, tmp_path)
    bob = Phone(world, "bob").connect("b1")
    for place in ("hall", "garden"):
        properties = (("place", place),)
        bob.publish(f"lamps/{place}", place, retain=True, user_properties=properties)
    ann = Phone(world, "ann").connect("b1").publish(LOCATION, "hall")
    world.run()
    ann.publish(LOCATION, "hall")
    ann.subscribe("$where(place IN myloc)/lamps/#")
    world.run()

    assert ann.received == ["hall"]
