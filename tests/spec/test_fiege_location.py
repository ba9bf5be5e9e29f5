"""Fiege, Gärtner, Kasten, Zeidler (2003), sections 3.3 and 5: subscriptions that follow a client.

The tables are read off running brokers. The consumer's client is the paper's local broker B_1; F_0
is what it filters by itself. F_1, F_2, … are what the brokers behind it have in their tables for
the way to it. The last F of each table belongs to the producer's own link: what comes over it when
the producer publishes something about each location. What the paper prints are the constants that
are called so; all that is compared with them is read off.
"""

from itertools import pairwise

import pytest

from sterna.core import facts
from sterna.core.client import Client
from sterna.core.location.moving import Moving
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.location.whereabouts import Whereabouts
from sterna.model.filters import Filter
from sterna.sim.topology import line
from tests.goldens import assert_golden
from tests.sim.overlay import Overlay
from tests.spec.test_fiege import TABLE_1

FIG_7 = (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))
"""The movement graph of Figure 7."""

MS = 1_000


def setting(
    rule: StepRule, *delays_ms: int, at: str = "a", edges: tuple[tuple[str, str], ...] = FIG_7
) -> Overlay:
    """A consumer, a line of brokers with these delays between them, and a producer at its end.

    The consumer stays at a location for 100 ms.
    """
    names = ["consumer", *(f"B{n}" for n in range(1, len(delays_ms) + 1))]
    return Overlay(
        line(len(delays_ms)),
        {"consumer": "B1", "producer": names[-1]},
        places=PlacesOptions(edges=edges, rule=rule, dwell=Dwell.FIXED, dwell_us=100 * MS),
        locations={"consumer": at},
        latencies=[
            (a, b, delay * MS) for a, b, delay in zip(names, names[1:], delays_ms, strict=False)
        ],
    )


def moving(overlay: Overlay, broker: str) -> Moving:
    return next(c for c in overlay.broker(broker).components if isinstance(c, Moving))


def whereabouts(client: Client) -> Whereabouts:
    return next(c for c in client.components if isinstance(c, Whereabouts))


def filters(overlay: Overlay) -> list[str]:
    """F_0, F_1, …: the locations that pass each filter on the way to the consumer."""
    client = overlay.client("consumer")
    brokers = overlay.simulation.script.topology.brokers
    ways = ["consumer", *brokers]
    found = [
        [whereabouts(client).context.exact(filter_) for filter_ in client.subscriptions.values()]
    ]
    found += [
        list(overlay.broker(broker).router.subscriptions.entered(nearer).values())
        for nearer, broker in zip(ways, brokers, strict=False)
    ]
    return [*(_passing(each) for each in found), _published(overlay)]


def _passing(instances: list[Filter]) -> str:
    return "".join(
        place for place in "abcd" if any(each.matches({"room": place}) for each in instances)
    )


def _published(overlay: Overlay) -> str:
    """What comes over the producer's own link, of something about each location."""
    before = len(overlay.facts.all)
    for place in "abcd":
        overlay.publish("producer", room=place)
    overlay.settle()
    broker = overlay.simulation.script.topology.brokers[-1]
    return "".join(
        str(event.attributes["room"])
        for fact in overlay.facts.all[before:]
        if isinstance(fact, facts.Accepted) and fact.at == broker
        for event in fact.events
    )


@pytest.mark.spec("LM-2")
def test_table_1_in_running_brokers() -> None:
    """ploc(x, t) is what the t-th broker asks for, where each delay is as long as a stay."""
    for x in "abcd":
        overlay = setting(StepRule.CEIL, 100, 100, 100, at=x).subscribe("consumer", "room IN myloc")

        assert filters(overlay.settle())[:4] == [TABLE_1[t][x] for t in range(4)]


PRINTED_TABLE_2 = {
    "a": ["a", "abc", "abcd", "abcd"],
    "b": ["b", "abd", "abcd", "abcd"],
    "d": ["d", "bcd", "abcd", "abcd"],
}
"""F_0 to F_3, from right to left."""


@pytest.mark.spec("LM-1", "LM-2")
def test_table_2() -> None:
    """The consumer goes from a to b and d: only F_0 and F_1 change."""
    overlay = setting(StepRule.CEIL, 100, 100).subscribe("consumer", "room IN myloc").settle()
    table = {"a": filters(overlay)}
    for location in "bd":
        table[location] = filters(overlay.move("consumer", location).settle())

    assert table == PRINTED_TABLE_2
    assert overlay.sent("MovingChange", "B1 → B2") == 1, "F_2 never changes, so nobody is told"


_HERE = {x: x for x in "abcd"}
_ANYWHERE = dict.fromkeys("abcd", "abcd")
PRINTED_TABLE_3 = {
    StepRule.SUB_UNSUB: [_HERE, _HERE, _HERE, _ANYWHERE],
    StepRule.EVERYWHERE: [_HERE, _ANYWHERE, _ANYWHERE, _ANYWHERE],
}


@pytest.mark.spec("LM-2", "LM-3")
@pytest.mark.parametrize("rule", PRINTED_TABLE_3)
@pytest.mark.parametrize("x", "abcd")
def test_table_3(rule: StepRule, x: str) -> None:
    """The two trivial schemes are instances of this one."""
    overlay = setting(rule, 100, 100, at=x).subscribe("consumer", "room IN myloc").settle()

    assert filters(overlay) == [row[x] for row in PRINTED_TABLE_3[rule]]


PRINTED_TABLE_4 = [
    {"a": "a", "b": "b", "c": "c", "d": "d"},
    {"a": "abc", "b": "abd", "c": "acd", "d": "bcd"},
    {"a": "abc", "b": "abd", "c": "acd", "d": "bcd"},
    {"a": "abcd", "b": "abcd", "c": "abcd", "d": "abcd"},
]


@pytest.mark.spec("LM-2", "LM-4")
@pytest.mark.parametrize("x", "abcd")
def test_table_4(x: str) -> None:
    """Delays of 120, 50, 50 and 20 ms, and a stay of 100 ms; the delays are measured."""
    overlay = setting(StepRule.FLOOR, 120, 50, 50, 20, at=x).subscribe("consumer", "room IN myloc")

    found = filters(overlay.settle())

    assert found[:4] == [row[x] for row in PRINTED_TABLE_4]
    assert found[4:] == ["abcd", "abcd"], "the paper has no rows for B_4 and the producer's link"


@pytest.mark.spec("LM-2", "LM-4")
def test_figure_8() -> None:
    """The sums of the delays on one scale with the multiples of the stay, under each rule."""
    rules = (StepRule.FLOOR, StepRule.CEIL, StepRule.SAFE)
    lines = ["broker  measured round trip" + "".join(f"{rule:>8}" for rule in rules)]
    steps: dict[str, list[int | None]] = {}
    for rule in rules:
        overlay = setting(rule, 120, 50, 50, 20).subscribe("consumer", "room IN myloc").settle()
        trips = []
        for nearer, broker in zip(("consumer", "B1", "B2", "B3"), "1234", strict=True):
            (route,) = moving(overlay, f"B{broker}").table[nearer].values()
            trips.append(route.delay_us)
            steps.setdefault(rule, []).append(moving(overlay, f"B{broker}").steps(route))
        assert trips == [240 * MS, 340 * MS, 440 * MS, 480 * MS]
    for row, trip in enumerate((240, 340, 440, 480)):
        numbers = "".join(f"{steps[rule][row]:>8}" for rule in rules)
        lines.append(f"B_{row + 2}     {trip:>12} ms       {numbers}")

    assert_golden("location-fiege-fig-8.txt", "\n".join(lines) + "\n")


@pytest.mark.spec("LM-1", "LM-2")
def test_figures_12_and_13() -> None:
    """A consumer subscribes, moves along five rooms in a row, and unsubscribes.

    B1, B2 and B3 ask for 1, 2 and 3 steps. The first move changes what each of them asks for. From
    b as from c and d, three steps reach all five rooms: B3 is not told of the other moves.
    """
    overlay = setting(StepRule.CEIL, 40, 80, 100, edges=tuple(pairwise("abcde")))
    overlay.subscribe("consumer", "room IN myloc").settle()
    for location in "bcd":
        overlay.move("consumer", location).settle()
    overlay.unsubscribe("consumer").settle()

    said = [line for line in overlay.trace.lines if "Prob" not in line and "settled" not in line]
    assert_golden("location-fiege-figs-12-13.txt", "\n".join(said) + "\n")
