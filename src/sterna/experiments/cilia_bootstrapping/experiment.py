"""Time to the right state and messages, for each way to get to know it. (PA-5)"""

import statistics
from collections.abc import Sequence
from pathlib import Path

from sterna.core.names import Peer
from sterna.experiments.cilia_bootstrapping.settings import (
    QUALITIES,
    SPEED,
    SPEEDS,
    Measures,
    Setting,
    Way,
)
from sterna.experiments.cilia_bootstrapping.town import Drive, Town, with_way
from sterna.experiments.experiment import MEDIANS, Claim, Experiment, Point, PrintedTable
from sterna.experiments.papers import CILIA
from sterna.experiments.plot import Axes, error_bars, panels
from sterna.sim.run import Simulation

Points = Sequence[Point[Setting, Measures]]

COLOURS = {
    Way.PLAIN: "#888888",
    Way.REQUEST: "#8c564b",
    Way.EVENT: "#e377c2",
    Way.STATUS_1: "#1f77b4",
    Way.STATUS_5: "#6baed6",
    Way.STATUS_20: "#c6dbef",
    Way.PAST: "#c2571a",
    Way.VIRTUAL: "#2ca02c",
    Way.BOTH: "#111111",
}


class CiliaBootstrapping(Experiment[Setting, Measures]):
    name = "cilia-bootstrapping"
    about = "How soon a car knows the state of its traffic light: by the past, and otherwise."
    takes = "about 20 minutes"
    paper = CILIA

    def settings(self, *, quick: bool) -> list[Setting]:
        speeds, minutes = ((SPEED,), 1) if quick else (SPEEDS, 5)
        qualities = (0.5, 1.0) if quick else QUALITIES
        return [
            *(
                Setting(way=way, speed_kmh=speed, minutes=minutes)
                for speed in speeds
                for way in Way
            ),
            *(
                Setting(way=way, speed_kmh=SPEED, quality=quality, minutes=minutes)
                for quality in qualities
                for way in (Way.VIRTUAL, Way.BOTH)
            ),
        ]

    def measure(self, setting: Setting, seed: int) -> Measures:
        drive = Drive(Town(setting, seed))
        drive.run()
        stay = setting.stay_us
        times = [stay if time is None else time for time in drive.times()]
        slower = 0
        if setting.way.wants_past:
            plain = Drive(Town(with_way(setting, Way.PLAIN), seed))
            plain.run()
            without = [stay if time is None else time for time in plain.times()]
            slower = sum(mine > its for mine, its in zip(times, without, strict=True))
        visits = len(times)
        between, bytes_, cars = _sent(drive.simulation)
        return Measures(
            known_ms=statistics.mean(times) / 1000,
            known_ms_median=statistics.median(times) / 1000,
            known_ms_p95=statistics.quantiles(times, n=20)[-1] / 1000,
            unknown=drive.times().count(None) / visits,
            stale=drive.stale() / visits,
            slower=slower / visits,
            messages=between / visits,
            bytes=bytes_ / visits,
            car_messages=cars / visits,
            repeated=drive.repeated() / visits,
        )

    def work(self, setting: Setting) -> float:
        return setting.speed_kmh * (2 if setting.way.wants_past else 1)

    def claims(self, points: Points) -> list[Claim]:
        return [
            _never_slower_than_plain(points),
            _both_is_fastest(points),
            _waits_a_period(points),
            _depends_on_stays(points),
            _never_outdated(points),
            _cheaper(points),
        ]

    def tables(self, points: Points) -> list[PrintedTable]:
        return [
            *(_table(points, speed) for speed in sorted({p.setting.speed_kmh for p in points})),
            _qualities(points),
        ]

    def draw(self, points: Points, path: Path) -> None:
        with panels(path, 1, 3, (14, 4.4)) as (left, middle, right):
            speeds = sorted({point.setting.speed_kmh for point in points})
            for way in Way:
                curve = [_at(points, way, speed) for speed in speeds]
                colour = COLOURS[way]
                for axes, measure in ((left, _seconds), (middle, _messages)):
                    values = [measure(point.median) for point in curve]
                    axes.plot(speeds, values, "o-", label=way, markersize=3, color=colour)
                    error_bars(axes, speeds, curve, measure, colour)
            left.set(yscale="log", xlabel="km/h", ylabel="s",
                     title="Until a car knows the state of its light")  # fmt: skip
            middle.set(xlabel="km/h", title="Messages between brokers for each visit")
            middle.legend(frameon=False, fontsize=7)
            _draw_qualities(right, points)


def _draw_qualities(axes: Axes, points: Points) -> None:
    for way in (Way.VIRTUAL, Way.BOTH):
        curve = _by_quality(points, way)
        qualities = [point.setting.quality or 0.0 for point in curve]
        values = [_seconds(point.median) for point in curve]
        axes.plot(qualities, values, "o-", label=way, markersize=3, color=COLOURS[way])
        error_bars(axes, qualities, curve, _seconds, COLOURS[way])
    past = _seconds(_at(points, Way.PAST, SPEED).median)
    axes.axhline(past, linestyle="--", label=Way.PAST, color=COLOURS[Way.PAST])
    axes.set(yscale="log", xlabel=f"share of right predictions, one place at a time, {SPEED} km/h",
             ylabel="s", title="Until a car knows the state of its light")  # fmt: skip
    axes.legend(frameon=False, fontsize=7)


# ---- Claims


def _never_slower_than_plain(points: Points) -> Claim:
    with_past = [point for point in points if point.setting.way.wants_past]
    worst = max(max(each.slower for each in point.measured) for point in with_past)
    return Claim(
        "In the worst case the bootstrap latency is not increased (2)",
        f"in {worst:.1%} of all visits, over all settings and seeds, a car knew the state later "
        "than by plain subscribing",
        holds=worst == 0,
    )


def _both_is_fastest(points: Points) -> Claim:
    lines, holds = [], True
    for speed in sorted({point.setting.speed_kmh for point in points}):
        both = _at(points, Way.BOTH, speed).median
        others = [_at(points, way, speed).median for way in Way if way is not Way.BOTH]
        holds &= all(
            measure(both) <= measure(other) + 1e-9
            for other in others
            for measure in (_seconds, lambda m: m.known_ms_median, lambda m: m.known_ms_p95)
        )
        best = min(others, key=_seconds)
        lines.append(f"{speed} km/h: {both.known_ms:,.0f} ms, the next {best.known_ms:,.0f} ms")
    return Claim(
        "Both approaches together are the fastest: they complement each other (2, 5)",
        "; ".join(lines) + " (means; medians and 95 % of the visits as well)",
        holds=holds,
    )


def _waits_a_period(points: Points) -> Claim:
    shares = [
        _at(points, way, speed).median.known_ms / min((way.period_s or 0) * 1000, stay_ms)
        for way in (Way.STATUS_1, Way.STATUS_5)
        for speed in sorted({point.setting.speed_kmh for point in points})
        for stay_ms in [_at(points, way, speed).setting.stay_us / 1000]
    ]
    return Claim(
        "With a periodic status, applications wait up to a full update period (2)",
        f"on average {min(shares):.0%} to {max(shares):.0%} of a period (of 1 s and 5 s, or of the "
        "stay if that is shorter)",
        holds=max(shares) < 1,
    )


def _depends_on_stays(points: Points) -> Claim:
    speeds = sorted({point.setting.speed_kmh for point in points})
    unknown = [_at(points, Way.VIRTUAL, speed).median.unknown for speed in speeds]
    text = ", ".join(f"{u:.0%} at {s} km/h" for s, u in zip(speeds, unknown, strict=True))
    return Claim(
        "A virtual client alone falls short if the client moves fast: the time in which it listens "
        "is too short (4.3)",
        f"visits without the right state: {text}",
        holds=unknown == sorted(unknown),
        why="virtual clients stay for another 10 s when nobody wants them any more, which is "
        "longer than a car stays at 100 km/h: there, some of those that others have left listen on",
    )


def _never_outdated(points: Points) -> Claim:
    shares = {
        way: statistics.mean(p.mean.stale for p in points if p.setting.way is way)
        for way in (Way.PAST, Way.BOTH)
    }
    return Claim(
        "A search brings the last event, wherever it is kept (5)",
        f"the first state that a car heard of was outdated in {shares[Way.PAST]:.1%} of the visits "
        f"(past) and {shares[Way.BOTH]:.1%} (both): the light had changed while the answer, or the "
        "event, was on its way",
        holds=max(shares.values()) < 0.02,
    )


def _cheaper(points: Points) -> Claim:
    """Which other ways cost fewer messages, and how much later the state is known then."""
    found = []
    for speed in sorted({point.setting.speed_kmh for point in points}):
        both = _at(points, Way.BOTH, speed).median
        others = {way: _at(points, way, speed).median for way in Way if way is not Way.PLAIN}
        cheaper = [
            f"{way} ({other.messages:.0f}, {other.known_ms:,.0f} ms)"
            for way, other in others.items()
            if other.messages < both.messages
        ]
        found.append(
            f"{speed} km/h, both {both.messages:.0f} messages, {both.known_ms:,.0f} ms: "
            + (", ".join(cheaper) or "none")
        )
    return Claim(
        "Where is an alternative cheaper than both together? (no claim of the paper)",
        "; ".join(found),
        holds=True,
    )


# ---- Tables


def _table(points: Points, speed: int) -> PrintedTable:
    rows = []
    for way in Way:
        point = _at(points, way, speed)
        rows.append(
            (
                str(way),
                point.text(lambda m: m.known_ms, ",.0f"),
                point.text(lambda m: m.known_ms_median, ",.0f"),
                point.text(lambda m: m.known_ms_p95, ",.0f"),
                point.text(lambda m: 100 * m.unknown, ".0f"),
                point.text(lambda m: 100 * m.stale, ".1f"),
                point.text(_messages, ".0f"),
                point.text(lambda m: m.bytes, ",.0f"),
                point.text(lambda m: m.car_messages, ".1f"),
                point.text(lambda m: m.repeated, ".2f"),
            )
        )
    head = (
        *("way", "ms to the right state", "median", "95 %", "% never"),
        *("% outdated", "messages", "bytes", "car's messages", "repeated"),
    )
    stay = _at(points, Way.PLAIN, speed).setting.stay_us / 1e6
    title = f"{speed} km/h: a car stays {stay:.1f} s"
    return PrintedTable(title, head, rows, f"{MEDIANS}; messages and bytes for each visit")


def _qualities(points: Points) -> PrintedTable:
    rows = [
        (
            f"{point.setting.quality:.0%}",
            str(point.setting.way),
            point.text(lambda m: m.known_ms, ",.0f"),
            point.text(lambda m: 100 * m.unknown, ".0f"),
            point.text(_messages, ".0f"),
        )
        for way in (Way.VIRTUAL, Way.BOTH)
        for point in _by_quality(points, way)
    ]
    head = ("right predictions", "way", "ms to the right state", "% never", "messages")
    return PrintedTable(f"One predicted place, {SPEED} km/h", head, rows, MEDIANS)


# ---- Points


def _at(points: Points, way: Way, speed: int) -> Point[Setting, Measures]:
    """The point of a way at a speed, where cars are expected at all crossings that come next."""
    return next(
        point
        for point in points
        if (point.setting.way, point.setting.speed_kmh, point.setting.quality) == (way, speed, None)
    )


def _by_quality(points: Points, way: Way) -> list[Point[Setting, Measures]]:
    found = [p for p in points if p.setting.way is way and p.setting.quality is not None]
    return sorted(found, key=lambda point: point.setting.quality or 0.0)


def _seconds(measures: Measures) -> float:
    return measures.known_ms / 1000


def _messages(measures: Measures) -> float:
    return measures.messages


def _sent(simulation: Simulation) -> tuple[int, int, int]:
    """How many messages and bytes went between brokers, and how many messages to and from cars."""
    between = bytes_ = cars = 0
    for connection in simulation.network.connections:
        is_between = all(host.peer is Peer.BROKER for host in connection.ends)
        is_car = any(host.node.id.startswith("car") for host in connection.ends)
        for pipe in connection.pipes:
            between += is_between * pipe.messages.total()
            bytes_ += is_between * pipe.bytes.total()
            cars += is_car * pipe.messages.total()
    return between, bytes_, cars
