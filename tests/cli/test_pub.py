"""`sterna pub`: what it reports as acknowledged is with a broker, and nothing else is."""

import json
import math
import os
import pty
import re
import select
import signal
import subprocess
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sterna as library
from sterna.cli.pub import LINE_BYTES_MAX, parse_line, parse_lines
from sterna.cli.sub import write_json
from sterna.model.event import Event, plain_attributes
from sterna.net.local import LocalNetwork
from tests.cli.conftest import COMMAND, WAIT_S, running, sterna, sterna_json, subscribed
from tests.scale import examples

pytestmark = pytest.mark.spec("LV-7")


def published(network: LocalNetwork, topic: str, count: int) -> list[dict[str, object]]:
    """What the broker has of a topic: the last so many events of it."""
    status, out, err = sterna(
        *("sub", network.url("B1"), f"topic = '{topic}'", "--json", "--quiet"),
        *("--past", str(count), "--count", str(count)),
    )
    assert (status, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_an_event_from_the_command_line(network: LocalNetwork, tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.write_bytes(b"\xff\x00")
    url = network.url("B1")

    assert sterna("pub", url, "topic=typed", "price=2.5", "--payload", "héllo")[0] == 0
    assert sterna("pub", url, "topic=typed", "free=true", "--payload", f"@{content}")[0] == 0
    first, second = published(network, "typed", 2)

    assert first["attributes"] == {"topic": "typed", "price": 2.5}
    assert first["payload"] == "héllo"
    assert second["attributes"] == {"topic": "typed", "free": True}
    assert second["payload_base64"] == "/wA="


def test_it_says_how_many_were_acknowledged_and_by_whom(network: LocalNetwork) -> None:
    url = network.url("B1")

    status, document = sterna_json("pub", url, "topic=counted", "--count", "5", "--client", "ann")
    assert status == 0
    assert (document["acknowledged"], document["broker"]) == (5, "B1")
    assert sterna("pub", url, "topic=counted")[1].startswith("1 event acknowledged by B1")
    events_ = published(network, "counted", 6)
    assert [event["publisher"] for event in events_][:5] == ["ann"] * 5


def test_many_lines_arrive_once_and_in_order(network: LocalNetwork) -> None:
    """More than the window, so that it waits for acknowledgements on the way."""
    count = 60_000
    lines = "".join(f'{{"topic": "many", "number": {number}}}\n' for number in range(count))

    assert sterna_json("pub", network.url("B1"), stdin=lines)[1]["acknowledged"] == count
    last = published(network, "many", 9_000)

    assert [event["attributes"]["number"] for event in last] == [*range(count - 9_000, count)]  # type: ignore[index]


def test_lines_with_payload_and_empty_lines(network: LocalNetwork) -> None:
    lines = (
        b'\xef\xbb\xbf{"topic": "lines", "n": 1}\n\n'
        b'{"attributes": {"topic": "lines", "n": 2}, "payload": "p", "seq": 9}\r\n'
        b'{"attributes": {"topic": "lines", "n": 3}, "payload_base64": "/wA="}'
    )

    assert sterna("pub", network.url("B1"), "-", stdin=lines)[0] == 0
    first, second, third = published(network, "lines", 3)

    assert "payload" not in first
    assert second["payload"] == "p"
    assert third["payload_base64"] == "/wA="


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 3: not an event"),
        ("[1]", "line 3: not an event"),
        ('{"a": [1]}', "line 3: attribute 'a' is a list"),
        ('{"a": 99999999999999999999}', "line 3: attribute 'a'"),
        ('{"attributes": {"a": 1}, "pay": ""}', "line 3: not an event: 'pay'"),
        ('{"attributes": {"a": 1}, "payload": 1}', "line 3: the payload is a text"),
        ('{"attributes": {"a": 1}, "payload_base64": "?"}', "line 3: payload_base64"),
        (json.dumps({"a": "x" * 2**20}), "line 3: the event has about"),
    ],
)
def test_nothing_after_a_bad_line_is_published(
    network: LocalNetwork, line: str, problem: str
) -> None:
    """Empty lines count, so that an editor finds the line."""
    topic = f"bad {zlib.crc32(line.encode())}"
    good = json.dumps({"topic": topic})

    status, out, err = sterna("pub", network.url("B1"), stdin=f"{good}\n\n{line}\n{good}\n")

    assert (status, out) == (2, "")
    assert problem in " ".join(err.split())
    assert "1 event acknowledged" in " ".join(err.split())
    assert sterna("pub", network.url("B1"), f"topic='{topic}'", "end=true")[0] == 0
    assert "end" in published(network, topic, 2)[1]["attributes"]  # type: ignore[operator]


def test_what_is_no_text_at_all_is_refused(network: LocalNetwork) -> None:
    zeros = b"\0" * (LINE_BYTES_MAX + 2**20)

    assert sterna("pub", network.url("B1"), stdin=zeros)[0] == 2


def test_events_are_on_their_way_before_the_input_ends(network: LocalNetwork) -> None:
    """A pipe that stays open holds nothing back."""
    with running("pub", network.url("B1"), stdin=-1) as process:
        assert process.stdin is not None
        process.stdin.write('{"topic": "open"}\n')
        process.stdin.flush()
        assert published(network, "open", 1)
        process.terminate()
        _, err = process.communicate(timeout=WAIT_S)

    assert process.returncode == 128 + signal.SIGTERM
    assert "stopped; 1 event acknowledged" in err


def test_a_terminal_shows_how_far_it_is(network: LocalNetwork, tmp_path: Path) -> None:
    """While there is input, and only there; a journal has what was published."""
    terminal, end = pty.openpty()
    journal = str(tmp_path / "journal")
    with subprocess.Popen(
        [COMMAND, "pub", network.url("B1"), "--journal", journal],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=end,
        text=True,
    ) as process:
        os.close(end)
        lines = [f'{{"topic": "terminal", "n": {n}}}\n' for n in range(500)]
        while not select.select([terminal], [], [], 0)[0]:
            feed(process, lines)
        shown = os.read(terminal, 1000).decode()
        out, _ = process.communicate(timeout=WAIT_S)
    os.close(terminal)

    assert re.search(r"[\d,]+ events acknowledged, [\d,]+/s", shown)
    assert re.match(r"[\d,]+ events acknowledged by B1", out)
    assert [*Path(journal).rglob("*.arrow*")], "facts are there"


@pytest.mark.spec("LV-1")
def test_a_broker_that_is_killed_meanwhile_costs_nothing(tmp_path: Path) -> None:
    """It waits for the broker to come back: all is acknowledged, and all is there."""
    count = 30_000
    lines = [f'{{"n": {n}}}\n' for n in range(2 * count)]
    with (
        LocalNetwork(1, directory=tmp_path) as network,
        library.blocking.connect(network.url("B1"), client="ann") as ann,
        running("pub", network.url("B1"), "--json", stdin=-1) as process,
    ):
        wanted = ann.subscribe("n >= 0")
        subscribed(network, "ann")
        feed(process, lines[:count])
        first = wanted.get(WAIT_S)
        network.kill("B1")
        network.restart("B1")
        feed(process, lines[count:])
        out, err = process.communicate(timeout=WAIT_S)
        got = [first, *(wanted.get(WAIT_S) for _ in range(2 * count - 1))]

    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["acknowledged"] == 2 * count
    assert [event.attributes["n"] for event in got] == [*range(2 * count)]


def feed(process: "subprocess.Popen[str]", lines: list[str]) -> None:
    assert process.stdin is not None
    process.stdin.writelines(lines)
    process.stdin.flush()


def test_wrong_use_is_told() -> None:
    url = "sterna://127.0.0.1:1"

    for arguments in (
        ["pub", url, "price"],
        ["pub", url, "=1"],
        ["pub", "http://x", "a=1"],
        ["pub", url, "a=1", "--payload", "@absent"],
        ["pub", url, "--payload", "x"],
        ["pub", url, "-", "--count", "2"],
    ):
        status, out, err = sterna(*arguments)
        assert (status, out) == (2, "")
        assert err.startswith("error: ")


def test_an_event_that_is_too_large_is_told(network: LocalNetwork, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 2**20)

    status, _, err = sterna("pub", network.url("B1"), "a=1", "--payload", f"@{tmp_path}/large")

    assert status == 2
    assert "frame_bytes_max" in err
    assert "line" not in err


events = st.builds(
    Event,
    publisher=st.text(min_size=1, max_size=5),
    seq=st.integers(1, 2**63 - 1),
    time_us=st.integers(0, 2**60),
    attributes=st.dictionaries(
        st.text(min_size=1, max_size=5) | st.sampled_from(["attributes", "payload", "seq"]),
        st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=5),
        max_size=4,
    ),
    payload=st.binary(max_size=5) | st.text(max_size=5).map(str.encode),
)


@examples(300, long=10)
@given(events)
def test_what_sub_prints_pub_takes(event: Event) -> None:
    """Attributes and payload come through, but for numbers that JSON does not have."""
    written = write_json(event)
    parsed = parse_line(written.encode())

    assert "\n" not in written
    assert parsed is not None
    attributes, payload = parsed
    kept = {
        name: value
        for name, value in event.attributes.items()
        if not isinstance(value, float) or math.isfinite(value)
    }
    assert (plain_attributes(attributes), payload) == (kept, event.payload)


def test_lines_are_numbered() -> None:
    lines = [b'{"a": 1}', b"", b'{"a": 2}']

    assert [number for number, _, _ in parse_lines(lines, 7)] == [7, 9]
