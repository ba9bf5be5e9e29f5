"""Where a device is, by what it publishes: to a topic for that, or as OwnTracks does."""

from typing import Any

from sterna.devices.documents import object_in
from sterna.model.location import HexGrid, LocationError, LocationSpace

LOCATION = "$sterna/location"
"""Who publishes a location to this topic is there."""

OWNTRACKS = "owntracks/"
"""Locations of OwnTracks are published to `owntracks/USER/DEVICE`."""

TOPICS = (LOCATION, OWNTRACKS)
"""How the topics begin of all messages that may tell where a device is."""


def place_in(topic: str, payload: bytes, space: LocationSpace | None) -> str | None:
    """The location that a message tells; None if it tells none.

    A LocationError says why it is no location of this network.
    """
    if topic == LOCATION:
        if space is None:
            raise LocationError("the network has no places ([places] in the files of its brokers)")
        return _given(payload, space)
    if space is None or not topic.startswith(OWNTRACKS) or topic.count("/") != 2:
        return None
    found = object_in(payload)
    if found is None or found.get("_type") != "location":
        return None
    if isinstance(space, HexGrid):
        return _at(found, space)
    regions = found.get("inregions", [])
    names = regions if isinstance(regions, list) else []
    place = next((each for each in names if isinstance(each, str) and each in space), None)
    if place is None:
        raise LocationError("none of its regions is a place of the network")
    return place


def _given(payload: bytes, space: LocationSpace) -> str:
    """A location by its name; in a grid also by latitude and longitude."""
    try:
        text = payload.decode()
    except UnicodeError:
        raise LocationError("a location is text in UTF-8") from None
    if text in space:
        return text
    if isinstance(space, HexGrid):
        found = object_in(payload)
        if found is not None:
            return _at(found, space)
        try:
            latitude, longitude = map(float, text.split(","))
        except ValueError:
            pass
        else:
            return space.locate(latitude, longitude)
        forms = f"an H3 cell of resolution {space.resolution}, LATITUDE,LONGITUDE or an object"
        raise LocationError(f"{text[:60]!r} is no location: it is {forms} with lat and lon")
    raise LocationError(f"there is no place {text[:60]!r} in the network")


def _at(document: dict[str, Any], grid: HexGrid) -> str:
    return grid.locate(_number(document.get("lat")), _number(document.get("lon")))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LocationError("a position has numbers lat and lon")
    return value
