"""What the paper claims of Figure 9, and whether it came out."""

from sterna.core.location.steps import StepRule
from sterna.core.routing.options import Strategy
from sterna.experiments.experiment import Claim
from sterna.experiments.fiege_figure_9.settings import (
    EXPECTED,
    Measures,
    Points,
    Skew,
    alone,
    crowded,
    dwells,
)


def claims(points: Points) -> list[Claim]:
    """What the paper computes and claims, beside what came out."""
    made = []
    last = {}
    for point in alone(points, StepRule.CEIL):
        last[point.setting.dwell_s] = point.median
    for dwell_s, expected in EXPECTED.items():
        found = last[dwell_s]
        off = found.charged_ratio / expected - 1
        made.append(
            Claim(
                f"Stays of {dwell_s} s: {expected:.4f} of the messages of flooding (App. B.2, "
                f"formula: {found.formula_ratio:.4f})",
                f"{found.charged_ratio:.4f} if each link is charged as the paper does "
                f"({off:+.1%}); {found.real_ratio:.4f} really went over links",
                holds=abs(off) < 0.1,
            )
        )
    (flooded,) = (p.median for p in points if p.setting.strategy is Strategy.FLOODING)
    made.append(
        Claim(
            "Flooding: each event goes over each link, n_ps · n_links · t",
            f"{flooded.events:,.0f} messages in a tree of 40 brokers; computed: "
            f"{flooded.flooding:,.0f}",
            holds=flooded.events == flooded.flooding,
        )
    )
    return [*made, *_missing(last), *_sharing(points)]


def _missing(last: dict[int, Measures]) -> list[Claim]:
    return [
        Claim(
            "The consumer gets what it would get by flooding (3.3)",
            "it misses "
            + ", ".join(f"{m.missed_share:.1%} with stays of {d} s" for d, m in last.items())
            + " (rule ceil)",
            holds=not any(measures.missed_share for measures in last.values()),
            why="The rule counts the moves of one delay; an event that arrives was filtered two "
            "delays ago. Our rule `safe` misses nothing.",
        )
    ]


def _sharing(points: Points) -> list[Claim]:
    """The share of the control messages of simple routing that covering saves."""
    chosen = {
        (p.setting.consumers, p.setting.strategy): p.median.control_per_move
        for p in crowded(points)
        if p.setting.skew is Skew.NONE and p.setting.dwell_s == min(dwells(points))
    }
    counts = sorted({consumers for consumers, _ in chosen})
    links = max(chosen.values())
    saved = ", ".join(
        f"{consumers:,}: {chosen[consumers, Strategy.COVERING]:.0f}" for consumers in counts
    )
    return [
        Claim(
            "With more consumers covering plays to its strengths (5.4)",
            f"control messages per move, not {links:.0f}: {saved}",
            holds=chosen[counts[-1], Strategy.COVERING] < 0.9 * links,
        )
    ]
