"""Where a client goes next: one interface for all sources of predictions.

A mobility model predicts from where clients went before, a movement graph from where they can go.
Without either, there is no prediction. Prefetching and virtual clients need not know which it is.
"""

from collections.abc import Sequence
from typing import Protocol

from sterna.model.location import LocationError, LocationSpace
from sterna.model.mobility import MobilityModel, Prediction

COUNT = 8
"""How many places a prediction names by default."""


class Predictor(Protocol):
    """Names the places, or the brokers, that a client probably goes to next."""

    def next(
        self,
        place: str,
        history: Sequence[str] = (),
        at: int | None = None,
        *,
        client: str | None = None,
        count: int = COUNT,
    ) -> tuple[Prediction, ...]:
        """The most probable places of a client that leaves `place`, best first, ties by name.

        `history` holds the places before this one, the latest last. `at` is the time of leaving in
        microseconds since 1970. Both and `client` may be left out. The place itself is never named,
        no place is named twice, and probabilities sum to at most 1: the rest is for other places.
        """
        ...


class ModelPredictor:
    """Predicts from a mined model: by client, place, previous place and time."""

    def __init__(self, model: MobilityModel) -> None:
        self._model = model

    def next(
        self,
        place: str,
        history: Sequence[str] = (),
        at: int | None = None,
        *,
        client: str | None = None,
        count: int = COUNT,
    ) -> tuple[Prediction, ...]:
        """The model's prediction for this client, its last place and this time of the week."""
        previous = history[-1] if history else None
        found = self._model.next(place, client, previous, at, count + 1)
        return tuple([each for each in found if each.place != place][:count])


class UniformPredictor:
    """Predicts from a movement graph or a grid: each neighbour is as probable as any other."""

    def __init__(self, space: LocationSpace) -> None:
        self._space = space

    def next(
        self,
        place: str,
        history: Sequence[str] = (),
        at: int | None = None,
        *,
        client: str | None = None,
        count: int = COUNT,
    ) -> tuple[Prediction, ...]:
        """The neighbours of the place; none if it is not in the space."""
        del history, at, client
        try:
            around = sorted(self._space.ploc(place, 1) - {place})
        except LocationError:
            return ()
        return tuple(Prediction(each, 1 / len(around)) for each in around[:count])


class NoPredictor:
    """Predicts nothing, for there is nothing to predict from."""

    def next(
        self,
        place: str,
        history: Sequence[str] = (),
        at: int | None = None,
        *,
        client: str | None = None,
        count: int = COUNT,
    ) -> tuple[Prediction, ...]:
        """No place at all."""
        del place, history, at, client, count
        return ()


def predictor(known: MobilityModel | LocationSpace | None) -> Predictor:
    """The predictor that makes the most of what is known."""
    if known is None:
        return NoPredictor()
    if isinstance(known, MobilityModel):
        return ModelPredictor(known)
    return UniformPredictor(known)
