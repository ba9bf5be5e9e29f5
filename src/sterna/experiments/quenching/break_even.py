"""How many changes of subscriptions use up what quenching saves."""

from itertools import pairwise

from sterna.experiments.experiment import Point
from sterna.experiments.quenching.settings import (
    MEMBERS_MANY,
    MEMBERS_MAX,
    Measures,
    Points,
    Setting,
)


def break_even(curve: Points) -> float | None:
    """How many changes per event use up what quenching saves; None beyond what was tried."""
    for one, next_ in pairwise(curve):
        before, after = one.median.saved_per_event, next_.median.saved_per_event
        if before > 0 >= after:
            start, end = one.setting.change_rate, next_.setting.change_rate
            return start + (end - start) * before / (before - after)
    return None


def curves_of(points: Points) -> dict[float, list[Point[Setting, Measures]]]:
    """The points without variations, by match rate."""
    curves: dict[float, list[Point[Setting, Measures]]] = {}
    for point in points:
        setting = point.setting
        if not setting.disconnected and setting.interest_members_max == MEMBERS_MAX:
            curves.setdefault(setting.match_rate, []).append(point)
    return curves


def much_merged(points: Points) -> list[tuple[Point[Setting, Measures], float]]:
    """The points with more merging, and where they break even if each change costs the same."""
    curves = curves_of(points)
    found = []
    for point in points:
        if point.setting.interest_members_max == MEMBERS_MANY:
            still = curves[point.setting.match_rate][0].median.saved_per_event
            lost = still - point.median.saved_per_event
            found.append((point, point.setting.change_rate * still / lost))
    return found
