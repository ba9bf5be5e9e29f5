"""`sterna pub`: publish an event, or many from standard input."""

import asyncio
import base64
import binascii
import codecs
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import msgspec
import typer

from sterna.cli.addressing import split
from sterna.cli.attributes import parse_assignments
from sterna.cli.output import fail, print_json
from sterna.cli.talking import Also, ClientName, Journal, brokers_of, over_mqtt, talk
from sterna.errors import ClosedError, SternaError, TimedOutError
from sterna.model.event import plain_attributes
from sterna.mqtt.packets import Publish
from sterna.net.client import Client, connect
from sterna.net.client.handles import Receipt
from sterna.net.client.window import Window
from sterna.net.mqtt_client import MqttClient, message_of

LINE_BYTES_MAX = 2**23

SHOW_EVERY_S = 0.5
"""How often a terminal shows how far it is."""

STOP_S = 5.0
"""How long it waits for the broker, when it is stopped, to say what was acknowledged."""

_READ_BYTES = 2**18
_BESIDES = {"publisher", "seq", "time_us"}
"""What `sterna sub --json` adds to an event: when it is published again, these are new."""


class LineError(SternaError, ValueError):
    """A line that is no event."""


def pub(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URL NAME=VALUE…",
            help="A broker, as sterna://host:port, host:port, @context (without it, see `sterna "
            "context --help`) or mqtt://host:port, and the event's attributes; none or `-`: lines "
            "of standard input.",
            show_default=False,
        ),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(metavar="TEXT|@FILE", help="The event's payload, or a file with it."),
    ] = None,
    client: ClientName = None,
    count: Annotated[int, typer.Option(min=1, help="Publish the event so many times.")] = 1,
    also: Also = None,
    journal: Journal = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Publish an event, or many.

    Without attributes, events are read from standard input, a JSON object a line: `{"price": 3}`,
    or `{"attributes": {"price": 3}, "payload": "text"}` as `sterna sub --json` prints them
    (`payload_base64` if it is no text). They are published as fast as the broker takes them. A bad
    line ends it, and nothing after that line is published.

    With mqtt://host:port, any MQTT 5 broker: the attribute `topic` is the topic, `mqtt.qos` (1 if
    it is not given) and `mqtt.retain` are what they say, and the others are user properties.

    Exit status: 0 when a broker has all events for good, 2 on an error, 130 when Ctrl-C has ended
    it before that (143: SIGTERM).
    """
    word, assignments = split(words or [])
    urls = [url for each in (word, *(also or [])) for url in brokers_of(each, as_json=as_json)]
    is_mqtt = over_mqtt(urls, {"--journal": journal}, as_json=as_json)
    is_on_terminal = sys.stderr is not None and sys.stderr.isatty()
    tally = PublishTally(shows=is_on_terminal and not as_json)
    if assignments and assignments != ["-"]:
        attributes, content = _event(assignments, payload, as_json=as_json)
        events = repeated(attributes, content, count)
    else:
        if payload is not None or count != 1:
            fail("--payload and --count go with NAME=VALUE, not with lines", as_json=as_json)
        if sys.stdin is None:
            fail("standard input is closed", as_json=as_json)
        events = read_events()
    stopped_by = talk(
        _publish_by_mqtt(tally, lambda: MqttClient(*urls, client=client), events)
        if is_mqtt
        else _publish(tally, lambda: connect(*urls, client=client, journal=journal), events),
        as_json=as_json,
    )
    said = f"{tally.acknowledged:,} event{'s'[: tally.acknowledged != 1]} acknowledged"
    if tally.problem is not None:
        fail(f"{tally.problem}; {said}", as_json=as_json, acknowledged=tally.acknowledged)
    if stopped_by is not None:
        fail(
            f"stopped; {said}",
            as_json=as_json,
            status=128 + stopped_by,
            acknowledged=tally.acknowledged,
        )
    if as_json:
        print_json(
            {
                "acknowledged": tally.acknowledged,
                "broker": tally.broker,
                "seconds": round(tally.seconds, 6),
            }
        )
    else:
        rate = f", {tally.acknowledged / tally.seconds:,.0f}/s" if tally.acknowledged > 1 else ""
        sys.stdout.write(f"{said} by {tally.broker} ({tally.seconds:.3f} s{rate})\n")


class PublishTally:
    """How many events were published and acknowledged."""

    def __init__(self, *, shows: bool = False) -> None:
        self.acknowledged = 0
        """How many events a broker has for good."""
        self.broker: str | None = None
        self.seconds = 0.0
        self.problem: str | None = None
        self._shows = shows
        """Whether it is shown on a terminal while it grows."""
        self._began = self._shown = perf_counter()
        self._has_shown = False

    def acknowledge(self, count: int) -> None:
        """So many events are acknowledged in all; show it, and how fast that is, now and then."""
        self.acknowledged = count
        now = perf_counter()
        if self._shows and now >= self._shown + SHOW_EVERY_S:
            self._shown, self._has_shown = now, True
            rate = count / (now - self._began)
            sys.stderr.write(f"\r\x1b[K{count:,} events acknowledged, {rate:,.0f}/s")
            sys.stderr.flush()

    def end(self) -> None:
        """Remove what was shown."""
        if self._has_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


Events = AsyncIterator[Iterable[tuple[int | None, dict[str, Any], bytes]]]
"""Events, some at a time, each with the number of its line if it was one."""


async def _publish(tally: PublishTally, make: Callable[[], Client], events: Events) -> None:
    async with make() as client:
        began = perf_counter()
        try:
            await _publish_all(client, events, tally)
        finally:
            tally.end()
            tally.seconds = perf_counter() - began
            tally.broker = client.broker


async def _publish_all(client: Client, events: Events, tally: PublishTally) -> None:
    """Publish until the end, or until something is no event; what was published before stays so."""
    window: Window[Receipt] = Window()
    receipt = None
    try:
        async for some in events:
            for number, attributes, payload in some:
                receipt = _published(client, number, attributes, payload)
                if window.put(receipt):
                    await asyncio.sleep(0)
                    if (mark := window.next()) is not None:
                        await mark.receipt
                        window.arrived()
                        tally.acknowledge(mark.published)
    except LineError as error:
        tally.problem = str(error)
    except asyncio.CancelledError:  # Somebody ends it: what was published stays so.
        if receipt is not None:
            with contextlib.suppress(TimedOutError):
                await receipt.wait(STOP_S)
                tally.acknowledged = window.published
        raise
    if receipt is not None:
        await receipt
        tally.acknowledged = window.published


async def _publish_by_mqtt(
    tally: PublishTally, make: Callable[[], MqttClient], events: Events
) -> None:
    """Publish until the end, until something is no event, or until the connection is lost."""
    async with make() as client:
        began = perf_counter()
        tally.broker = client.broker
        try:
            async for some in events:
                for number, attributes, payload in some:
                    await client.publish(_message(number, attributes, payload))
                    tally.acknowledge(client.acknowledged)
            await client.settle()
        except ValueError as error:
            tally.problem = str(error)
            await client.settle()
        except ClosedError as error:
            tally.problem = str(error)
        finally:
            tally.end()
            tally.acknowledged = client.acknowledged
            tally.seconds = perf_counter() - began


def _message(number: int | None, attributes: dict[str, Any], payload: bytes) -> Publish:
    try:
        return message_of(plain_attributes(attributes), payload)
    except (TypeError, ValueError) as error:
        raise LineError(f"line {number}: {error}" if number else str(error)) from None


def _published(
    client: Client, number: int | None, attributes: dict[str, Any], payload: bytes
) -> Receipt:
    try:
        return client.publish(attributes, payload)
    except (TypeError, ValueError) as error:
        raise LineError(f"line {number}: {error}" if number else str(error)) from None


# ---- Sources of events


async def repeated(attributes: dict[str, Any], payload: bytes, count: int) -> Events:
    """One event, repeated so many times."""
    yield ((None, attributes, payload) for _ in range(count))


async def read_events() -> Events:
    """Events from standard input; LineError names a line that is none."""
    number = 1
    async for lines in _lines():
        yield parse_lines(lines, number)
        number += len(lines)


def parse_lines(
    lines: Iterable[bytes], number: int
) -> Iterator[tuple[int | None, dict[str, Any], bytes]]:
    """The events of lines, the first of which has this number."""
    for line in lines:
        try:
            event = parse_line(line)
        except ValueError as error:
            raise LineError(f"line {number}: {error}") from None
        if event is not None:
            yield number, *event
        number += 1


def parse_line(line: bytes) -> tuple[dict[str, Any], bytes] | None:
    """The event of a line; None if the line is empty."""
    try:
        document = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if not line.strip():
            return None
        raise ValueError(f"not an event: {error}") from None
    attributes = document.get("attributes")
    if not isinstance(attributes, dict):
        return document, b""
    unknown = sorted(set(document) - {"attributes", "payload", "payload_base64"} - _BESIDES)
    if unknown:
        raise ValueError(f"not an event: {unknown[0]!r} besides the attributes makes no sense")
    return attributes, _payload_of(document)


def _payload_of(document: dict[str, Any]) -> bytes:
    text, coded = document.get("payload"), document.get("payload_base64")
    if text is not None and coded is not None:
        raise ValueError("give payload or payload_base64, not both")
    if not isinstance(text, str | None) or not isinstance(coded, str | None):
        raise ValueError("the payload is a text; write bytes as payload_base64")
    if coded is None:
        return (text or "").encode()
    try:
        return base64.b64decode(coded, validate=True)
    except binascii.Error as error:
        raise ValueError(f"payload_base64: {error}") from None


_decoder = msgspec.json.Decoder(dict[str, Any])


async def _lines() -> AsyncIterator[list[bytes]]:
    """Lines of standard input, as many at a time as there are.

    A thread reads them: a file cannot be waited for, and a terminal may take its time.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[list[bytes] | OSError | None] = asyncio.Queue()
    room = threading.Semaphore(4)

    def put(what: list[bytes] | OSError | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(arrived.put_nowait, what)

    def read() -> None:
        # When the command has ended, its loop and perhaps its input are closed.
        with contextlib.suppress(RuntimeError, ValueError):
            try:
                for lines in _split(_blocks()):
                    put(lines)
                put(None)
            except OSError as error:
                put(error)

    # When the command ends before its input does, nobody waits for the thread.
    threading.Thread(target=read, name="standard input", daemon=True).start()
    while (what := await arrived.get()) is not None:
        if isinstance(what, OSError):
            raise LineError(f"cannot read standard input: {what.strerror}")
        room.release()
        yield what


def _blocks() -> Iterator[bytes]:
    # Not through Python's buffer: Python aborts if a thread is still in there when it ends.
    file = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
    read = getattr(file, "read1", file.read)
    data = read(_READ_BYTES).removeprefix(codecs.BOM_UTF8)
    while data:
        yield data
        data = read(_READ_BYTES)


def _split(blocks: Iterator[bytes]) -> Iterator[list[bytes]]:
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        if lines:
            yield lines
        if len(rest) > LINE_BYTES_MAX:
            break  # Whatever it is, it is no line.
    if rest:
        yield [rest]


# ---- Options


def _event(
    assignments: list[str], payload: str | None, *, as_json: bool
) -> tuple[dict[str, Any], bytes]:
    try:
        attributes = dict(parse_assignments(assignments))
    except (TypeError, ValueError) as error:
        fail(str(error), as_json=as_json)
    if payload is None or not payload.startswith("@"):
        return attributes, os.fsencode(payload or "")
    try:
        return attributes, Path(payload[1:]).read_bytes()
    except OSError as error:
        fail(f"cannot read {payload[1:]}: {error.strerror}", as_json=as_json)
