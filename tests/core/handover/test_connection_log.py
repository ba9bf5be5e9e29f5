"""The log of a client's connections, and from when on an event is surely new to it."""

import pytest

from sterna.core.handover.connection_log import (
    CONNECTIONS_MAX,
    Connection,
    ConnectionLog,
    new_after,
)
from sterna.core.names import NEVER


@pytest.mark.spec("RE-2")
def test_a_log_has_the_last_end_of_each_broker_and_the_latest_first() -> None:
    log = ConnectionLog()
    for broker, begun, ended in (("B1", 10, 20), ("B2", 30, 40), ("B1", 50, 60)):
        log.begin(broker, begun)
        log.end(broker, ended)

    assert log.connections == (Connection(60, "B1"), Connection(40, "B2"))


@pytest.mark.spec("RE-2")
def test_a_connection_that_was_not_seen_to_end_ends_with_the_next_one() -> None:
    """Its program has crashed: it may have got events until then."""
    log = ConnectionLog()
    log.begin("B1", 10)
    log.end("B2", 20)  # It was never there.
    again = ConnectionLog()
    again.restore(log.connections, log.present)

    again.begin("B2", 70)

    assert again.connections == (Connection(70, "B1"),)
    assert again.present == "B2"


@pytest.mark.spec("RE-2")
def test_a_log_is_bounded_and_survives_a_restart() -> None:
    log = ConnectionLog()
    for number in range(CONNECTIONS_MAX + 10):
        log.begin(f"B{number}", number)
        log.end(f"B{number}", number)

    again = ConnectionLog()
    again.restore(log.connections, log.present)

    assert len(again.connections) == CONNECTIONS_MAX
    assert again.connections == log.connections
    assert again.connections[0].broker == f"B{CONNECTIONS_MAX + 9}"


LOG = (Connection(1_000, "B2"), Connection(400, "B1"))


@pytest.mark.spec("RE-2")
@pytest.mark.parametrize(
    ("connections", "here", "kept_us", "expected"),
    [
        ((), "B3", None, NEVER),
        (LOG, "B3", None, 1_050),
        (LOG, "B2", None, 450),  # What it has sent from here, the broker knows.
        (LOG[:1], "B2", None, 0),
        (LOG, "B3", 10_000, 1_050),
        (LOG, "B3", 500, 0),  # Whatever is kept was published after all of these connections.
        (LOG, "B3", 900, 1_050),  # Clocks may differ: not certain.
    ],
    ids=["no log", "usual", "back", "only here", "kept for long", "long ago", "nearly long ago"],
)
def test_what_was_published_after_all_connections_is_new(
    connections: tuple[Connection, ...], here: str, kept_us: int | None, expected: int
) -> None:
    found = new_after(connections, here, 2_000, kept_us=kept_us, clocks_differ_us=50)

    assert found == expected


@pytest.mark.spec("RE-2")
def test_a_broker_looks_at_no_more_of_a_log_than_a_client_keeps() -> None:
    long = tuple(Connection(number, f"B{number}") for number in range(10_000))

    assert new_after(long, "B", 0, kept_us=None, clocks_differ_us=0) == CONNECTIONS_MAX - 1
