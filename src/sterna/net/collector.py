"""How Python's garbage collector works in a broker: a little at a time, however much is kept.

What a broker keeps makes no cycles, and neither does what passes through it. Still, cycles may come
from anywhere, an exception with its traceback for one, so new objects are searched for them. Those
that survive are never looked at again: to search everything would stop the broker for as long as it
has much to keep.
"""

import gc

YOUNG_OBJECTS = 2_000
"""The youngest objects are searched when there are so many more than before."""
YOUNG_SEARCHES = 4
"""After so many searches of the youngest, their survivors are searched once more, and kept."""
NEVER = 1_000_000_000


def spare_the_collector() -> None:
    """Search objects for cycles while they are young, and then never again.

    The memory of a cycle that is dropped later than that is lost until the process ends. Objects
    without cycles are freed at once, as always.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_SEARCHES, NEVER)
