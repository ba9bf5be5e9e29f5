"""The tables and the figure of the quenching experiment."""

from pathlib import Path

from sterna.experiments.experiment import MEDIANS, PrintedTable
from sterna.experiments.plot import error_bars, panels
from sterna.experiments.quenching.break_even import break_even, curves_of, much_merged
from sterna.experiments.quenching.settings import CHANGE_RATE, MEMBERS_MANY, MEMBERS_MAX, Points
from sterna.experiments.quenching.simulation import PUBLISHERS

COLOURS = ("#0b6e99", "#3a8f3a", "#c2571a", "#9b3a8f", "#8a8a8a")


def tables(points: Points) -> list[PrintedTable]:
    """All tables, in the order in which they are shown."""
    return [
        _savings(points),
        _balance(points),
        _costs(points),
        _more_merging(points),
        _disconnections(points),
    ]


def draw(points: Points, path: Path) -> None:
    """Draw what quenching saves, and where it breaks even."""
    curves = curves_of(points)
    with panels(path, 1, 2, (10, 4.2)) as (left, right):
        for (match_rate, curve), colour in zip(curves.items(), COLOURS, strict=False):
            rates = [point.setting.change_rate for point in curve]
            left.plot(rates, [100 * point.median.saved_share for point in curve], "o-",
                      color=colour, markersize=4, label=f"{match_rate:.0%} wanted")  # fmt: skip
            error_bars(left, rates, curve, lambda m: 100 * m.saved_share, colour)
            left.set_xscale("symlog", linthresh=0.01)  # There is a 0, too.
            left.set_xticks(rates, [f"{rate:g}" for rate in rates])
            left.set_xticks([], minor=True)
        left.axhline(0, color="#222222", linewidth=1)
        left.set(
            xlim=(-0.001, 1.1),
            ylim=(-100, 105),
            xlabel="subscriptions replaced per event of a publisher",
            ylabel="bytes saved, %",
            title="What quenching saves on a publisher's link",
        )
        left.legend(frameon=False, fontsize=8, loc="lower left")
        evens = {rate: even for rate, curve in curves.items() if (even := break_even(curve))}
        right.plot([100 * rate for rate in evens], list(evens.values()), "o-", color=COLOURS[0],
                   label=f"c_all merged from up to {MEMBERS_MAX} subscriptions")  # fmt: skip
        evens = {point.setting.match_rate: even for point, even in much_merged(points)}
        right.plot([100 * rate for rate in evens], list(evens.values()), "o--",
                   color=COLOURS[0], label=f"from up to {MEMBERS_MANY}")  # fmt: skip
        right.legend(frameon=False, fontsize=8)
        right.set(
            xlim=(0, 100),
            ylim=(0, None),
            xlabel="events that somebody wants, %",
            ylabel="subscriptions replaced per event",
            title="Break-even: below the line, quenching saves",
        )


def _savings(points: Points) -> PrintedTable:
    curves = curves_of(points)
    rates = [point.setting.change_rate for point in next(iter(curves.values()))]
    rows = []
    for match_rate, curve in curves.items():
        even = break_even(curve)
        rows.append(
            (
                f"{match_rate:.0%}",
                *(point.text(lambda m: m.saved_share, "z.0%") for point in curve),
                f"{even:.2f}" if even is not None else f"> {rates[-1]:g}",
            )
        )
    return PrintedTable(
        "Bytes saved on publishers' links, by subscriptions replaced per event",
        ("wanted", *(f"{rate:g}" for rate in rates), "break-even"),
        rows,
        f"All are {MEDIANS}, acknowledgements included; negative: quenching costs more than it "
        "saves.",
    )


def _balance(points: Points) -> PrintedTable:
    rows = []
    for match_rate, curve in curves_of(points).items():
        for point in curve:
            if point.setting.change_rate == CHANGE_RATE:
                median = point.median
                sums = (
                    median.bytes_without,
                    median.event_bytes_saved,
                    median.update_bytes,
                    median.link_bytes_saved,
                    median.bytes_without - median.bytes_with,
                )
                rows.append((f"{match_rate:.0%}", *(f"{each / 1000:,.1f}" for each in sums)))
    head = ("wanted", "sent without", "events saved", "spent on c_all", "link saved", "net")
    return PrintedTable(f"Saved and spent, kB, at {CHANGE_RATE:g} changes per event", head, rows)


def _costs(points: Points) -> PrintedTable:
    rows = []
    for match_rate, curve in curves_of(points).items():
        still, busy = curve[0].median, curve[-1].median
        rows.append(
            (
                f"{match_rate:.0%}",
                f"{still.match_rate:.1%}",
                f"{still.subscriptions:.0f}",
                f"{still.filters:.0f}",
                f"{still.saved_per_event:.0f}",
                f"{still.first_bytes:,.0f}",
                f"{busy.update_bytes / busy.changes / len(PUBLISHERS):,.0f}",
            )
        )
    head = ("wanted", "came out", "subscriptions", "filters in c_all", "bytes saved per event",
            "bytes to learn c_all", "bytes per change")  # fmt: skip
    note = "For one publisher; a change replaces one subscription by another."
    return PrintedTable("What c_all costs", head, rows, note)


def _more_merging(points: Points) -> PrintedTable:
    rows = [
        (
            f"{point.setting.match_rate:.0%}",
            f"{point.median.filters:.0f}",
            f"{point.median.first_bytes:,.0f}",
            f"{point.median.update_bytes / point.median.changes / len(PUBLISHERS):,.0f}",
            f"{even:.2f}",
        )
        for point, even in much_merged(points)
    ]
    head = ("wanted", "filters in c_all", "bytes to learn c_all", "bytes per change", "break-even")
    title = f"The same with {MEMBERS_MANY} subscriptions merged at most, not {MEMBERS_MAX}"
    return PrintedTable(title, head, rows, "The break-even follows from the bytes saved and spent.")


def _disconnections(points: Points) -> PrintedTable:
    rows = []
    for point in points:
        setting, median = point.setting, point.median
        if setting.disconnected:
            rows.append(
                (
                    f"{setting.match_rate:.0%}",
                    f"{setting.buffer_events_max:,}",
                    _percent(median.saved_share),
                    f"{median.quenched:.0f}",
                    f"{median.purged_without:.0f}",
                    f"{median.purged_with:.0f}",
                )
            )
    return PrintedTable(
        f"Publishers without a connection for 40 % of the time, {CHANGE_RATE:g} changes per event",
        ("wanted", "buffer, events", "bytes saved", "quenched", "wanted, purged without",
         "with it"),
        rows,
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{round(100 * share)}%"  # There is no -0 %.
