"""Every row is published once, whenever the process that publishes it or the machine stops."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source import staged as staged_module
from sterna.pipeline.source import staging as staging_module
from sterna.pipeline.source.staged import Row, StagedFile
from sterna.pipeline.source.staging import BatchId, PublishingClient, Staging
from tests.net.storage.model_disk import ModelDisk, PowerCut
from tests.scale import examples

DIRECTORY = Path("/staging")
QUERY = "the query 1"


class StagingDisk(ModelDisk):
    """Says as the system does that a file is not there."""

    def remove(self, path: Path) -> None:
        if path.name not in self.names(path.parent):
            raise FileNotFoundError(path)
        super().remove(path)


class ModelClient(PublishingClient):
    """A client with a state, and the network behind it, which outlives it.

    What it publishes is in its log first, synced some time later, and only then with a broker.
    """

    def __init__(self, disk: ModelDisk, rng: Random) -> None:
        self.broker: dict[int, Row] = {}
        self._disk = disk
        self._rng = rng
        self._log: list[tuple[int, Row | None]] = []
        """Numbers and rows; the first is the number before the first event."""
        self._synced = 0

    @property
    def published(self) -> int:
        return self._log[-1][0]

    @property
    def event_bytes_max(self) -> int:
        return 2**20

    @contextlib.contextmanager
    def connect(self, name: str) -> Iterator[PublishingClient]:
        assert name == "client"
        if not self._log:
            self._log = [(self._rng.randrange(10**6), None)]
        self._maybe_sync()
        yield self
        self._sync()

    def publish_all(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._log.append((self.published + 1, row))
            self._maybe_sync()
        self._sync()

    def stop(self, *, power: bool) -> None:
        """The process is gone; without power, so is some of what was not synced."""
        if power:
            return
        kept = self._rng.randint(self._synced, len(self._log))
        del self._log[kept:]

    def _maybe_sync(self) -> None:
        if self._rng.random() < 0.3:
            self._sync()

    def _sync(self) -> None:
        self._disk.step("client")
        for number, row in self._log[self._synced :]:
            if row is not None:
                assert self.broker.setdefault(number, row) == row, "a number means one event"
        self._synced = len(self._log)


class Query:
    """A streaming query through crashes of all kinds: it repeats what it is not sure of."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)  # noqa: S311
        self.disk = StagingDisk()
        self.client = ModelClient(self.disk, self.rng)
        self.attempts: list[list[list[int]]] = []
        """The orders of rows that were tried, batch by batch."""

    def run(self, batches: int) -> None:
        number = 0
        for batch in range(batches):
            rows = list(range(number, number + self.rng.choice([0, 1, 3, 8])))
            number += len(rows)
            self.attempts.append([])
            is_over = False
            while not is_over:  # The source is asked again, and may order its rows anew.
                self.rng.shuffle(rows)
                self.attempts[-1].append(list(rows))
                # A batch that Spark has not heard of comes again, published or not.
                is_over = self.attempt(batch, rows) and self.rng.random() < 0.7

    def attempt(self, batch: int, rows: list[int]) -> bool:
        steps = self.disk.operations + self.rng.randrange(40)
        match self.rng.randrange(4):
            case 0:
                self.disk.fail_at = steps
            case 1 | 2:
                self.disk.cut_at = steps
        files: list[StagedFile] = []
        staging = Staging(DIRECTORY, disk=self.disk)
        try:
            half = self.rng.randint(0, len(rows))
            for part in (rows[:half], rows[half:]):
                files += staging.stage(map(event, part), job="stream")
                if self.rng.random() < 0.2:
                    staging.stage(map(event, part), job="stream")  # An attempt too many.
            staging.commit(
                batch, files, self.client.connect, owner=QUERY, client="client", job="stream"
            )
        except PowerCut:
            self.stop()
        except OSError:
            with contextlib.suppress(PowerCut):
                self.disk.fail_at = None
                staging.abort(job="stream")  # As Spark does.
            self.stop()
        else:
            self.disk.cut_at = self.disk.fail_at = None
            return True
        return False

    def stop(self) -> None:
        power = self.rng.random() < 0.4
        self.client.stop(power=power)
        if power:
            self.disk.kill()
        else:
            self.disk.power_cut(self.rng)

    def received(self) -> list[int]:
        """What a subscriber gets, in the order of the numbers."""
        return [int(row[0]["n"]) for _, row in sorted(self.client.broker.items())]


def event(number: int) -> Row:
    return {"n": number}, b""


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_module, "FILE_ROWS_MAX", 3)


@pytest.mark.spec("PL-1")
@examples(300, long=2)
@given(seed=st.integers(0, 2**64))
def test_no_crash_loses_or_doubles_a_row(seed: int) -> None:
    """Each batch is published once, in the order of one of its attempts, after the one before."""
    query = Query(seed)

    query.run(4)

    received = iter(query.received())
    for attempts in query.attempts:
        got = [next(received, -1) for _ in attempts[0]]
        assert got in attempts
    assert list(received) == []
    names = query.disk.names(DIRECTORY)
    assert not [name for name in names if name.endswith(".rows")], "nothing is left behind"


# ---- One at a time


class Plain(ModelClient):
    """A client to which nothing happens."""

    def __init__(self, *, event_bytes_max: int = 2**20) -> None:
        super().__init__(ModelDisk(), Random(0))  # noqa: S311
        self.largest = event_bytes_max

    @property
    def event_bytes_max(self) -> int:
        return self.largest

    @contextlib.contextmanager
    def connect(self, name: str) -> Iterator[PublishingClient]:  # noqa: ARG002
        with super().connect("client") as outbox:
            yield outbox


def commit(
    staging: Staging,
    client: ModelClient,
    batch: BatchId,
    numbers: Iterable[int],
    *,
    owner: str = QUERY,
    name: str | None = "client",
) -> None:
    files = staging.stage(map(event, numbers), job="job")
    staging.commit(batch, files, client.connect, owner=owner, client=name, job="job")


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(tmp_path / "staging")


def numbers(client: ModelClient) -> list[int]:
    return [int(row[0]["n"]) for row in client.broker.values()]


@pytest.mark.spec("PL-1")
def test_transactions_are_remembered_for_good(staging: Staging) -> None:
    """However often and in whatever order jobs run again, each transaction is published once."""
    client = Plain()
    for day in ("mon", "tue", "mon", "wed", "tue"):
        commit(staging, client, day, [{"mon": 1, "tue": 2, "wed": 3}[day]], owner="transactions")

    assert numbers(client) == [1, 2, 3]


@pytest.mark.spec("PL-1")
def test_a_job_that_was_committed_is_finished_by_the_next_one(staging: Staging) -> None:
    """What is in the ledger will be published first, whichever process comes next."""
    client = Plain()

    @contextlib.contextmanager
    def dies(name: str) -> Iterator[PublishingClient]:
        with client.connect(name) as outbox:
            yield Dying(outbox)

    class Dying(PublishingClient):
        def __init__(self, outbox: PublishingClient) -> None:
            self.outbox = outbox

        @property
        def published(self) -> int:
            return self.outbox.published

        @property
        def event_bytes_max(self) -> int:
            return self.outbox.event_bytes_max

        def publish_all(self, rows: Iterable[Row]) -> None:
            self.outbox.publish_all([next(iter(rows))])
            raise ConnectionError

    files = staging.stage(map(event, [1, 2, 3]), job="one")
    with pytest.raises(ConnectionError):
        staging.commit("one", files, dies, owner="transactions", client="client", job="one")
    staging.stage([event(0)], job="one")
    staging.abort(job="one")  # As Spark does.
    assert len([*staging.directory.glob("*.rows")]) == len(files)
    commit(staging, client, "two", [4], owner="transactions")

    assert numbers(client) == [1, 2, 3, 4]


def damaged(staging: Staging) -> Staging:
    (staging.directory / "ledger.json").write_text("{")
    return staging


Change = Callable[[Staging, ModelClient], None]
WRONG: dict[str, tuple[Change, str]] = {
    "another query": (
        lambda staging, client: commit(staging, client, 6, [2], owner="the query 2"),
        "belongs to the query 1, and this is the query 2",
    ),
    "another client": (
        lambda staging, client: commit(staging, client, 6, [2], name="other"),
        "belongs to the client 'client', not to 'other'",
    ),
    "an old checkpoint": (
        lambda staging, client: commit(staging, client, 4, [2]),
        "batch 4 comes after batch 5",
    ),
    "files of another machine": (
        lambda staging, client: staging.commit(
            *(6, [StagedFile("job.elsewhere.rows", 1)], client.connect),
            owner=QUERY, client="client", job="job",
        ),
        "a directory that all machines share",
    ),
    "a damaged ledger": (
        lambda staging, client: commit(damaged(staging), client, 6, [2]),
        "ledger.json cannot be read",
    ),
}  # fmt: skip


@pytest.mark.spec("PL-1")
@pytest.mark.parametrize("change", WRONG)
def test_what_cannot_be_sure_is_refused(staging: Staging, change: str) -> None:
    """One sentence, and nothing of the batch is published."""
    client = Plain()
    commit(staging, client, 5, [1])
    act, sentence = WRONG[change]

    with pytest.raises(PipelineError, match=sentence):
        act(staging, client)

    assert numbers(client) == [1]


@pytest.mark.spec("PL-1")
def test_a_client_that_others_use_is_found_out(staging: Staging) -> None:
    """Its numbers tell how much of a batch is published; if they cannot, nobody guesses."""
    client = Plain()
    files = staging.stage(map(event, [1, 2]), job="job")
    ledger = (
        b'{"owner": "the query 1", "client": "client", "done": [4], "pending": {"id": 5, '
        b'"first": 1000000000, "files": [{"name": "%s", "rows": 2}]}}' % files[0].name.encode()
    )
    (staging.directory / "ledger.json").write_bytes(ledger)

    with pytest.raises(PipelineError, match="was used by others"):
        commit(staging, client, 5, [1, 2])

    assert numbers(client) == []


@pytest.mark.spec("PL-1")
def test_events_that_no_broker_takes_are_found_before_any_is_published(staging: Staging) -> None:
    client = Plain(event_bytes_max=2000)
    large: list[Row] = [({"n": 1}, b""), ({"text": "é" * 1000, "n": 2}, b"x" * 20)]
    files = staging.stage(large, job="job")

    with pytest.raises(PipelineError, match="about 2,034 bytes, and the brokers take 2,000"):
        staging.commit(1, files, client.connect, owner=QUERY, client="client", job="job")
    assert numbers(client) == []

    client.largest = 2034
    staging.commit(1, files, client.connect, owner=QUERY, client="client", job="job")
    assert list(client.broker.values()) == large


@pytest.mark.spec("PL-1")
def test_only_one_process_commits_at_a_time(
    staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Plain()
    monkeypatch.setattr(staging_module, "LOCK_S", 0.0)
    files = list(chain.from_iterable(staging.stage([event(1)], job="job") for _ in range(2)))

    @contextlib.contextmanager
    def busy(name: str) -> Iterator[PublishingClient]:
        other = Staging(staging.directory)
        with pytest.raises(PipelineError, match="another process publishes from"):
            other.commit(1, files, client.connect, owner=QUERY, client="client", job="job")
        with client.connect(name) as outbox:
            yield outbox

    staging.commit(1, files, busy, owner=QUERY, client="client", job="job")

    assert numbers(client) == [1, 1]
