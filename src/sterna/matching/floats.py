"""Numbers as floats: exact ones as they are, large integers with the remainder."""

import math
import sys

EXACT_MAX = 2**53
"""Up to here every integer is a float."""


def is_float(number: float) -> bool:
    """Whether a number is a float, or an integer that is one as well."""
    return type(number) is float or -EXACT_MAX <= number <= EXACT_MAX


def floor(number: float) -> tuple[float, float]:
    """The largest float up to a number, and the remainder."""
    if is_float(number):
        return float(number), 0.0
    try:
        nearest = float(number)
    except OverflowError:  # Beyond all finite floats.
        return (sys.float_info.max if number > 0 else -math.inf), 1.0
    if nearest > number:
        nearest = math.nextafter(nearest, -math.inf)
    return nearest, float(number - int(nearest))
