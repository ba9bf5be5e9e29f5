"""How sure a mean over few seeds is: confidence intervals by Student's t."""

import math
import statistics
from collections.abc import Sequence
from functools import cache

CONFIDENCE = 0.95


def margin(values: Sequence[float]) -> float:
    """Half the confidence interval of the mean: the interval is mean ± margin. Two values at least.

    It takes the values for a sample of a normal distribution. (Student, 1908)
    """
    return student_t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


@cache
def student_t(freedom: int) -> float:
    """The value that t exceeds in either direction with a probability of 1 - CONFIDENCE."""
    low, high = 0.0, math.pi / 2
    while (middle := (low + high) / 2) not in {low, high}:
        if _within(middle, freedom) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """The probability that |t| is at most tan(angle) * sqrt(freedom).

    Abramowitz and Stegun, 26.7.3 (odd degrees of freedom) and 26.7.4 (even ones).
    """
    is_odd = freedom % 2
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for exponent in range(is_odd, freedom - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (exponent + 1) / (exponent + 2)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if is_odd else total
