"""Reads the mobility model that a configuration names."""

from pathlib import Path

from sterna.core.mobility import MobilityOptions
from sterna.model.location import LocationError
from sterna.model.mobility import MobilityModelError, content_of


def mobility_in(path: str | Path) -> MobilityOptions:
    """Read the model in a file. A MobilityModelError says what is wrong and what to do."""
    options = MobilityOptions(model=content_of(path))
    try:
        graph = options.mined().graph()
    except LocationError as error:
        raise MobilityModelError(f"{path}: {error}") from None
    if not graph.locations:
        raise MobilityModelError(f"{path}: holds no places: mine it where clients moved")
    return options
