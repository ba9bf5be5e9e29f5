"""Makes the steps of a script from things that happen at certain times."""

import random

from sterna.core.names import Time
from sterna.sim.script import AnyStep, Wait

Plan = list[tuple[Time, AnyStep]]
"""Steps and their times, in any order."""


def timed(plan: Plan) -> list[AnyStep]:
    """The steps in the order of their times, with waits in between."""
    steps: list[AnyStep] = []
    now = 0
    for at, step in sorted(plan, key=lambda each: each[0]):
        if at > now:
            steps.append(Wait(us=at - now))
            now = at
        steps.append(step)
    return steps


def at_any_time(rng: random.Random, per_second: float, end_us: Time) -> list[Time]:
    """The times of a Poisson process with so many in a second."""
    times: list[Time] = []
    at = rng.expovariate(per_second) * 1e6
    while at < end_us:
        times.append(round(at))
        at += rng.expovariate(per_second) * 1e6
    return times
