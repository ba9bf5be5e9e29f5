"""The cost of filters: parsing, evaluating an event, covering, merging.

    python -m benchmarks.filters [--json]

Each figure stands beside a baseline measured in the same run: evaluation beside the same condition
written by hand in Python and beside a walk over the tree.
"""

import json
import random
import sys
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from sterna import Filter, merge
from sterna.bench.measure import Timing, measure
from sterna.model.event import Scalar

Event = dict[str, Scalar | None]


def typical_filters(count: int, rng: random.Random) -> list[str]:
    """Four predicates each, as vehicle and stock applications write them."""
    return [
        f"service = 'parking-{rng.randrange(50)}' AND price BETWEEN {rng.randrange(5)} AND "
        f"{5 + rng.randrange(9)} AND size IN ('compact', 'van', 's{rng.randrange(9)}') AND "
        f"free > {rng.randrange(20)}"
        for _ in range(count)
    ]


def typical_events(count: int, rng: random.Random) -> list[Event]:
    return [
        {
            "service": f"parking-{rng.randrange(50)}",
            "price": rng.random() * 10,
            "size": rng.choice(["compact", "van", "bus"]),
            "free": rng.randrange(40),
            "street": f"{rng.randrange(99)} Rebeca Drive",
        }
        for _ in range(count)
    ]


def by_hand(event: Event) -> bool:
    """What a programmer would write for the filter below, without checking types."""
    price, free = event.get("price"), event.get("free")
    return (
        event.get("service") == "parking-7"
        and price is not None
        and 2 <= price <= 8  # type: ignore[operator]
        and event.get("size") in ("compact", "van")
        and free is not None
        and free > 10  # type: ignore[operator]
    )


WRITTEN = (
    "service = 'parking-7' AND price BETWEEN 2 AND 8 AND size IN ('compact', 'van') AND free > 10"
)


def results() -> dict[str, Timing]:
    rng = random.Random(1)  # noqa: S311 - a workload, not a secret.
    texts = typical_filters(1_000, rng)
    events = typical_events(2_000, rng)
    matching: list[Event] = [
        {**event, "service": "parking-7", "price": 5.0, "size": "van", "free": 11}
        for event in events
    ]
    written = Filter(WRITTEN)
    filters = [Filter(text) for text in texts]
    for filter_ in filters:
        filter_.covers(filter_ & written)  # The normal form is made once per filter.
    pairs = [(filters[i], filters[(i * 7 + 1) % 1_000]) for i in range(1_000)]
    fresh = [Filter(text) for text in texts]

    def each(test: Callable[[Event], object], some: list[Event]) -> Callable[[], None]:
        def run() -> None:
            for event in some:
                test(event)

        return run

    walk = written.verdict
    return {
        "parse a typical filter": measure(lambda: [Filter(text) for text in texts], 1_000),
        "first evaluation (compiles)": measure(
            lambda: [Filter.from_condition(f.condition).matches(events[0]) for f in fresh], 1_000
        ),
        "evaluate, all four predicates hold": measure(each(written.matches, matching), 2_000),
        "  the same by hand in Python": measure(each(by_hand, matching), 2_000),
        "  the same by walking the tree": measure(each(walk, matching), 2_000),
        "evaluate, random events": measure(each(written.matches, events), 2_000),
        "normal form": measure(
            lambda: [Filter.from_condition(f.condition).normal_form for f in fresh], 1_000
        ),
        "covers": measure(lambda: [a.covers(b) for a, b in pairs], 1_000),
        "overlaps": measure(lambda: [a.overlaps(b) for a, b in pairs], 1_000),
        "merge 100 filters, per filter": measure(lambda: merge(filters[:100]), 100),
    }


def main() -> None:
    timings = results()
    if "--json" in sys.argv:
        document = {name.strip(): vars(timing) for name, timing in timings.items()}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    table = Table("operation", "median µs", "best to worst", title="Filters")
    for name, timing in timings.items():
        spread = f"{timing.best_us:.2f} to {timing.worst_us:.2f}"
        table.add_row(name, f"{timing.median_us:.2f}", spread)
    console = Console()
    console.print(table)
    compiled = timings["evaluate, all four predicates hold"]
    console.print(
        f"compiled evaluation: {compiled / timings['  the same by hand in Python']:.1f} x by hand, "
        f"{timings['  the same by walking the tree'] / compiled:.1f} x faster than the tree"
    )


if __name__ == "__main__":
    main()
