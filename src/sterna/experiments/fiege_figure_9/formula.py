"""Appendix B.2: how many messages the paper computes."""

from sterna.core.location.steps import StepRule
from sterna.core.routing.options import Strategy
from sterna.experiments.fiege_figure_9.settings import (
    DEGREE,
    FACTOR,
    FAST_MS,
    LEVELS,
    PLACES,
    PRODUCERS,
    SLOW_MS,
    Setting,
)
from sterna.sim.topology import tree


def formula_messages(setting: Setting) -> float:
    """What the paper computes for one consumer at the root: N_n(t), or N_f(t) for flooding."""
    topology = tree(DEGREE, setting.levels)
    per_second = PRODUCERS * len(topology.leaves()) * setting.rate
    if setting.strategy is Strategy.FLOODING:
        return per_second * len(topology.links) * setting.seconds
    return formula(setting.rule, setting.dwell_s, setting.seconds, setting.levels, setting.rate)


def formula(
    rule: StepRule, dwell_s: int, t: float, levels: int = LEVELS, rate: float = 1.0
) -> float:
    """Restricted flooding over the leaves' links and the others, and control messages.

    For Δ = 1 s the paper has a control message more with each move, one for each broker.
    """
    n_lb: int = DEGREE ** (levels - 1)
    n_b: int = sum(DEGREE**level for level in range(levels))
    n_links = n_b - 1
    n_rest = n_links - n_lb
    n_ps = n_lb * PRODUCERS * rate
    near = SLOW_MS + (levels - 2) * FAST_MS
    share_rest = _share(rule, near, dwell_s)
    share_lb = _share(rule, near + SLOW_MS, dwell_s)
    control = t * n_b if dwell_s == 1 else n_links * (t // dwell_s)
    return n_ps * (n_lb * share_lb + n_rest * share_rest) * t + control


def _share(rule: StepRule, delay_ms: int, dwell_s: int) -> float:
    """The fraction of all events that a filter lets through at such a distance."""
    steps = rule.steps(2 * delay_ms * 1_000, dwell_s * 1_000_000)
    return 1.0 if steps is None else min(int(FACTOR**steps), PLACES) / PLACES
