"""What is measured in a run, and beside it the run without moves."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from sterna.core.names import Time
from sterna.experiments.burcea.city import hops
from sterna.experiments.burcea.counting import (
    BUCKET_US,
    Count,
    Traffic,
    has_events,
    over_time,
    total,
)
from sterna.experiments.burcea.journeys import People
from sterna.experiments.burcea.settings import Scenario, Setting
from sterna.experiments.burcea.simulation import Run, run
from sterna.experiments.burcea.still import still
from sterna.experiments.experiment import Point

PEAK_H = (17.0, 17.5)
"""When the paper sees the peak of the commute (Fig. 4)."""
BACK_H = 19.5
"""When everybody is back (Table 3)."""


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured in a run. Unless it says otherwise, hops between brokers are counted."""

    overhead: float
    """State transfer over the regular messages of the same run without moves."""
    own_overhead: float
    """The paper's ratio: state transfer over the regular messages of the run itself."""
    message_overhead: float
    """As `overhead`, but each message between border brokers counts once, not for each hop."""
    client_overhead: float
    """As `overhead`, with the links of clients."""
    byte_overhead: float
    """State transfer over regular messages of the run itself, in bytes; 0 if not counted."""
    peak_overhead: float
    """`overhead` from 17:00 to 17:30; 0 if that is not in the run."""
    own_peak_overhead: float
    """`own_overhead` then."""
    back_overhead: float
    """`overhead` from 19:30 on; 0 if that is not in the run."""
    busiest_overhead: float
    """The greatest `overhead` in any ten minutes."""
    regular: float
    still: float
    """The regular messages of the run without moves."""
    transfer: float
    subscription_share: float
    """The share of state transfer that brings subscriptions to other brokers."""
    subscription_message_share: float
    """The same, of messages."""
    events_per_move: float
    """Events that are sent to the new broker, for each move to another one."""
    moves: float
    """How often subscribers came to another broker than the one that they had left."""
    way: float
    """How many links lie between the two, on average."""
    away_share: float
    """The share of subscribers that were without connection at once, at most."""
    in_transfer_share: float
    """The share of subscribers that were in transfer at once, at most."""
    arrivals_share: float
    """The share of subscribers that came to another broker within ten minutes, at most."""
    replayed_ms: float
    """From the arrival to the first event that was published before. This and the following are
    medians over the moves after which there were such events."""
    complete_ms: float
    """From the arrival to the last of these: the paper's t4."""
    live_delay_ms: float
    """How long the first event that was published after the arrival took to its subscriber."""
    live_ms: float
    """From the arrival to that event, the wait for its publication included."""
    transfer_over_time: tuple[float, ...]
    """State transfer in each ten minutes, over the regular messages without moves in that time."""
    regular_over_time: tuple[float, ...]
    """The regular messages likewise."""


Points = Sequence[Point[Setting, Measures]]


@lru_cache(maxsize=1)
def measure(setting: Setting, seed: int) -> Measures:
    """Simulate once, and measure."""
    return measures(run(setting, seed))


def measures(done: Run) -> Measures:
    """What is measured in a run."""
    setting, inner, outer = done.setting, done.tally.inner, done.tally.outer
    unmoved = still(setting, done.everybody)
    transfer, regular = total(inner.transfer()), total(inner.regular())
    moving = over_time(inner.transfer(), setting)
    usual = over_time(inner.regular(), setting)
    per_bucket = unmoved.rate * BUCKET_US
    peak, back = _buckets(setting, *PEAK_H), _buckets(setting, BACK_H, 24.0)
    announced = total(c for kind, c in outer.by_kind.items() if not has_events(kind))
    moves = changes(done.everybody, setting)
    stays = [stay for stay in done.deliveries.stays if stay.replayed]
    live = [stay for stay in stays if stay.live_us is not None]
    return Measures(
        overhead=transfer / unmoved.hops,
        own_overhead=transfer / regular,
        message_overhead=_messages(inner.transfer()) / max(1, unmoved.messages),
        client_overhead=(transfer + announced) / (unmoved.hops + unmoved.client_hops),
        byte_overhead=_bytes(inner.transfer()) / max(1, _bytes(inner.regular())),
        peak_overhead=_ratio(sum(moving[peak]), per_bucket * len(moving[peak])),
        own_peak_overhead=_ratio(sum(moving[peak]), sum(usual[peak])),
        back_overhead=_ratio(sum(moving[back]), per_bucket * len(moving[back])),
        busiest_overhead=max(moving) / per_bucket,
        regular=regular,
        still=unmoved.hops,
        transfer=transfer,
        subscription_share=_ratio(total(inner.of_subscriptions()), transfer),
        subscription_message_share=_ratio(
            _messages(inner.of_subscriptions()), _messages(inner.transfer())
        ),
        events_per_move=_ratio(transferred_events(inner), len(moves)),
        moves=len(moves),
        way=statistics.fmean(way for _, way in moves) if moves else 0.0,
        away_share=away_max(done.everybody, setting) / setting.subscribers,
        in_transfer_share=done.deliveries.in_transfer_max / setting.subscribers,
        arrivals_share=_most(at for at, _ in moves) / setting.subscribers,
        replayed_ms=_median_ms(stay.replayed_us for stay in stays),
        complete_ms=_median_ms(stay.complete_us for stay in stays),
        live_delay_ms=_median_ms(stay.delay_us for stay in live),
        live_ms=_median_ms(stay.live_us for stay in live),
        transfer_over_time=tuple(hops / per_bucket for hops in moving),
        regular_over_time=tuple(hops / per_bucket for hops in usual),
    )


def changes(everybody: People, setting: Setting) -> list[tuple[Time, int]]:
    """When subscribers came to another broker during the run, and over how many links."""
    found = []
    for each in everybody.subscribers:
        leaf = each.leaf
        for move in each.moves:
            if move.arrives_us >= setting.length_us:
                break
            if move.leaf != leaf:
                found.append((move.arrives_us, hops(leaf, move.leaf)))
            leaf = move.leaf
    return found


def away_max(everybody: People, setting: Setting) -> int:
    """How many subscribers were without connection at once, at most."""
    changes = sorted(
        change
        for each in everybody.subscribers
        for move in each.moves
        if move.leaves_us < setting.length_us
        for change in ((move.leaves_us, 1), (move.arrives_us, -1))
    )
    away = most = 0
    for _, step in changes:
        away += step
        most = max(most, away)
    return most


def transferred_events(traffic: Traffic) -> int:
    """How many events were sent to new brokers, each once."""
    return sum(count.events for count in traffic.transfer())


def _buckets(setting: Setting, first_h: float, last_h: float) -> slice:
    """The places in a series over time; none unless the scenario has a clock."""
    if setting.scenario is not Scenario.COMMUTE:
        return slice(0, 0)
    first, last = (max(0, round(setting.at(hour) / BUCKET_US)) for hour in (first_h, last_h))
    return slice(first, last)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _messages(counts: Iterable[Count]) -> int:
    return sum(count.messages for count in counts)


def _bytes(counts: Iterable[Count]) -> int:
    return sum(count.bytes for count in counts)


def _most(times: Iterable[Time]) -> int:
    """How many of these times are in the same bucket, at most."""
    buckets = [at // BUCKET_US for at in times]
    return max(Counter(buckets).values(), default=0)


def _median_ms(times_us: Iterable[Time | None]) -> float:
    known = [us / 1_000 for us in times_us if us is not None]
    return statistics.median(known) if known else 0.0
