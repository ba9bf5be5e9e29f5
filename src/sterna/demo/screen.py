"""The city as it is drawn in a terminal."""

from rich import box
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sterna.demo.pipeline import Review
from sterna.demo.play import Audit, Scene
from sterna.model.delivery import Fault

NEWS_MAX = 4


def picture(scene: Scene, *, with_audit: bool = True) -> Group:
    """The scene as it is now, with the last audit unless that is printed elsewhere."""
    title = Text.assemble(
        ("Sterna", "bold cyan"),
        f"   round {scene.round}: {scene.phase}   ",
        ("Ctrl-C ends it", "dim"),
    )
    last = _last(scene) if with_audit else []
    rest = Text()  # Where a terminal writes ^C: at the end of a full line, it would begin another.
    return Group(title, _brokers(scene), _clients(scene), _news(scene), *last, rest)


def _brokers(scene: Scene) -> Table:
    """A table that keeps all its words on a terminal of 80 columns."""
    table = Table(
        title="brokers (processes on loopback), and their clients that are here or away",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("broker", no_wrap=True)
    table.add_column("address", no_wrap=True)
    table.add_column("neighbours")
    for heading in ("here", "away", "subscriptions", "inputs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, url in scene.network.urls.items():
        status = scene.statuses.get(name)
        address = url.removeprefix("sterna://")
        if status is None:
            table.add_row(name, address, Text("dead", style="bold red"))
            continue
        neighbours = ", ".join(
            f"{other}" if up else f"[red]{other}[/]" for other, up in status["neighbours"].items()
        )
        numbers = ("clients_here", "clients_away", "subscriptions", "inputs")
        table.add_row(name, address, neighbours, *(f"{status[number]:,}" for number in numbers))
    return table


def _clients(scene: Scene) -> Text:
    if scene.city is None:
        return Text()
    tally = scene.city.tally
    places = "  ".join(f"{place} {count}" for place, count in sorted(tally.at.items()))
    return Text(
        f"{len(scene.city.clients)} clients: published {tally.published:,}, taken from "
        f"subscriptions {tally.delivered:,} ({tally.here:,} for where a vehicle is), "
        f"roamed {tally.roamed:,}, moved {tally.moved:,}\nvehicles at  {places}"
    )


def _news(scene: Scene) -> Text:
    return Text("\n".join(f"• {news}" for news in scene.news[-NEWS_MAX:]), style="yellow")


def _last(scene: Scene) -> list[Panel]:
    return [verdict(scene.audits[-1], len(scene.audits))] if scene.audits else []


def verdict(audit: Audit, number: int) -> Panel:
    """The audit of a round."""
    text = line(audit)
    if audit.review is not None:
        text += "\n" + review_line(audit.review)
    findings = [
        *audit.findings,
        *audit.holds,
        *(audit.review.findings if audit.review is not None else ()),
    ]
    if findings:
        text += "\n" + "\n".join(findings[:5])
    style = "green" if audit.is_clean else "red"
    return Panel(text, title=f"audit of round {number}", border_style=style, expand=False)


def line(audit: Audit) -> str:
    """The audit of a round in a few words."""
    named = (Fault.LOST, Fault.DUPLICATED, Fault.REORDERED)
    others = audit.faults.total() - sum(audit.faults[fault] for fault in named)
    return (
        f"published {audit.published:,}, delivered {audit.delivered:,} "
        f"({audit.owed:,} owed for sure), lost {audit.faults[Fault.LOST]}, "
        f"duplicated {audit.faults[Fault.DUPLICATED]}, "
        f"out of order {audit.faults[Fault.REORDERED]}"
        + (f", wrong otherwise {others}" if others else "")
        + f"   (handovers {audit.roamed}, moves {audit.moved}, brokers killed {audit.kills})"
    )


def review_line(review: Review) -> str:
    """The pipeline's verdict in a few words."""
    if review.problem is not None:
        return f"the pipeline has no verdict: {review.problem}"
    verdict = f"{len(review.findings)} wrong" if review.findings else "clean"
    steps, streets = review.walked.total(), len(review.walked)
    graph = "is" if review.walked == review.mined else "IS NOT"
    return (
        f"Spark, {review.seconds:.0f} s over the journals: audit {verdict} "
        f"(published {review.published:,}, delivered {review.delivered:,}); the mined movement "
        f"graph {graph} what the vehicles walked ({steps:,} steps on {streets} ways)"
    )
