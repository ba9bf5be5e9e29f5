"""`burcea-random`: what it costs that subscribers come and go all day (Figs. 6-8)."""

from pathlib import Path
from typing import Any

from sterna.experiments.burcea.experiment import CityExperiment
from sterna.experiments.burcea.measuring import Measures, Points
from sterna.experiments.burcea.settings import (
    LARGE_LOG,
    LOG_EVENTS,
    POPULATIONS,
    STRATEGIES,
    Setting,
    random,
)
from sterna.experiments.burcea.showing.curves import (
    COLOURS,
    LATENCIES,
    LATENCIES_NOTE,
    OVERHEADS,
    OVERHEADS_NOTE,
    STYLES,
    Curves,
    falls,
    first_seeds,
    percent,
    percents,
    text,
    unpublished,
    variations,
)
from sterna.experiments.experiment import Claim, Point, PrintedTable
from sterna.experiments.plot import Axes, error_bars, panels, plain_ticks

QUICK: dict[str, Any] = {"publishers": 20, "hours": 1.0}
LOCALITIES = (0.0, 0.25, 0.5, 0.75, 1.0)
BOTH_ENDS = (0.0, 1.0)
"""The only shares for strategies that do not care."""
LOGS = (800, 1_200)
"""The sizes of logs beside 1,000 in the paper."""
SMALL_LOGS = (100, 200, 400)
"""Smaller ones, tried with the largest population only."""
VARIATIONS: tuple[dict[str, Any], ...] = (
    {"hours": 4.0},
    {"subscribers_at": "downtown"},
    {"publishers_at": "downtown"},
    {"ends": "stop"},
    {"latency_ms": 100},
)
"""What the paper does not say: how long runs are, where everybody is at first, and so on."""
NARROW: dict[str, Any] = {"kbytes_per_s": 100, "payload_bytes": 1_000, "hours": 1.5}
"""Links and events for which it matters how much is transferred."""
NARROW_SUBSCRIBERS = 100
NO_LOG = 1
"""A log of so many events helps nobody."""
SLIGHT = 0.1
"""A cost that changes by less than this, relatively, hardly depends on who wants the same."""
MATCHING = 0.2
"""A strategy matches another one if it costs so much more at most, relatively."""
FLAT = 0.25
"""A curve that rises by less than this from the first to the last population is nearly flat."""


class BurceaRandom(CityExperiment):
    name = "burcea-random"
    about = "What it costs that subscribers come and go all day (Burcea, Figs. 6-8)."
    takes = "about three quarters of an hour on two cores with 10 seeds"

    def settings(self, *, quick: bool) -> list[Setting]:
        counts: tuple[int, ...] = (40, 80) if quick else POPULATIONS
        localities: tuple[float, ...] = (0.0, 1.0) if quick else LOCALITIES
        logs, small = ((20,), ()) if quick else (LOGS, SMALL_LOGS)
        given = QUICK if quick else {}
        most = counts[-1]
        figures = [
            *(random(each, count, **given) for count in counts for each in STRATEGIES),
            *(
                random(each, most, locality=locality, **given)
                for locality in localities
                for each in STRATEGIES
                if each == "logging" or locality in BOTH_ENDS
            ),
            *(random("logging", n, log_events=log, **given) for log in logs for n in counts),
            *(random("logging", most, log_events=log, **given) for log in small),
        ]
        if quick:
            return figures
        few = counts[0]
        others = [
            random(each, few, **differs)
            for differs in VARIATIONS
            for each in ("standard", "logging")
        ]
        device = [
            random(each, few, subscriptions="device")
            for each in ("standard", "prefetching", "logging")
        ]
        narrow = [
            random(each, NARROW_SUBSCRIBERS, locality=locality, **NARROW)
            for locality in (0.0, 1.0)
            for each in STRATEGIES
        ]
        narrow.append(
            random("logging", NARROW_SUBSCRIBERS, locality=0.0, log_events=NO_LOG, **NARROW)
        )
        blind = random("prefetching", few, prediction="none")
        bytes_ = [random(each, NARROW_SUBSCRIBERS, count_bytes=True) for each in STRATEGIES]
        return [*figures, *others, *device, blind, *narrow, *bytes_]

    def claims(self, points: Points) -> list[Claim]:
        curves = Curves(points)
        return [
            *_average(curves),
            *_locality(points),
            *_logs(points),
            *_shares(curves),
            *_waits(points, curves),
        ]

    def tables(self, points: Points) -> list[PrintedTable]:
        curves = Curves(points)
        tables = [
            curves.table("Figure 6: average overhead, random", OVERHEADS, OVERHEADS_NOTE),
            _locality_table(points),
            *_log_tables(points),
            curves.table("Figure 2: how long state transfer takes", LATENCIES, LATENCIES_NOTE),
        ]
        narrow = _narrow(points)
        if narrow:
            tables.append(_narrow_table(points))
        bytes_ = variations(points, "count_bytes")
        if bytes_:
            rows = [(p.setting.strategy, percent(p.median.byte_overhead),
                     percent(p.median.own_overhead)) for p in bytes_]  # fmt: skip
            head = ("strategy", "overhead in bytes", "in messages")
            note = f"{NARROW_SUBSCRIBERS} subscribers; over the regular messages of the run itself."
            tables.append(PrintedTable("Bytes between brokers", head, rows, note))
        others = ("locality", "log_events", "kbytes_per_s", "count_bytes")
        return [*tables, *unpublished(points, but_not=others)]

    def draw(self, points: Points, path: Path) -> None:
        curves = Curves(points)
        with panels(path, 1, 3, (16.5, 4.8)) as (left, middle, right):
            curves.plot(left, lambda m: m.overhead)
            left.set(title="Figure 6: average overhead", ylabel="% of regular messages")
            _draw_locality(middle, points)
            _draw_logs(right, points)


def _average(curves: Curves) -> list[Claim]:
    average = {each: curves.curve(each, lambda m: m.overhead) for each in curves.strategies}
    own = {each: curves.at(each).own_overhead for each in curves.strategies}
    counts = ", ".join(map(str, curves.populations))
    logging = average["logging"]
    share = logging[-1] / average["standard"][-1]
    growth = logging[-1] / logging[0] - 1
    usual = average["standard"][-1] / average["standard"][0] - 1
    return [
        Claim(
            "Fig. 6: the strategies compare as in the commute scenario: home-broker worst, then "
            "standard, logging, prefetching",
            "; ".join(f"{each} {percents(average[each])}" for each in curves.strategies),
            holds=all(
                average["home"][place]
                > average["standard"][place]
                > average["logging"][place]
                > average["prefetching"][place]
                for place in range(len(curves.populations))
            ),
        ),
        Claim(
            "Fig. 6: standard's overhead is virtually 100 % with 800 subscribers",
            f"{percent(average['standard'][-1])} of the regular messages without moves; "
            f"{percent(own['standard'])} of those of the run",
            holds=0.85 <= own["standard"] <= 1.15,
            why="The level depends on whether hops count: without them it is "
            f"{percent(curves.at('standard').message_overhead)}.",
        ),
        Claim(
            "Fig. 6: prefetching's overhead is small",
            f"{percents(average['prefetching'])} with {counts} subscribers",
            holds=max(average["prefetching"]) < 0.1,
            why="No events are transferred, but messages of the protocol and subscriptions are.",
        ),
        Claim(
            "Fig. 6: with 800 subscribers logging has less than 70 % of standard's overhead",
            f"{share:.0%} with {curves.most}",
            holds=share < 0.7,
        ),
        Claim(
            "Fig. 6: logging's overhead increases marginally with the population",
            f"{percents(logging)}: {growth:+.0%}; standard's: {usual:+.0%}",
            holds=growth < FLAT,
        ),
    ]


def _locality(points: Points) -> list[Claim]:
    costs = {
        each: [point.median.transfer for point in curve]
        for each, curve in _by_locality(points).items()
    }
    change = {each: cost[-1] / cost[0] - 1 for each, cost in costs.items()}
    last = {each: cost[-1] for each, cost in costs.items()}
    ratio = last["logging"] / last["prefetching"]
    wanted = [_locality_of(point) for point in _by_locality(points)["logging"]]
    return [
        Claim(
            "Fig. 7: the more subscribers want the same, the less logging costs, unlike the others",
            f"with {', '.join(f'{share:.0%}' for share in wanted)} that want the same, logging "
            f"takes {', '.join(f'{cost:,.0f}' for cost in costs['logging'])} messages; from none "
            f"to all: {', '.join(f'{each} {change[each]:+.0%}' for each in costs)}",
            holds=falls(costs["logging"])
            and change["logging"] < -SLIGHT
            and all(change[each] > -SLIGHT for each in costs if each != "logging"),
        ),
        Claim(
            "Fig. 7: with enough locality logging matches prefetching",
            f"with all the same, logging takes {last['logging']:,.0f} messages and prefetching "
            f"{last['prefetching']:,.0f}: {ratio:.2f} times as many",
            holds=ratio < 1 + MATCHING,
            why="A log has what somebody else at the broker wanted at the time, so there must be "
            "somebody; and logging has a message more for each move.",
        ),
    ]


def _logs(points: Points) -> list[Claim]:
    """What larger logs save; nothing is said in a quick run, which has one large log only."""
    by_log = _by_log(points)
    large = [log for log in by_log if log >= LARGE_LOG]
    if len(large) < 2:
        return []
    counts = sorted(by_log[LOG_EVENTS])
    steps = [
        by_log[large[0]][count].median.overhead / by_log[large[-1]][count].median.overhead - 1
        for count in counts
        if by_log[large[-1]][count].median.overhead
    ]
    smaller = _by_small_log(points)
    small = min(smaller)
    return [
        Claim(
            "Fig. 8: from 800 to 1,200 events in the log, the overhead decreases only marginally",
            f"{large[0]} events cost {', '.join(f'{step:.1%}' for step in steps)} more than "
            f"{large[-1]} ({', '.join(map(str, counts))} subscribers); with {small} and "
            f"{counts[-1]} subscribers it is {percent(smaller[small].median.overhead)}, with "
            f"{LOG_EVENTS} {percent(smaller[LOG_EVENTS].median.overhead)}",
            holds=all(step < 0.05 for step in steps),
            why="The more subscribers a broker has, the more different events are in its log, and "
            "the shorter the time that it covers; absences are up to half an hour.",
        )
    ]


def _shares(curves: Curves) -> list[Claim]:
    standard, logging = curves.at("standard"), curves.at("logging")
    shares = [standard.subscription_share, logging.subscription_share]
    return [
        Claim(
            "Subscriptions are about 2 % of state transfer with standard and logging (5.2.3)",
            f"{percents(shares)} of the hops, "
            f"{percent(standard.subscription_message_share)} and "
            f"{percent(logging.subscription_message_share)} of the messages",
            holds=all(0.01 <= share <= 0.04 for share in shares),
            why=f"A move transfers {standard.events_per_move:.0f} events with standard, and "
            f"{logging.events_per_move:.0f} with logging, and three messages for its one "
            "subscription. What the log saves makes the share of these larger.",
        ),
    ]


def _waits(points: Points, curves: Curves) -> list[Claim]:
    times = {each: curves.at(each).complete_ms for each in curves.strategies}
    made = [
        Claim(
            "Prefetching has the shortest t4; logging's is no shorter than standard's where the "
            "amount of what is sent does not matter (3.2)",
            ", ".join(f"{each} {ms:.0f} ms" for each, ms in times.items())
            + "; links are as wide as needed",
            holds=times["prefetching"] == min(times.values())
            and times["logging"] >= times["standard"],
        )
    ]
    narrow = {
        (p.setting.locality, p.setting.strategy, p.setting.log_events): p.median.complete_ms
        for p in _narrow(points)
    }
    if narrow:
        alike = [narrow[1.0, each, LOG_EVENTS] for each in ("logging", "standard")]
        in_vain = narrow[0.0, "logging", NO_LOG], narrow[0.0, "standard", LOG_EVENTS]
        made.append(
            Claim(
                "On narrow links logging's t4 is shorter than standard's if the log helps, and "
                "longer if not (3.2.2)",
                f"if all want the same, logging {alike[0]:.0f} ms, standard {alike[1]:.0f} ms; "
                f"without a log, logging {in_vain[0]:.0f} ms, standard {in_vain[1]:.0f} ms",
                holds=alike[0] < alike[1] and in_vain[0] > in_vain[1],
            )
        )
    return made


# ---- Points


def _by_locality(points: Points) -> dict[str, list[Point[Setting, Measures]]]:
    found: dict[str, list[Point[Setting, Measures]]] = {}
    for point in variations(points, "locality"):
        found.setdefault(point.setting.strategy, []).append(point)
    return {each: sorted(curve, key=_locality_of) for each, curve in found.items()}


def _locality_of(point: Point[Setting, Measures]) -> float:
    return point.setting.locality or 0.0


def _by_log(points: Points) -> dict[int, dict[int, Point[Setting, Measures]]]:
    """The sizes of logs that were tried with every population."""
    curves = Curves(points)
    found = {LOG_EVENTS: {n: curves.point("logging", n) for n in curves.populations}}
    for point in variations(points, "log_events"):
        setting = point.setting
        found.setdefault(setting.log_events, {})[setting.subscribers] = point
    return {log: by for log, by in sorted(found.items()) if len(by) == len(curves.populations)}


def _by_small_log(points: Points) -> dict[int, Point[Setting, Measures]]:
    """All sizes with the largest population, over the seeds that all have."""
    curves = Curves(points)
    found = [
        curves.point("logging", curves.most),
        *(p for p in variations(points, "log_events") if p.setting.subscribers == curves.most),
    ]
    seeds = min(point.seeds for point in found)
    by_log = {point.setting.log_events: point.first(seeds) for point in found}
    return dict(sorted(by_log.items()))


def _narrow(points: Points) -> Points:
    found = variations(points, "locality", "log_events", *NARROW)
    return [point for point in found if point.setting.kbytes_per_s is not None]


# ---- Showing


def _locality_table(points: Points) -> PrintedTable:
    rows = [
        (
            f"{_locality_of(point):.0%}",
            each,
            point.text(lambda m: m.transfer, ",.0f"),
            text(point, lambda m: m.overhead, "%"),
            text(point, lambda m: m.own_overhead, "%"),
            point.text(lambda m: m.events_per_move, ".1f"),
        )
        for each, curve in _by_locality(points).items()
        for point in curve
    ]
    rows.sort(key=lambda row: float(row[0][:-1]))
    return PrintedTable(
        "Figure 7: subscribers that want the same",
        ("want the same", "strategy", "state transfer", "overhead", "own", "events per move"),
        rows,
        "State transfer: hops between brokers. There are fewer regular messages the more "
        "subscribers want the same, so the overhead says less.",
    )


def _log_tables(points: Points) -> list[PrintedTable]:
    by_log, smaller = _by_log(points), _by_small_log(points)
    counts = sorted(by_log[LOG_EVENTS])
    rows = [
        (f"{log:,}", *(percent(found[n].median.overhead) for n in counts))
        for log, found in by_log.items()
    ]
    head = ("events in the log", *(f"{count} subscribers" for count in counts))
    tables = [PrintedTable("Figure 8: logging's overhead by the size of the log", head, rows)]
    if len(smaller) > len(by_log):
        rows = [(f"{log:,}", percent(point.median.overhead)) for log, point in smaller.items()]
        note = first_seeds(points, smaller[LOG_EVENTS].seeds).strip()
        title = "Smaller logs than the paper's: logging's overhead"
        tables.append(PrintedTable(title, (head[0], head[-1]), rows, note))
    return tables


def _narrow_table(points: Points) -> PrintedTable:
    rows = [
        (
            f"{p.setting.locality:.0%}",
            p.setting.strategy + ", no log" * (p.setting.log_events == NO_LOG),
            f"{p.median.replayed_ms:.0f}",
            f"{p.median.complete_ms:.0f}",
            f"{p.median.live_delay_ms:.0f}",
        )
        for p in _narrow(points)
    ]
    head = ("want the same", "strategy", "first replayed, ms", "all replayed, ms",
            "first live: delay, ms")  # fmt: skip
    note = (
        f"{NARROW['kbytes_per_s']} kB/s on every link, {NARROW['payload_bytes']:,} bytes an event, "
        f"{NARROW_SUBSCRIBERS} subscribers."
    )
    return PrintedTable("How long state transfer takes on narrow links", head, rows, note)


def _draw_locality(axes: Axes, points: Points) -> None:
    def thousands(found: Measures) -> float:
        return found.transfer / 1_000

    for each, curve in _by_locality(points).items():
        where = [100 * _locality_of(point) for point in curve]
        axes.plot(where, [thousands(point.median) for point in curve], STYLES[each],
                  color=COLOURS[each], label=each, markersize=5)  # fmt: skip
        error_bars(axes, where, curve, thousands, COLOURS[each])
    axes.set(title="Figure 7: subscribers that want the same", xlabel="%", yscale="log",
             ylabel="thousand messages of state transfer")  # fmt: skip
    plain_ticks(axes)
    axes.legend(frameon=False, fontsize=8)


def _draw_logs(axes: Axes, points: Points) -> None:
    by_log, smaller = _by_log(points), _by_small_log(points)
    colours = {
        count: _draw_log(axes, [found[count] for found in by_log.values()], "^-",
                         label=f"{count} subscribers")
        for count in sorted(by_log[LOG_EVENTS])
    }  # fmt: skip
    if len(smaller) > len(by_log):
        line, most = [*smaller.values()], max(colours)
        label = f"{most}, the first {line[0].seeds} seeds"
        _draw_log(axes, line, "v:", label=label, color=colours[most])
    axes.set(title="Figure 8: logging", xlabel="events in the log", ylim=(0, None),
             ylabel="% of regular messages")  # fmt: skip
    axes.legend(frameon=False, fontsize=8)


def _draw_log(axes: Axes, line: Points, style: str, **how: str) -> str:
    """Draw the overhead over the size of the log; return the colour of the line."""
    where = [point.setting.log_events for point in line]
    (drawn,) = axes.plot(where, [_overhead_percent(point.median) for point in line], style,
                         markersize=5, **how)  # fmt: skip
    colour: str = drawn.get_color()
    error_bars(axes, where, line, _overhead_percent, colour)
    return colour


def _overhead_percent(found: Measures) -> float:
    return 100 * found.overhead
