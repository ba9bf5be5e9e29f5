"""The wrong deliveries of a report: a table, and for each the way of its event."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from html import escape
from itertools import groupby

from sterna.model.delivery import Fault
from sterna.pipeline.report.drawing import drawing
from sterna.pipeline.report.ways import Way

_MEANS = {
    str(Fault.LOST): "It was owed to {client}, and {client} has no record of it.",
    str(Fault.DUPLICATED): "{client} got it more than once.",
    str(Fault.REORDERED): "{client} got it after a later event of the same publisher.",
    str(Fault.UNASKED): "{client} got it without a subscription that matches it.",
    str(Fault.UNPUBLISHED): "{client} got it, and nobody published it as it arrived.",
    str(Fault.DETACHED): "{client} got it while it was connected with no broker.",
    str(Fault.FORGED): "A broker has it from its publisher, who has not published it.",
    str(Fault.ALTERED): "A broker has it with another content than its publisher.",
    str(Fault.REUSED): "Another event of the same publisher has this number.",
}

_ARRIVED = {
    "Delivered": "delivered to its program",
    "Stray": "arrived, and no subscription wanted it",
    "Recalled": "arrived from the past",
    "Repeated": "arrived again, and was dropped",
    "Missed": "reported as missed",
}


def findings(ways: list[Way], wrong: int) -> str:
    """The table of findings, each with a link to its way."""
    worlds = any(way.world for way in ways)
    heading = ["", "What is wrong", "Event", "For", "Published"]
    heading += ["Simulation"] if worlds else []
    head = "".join(f"<th>{name}</th>" for name in [*heading, "Its way"])
    lines = "".join(_row(way, worlds=worlds) for way in ways)
    more = ""
    if wrong > len(ways):
        more = (
            f"<p class=note>These are {len(ways)} of {wrong:,}. "
            "<code>sterna pipeline audit DIR --out FILE</code> lists up to 100,000.</p>"
        )
    return (
        f'<div class="wide"><table class="findings"><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>{more}"
    )


def ways_in_words(ways: list[Way]) -> str:
    """The ways of all findings, each drawn and told; nothing without any."""
    if not ways:
        return ""
    return (
        '<h2 id="ways">Ways of the events that went wrong</h2>'
        "<p>From left to right, the brokers that state that they had the event. Below, each step "
        "with its time after the publication, by the clock of the node that states it.</p>"
        + "".join(map(_way, ways))
    )


def _row(way: Way, *, worlds: bool) -> str:
    world = f"<td>{escape(way.world)}</td>" if worlds else ""
    hops = len(way.steps)
    told = "no broker states it" if not hops else f"{hops} hop{'s' if hops > 1 else ''}"
    return (
        f'<tr id="finding-{way.number}"><td class="number">{way.number}</td>'
        f'<td><span class="fault">{escape(way.fault)}</span></td><td>{_event(way)}</td>'
        f"<td>{escape(way.client)}</td><td>{escape(_moment(way.published))}</td>{world}"
        f'<td><a href="#way-{way.number}">{told} ↓</a></td></tr>'
    )


def _way(way: Way) -> str:
    client = _name(way.client)
    means = _MEANS.get(way.fault, "{client}").format(client=client)
    content = ", ".join(f"{name} = {value!r}" for name, value in way.content.items())
    shown = f'<p class="content"><code>{escape(content)}</code></p>' if content else ""
    steps = "".join(
        f'<tr class="{kind}"><td class="time">{escape(time)}</td><td>{text}</td></tr>'
        for kind, time, text in _steps(way)
    )
    return (
        f'<article id="way-{way.number}"><h4><span class="number">{way.number}</span> '
        f'<span class="fault">{escape(way.fault)}</span> {_event(way)}{_for(way)}'
        f'<a class="back" href="#finding-{way.number}">back to the list ↑</a></h4>'
        f'<p>{means}{_where(way)}</p>{shown}<div class="wide">{drawing(way)}</div>'
        f'<table class="steps">{steps}</table></article>'
    )


def _for(way: Way) -> str:
    return f" for {escape(way.client)}" if way.client else ""


def _steps(way: Way) -> Iterator[tuple[str, str, str]]:
    """What happened to the event, one after the other: its class, the time, and the words."""
    client = escape(way.client)
    zero = way.published or way.accepted or (way.steps[0].time if way.steps else None)
    if way.published is not None:
        yield "", _clock(way.published), f"{escape(way.publisher)} published it"
    else:
        yield "open", "", "No table has the event itself: no broker states that it accepted it"
    if way.accepted_by is not None:
        yield "", _after(way.accepted, zero), f"{escape(way.accepted_by)} accepted it"
    for (broker, time), steps in groupby(way.steps, lambda step: (step.broker, step.time)):
        to = [step.to for step in steps]
        kind = "meant" if way.client in to else ""
        yield kind, _after(time, zero), f"{escape(broker)} → {_receivers(way, to)}"
    if way.client and not way.sent_by:
        at = f"{escape(way.at)} does not state" if way.at else "No broker states"
        yield "missing", "", f"{at} that it sent the event to {client}"
    for time, kind in way.arrivals:
        yield "meant", _after(time, zero), f"{client}: {_ARRIVED.get(kind, escape(kind))}"
    if way.client and not way.arrivals and way.sent_by:
        yield "missing", "", f"{client} does not state that it arrived"


def _receivers(way: Way, to: list[str]) -> str:
    """Brokers and the client by their names, other clients as a number."""
    named = [name for name in to if name in way.brokers or name == way.client]
    others = [name for name in to if name not in named]
    if len(others) > 1:
        others = [f"{len(others)} {'other ' if way.client in named else ''}clients"]
    parts = [escape(name) for name in (*named, *others)]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _where(way: Way) -> str:
    if way.at is None:
        return ""
    until = f" until {_clock(way.until)}" if way.until else ""
    return (
        f" When it was published, {_name(way.client)} was at {_name(way.at)}, "
        f"since {_clock(way.since)}{until}."
    )


def _name(name: str) -> str:
    return f'<span class="name">{escape(name)}</span>'


def _event(way: Way) -> str:
    return f"{escape(way.publisher)} <span class=seq>#{way.seq}</span>"


def _moment(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def _clock(time: datetime | None) -> str:
    return "" if time is None else f"{time:%H:%M:%S}.{time.microsecond // 1000:03}"


def _after(time: datetime | None, zero: datetime | None) -> str:
    """How long after the publication something was, by the clocks of its nodes."""
    if time is None or zero is None:
        return ""
    passed_ms = (time - zero) / timedelta(milliseconds=1)
    sign = "+" if passed_ms >= 0 else "−"
    passed_ms = abs(passed_ms)
    if passed_ms < 1000:
        return f"{sign}{passed_ms:.1f} ms"
    return f"{sign}{passed_ms / 1000:,.2f} s"
