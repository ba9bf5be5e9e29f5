"""`sterna sub`: each event once, until there are enough or somebody stops it."""

import json
import os
import re
import signal
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from sterna.cli.sub import parse_duration, parse_past, write_text
from sterna.core.facts import Displayed
from sterna.journal import facts_in, read_journal
from sterna.model.event import Event
from sterna.net.local import LocalNetwork, wait_for
from tests.cli.conftest import COMMAND, WAIT_S, running, sterna, sterna_json, subscribed

pytestmark = pytest.mark.spec("LV-7")


def numbers(out: str) -> list[int]:
    return [json.loads(line)["attributes"]["n"] for line in out.splitlines()]


def publish(network: LocalNetwork, topic: str, *values: int, at: str = "B1") -> None:
    lines = "".join(f'{{"topic": "{topic}", "n": {value}}}\n' for value in values)
    assert sterna("pub", network.url(at), stdin=lines)[0] == 0


def test_events_come_from_another_broker_as_they_are_published(network: LocalNetwork) -> None:
    with running(
        *("sub", network.url("B2"), "topic = 'live' AND n > 1", "--json"),
        *("--client", "live", "--count", "2"),
    ) as process:
        subscribed(network, "live", at="B2")
        publish(network, "live", 1, 2, 3)
        out, err = process.communicate(timeout=WAIT_S)

    assert (process.returncode, err) == (0, f"listening at B2 ({network.url('B2')})\n")
    assert numbers(out) == [2, 3]


@pytest.mark.spec("RE-1")
def test_two_brokers_watch_and_each_event_is_printed_once(
    network: LocalNetwork, tmp_path: Path
) -> None:
    with running(
        *("sub", network.url("B1"), "topic = 'watched'", "--also", network.url("B2"), "--json"),
        *("--watch", "2", "--client", "car", "--count", "3", "--queue", "ring(9)"),
        *("--journal", str(tmp_path)),
    ) as process:
        for number, broker in enumerate(("B1", "B2"), 1):
            subscribed(network, f"car~{number}", at=broker)
        publish(network, "watched", 1, 2, 3)
        out, err = process.communicate(timeout=WAIT_S)

    assert process.returncode == 0
    assert numbers(out) == [1, 2, 3]
    assert err == "".join(f"watched by {each} ({network.url(each)})\n" for each in ("B1", "B2"))
    told = [fact for batch in read_journal(tmp_path, "car~merged") for fact in facts_in(batch)]
    assert sum(len(fact.events) for fact in told if isinstance(fact, Displayed)) == 3


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--watch", "2"), "--watch 2 needs the addresses of 2 brokers: add some with --also"),
        (("--watch", "1", "--past", "3"), "give --watch or --past, not both"),
        (("--watch", "2", "--also", "--quiet"), "'sterna://--quiet' is no address of a broker"),
    ],
)
def test_what_does_not_go_with_watching_is_refused(
    network: LocalNetwork, options: tuple[str, ...], problem: str
) -> None:
    status, _, err = sterna("sub", network.url("B1"), "TRUE", *options)

    assert status == 2
    assert problem in " ".join(err.split())


def test_past_by_number_and_by_time(network: LocalNetwork) -> None:
    publish(network, "past", *range(10))
    options = ["sub", network.url("B1"), "topic = 'past'", "--json"]

    assert numbers(sterna(*options, "--past", "3", "--count", "3")[1]) == [7, 8, 9]
    assert numbers(sterna(*options, "--past", "1h", "--count", "10")[1]) == [*range(10)]
    assert numbers(sterna(*options, "--past", "3,1h", "--count", "3")[1]) == [7, 8, 9]
    assert numbers(sterna(*options, "--past", "3,1ms", "--timeout", "1s")[1]) == []


def test_several_filters_give_each_event_once(network: LocalNetwork) -> None:
    publish(network, "several", 1, 2, 3)
    filters = ["topic = 'several' AND n < 3", "topic = 'several' AND n = 2"]

    status, out, _ = sterna(
        "sub", network.url("B1"), *filters, "--json", "--past", "2", "--count", "2"
    )

    assert (status, numbers(out)) == (0, [1, 2])


def test_a_line_for_people(network: LocalNetwork) -> None:
    assert (
        sterna("pub", network.url("B1"), "topic=people", "a='x y'", "--payload", "p\x1bq")[0] == 0
    )
    _, out, _ = sterna("sub", network.url("B1"), "topic = 'people'", "--past", "1", "--count", "1")

    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  client-\w+  topic='people' a='x y'  p\\x1bq\n", out
    )


def test_nothing_in_an_event_reaches_the_terminal_as_a_command() -> None:
    event = Event(
        publisher="\x1b]0;x\x07", seq=1, time_us=0, attributes={"\x1b[2J": "\x1b[2J"}, payload=b"\r"
    )

    assert write_text(event).isprintable()
    assert "3 bytes" in write_text(Event(publisher="p", seq=1, time_us=0, payload=b"\xff\xfe\xfd"))


@pytest.mark.spec("LV-2")
def test_with_a_state_the_next_call_goes_on(network: LocalNetwork, tmp_path: Path) -> None:
    """Nothing twice and nothing lost, though nobody listens in between."""
    options = ["sub", network.url("B2"), "topic = 'state'", "--json"]
    options += ["--client", "stateful", "--state", str(tmp_path / "state")]
    with running(*options, "--count", "2") as process:
        subscribed(network, "stateful", at="B2")
        publish(network, "state", 1, 2, 3)
        assert numbers(process.communicate(timeout=WAIT_S)[0]) == [1, 2]
    publish(network, "state", 4)

    assert numbers(sterna(*options, "--count", "2")[1]) == [3, 4]


@pytest.mark.spec("LV-2")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_printed_is_not_printed_again(
    network: LocalNetwork, tmp_path: Path, number: signal.Signals
) -> None:
    """Somebody ends it while it waits for more; the last event is confirmed, as all before."""
    topic = f"again-{number.name}"
    options = ["sub", network.url("B1"), f"topic = '{topic}'", "--json"]
    options += ["--client", topic, "--state", str(tmp_path / "state")]
    with running(*options) as process:
        subscribed(network, topic)
        publish(network, topic, 1)
        assert process.stdout is not None
        assert numbers(process.stdout.readline()) == [1]
        process.send_signal(number)
        assert process.communicate(timeout=WAIT_S)[0] == ""
    assert process.returncode == 0
    publish(network, topic, 2)

    assert numbers(sterna(*options, "--count", "1")[1]) == [2]


@pytest.mark.spec("LV-2")
def test_what_could_not_be_printed_comes_again(network: LocalNetwork, tmp_path: Path) -> None:
    options = ["sub", network.url("B1"), "topic = 'unprinted'", "--json", "--count", "1"]
    options += ["--client", "unprinted", "--state", str(tmp_path / "state")]
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen([COMMAND, *options], stdout=full, stderr=subprocess.PIPE)
        subscribed(network, "unprinted")
        publish(network, "unprinted", 1)
        process.communicate(timeout=WAIT_S)
    assert process.returncode == 2

    assert numbers(sterna(*options)[1]) == [1]


def test_ctrl_c_ends_it_and_the_network_forgets_it(network: LocalNetwork) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        options = ["topic = 'end'", "--client", "ending", "--quiet"]
        with running("sub", network.url("B1"), *options) as process:
            subscribed(network, "ending")
            process.send_signal(number)
            out, err = process.communicate(timeout=WAIT_S)

        assert (process.returncode, out, err) == (0, "", "")
        wait_for(
            lambda: "ending" not in [q["name"] for q in network.ask("B1", "queues")["queues"]],
            "it is remembered",
        )


def test_a_reader_that_has_seen_enough_is_no_failure(network: LocalNetwork) -> None:
    publish(network, "pipe", *range(9_000))
    pipeline = 'set -o pipefail; "$0" sub "$1" "topic = \'pipe\'" --past 9000 --json -q | head -1'
    piped = subprocess.run(
        ["bash", "-c", pipeline, COMMAND, network.url("B1")],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )

    assert (piped.returncode, piped.stderr) == (0, "")
    assert numbers(piped.stdout) == [0]


def test_it_ends_soon_though_many_more_events_wait(network: LocalNetwork) -> None:
    """The goodbye comes behind events that nobody will take."""
    publish(network, "flood", *range(9_000))
    status, out, err = sterna(
        *("sub", network.url("B1"), "topic = 'flood'", "--past", "9000", "--count", "1"),
        *("--json", "--quiet"),
    )

    assert (status, numbers(out), err) == (0, [0], "")


def test_it_goes_to_another_broker_of_its_list(network: LocalNetwork) -> None:
    publish(network, "also", 1)
    status, out, _ = sterna(
        *("sub", "sterna://127.0.0.1:1", "topic = 'also'", "--also", network.url("B1")),
        *("--past", "1", "--count", "1", "--json"),
    )

    assert (status, numbers(out)) == (0, [1])


@pytest.mark.spec("LV-3")
def test_it_says_when_its_broker_is_lost_and_back(tmp_path: Path) -> None:
    with (
        LocalNetwork(1, directory=tmp_path) as network,
        running("sub", network.url("B1"), "a = 1", "--client", "reports") as process,
    ):
        assert process.stderr is not None
        there = f"B1 ({network.url('B1')})\n"
        assert process.stderr.readline() == f"listening at {there}"
        network.kill("B1")
        assert process.stderr.readline().startswith("lost B1: ")
        network.restart("B1")
        assert process.stderr.readline() == f"back at {there}"


def test_it_ends_after_its_time_with_what_has_come_as_it_was_asked_to_print(
    network: LocalNetwork, tmp_path: Path
) -> None:
    """A journal has all that for the audit."""
    topic, journal = "topic = 'timed'", tmp_path / "journal"
    assert sterna("pub", network.url("B1"), "topic=timed", "n=5", "is_new=true")[0] == 0

    status, out, _ = sterna(
        *("sub", network.url("B1"), topic, "--past", "1", "--timeout", "1s"),
        *("--format", "{n} {is_new} {{{absent}}} {_seq} {topic}", "--journal", str(journal)),
    )

    assert status == 0
    assert re.fullmatch(r"5 true \{\} \d+ timed\n", out)
    assert [*journal.rglob("*.arrow*")], "facts are there"


def test_variables_and_a_location(network: LocalNetwork) -> None:
    url = network.url("B1")
    for place in ("1st", "4th"):
        assert sterna("pub", url, "topic=where", f"place={place}", "n=5")[0] == 0
    options = ["sub", url, "topic = 'where' AND place IN myloc(1) AND n < $most", "--json"]
    with running(*options, "--at", "2nd", "--set", "most=9", "--client", "where") as process:
        subscribed(network, "where")
        for place, n in (("4th", 1), ("3rd", 10), ("3rd", 2)):
            assert sterna("pub", url, "topic=where", f"place={place}", f"n={n}")[0] == 0
        assert process.stdout is not None
        assert numbers(process.stdout.readline()) == [2]


@pytest.mark.spec("RE-3")
def test_of_what_waits_for_it_only_that_is_kept_which_it_wants(
    network: LocalNetwork, tmp_path: Path
) -> None:
    options = ["sub", network.url("B2"), "topic = 'keep'", "--json", "--queue", "max(n)"]
    options += ["--client", "keeper", "--state", str(tmp_path / "state")]
    with running(*options, "--count", "2") as process:
        subscribed(network, "keeper", at="B2")
        publish(network, "keep", 1, 2)
        assert numbers(process.communicate(timeout=WAIT_S)[0]) == [1, 2]
    publish(network, "keep", 5, 9, 7)
    network.wait_until_settled()

    assert numbers(sterna(*options, "--count", "1")[1]) == [9]


@pytest.mark.spec("LV-2")
def test_it_walks_and_roams(network: LocalNetwork) -> None:
    """Wherever it is when events are published, it gets them, once and in order."""
    urls = ",".join(network.urls.values())
    with running(
        *("sub", network.url("B1"), "topic = 'roam'", "--json", "--client", "roaming"),
        *("--roam", urls, "--walk", "1st,2nd", "--every", "50ms", "--count", "60"),
    ) as process:
        subscribed(network, "roaming")
        for number in range(20):
            publish(network, "roam", *range(3 * number, 3 * number + 3), at=f"B{number % 2 + 1}")
        out, err = process.communicate(timeout=WAIT_S)

    by_publisher: dict[str, list[int]] = {}
    for line in out.splitlines():
        event = json.loads(line)
        by_publisher.setdefault(event["publisher"], []).append(event["attributes"]["n"])
    assert sorted(numbers(out)) == [*range(60)]
    assert all(values == sorted(values) for values in by_publisher.values())
    there = f"moved from B1 to B2 ({network.url('B2')})"
    back = f"moved from B2 to B1 ({network.url('B1')})"
    assert {there, back, "walked to 2nd"} <= set(err.splitlines())


@pytest.mark.parametrize(
    ("url", "arguments"),
    [
        ("sterna://127.0.0.1:1", ["price <"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--past", "x"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--queue", "latest(a)"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--queue", ""]),
        ("sterna://127.0.0.1:1", ["a = 1", "--past", "1.5"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--past", "5m,10"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--past", "10,10"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--past", ",5m"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--every", "5"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--set", "x"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--timeout", "5"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--format", "{n"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--format", "{}"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--format", "{n:>9}"]),
        ("sterna://127.0.0.1:1", ["a = 1", "--state", "somewhere"]),
        ("http://127.0.0.1", ["a = 1"]),
    ],
)
def test_wrong_use_is_told(url: str, arguments: list[str]) -> None:
    status, out, err = sterna("sub", url, *arguments)

    assert (status, out) == (2, "")
    assert err.startswith("error: ")


@pytest.mark.spec("LV-2")
def test_a_location_that_is_none_is_told(network: LocalNetwork) -> None:
    status, _, err = sterna("sub", network.url("B1"), "place IN myloc", "--at", "nowhere")

    assert status == 2
    assert "nowhere" in err


def test_an_error_in_json_names_the_place() -> None:
    status, document = sterna_json("sub", "sterna://127.0.0.1:1", "a = 1", "lane == 2")

    assert status == 2
    assert (document["line"], document["column"]) == (1, 7)


def test_a_string_in_double_quotes_is_warned_about_once(network: LocalNetwork) -> None:
    publish(network, "quotes", 1)
    status, out, err = sterna(
        *("sub", network.url("B1"), "topic = 'quotes'", 'service = "parking"'),
        *("--past", "1", "--count", "1", "--json", "--quiet"),
    )

    assert (status, numbers(out)) == (0, [1])
    assert err.count("\n") == 1
    assert err.startswith('warning: "parking" in double quotes')


def test_times() -> None:
    assert parse_past("10") == 10
    assert parse_past("5m") == timedelta(minutes=5)
    assert parse_past("0") == 0
    assert parse_past("100,10m") == (100, timedelta(minutes=10))
    for wrong in ("", "-1", "x", "10,", ",5m", "1,2,5m", "5m,10", "10, 5m", "²", "9" * 20 + "d"):
        with pytest.raises(ValueError, match=r"--past is a number of events \(10\), a time"):
            parse_past(wrong)
    assert [parse_duration(text) for text in ("500ms", "1.5s", "2m", "1h", "1d")] == [
        *(0.5, 1.5, 120, 3600, 86400)
    ]
    for wrong in ("", "5", "s", "-1s", "0s", "1w", "1 s"):
        with pytest.raises(ValueError, match="a time is written"):
            parse_duration(wrong)


def test_output_that_cannot_be_written_is_one_line(network: LocalNetwork) -> None:
    publish(network, "full", 1)
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [
                *(COMMAND, "sub", network.url("B1"), "topic = 'full'", "--past", "1", "--quiet"),
                *("--count", "1"),
            ],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ},
        )

    assert (ended.returncode, ended.stderr) == (2, b"error: No space left on device\n")
