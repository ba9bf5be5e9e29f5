"""`sterna sub`: subscribe, and print what arrives."""

import asyncio
import base64
import contextlib
import itertools
import os
import sys
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Formatter
from typing import Annotated, Any

import msgspec
import typer

from sterna.cli.addressing import split
from sterna.cli.attributes import parse_assignments
from sterna.cli.output import advise, fail
from sterna.cli.talking import Also, ClientName, Journal, brokers_of, over_mqtt, talk
from sterna.core.terms.messages import Order
from sterna.errors import FilterWarning, SternaError
from sterna.model.duration import parse_duration
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter, FilterError
from sterna.model.queue_policies import parse_policy
from sterna.mqtt.packets import UserProperties
from sterna.net.address import Address, AddressError
from sterna.net.client import Client, connect
from sterna.net.client.connections import Change, Connected, Lost
from sterna.net.client.handles import Subscription
from sterna.net.client.watched import WatchedSubscription
from sterna.net.client.watching import WatchingClient
from sterna.net.mqtt_client import MqttClient, MqttSubscription

_EXPECTED = ("the client is closed", "the client has detached", "the broker refuses")
"""Why connections end on purpose, or with an error that the command ends with."""


def sub(  # noqa: PLR0915 - a few for each option.
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[URL] FILTER…",
            help="A broker, as sterna://host:port, host:port, @context (without it, see `sterna "
            "context --help`) or mqtt://host:port, and what to subscribe to; several filters: "
            "whatever matches one.",
        ),
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="FILTER",
            help="With mqtt://, a topic filter, such as `cars/+/speed`; FILTER may be left out.",
            show_default=False,
        ),
    ] = None,
    past: Annotated[
        str | None,
        typer.Option(
            metavar="10|5m|10,5m",
            help="Begin with the last so many events, or those of so long, or the last so many of "
            "so long.",
        ),
    ] = None,
    order: Annotated[
        Order,
        typer.Option(
            help="`available`: let new events overtake older ones that a broker out of reach has."
        ),
    ] = Order.STRICT,
    keep: Annotated[
        str | None,
        typer.Option(
            "--queue",
            metavar="POLICY",
            help="What to keep of the events that wait while the client is away: `ttl(30s)`, "
            "`last_per(attribute)`, `max(expression)`, `min(expression)` or `ring(100)`; else all.",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many events.", show_default=False)
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="30s", help="End after so long, however much has arrived.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="TEXT",
            help="Print this for each event, with the values of its attributes for `{name}`; also "
            "`{_publisher}`, `{_seq}`, `{_time}` and `{_payload}`.",
        ),
    ] = None,
    watch: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Have so many of the given brokers serve it at once; when one is lost, another "
            "takes its place. Not with the options about state, past, order, place and roaming.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not report the connection on standard error.")
    ] = False,
    client: ClientName = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the client remembers what it has had."),
    ] = None,
    journal: Journal = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="LOCATION", help="Where it is, for myloc.")
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="NAME=VALUE", help="The value of a context variable $NAME."
        ),
    ] = None,
    also: Also = None,
    walk: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Move from location to location, round and round."),
    ] = None,
    roam: Annotated[
        str | None,
        typer.Option(metavar="URL,URL", help="Move from broker to broker, round and round."),
    ] = None,
    every: Annotated[
        str, typer.Option(metavar="5s", help="How long it stays before it walks or roams on.")
    ] = "5s",
) -> None:
    """Subscribe, and print events as they arrive.

    Standard error says at which broker it listens, and when that one is lost, back, or another one.

    With mqtt://host:port it speaks MQTT 5: `--topic` says which topics (else `#`), and FILTER,
    `--past` and `--queue` are user properties, which only Sterna brokers know. `_publisher` is the
    broker then, and `_seq` counts what came. With `--client`, the broker keeps the session.

    With `--client` and `--state`, the next call continues where this one ended: it gets what
    arrived meanwhile, and nothing that was printed before. Ctrl-C and SIGTERM end it.

    Exit status: 0 ended by Ctrl-C, SIGTERM, `--count`, `--timeout` or its reader (such as head),
    2 on an error.
    """
    word, texts = split(words)
    if not texts and not topics:
        fail('give a filter, such as "price < 3"', as_json=as_json)
    where = _filter(texts or ["TRUE"], as_json=as_json)
    urls = [url for each in (word, *(also or [])) for url in brokers_of(each, as_json=as_json)]
    roads = [
        url for each in (roam or "").split(",") if each for url in brokers_of(each, as_json=as_json)
    ]
    try:
        context = parse_assignments(variables or [])
        beginning = parse_past(past)
        if keep is not None:
            parse_policy(keep)
        stay_s = parse_duration(every)
        limit_s = None if timeout is None else parse_duration(timeout)
        write = write_json if as_json else write_text if form is None else formatted(form)
    except (TypeError, ValueError) as error:
        fail(str(error), as_json=as_json)
    if as_json and form is not None:
        fail("give --json or --format, not both", as_json=as_json)
    alone: dict[str, object] = {
        "--state": state,
        "--past": past,
        "--at": at,
        "--set": variables,
        "--walk": walk,
        "--roam": roam,
        "--order": order is not Order.STRICT,
    }
    only_native = {
        **alone,
        "--past": None,
        "--past N,DURATION": "," in (past or ""),
        "--watch": watch,
        "--journal": journal,
    }
    is_mqtt = over_mqtt(urls, only_native, as_json=as_json)
    if topics and not is_mqtt:
        fail("--topic goes with mqtt://; else write topic MATCHES 'FILTER'", as_json=as_json)
    if not is_mqtt:
        _check_client(client, state, watch, urls, alone, as_json=as_json)

    async def subscribe() -> None:
        connecting = connect(*urls, client=client, state=state, journal=journal)
        if not quiet:
            connecting.on_connection(Reporter(_say).changed)
        async with connecting as connected:
            for name, value in context.items():
                connected.set(name, value)
            places = walk.split(",") if walk else []
            if at is not None or places:
                connected.move(at if at is not None else places[0])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FilterWarning)  # The user has read it above.
                subscription = connected.subscribe(
                    where,
                    past=beginning,
                    acknowledge="auto" if state is None else "manual",
                    order=order.value,
                    keep=keep,
                )
            movements: list[Awaitable[None]] = []
            movements += [_walk(connected, places, stay_s)] if places else []
            movements += [_roam(connected, roads, stay_s)] if roads else []
            if limit_s is not None:
                movements.append(asyncio.sleep(limit_s))
            await _first(writer.write_all(subscription), *movements)

    try:
        writer = Writer(write, confirms=state is not None or is_mqtt, count=count)
        work: Coroutine[Any, Any, None]
        if is_mqtt:
            wishes = {"where": texts and str(where), "past": past, "keep": keep}
            properties = tuple([(name, str(value)) for name, value in wishes.items() if value])
            by_mqtt = MqttClient(*urls, client=client)
            work = _by_mqtt(by_mqtt, topics or ["#"], properties, writer, limit_s, quiet=quiet)
        elif watch is None:
            work = subscribe()
        else:
            watching = connect(*urls, client=client, watch=watch, journal=journal)
            work = _watch(watching, where, keep, writer, limit_s, quiet=quiet)
        talk(work, as_json=as_json)
        sys.stdout.flush()
    except BrokenPipeError:  # The reader, such as head, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Reporter:
    """Reports changes of the connection as lines for people."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last: str | None = None
        """The broker that was reported last."""

    def changed(self, change: Change) -> None:
        """Report one change; a `Moved` follows a `Connected`, which has said it all."""
        match change:
            case Connected(broker, address):
                if self._last is None:
                    self._say(f"listening at {broker} ({address})")
                elif self._last == broker:
                    self._say(f"back at {broker} ({address})")
                else:
                    self._say(f"moved from {self._last} to {broker} ({address})")
                self._last = broker
            case Lost(broker, reason) if not reason.startswith(_EXPECTED):
                self._say(f"lost {broker}: {reason}; looking for a broker")
            case _:
                pass


def _check_client(
    client: str | None,
    state: Path | None,
    brokers: int | None,
    urls: Sequence[str],
    alone: Mapping[str, object],
    *,
    as_json: bool,
) -> None:
    """Refuse a state without a name, and what does not go with `--watch`."""
    both = [option for option, value in alone.items() if value]
    if state is not None and client is None:
        fail("a state belongs to a client: give its name with --client", as_json=as_json)
    if brokers is not None and both:
        fail(f"give --watch or {both[0]}, not both", as_json=as_json)
    try:
        addresses = {Address.from_url(url) for url in urls}
    except AddressError as error:
        fail(str(error), as_json=as_json)
    if brokers is not None and len(addresses) < brokers:
        problem = (
            f"--watch {brokers} needs the addresses of {brokers} brokers: add some with --also"
        )
        fail(problem, as_json=as_json)


async def _watch(
    connecting: WatchingClient,
    where: Filter,
    keep: str | None,
    writer: "Writer",
    limit_s: float | None,
    *,
    quiet: bool,
) -> None:
    """Write what several brokers bring."""
    if not quiet:
        connecting.on_connection(_report_watching)
    async with connecting as connected:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FilterWarning)  # The user has read it above.
            subscription = connected.subscribe(where, keep=keep)
        limit = [] if limit_s is None else [asyncio.sleep(limit_s)]
        await _first(writer.write_all(subscription), *limit)


async def _by_mqtt(
    connecting: MqttClient,
    topics: Sequence[str],
    properties: UserProperties,
    writer: "Writer",
    limit_s: float | None,
    *,
    quiet: bool,
) -> None:
    """Write what an MQTT broker brings."""
    async with connecting as connected:
        subscription = await connected.subscribe(topics, properties)
        if not quiet:
            _say(f"listening at {connected.broker}")
        limit = [] if limit_s is None else [asyncio.sleep(limit_s)]
        await _first(writer.write_all(subscription), *limit)


def _report_watching(change: Change) -> None:
    """Report that a broker watches, or that it is lost."""
    match change:
        case Connected(broker, address):
            _say(f"watched by {broker} ({address})")
        case Lost(broker, reason) if not reason.startswith(_EXPECTED):
            _say(f"lost {broker}: {reason}")
        case _:
            pass


class Writer:
    """Writes events to standard output."""

    def __init__(self, form: Callable[[Event], str], *, confirms: bool, count: int | None) -> None:
        self._form = form
        self._confirms = confirms
        """Whether each event is acknowledged once it is written: then it is not printed again."""
        self._count = count

    async def write_all(
        self, subscription: Subscription | WatchedSubscription | MqttSubscription
    ) -> None:
        """Write events until there are enough, or the subscription ends."""
        written = 0
        async for event in subscription:
            sys.stdout.write(self._form(event) + "\n")
            written += 1
            if self._confirms or not subscription.waiting:
                sys.stdout.flush()
            if self._confirms and not isinstance(subscription, WatchedSubscription):
                subscription.acknowledge(event)
            if written == self._count:
                return
            if written % 1000 == 0:
                await asyncio.sleep(0)  # With many events here, iterating alone never pauses.


def write_text(event: Event) -> str:
    """An event as a line for people."""
    said = " ".join(f"{_plain(name)}={value!r}" for name, value in event.attributes.items())
    payload = f"  {_shown(event.payload)}" if event.payload else ""
    return f"{_moment(event)}  {_plain(event.publisher)}  {said}{payload}"


def formatted(form: str) -> Callable[[Event], str]:
    """How events are written by `--format`; ValueError if it makes no sense."""
    try:
        parts = list(Formatter().parse(form))
    except ValueError as error:
        raise ValueError(
            f"--format: {error}; write {{name}} for an attribute, {{{{ for {{"
        ) from None
    for _, name, spec, conversion in parts:
        if name == "" or spec or conversion:
            raise ValueError("--format: write {name} for an attribute, and {{ or }} for a brace")

    def write(event: Event) -> str:
        known = {
            "_publisher": _plain(event.publisher),
            "_seq": str(event.seq),
            "_time": _moment(event),
            "_payload": _shown(event.payload),
        }
        values = {name: _plain(_text_of(value)) for name, value in event.attributes.items()}
        return "".join(
            text + ("" if name is None else values.get(name, known.get(name, "")))
            for text, name, _, _ in parts
        )

    return write


def write_json(event: Event) -> str:
    """An event as a line for programs; `sterna pub` accepts it as well."""
    document: dict[str, object] = {
        "publisher": event.publisher,
        "seq": event.seq,
        "time_us": event.time_us,
        "attributes": event.attributes,
    }
    if event.payload:
        try:
            document["payload"] = event.payload.decode()
        except UnicodeDecodeError:
            document["payload_base64"] = base64.b64encode(event.payload).decode()
    return msgspec.json.encode(document).decode()


def parse_past(text: str | None) -> int | timedelta | tuple[int, timedelta] | None:
    """Parse `--past`: `10` is a number of events, `5m` a time, `10,5m` both."""
    if text is None:
        return None
    count, comma, period = text.rpartition(",")
    try:
        if comma:
            return _number(count), timedelta(seconds=parse_duration(period))
        return _number(text) if text.isdigit() else timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError):
        raise ValueError(
            f"--past is a number of events (10), a time (30s, 5m, 1h) or both (10,5m), not {text!r}"
        ) from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


def _moment(event: Event) -> str:
    moment = datetime.fromtimestamp(event.time_us / 1e6, UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")[:23]


def _text_of(value: Scalar) -> str:
    """A value as it is typed: true and false as in filters and in JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(text: str) -> str:
    """Text without control characters for the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _shown(payload: bytes) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"({len(payload):,} bytes)"
    return _plain(text) if len(text) <= 200 else f"{_plain(text[:200])}… ({len(payload):,} bytes)"


def _filter(texts: list[str], *, as_json: bool) -> Filter:
    for text in texts:
        try:
            advise(Filter(text))
        except FilterError as error:
            fail(
                error.problem if as_json else str(error),
                as_json=as_json,
                line=error.line,
                column=error.column,
            )
    return Filter(texts[0] if len(texts) == 1 else " OR ".join(f"({text})" for text in texts))


# ---- Moving


async def _walk(client: Client, places: list[str], stay_s: float) -> None:
    for place in itertools.chain(places[1:], itertools.cycle(places)):
        await asyncio.sleep(stay_s)
        client.move(place.strip())
        _say(f"walked to {place.strip()}")


async def _roam(client: Client, urls: list[str], stay_s: float) -> None:
    for url in itertools.cycle(urls):
        await asyncio.sleep(stay_s)
        try:
            await client.attach(url)
        except SternaError as error:
            _say(str(error))


def _say(text: str) -> None:
    if sys.stderr is None:  # It was closed by whoever started the command.
        return
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")


async def _first(*several: Awaitable[None]) -> None:
    """Wait until one of them ends."""
    tasks = [asyncio.ensure_future(each) for each in several]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()


__all__ = ["Writer", "parse_duration", "parse_past", "sub", "write_json", "write_text"]
