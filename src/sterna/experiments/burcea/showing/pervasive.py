"""`burcea-pervasive`: what it costs that subscribers stay connected on their way (Fig. 9)."""

from pathlib import Path
from typing import Any

from sterna.experiments.burcea.experiment import CityExperiment
from sterna.experiments.burcea.measuring import Points
from sterna.experiments.burcea.settings import POPULATIONS, STRATEGIES, Setting, pervasive
from sterna.experiments.burcea.showing.curves import (
    LATENCIES,
    LATENCIES_NOTE,
    OVERHEADS,
    OVERHEADS_NOTE,
    Curves,
    percent,
    percents,
    unpublished,
)
from sterna.experiments.experiment import Claim, PrintedTable
from sterna.experiments.plot import panels

QUICK: dict[str, Any] = {"publishers": 20, "hours": 1.0}
VARIATIONS: tuple[dict[str, Any], ...] = (
    {"hours": 2.0},
    {"handoff_ms": 10},
    {"handoff_ms": 10_000},
    {"ends": "stop"},
    {"publishers_at": "downtown"},
)
EQUAL = 0.2
"""Overheads that are no further apart than this, relatively, are equal."""
HIGHER = 0.02
"""A share is higher if it is so by more than this: two percentage points."""
BENEFICIAL = 0.05
"""What saves more than this share of the overhead is worth it."""


class BurceaPervasive(CityExperiment):
    name = "burcea-pervasive"
    about = "What it costs that subscribers stay connected on their way (Burcea, Fig. 9)."
    takes = "about half an hour on two cores with 10 seeds"

    def settings(self, *, quick: bool) -> list[Setting]:
        if quick:
            return [pervasive(each, count, **QUICK) for count in (20, 40) for each in STRATEGIES]
        plain = [pervasive(each, count) for count in POPULATIONS for each in STRATEGIES]
        few = POPULATIONS[0]
        others = [
            pervasive(each, few, **differs)
            for differs in VARIATIONS
            for each in ("standard", "prefetching")
        ]
        device = [
            pervasive(each, few, subscriptions="device")
            for each in ("standard", "prefetching", "logging")
        ]
        return [*plain, *others, *device]

    def claims(self, points: Points) -> list[Claim]:
        curves = Curves(points)
        average = {each: curves.curve(each, lambda m: m.overhead) for each in curves.strategies}
        others = [each for each in curves.strategies if each != "home"]
        apart = max(
            max(average[each][place] for each in others)
            / min(average[each][place] for each in others)
            - 1
            for place in range(len(curves.populations))
        )
        shares = {each: curves.at(each).subscription_message_share for each in others}
        hops = {each: curves.at(each).subscription_share for each in others}
        made = [
            Claim(
                "Fig. 9: home-broker has the highest overhead",
                "; ".join(f"{each} {percents(average[each])}" for each in curves.strategies),
                holds=all(
                    home > max(average[each][place] for each in others)
                    for place, home in enumerate(average["home"])
                ),
            ),
            Claim(
                "Fig. 9: the other strategies perform equally well",
                f"their overheads are up to {apart:.0%} apart",
                holds=apart < EQUAL,
                why="Hardly any events are transferred. What differs is how many messages each "
                "protocol has for a move.",
            ),
            Claim(
                "Subscriptions are about 60 % of state transfer with standard and logging (5.2.4)",
                ", ".join(
                    f"{each} {percent(shares[each])} of the messages, {percent(hops[each])} of "
                    "the hops"
                    for each in ("standard", "logging")
                ),
                holds=all(0.5 <= hops[each] <= 0.7 for each in ("standard", "logging")),
                why="With standard, three of the six messages of a move bring subscriptions: they "
                "are sent to the new broker, which subscribes, and the old one unsubscribes. The "
                "others ask for them, ask to unsubscribe, and answer with the events. Logging has "
                "a seventh, which names the events that the old broker has.",
            ),
            Claim(
                "Their share is even higher with prefetching (5.2.4)",
                f"{percent(hops['prefetching'])} of the hops; "
                f"{percents([hops[each] for each in ('standard', 'logging')])} with standard and "
                "logging",
                holds=hops["prefetching"] > max(hops["standard"], hops["logging"]) + HIGHER,
                why="Both standard and prefetching have three messages of six for subscriptions. "
                "Prefetching need not ask for them, but the old broker must be told that it can "
                "discard what it has of the client.",
            ),
        ]
        return [*made, *_device(points, curves)]

    def tables(self, points: Points) -> list[PrintedTable]:
        curves = Curves(points)
        return [
            curves.table("Figure 9: average overhead, pervasive", OVERHEADS, OVERHEADS_NOTE),
            curves.table("Figure 2: how long state transfer takes", LATENCIES, LATENCIES_NOTE),
            *unpublished(points),
        ]

    def draw(self, points: Points, path: Path) -> None:
        curves = Curves(points)
        with panels(path, 1, 2, (11, 4.8)) as (left, right):
            curves.plot(left, lambda m: m.overhead)
            left.set(title="Figure 9: average overhead", ylabel="% of regular messages")
            curves.plot(right, lambda m: m.subscription_share, scale=100)
            right.set(title="Subscriptions in state transfer", ylabel="% of hops", yscale="linear",
                      ylim=(0, 100))  # fmt: skip


def _device(points: Points, curves: Curves) -> list[Claim]:
    """What it saves that devices bring their subscriptions; nothing is claimed in a quick run."""
    device = [point for point in points if point.setting.subscriptions == "device"]
    if not device:
        return []
    saved = {
        point.setting.strategy: 1 - point.median.overhead / curves.beside(point).median.overhead
        for point in device
    }
    asking = [each for each in saved if each != "prefetching"]
    return [
        Claim(
            "Subscriptions on the device would be beneficial (5.2.4)",
            "they save "
            + ", ".join(f"{percent(saved[each])} with {each}" for each in asking)
            + f" (of the overhead, {device[0].setting.subscribers} subscribers); "
            f"{percent(saved['prefetching'])} with prefetching, which has nothing to save: "
            "subscriptions travel ahead of their subscribers, so that nobody asks for them",
            holds=min(saved[each] for each in asking) > BENEFICIAL,
        )
    ]
