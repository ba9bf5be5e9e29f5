"""One self-contained page with the whole report."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from sterna import __version__
from sterna.extras import require
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.progress import in_words, step
from sterna.pipeline.report import gathering, pictures, summary
from sterna.pipeline.report.findings import findings, ways_in_words
from sterna.pipeline.report.gathering import ReportTables
from sterna.pipeline.report.summary import Totals
from sterna.pipeline.report.ways import Way, ways
from sterna.pipeline.style import STYLE

EPOCH = 1970

BROKERS_NAMED_MAX = 8


@dataclass(frozen=True)
class Material:
    """What sections are made of; what several of them need is gathered once."""

    tables: ReportTables

    @cached_property
    def audit(self) -> dict[str, Any] | None:
        """What the audit found."""
        return gathering.audit(self.tables)

    @cached_property
    def ways(self) -> list[Way]:
        """The ways of the findings that are listed."""
        found = [] if self.audit is None else self.audit["findings"]
        return ways(self.tables, found, self.totals.brokers or ())

    @cached_property
    def totals(self) -> Totals:
        """How much there was of everything."""
        return summary.totals(self.tables)


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    about: str
    tables: tuple[str, ...]
    """The tables that it may be made of."""
    content: Callable[[Material], str | None]
    """The HTML of the section; None without a table."""

    @property
    def anchor(self) -> str:
        """What links to the section name."""
        return self.title.lower().rpartition(" ")[2]


@dataclass(frozen=True)
class WrittenReport:
    """The result of writing a report."""

    path: Path
    sections: list[str]
    missing: list[str]


def write(tables: ReportTables, path: Path) -> WrittenReport:
    """Write the report; one that is there is replaced once the new one is complete."""
    require("plots", "the report")
    step("adding up totals")
    of = Material(tables)
    opening = _opening(of)
    contents = {}
    for section in SECTIONS:
        step(f"drawing {section.title.lower()}")
        contents[section] = section.content(of)
    text = _page(of, opening, contents)
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise PipelineError(f"cannot write {path}: {error.strerror}; give another --out") from None
    return WrittenReport(
        path,
        [section.title for section, content in contents.items() if content is not None],
        [section.title for section, content in contents.items() if content is None],
    )


def _page(of: Material, opening: str, contents: dict[Section, str | None]) -> str:
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    named = escape(" and ".join(map(str, _directories(of.tables))))
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Sterna: {named}</title><style>{STYLE}</style>"
    )
    links = "".join(
        f'<a href="#{section.anchor}">{escape(section.title)}</a>'
        for section, content in contents.items()
        if content is not None
    )
    if of.ways:
        links += '<a href="#ways">Ways of events</a>'
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head>{head}</head><body>',
        f"<h1>What happened in the network</h1>{opening}",
        f'<nav>{links}<a href="#read">What was read</a></nav><main>',
    ]
    for section, content in contents.items():
        if content is not None:
            parts.append(f'<h2 id="{section.anchor}">{escape(section.title)}</h2>')
            parts.append(f"<p>{escape(section.about)}</p>{content}")
    parts.append(ways_in_words(of.ways))
    parts.append(_read(of.tables, contents))
    about = f"Made by <code>sterna pipeline report</code>, release {__version__}, {now}."
    parts.append(f"</main><footer>{about}</footer></body></html>")
    return "\n".join(parts) + "\n"


def _directories(tables: ReportTables) -> list[Path]:
    return sorted({folder.parent for folder in tables.folders.values()})


# ---- The beginning


def _opening(of: Material) -> str:
    """What was read and when it happened, the verdict of the audit, and totals."""
    sums, found = of.totals, of.audit
    said = summary.verdict(found)
    more = re.sub(r"`(.*?)`", r"<code>\1</code>", escape(said.more))
    if found is not None and found["faults"]:
        more += ' <a href="#audit">See each of them ↓</a>'
    return (
        f'<p class="when">{_when(sums)}<br>'
        f'Read: <a href="#read">{_count_in_words(of.tables)}</a></p>'
        f'<div class="verdict {said.level}"><p>{escape(said.sentence)}</p>'
        f"{f'<p>{more}</p>' if more else ''}</div>"
        f'<dl class="totals">{"".join(_tiles(sums))}</dl>'
    )


def _count_in_words(tables: ReportTables) -> str:
    count = len(tables.folders)
    named = escape(" and ".join(map(str, _directories(tables))))
    return f"{count} table{'s' if count > 1 else ''} in {named}"


def _when(sums: Totals) -> str:
    if sums.begin is None or sums.end is None:
        return "No table says when."
    begin, end = sums.begin, sums.end
    lasted = in_words((end - begin).total_seconds())
    if end.year == EPOCH:
        return f"<b>{lasted}</b> of a simulation, or of clocks that begin with 1970."
    until = f"{end:%H:%M:%S}" if begin.date() == end.date() else f"{end:%Y-%m-%d %H:%M:%S}"
    return f"<b>{begin:%Y-%m-%d %H:%M:%S}</b> to <b>{until}</b> UTC: {lasted}"


def _tiles(sums: Totals) -> Iterator[str]:
    brokers = sums.brokers or ()
    names = ", ".join(brokers[:BROKERS_NAMED_MAX]) + (
        " …" if len(brokers) > BROKERS_NAMED_MAX else ""
    )
    totals = (
        ("events", sums.published, "published, and accepted by a broker"),
        ("deliveries", sums.delivered, "recorded by clients"),
        ("clients", sums.clients, ""),
        ("brokers", len(brokers) if sums.brokers else None, names),
        ("handovers", sums.handovers, "between brokers"),
        ("visits", sums.visits, "of places"),
    )
    for name, count, about in totals:
        if count is not None:
            small = f"<small>{escape(about)}</small>" if about else ""
            yield f"<div><dt>{name}{small}</dt><dd>{count:,}</dd></div>"


def _read(tables: ReportTables, contents: dict[Section, str | None]) -> str:
    """Which tables the page is made of, and what others it could show."""
    lines = "".join(
        f'<tr><td><code>{escape(name)}</code></td><td class="count">{count:,}</td>'
        f"<td>{escape(str(tables.folders[name].parent))}</td></tr>"
        for name, count in tables.counts().items()
    )
    head = "<thead><tr><th>Table</th><th>Rows</th><th>In</th></tr></thead>"
    missing = "".join(
        f'<p class="missing">There is no table {escape(" or ".join(section.tables))} here, so '
        f"nothing is said of: {escape(section.title.lower())}.</p>"
        for section, content in contents.items()
        if content is None
    )
    return f'<h2 id="read">What was read</h2><table>{head}<tbody>{lines}</tbody></table>{missing}'


# ---- The sections


def _traffic(of: Material) -> str | None:
    rows = gathering.traffic(of.tables)
    return None if rows is None else pictures.traffic(rows) if rows else _EMPTY


def _handovers(of: Material) -> str | None:
    steps, waits = gathering.handovers(of.tables), gathering.waiting(of.tables)
    if steps is None and not waits:
        return None
    drawn = pictures.handover_steps(steps) if steps else ""
    if waits:
        drawn += "<h3>How long they took</h3>" + pictures.waits(waits)
    return drawn or _EMPTY


def _map(of: Material) -> str | None:
    moves = gathering.movement_graph(of.tables)
    if moves is None:
        return None
    if not moves:
        return _EMPTY
    visits, places = gathering.visits_per_place(of.tables), gathering.places(of.tables)
    return pictures.movement_map(moves, visits, places)


def _dwell(of: Material) -> str | None:
    rows = gathering.dwell(of.tables)
    return None if rows is None else pictures.dwell(rows) if rows else _EMPTY


def _prediction(of: Material) -> str | None:
    rows = gathering.evaluation(of.tables)
    return None if rows is None else pictures.prediction(rows) if rows else _EMPTY


def _audit(of: Material) -> str | None:
    found = of.audit
    if found is None:
        return None
    said = summary.verdict(found)
    if not found["faults"]:
        return f"<p>{escape(said.sentence)}</p>"
    return findings(of.ways, sum(found["faults"].values()))


_EMPTY = '<p class="missing">The table is empty.</p>'

SECTIONS = (
    Section(
        "Delivery audit",
        "Each delivery was compared with what was published and who wanted it.",
        ("delivery_audit",),
        _audit,
    ),
    Section(
        "Traffic",
        "Events that brokers sent to each other and to their clients. Links with little traffic "
        "are one line. Times are UTC.",
        ("traffic",),
        _traffic,
    ),
    Section(
        "Handovers",
        "Clients that moved from one broker to another, and how long that took.",
        ("handovers", "bootstrap_latency"),
        _handovers,
    ),
    Section(
        "Movement map",
        "Where clients were, stronger or larger where they were more often, and their most "
        "frequent ways.",
        ("movement_graph",),
        _map,
    ),
    Section(
        "Dwell times",
        "How long clients stay at the places that are visited most, with the number of visits.",
        ("dwell",),
        _dwell,
    ),
    Section(
        "Prediction",
        "How often the next place was foreseen in the time that was held out.",
        ("evaluation",),
        _prediction,
    ),
)
