"""A fact that the journal has no form for is lost alone."""

from pathlib import Path

import pytest

from sterna.core.facts import Accepted, Attached, Fact
from sterna.core.names import Peer
from sterna.journal import Journal
from tests.journal.made import contents


class Odd(Fact, frozen=True, kw_only=True):
    """Has a field of which no journal has a form."""

    seen: object


@pytest.mark.spec("LV-10")
def test_a_fact_without_a_form_is_lost_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others of its input and of its batch are written, and so is all that follows."""
    odd = Odd(at="b", time=1, seen=complex(1, 2))
    uncounted = Accepted(at="b", time=1, link="l", events=7)  # type: ignore[arg-type]
    attached = Attached(at="b", time=1, link="l", peer=Peer.CLIENT)
    journal = Journal(tmp_path, "b")
    journal.record(1, [attached, odd, attached])
    journal.record(2, [uncounted, attached])
    journal.flush()
    journal.record(3, [odd])
    journal.flush()
    journal.record(4, [attached])
    journal.close()

    assert [place for place, _ in contents(tmp_path)] == [(1, 0), (1, 2), (2, 1), (4, 0)]
    first, second = caplog.messages
    assert "cannot hold are lost: 2, the first at position 1 (Odd)" in first
    assert "cannot hold are lost: 1, the first at position 3 (Odd)" in second
