"""The settings of the experiment on the variants of the search, and what is measured."""

from collections.abc import Sequence

import msgspec

from sterna.core.history.options import Search
from sterna.experiments.experiment import Point

BUFFER, DISTANCE, PUBLISHERS = 20, 4, 4
"""The settings, where they do not vary."""
PAYLOAD_BYTES = 64
EVENTS_MAX = 10
"""How many past events a subscriber asks for. (The paper's p.)"""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one run."""

    search: Search
    prepares: bool
    """Whether subscriptions without a past have brokers find out what they have all of, too."""
    buffer: int = BUFFER
    """How many events a broker keeps: of all that pass it, and of each of its own publishers."""
    distance: int = DISTANCE
    """How many brokers are between a subscriber's broker and a publisher's."""
    publishers: int = PUBLISHERS
    payload_bytes: int = PAYLOAD_BYTES
    subscribers: int = 24
    """How many there are; every second one asks for the past."""

    def searched_by(self, search: Search) -> "Setting":
        """The same settings with another variant."""
        return msgspec.structs.replace(self, search=search)


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What the searches of one run cost, and what they found.

    Messages and bytes are those between brokers, counted on each link.
    """

    searches: float
    """How many subscribers asked for the past."""
    questions: float
    """Messages `HistoryAsked`, the paper's *fetchHistory*."""
    expects: float
    """Messages `HistoryExpected`, the paper's *expect*."""
    answers: float
    """Messages `HistoryFound`, the paper's *replay*."""
    messages: float
    """All three."""
    question_bytes: float
    expect_bytes: float
    answer_bytes: float
    bytes: float
    list_bytes: float
    """The part of the questions that names what is known already. (The paper's list L.)"""
    carried: float
    """Past events in answers, counted on each link."""
    found: float
    """Events that subscribers had when their past had come, at most as many as they asked for."""
    past: float
    """Events in the answers alone, without those that came as usual meanwhile."""
    wanted: float
    """Matching events that had been published, at most as many as each subscriber asked for."""
    held: float
    """How many of these were at the brokers of their publishers."""
    lacking: float
    """Events that an answer lacks though the brokers of their publishers had them."""
    gapped: float
    """Subscribers that got a past with a gap between it and what followed."""
    regular_messages: float
    """All other messages between brokers: events, subscriptions, advertisements."""
    regular_bytes: float


Points = Sequence[Point[Setting, Measures]]


def by_variant(points: Points) -> dict[Setting, dict[Search, Point[Setting, Measures]]]:
    """The points of each place: of settings that differ in the variant only.

    A place is named by its settings with the first variant.
    """
    found: dict[Setting, dict[Search, Point[Setting, Measures]]] = {}
    for point in points:
        place = point.setting.searched_by(Search.NONE)
        found.setdefault(place, {})[point.setting.search] = point
    return found
