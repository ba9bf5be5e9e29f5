"""Where clients go next, as far as a broker's settings say."""

from functools import lru_cache

import msgspec

from sterna.model.location import LocationSpace
from sterna.model.mobility import MobilityModel


class MobilityOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker knows of where clients went before."""

    model: bytes
    """The content of a model file. It is in the log, so that a broker that is recovered predicts
    what it predicted then, whatever has become of the file."""

    def __repr__(self) -> str:
        return f"MobilityOptions(model=<{len(self.model):,} bytes>)"

    def mined(self) -> MobilityModel:
        """The model itself; one serves all nodes of a process."""
        return _mined(self.model)

    def dwell_us_in(self, space: LocationSpace) -> int | None:
        """The shortest stay that was seen anywhere, if the model knows every location of a space.

        None: not known. Nobody has seen how long clients stay at a location that is not in the
        model, and a grid always has such locations.
        """
        model = self.mined()
        return model.least_dwell_us if model.knows_all_of(space) else None


@lru_cache(maxsize=8)
def _mined(content: bytes) -> MobilityModel:
    return MobilityModel.from_bytes(content)
