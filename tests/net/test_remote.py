"""A broker's journal can be read from elsewhere, as it is on its disk."""

from pathlib import Path

import pytest

from sterna import FactsMissingError
from sterna.errors import SternaError
from sterna.journal import read_journal
from sterna.net import blocking
from sterna.net.local import LocalNetwork
from sterna.net.observer import Observer
from sterna.net.remote import extent, read


@pytest.mark.spec("PL-1", "LV-6")
def test_a_broker_lends_its_journal(tmp_path: Path) -> None:
    """All facts up to now, in any pieces; a broker that keeps none or has lost some reports it."""
    config = {"journal": {"segment_bytes": 2_000, "bytes_max": 1_000_000}}
    with LocalNetwork(2, directory=tmp_path, config=config) as network:
        url = network.urls["B1"]
        with blocking.connect(url, client="p") as client:
            for number in range(200):
                client.publish(number=number)
                client.drain()
                if number % 50 == 0:
                    extent(url)  # What it has so far goes to a file of its own.
        known = extent(url)
        rows = [row for batch in read(url, known.start, known.end) for row in batch.to_pylist()]
        middle = (known.start + known.end) // 2
        parts = [
            row
            for begin, end in ((known.start, middle), (middle, known.end))
            for batch in read(url, begin, end)
            for row in batch.to_pylist()
        ]
        assert known.node == "B1"
        assert parts == rows
        assert sum(len(row["seqs"]) for row in rows if row["kind"] == "Accepted") == 200
        on_disk = read_journal(network.data("B1") / "journal")
        assert rows == [
            row for batch in on_disk for row in batch.to_pylist() if row["position"] < known.end
        ]
        with Observer(url) as observer, pytest.raises(SternaError, match="ask for one of"):
            observer.ask("secrets")
        for segment in sorted((network.data("B1") / "journal").glob("*.arrows"))[:1]:
            segment.unlink()
        with pytest.raises(FactsMissingError, match="are not there") as missing:
            list(read(url, known.start, known.end))
        assert known.start < missing.value.following <= known.end


@pytest.mark.spec("PL-1")
def test_a_broker_without_a_journal_says_so(tmp_path: Path) -> None:
    with (
        LocalNetwork(1, directory=tmp_path, config={"journal": {"enabled": False}}) as network,
        pytest.raises(SternaError, match=r"keeps no journal \(journal.enabled\)"),
    ):
        extent(network.urls["B1"])
