"""One self-contained page with the whole report."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from sterna import __version__
from sterna.extras import require
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.report import gathering, pictures
from sterna.pipeline.report.gathering import ReportTables

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 56rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 0.3rem; border-top: 1px solid #ddd; padding-top: 1rem; }
p { margin: 0.3rem 0 0.8rem; }
.missing { color: #777; }
.good { color: #2f6b1f; } .bad { color: #a02020; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.85rem; }
td, th { text-align: left; padding: 0.15rem 0.9rem 0.15rem 0; border-bottom: 1px solid #eee; }
footer { margin-top: 3rem; color: #777; font-size: 0.85rem; }
"""


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    about: str
    tables: tuple[str, ...]
    """The tables that it may be made of."""
    content: Callable[[ReportTables], str | None]
    """The HTML of the section; None without a table."""


@dataclass(frozen=True)
class WrittenReport:
    """The result of writing a report."""

    path: Path
    sections: list[str]
    missing: list[str]


def write(tables: ReportTables, path: Path) -> WrittenReport:
    """Write the report; one that is there is replaced once the new one is complete."""
    require("plots", "the report")
    contents = {section: section.content(tables) for section in SECTIONS}
    text = _page(sorted({folder.parent for folder in tables.folders.values()}), contents)
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


def _page(directories: list[Path], contents: dict[Section, str | None]) -> str:
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    named = escape(" and ".join(map(str, directories)))
    head = f'<meta charset="utf-8"><title>Sterna: {named}</title>'
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head>{head}<style>{_STYLE}</style></head><body>',
        f"<h1>What the pipeline found</h1><p>Tables of {named}, {now}</p>",
    ]
    for section, content in contents.items():
        parts.append(f"<h2>{escape(section.title)}</h2>")
        if content is None:
            names = " or ".join(section.tables)
            parts.append(f'<p class="missing">There is no table {escape(names)} here.</p>')
        else:
            parts.append(f"<p>{escape(section.about)}</p>{content}")
    parts.append(f"<footer>sterna {__version__}, pipeline report</footer></body></html>")
    return "\n".join(parts) + "\n"


def _traffic(tables: ReportTables) -> str | None:
    rows = gathering.traffic(tables)
    return None if rows is None else pictures.traffic(rows) if rows else _EMPTY


def _handovers(tables: ReportTables) -> str | None:
    steps, waits = gathering.handovers(tables), gathering.waiting(tables)
    if steps is None and not waits:
        return None
    return pictures.handovers(steps, waits)


def _map(tables: ReportTables) -> str | None:
    moves = gathering.movement_graph(tables)
    if moves is None:
        return None
    if not moves:
        return _EMPTY
    visits, places = gathering.visits_per_place(tables), gathering.places(tables)
    return pictures.movement_map(moves, visits, places)


def _dwell(tables: ReportTables) -> str | None:
    rows = gathering.dwell(tables)
    return None if rows is None else pictures.dwell(rows) if rows else _EMPTY


def _prediction(tables: ReportTables) -> str | None:
    rows = gathering.evaluation(tables)
    return None if rows is None else pictures.prediction(rows) if rows else _EMPTY


def _audit(tables: ReportTables) -> str | None:
    found = gathering.audit(tables)
    if found is None:
        return None
    if not found["faults"] and not found["deliveries"]:
        return '<p class="missing">Nothing is known of deliveries: no client kept a journal.</p>'
    if not found["faults"]:
        return f'<p class="good">Nothing is lost, repeated or out of order.{_among(found)}</p>'
    faults = ", ".join(f"{count:,} {name}" for name, count in sorted(found["faults"].items()))
    heading = ("fault", "client", "publisher", "seq", "path")
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(_text(row[name]))}</td>" for name in heading) + "</tr>"
        for row in found["findings"]
    )
    head = "".join(f"<th>{name}</th>" for name in heading)
    return (
        f'<p class="bad">{escape(faults)}.{_among(found)}</p><table><tr>{head}</tr>{lines}</table>'
    )


def _among(found: dict[str, Any]) -> str:
    return f" There are {found['deliveries']:,} deliveries." if found["deliveries"] else ""


def _text(value: object) -> str:
    return " → ".join(map(str, value)) if isinstance(value, list) else str(value)


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
        "Events that went over each link. Links with little traffic are one line.",
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
        "Where clients were, darker or larger where they were more often, and their most frequent "
        "ways.",
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
