"""The quenching experiment: its settings, and what came out."""

from pathlib import Path
from typing import Any

from sterna.core.messages import Events
from sterna.experiments.experiment import Claim, Experiment, PrintedTable, in_words
from sterna.experiments.papers import HUANG
from sterna.experiments.quenching.break_even import break_even, curves_of
from sterna.experiments.quenching.settings import (
    BUFFER_MAX,
    CHANGE_RATE,
    MATCH_RATES,
    MEMBERS_MANY,
    Measures,
    Points,
    Setting,
)
from sterna.experiments.quenching.showing import draw, tables
from sterna.experiments.quenching.simulation import (
    PUBLISHERS,
    compare,
    make_script,
    run,
    subscriptions,
    updates,
)


class Quenching(Experiment[Setting, Measures]):
    name = "quenching"
    about = "Bytes of events saved by quenching, against bytes that tell publishers what is wanted."
    takes = "about a minute and a half"
    paper = HUANG

    def settings(self, *, quick: bool) -> list[Setting]:
        events = 100 if quick else 300
        match_rates = (0.1, 0.6) if quick else MATCH_RATES
        change_rates = (0.0, 0.1, 1.0) if quick else (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
        plain = [
            Setting(match_rate=match_rate, change_rate=change_rate, events=events)
            for match_rate in match_rates
            for change_rate in change_rates
        ]
        much_merged = [
            Setting(
                match_rate=match_rate,
                change_rate=1.0,
                events=events,
                interest_members_max=MEMBERS_MANY,
            )
            for match_rate in match_rates
        ]
        with_disconnections = [
            Setting(
                match_rate=match_rate,
                change_rate=CHANGE_RATE,
                events=events,
                disconnected=0.4,
                buffer_events_max=buffer,
            )
            for buffer in (BUFFER_MAX, 10)
            for match_rate in match_rates
        ]
        return [*plain, *much_merged, *with_disconnections]

    def measure(self, setting: Setting, seed: int) -> Measures:
        where = f"{in_words(setting)}, seed {seed}"
        off = run(make_script(setting, seed, quenching=False), where)
        on = run(make_script(setting, seed, quenching=True), where)
        if not setting.disconnected:  # Else what was wanted may no longer be when it is sent.
            compare(off, on, where)
        published = setting.events * len(PUBLISHERS)
        without, with_ = off.bytes.total(), on.bytes.total()
        return Measures(
            match_rate=len(on.watch.wanted) / on.watch.published,
            subscriptions=subscriptions(setting.match_rate),
            filters=len(on.watch.known),
            changes=int(setting.change_rate * setting.events),
            first_bytes=updates(on.first) / len(PUBLISHERS),
            bytes_without=without,
            bytes_with=with_,
            event_bytes_saved=off.bytes[Events] - on.bytes[Events],
            update_bytes=updates(on.bytes),
            link_bytes_saved=off.bytes[None] - on.bytes[None],
            saved_per_event=(without - with_) / published,
            saved_share=(without - with_) / without,
            quenched=len(on.watch.quenched),
            purged_without=len(off.watch.purged & off.watch.wanted),
            purged_with=len(on.watch.purged & on.watch.wanted),
        )

    def work(self, setting: Setting) -> float:
        return setting.events * (1 + setting.change_rate) * subscriptions(setting.match_rate)

    def claims(self, points: Points) -> list[Claim]:
        evens = [
            f"{even:.2f} changes per event where {match_rate:.0%} is wanted"
            for match_rate, curve in curves_of(points).items()
            if (even := break_even(curve)) is not None
        ]
        paper = "Whether quenching pays for a mobile publisher is not apparent (Huang, 3.2)"
        return [Claim(paper, f"it pays up to {', '.join(evens)}", holds=True)]

    def tables(self, points: Points) -> list[PrintedTable]:
        return tables(points)

    def summary(self, points: Points) -> dict[str, Any]:
        return {
            "break_even": [
                {"match_rate": match_rate, "changes_per_event": break_even(curve)}
                for match_rate, curve in curves_of(points).items()
            ]
        }

    def draw(self, points: Points, path: Path) -> None:
        draw(points, path)
