"""One page with all that experiments found: claims, results, pictures, tables and commands."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any
from uuid import uuid4

from sterna import __version__
from sterna.errors import MissingExtraError
from sterna.experiments.experiment import Claim, Experiment, Point, PrintedTable
from sterna.experiments.report import are_numbers
from sterna.experiments.results import writing
from sterna.experiments.sweep import Sweep, found_sweep, in_versions
from sterna.pipeline.style import STYLE

NAME = "report.html"

ROWS_OPEN = 16
"""Longer tables are shown when the reader opens them."""

MORE_STYLE = """
.holds, .differs { border-radius: 4px; padding: 0.05rem 0.5rem; font-weight: 600;
  white-space: nowrap; }
.holds { background: var(--good-card); color: var(--good); }
.differs { background: var(--open-card); color: var(--open); }
.why { display: block; color: var(--soft); font-size: 0.95rem; }
figure { margin: 1.2rem 0; } figure svg { width: 100%; height: auto; fill: var(--ink); }
summary { cursor: pointer; font-weight: 600; margin: 1rem 0 0.3rem; }
.wide td { white-space: nowrap; } th.count { text-align: right; } .claims td { min-width: 6rem; }
pre { background: var(--card); border-radius: 6px; padding: 0.6rem 0.9rem; overflow-x: auto; }
@media print { details > * { display: block; } figure { break-inside: avoid; } }
"""

_COLOURS = {"#ffffff": "page", "#000000": "ink", "#222222": "ink", "#b0b0b0": "grid"}
"""Colours of pictures that depend on whether the page is light or dark, and their variables."""


@dataclass(frozen=True)
class Section:
    """What there is of an experiment."""

    experiment: Experiment[Any, Any]
    sweep: Sweep[Any, Any] | None
    """Complete results; None if there are none."""
    points: Sequence[Point[Any, Any]] = ()
    claims: Sequence[Claim] = ()
    done: int = 0
    wanted: int = 0
    """How many runs are there of those that are wanted, where results are missing."""
    command: str = ""
    """What makes the results that are missing."""


@dataclass(frozen=True)
class WrittenPage:
    """The result of writing the page."""

    path: Path
    shown: list[str]
    missing: list[str]
    holding: int
    claims: int
    notes: list[str]


def gather(experiment: Experiment[Any, Any], folder: Path, *, quick: bool) -> Section:
    """The results that are there; small settings stand in for full ones that are missing."""
    sweep = found_sweep(experiment, folder, quick=quick)
    if sweep is None and not quick:
        sweep = found_sweep(experiment, folder, quick=True)
    if sweep is None:
        wanted = Sweep(experiment, folder, quick=quick, seeds=1 if quick else experiment.seeds)
        return Section(
            experiment, None, done=wanted.done, wanted=wanted.total, command=wanted.command
        )
    points = sweep.points()
    return Section(experiment, sweep, points, experiment.claims(points))


def write_page(sections: Sequence[Section], folder: Path) -> WrittenPage:
    """Write the page; one that is there is replaced once the new one is complete."""
    notes: list[str] = []
    path = folder / NAME
    partial = path.with_name(f".{NAME}.{uuid4().hex}.partial")  # Another command may write one.
    with writing(path):
        try:
            partial.write_text("\n".join(_page(sections, notes)) + "\n", encoding="utf-8")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    claims = [claim for section in sections for claim in section.claims]
    return WrittenPage(
        path,
        [each.experiment.name for each in sections if each.sweep is not None],
        [each.experiment.name for each in sections if each.sweep is None],
        sum(claim.holds for claim in claims),
        len(claims),
        notes,
    )


def _page(sections: Sequence[Section], notes: list[str]) -> Iterator[str]:
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Sterna: the papers, reproduced</title><style>{STYLE}{MORE_STYLE}</style>"
    )
    yield f'<!doctype html>\n<html lang="en"><head>{head}</head><body>'
    yield "<h1>The papers, reproduced</h1>"
    yield _opening(sections)
    yield f"<main>{_overview(sections)}"
    papers = dict.fromkeys(section.experiment.paper for section in sections)
    for paper in papers:
        shown = [(s, s.sweep) for s in sections if s.experiment.paper == paper and s.sweep]
        if shown:
            yield f"<h2>{escape(paper)}</h2>"
        for section, sweep in shown:
            yield from _section(section, sweep, notes)
    yield from _missing(sections)
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    about = f"Made by <code>sterna experiment report</code>, release {__version__}, {now}."
    yield f"</main><footer>{about}</footer></body></html>"


# ---- The beginning


def _opening(sections: Sequence[Section]) -> str:
    claims = [claim for section in sections for claim in section.claims]
    differing = [claim for claim in claims if not claim.holds]
    holding = len(claims) - len(differing)
    missing = sum(section.sweep is None for section in sections)
    level = "open" if missing or not claims else "good"
    said = f"{holding} of {len(claims)} claims hold." if claims else "There are no results yet."
    more = []
    if differing:
        reason = (
            "the reason is beside it" if all(c.why for c in differing) else "not all are explained"
        )
        more.append(f"{len(differing)} came out differently; {reason}.")
    if missing:
        more.append(f'Of {missing} experiments <a href="#missing">results are missing</a>.')
    return (
        '<p class="when">Every figure and table, simulated anew: what was claimed, what came out, '
        "and the command that shows it.</p>"
        f'<div class="verdict {level}"><p>{said}</p><p>{" ".join(more)}</p></div>'
        '<p class="note">Numbers are medians over the seeds. ± is half the 95 % confidence '
        "interval of the mean, by Student's t; error bars show that interval.</p>"
    )


def _overview(sections: Sequence[Section]) -> str:
    rows = "".join(
        f'<tr><td class="name"><a href="#{escape(each.experiment.name)}">'
        f"{escape(each.experiment.name)}</a></td><td>{escape(each.experiment.about)}</td>"
        f'<td class="count">{sum(c.holds for c in each.claims)} of {len(each.claims)}</td></tr>'
        for each in sections
        if each.sweep is not None
    )
    head = "<thead><tr><th>Experiment</th><th>What it measures</th><th>Claims that hold</th></tr>"
    return f"<table>{head}</thead><tbody>{rows}</tbody></table>" if rows else ""


# ---- One experiment


def _section(section: Section, sweep: Sweep[Any, Any], notes: list[str]) -> Iterator[str]:
    experiment = section.experiment
    yield f'<h3 id="{escape(experiment.name)}">{escape(experiment.name)}</h3>'
    yield f"<p>{escape(experiment.about)}</p>"
    yield _claims(section.claims)
    yield _picture(section, notes)
    for table in experiment.tables(section.points):
        yield _table(table)
    yield f"<pre><code>{escape(sweep.command)}</code></pre>"
    yield f'<p class="note">{_origin(sweep)}</p>'


def _claims(claims: Sequence[Claim]) -> str:
    rows = []
    for claim in claims:
        why = claim.why or ("" if claim.holds else "It is not explained yet.")
        more = f'<span class="why">{escape(why)}</span>' if why and not claim.holds else ""
        verdict = "holds" if claim.holds else "differs"
        rows.append(
            f"<tr><td>{escape(claim.paper)}</td><td>{escape(claim.seen)}{more}</td>"
            f'<td><span class="{verdict}">{verdict}</span></td></tr>'
        )
    head = "<thead><tr><th>Claim</th><th>Result</th><th></th></tr></thead>"
    return f'<table class="claims">{head}<tbody>{"".join(rows)}</tbody></table>'


def _origin(sweep: Sweep[Any, Any]) -> str:
    said = f"{len(sweep.settings)} settings, {_seeds(sweep)}"
    if sweep.quick:
        said += "; small settings for a first look (<code>--quick</code>)"
    if sweep.of_other_code:
        told = in_versions(sweep.other_versions)
        said += f"; {sweep.of_other_code:,} runs were simulated by {told}"
    return f"{said}. All runs are in <code>{escape(sweep.path.name)}</code>."


def _seeds(sweep: Sweep[Any, Any]) -> str:
    """How many seeds there are, and how many settings have fewer."""
    counts = Counter(len(sweep.seeds_of(setting)) for setting in sweep.settings)
    most = max(counts)
    said = f"{most} seed{'s' if most > 1 else ''}"
    fewer = [f"{count} settings have {seeds}" for seeds, count in counts.items() if seeds < most]
    return f"up to {said} ({', '.join(fewer)})" if fewer else said


def _table(table: PrintedTable) -> str:
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.head)
    kinds = [' class="count"' if are_numbers(column) else "" for column in columns]
    pairs = zip(table.head, kinds, strict=True)
    head = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in pairs)
    rows = []
    before = None
    for row in table.rows:
        cells = zip(("" if row[0] == before else row[0], *row[1:]), kinds, strict=True)
        told = "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in cells)
        rows.append(f"<tr>{told}</tr>")
        before = row[0]
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    grid = (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{note}"
    )
    is_open = " open" if len(rows) <= ROWS_OPEN else ""
    return f"<details{is_open}><summary>{escape(table.title)}</summary>{grid}</details>"


def _picture(section: Section, notes: list[str]) -> str:
    name = section.experiment.name
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        try:
            section.experiment.draw(section.points, path)
        except MissingExtraError as missing:
            if str(missing) not in notes:
                notes.append(str(missing))
            return f'<p class="missing">No picture: {escape(str(missing))}.</p>'
        svg = path.with_suffix(".svg").read_text(encoding="utf-8")
    return f"<figure>{_inline(svg, name)}</figure>"


def _inline(svg: str, name: str) -> str:
    """A picture as a part of the page: its colours, and identifiers that no other picture has."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    for colour, variable in _COLOURS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    label = escape(f"The results of {name}")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


# ---- What is missing


def _missing(sections: Sequence[Section]) -> Iterator[str]:
    missing = [section for section in sections if section.sweep is None]
    if not missing:
        return
    yield '<h2 id="missing">What is missing</h2>'
    rows = "".join(
        f'<tr><td class="name">{escape(s.experiment.name)}</td>'
        f"<td>{escape(s.experiment.about)}</td>"
        f'<td class="count">{s.done:,} of {s.wanted:,}</td>'
        f"<td><code>{escape(s.command)}</code></td></tr>"
        for s in missing
    )
    head = "<th>Experiment</th><th>What it measures</th><th>Runs</th><th>Command</th>"
    yield f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
