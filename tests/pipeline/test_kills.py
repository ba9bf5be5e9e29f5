"""Streaming jobs that are killed with SIGKILL at random moments lose nothing and repeat nothing."""

import asyncio
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from random import Random

import pytest

from sterna.model.event import Event, EventId
from sterna.net import blocking
from sterna.net.local import LocalNetwork
from sterna.pipeline.source.publisher import Publisher
from sterna.pipeline.source.staged import Row
from sterna.pipeline.source.staging import Staging
from tests.net.live import connect, network_in, settle, until
from tests.pipeline.killing import content, names, run_and_kill
from tests.pipeline.test_run import stored
from tests.scale import CAMPAIGN

KILLS = 20 if CAMPAIGN > 1 else 1
"""Of a whole Spark job, which takes some seconds to start."""

COMMIT_KILLS = 100 if CAMPAIGN > 1 else 8

SEED = int.from_bytes(os.urandom(4)) if CAMPAIGN > 1 else 7

LINES = 50


@pytest.fixture
def network(tmp_path: Path) -> Iterator[LocalNetwork]:
    with network_in(tmp_path / "brokers", 2) as network:
        yield network


def published(
    network: LocalNetwork, directory: Path, where: str, job: Callable[[], int]
) -> list[Event]:
    """What a subscriber gets of a job that says how many events it has published."""

    async def run() -> list[Event]:
        events: list[Event] = []
        async with connect(network.url("B2"), client="s", state=directory / "s") as client:
            client.subscribe(where, callback=events.append)
            await settle(network, [client])
            count = await asyncio.to_thread(job)
            await until(lambda: len(events) >= count)
            await settle(network, [client])
        return events

    return asyncio.run(run())


# ---- The commit alone

BATCHES = 6
BATCH_ROWS = 3_000


@pytest.mark.spec("PL-1")
def test_a_commit_that_is_killed_again_and_again_publishes_each_row_once(
    network: LocalNetwork, tmp_path: Path
) -> None:
    """A real client with a real state, killed while it publishes, syncs, connects or closes."""
    rng = Random(SEED)  # noqa: S311
    spawn = multiprocessing.get_context("forkserver")
    spawn.set_forkserver_preload([__name__])
    urls = tuple(network.urls.values())

    def job() -> int:
        for _ in range(COMMIT_KILLS):
            process = spawn.Process(target=commit_all, args=(tmp_path, urls))
            process.start()
            process.join(rng.choice([0.02, 0.1, 0.3, 1.0]) * rng.random())
            process.kill()
            process.join()
            assert process.exitcode in (-9, 0)
            if rng.random() < 0.2:
                network.kill("B1")
                network.restart("B1")
        process = spawn.Process(target=commit_all, args=(tmp_path, urls))
        process.start()
        process.join()
        assert process.exitcode == 0
        return BATCHES * BATCH_ROWS

    events = published(network, tmp_path, "n >= 0", job)

    numbers = [event.attributes["n"] for event in events]
    assert numbers == list(range(BATCHES * BATCH_ROWS)), f"seed {SEED}"


def commit_all(directory: Path, urls: tuple[str, ...]) -> None:
    """Do as Spark does: a batch is over when that is written down; else it comes again."""
    staging = Staging(directory / "staging")
    over = directory / "over"
    for batch in range(BATCHES):
        if (over / f"{batch}").exists():
            continue
        first = batch * BATCH_ROWS
        files = staging.stage(map(event, range(first, first + BATCH_ROWS)), job="stream")
        staging.commit(
            batch,
            files,
            lambda name: Publisher(
                urls, client=name, state=directory / "staging" / "client", advertise=None
            ),
            owner="the query 1",
            client=None,
            job="stream",
        )
        over.mkdir(exist_ok=True)
        (over / f"{batch}").touch()


def event(number: int) -> Row:
    return {"n": number}, b""


# ---- Whole jobs


@pytest.mark.skipif(CAMPAIGN == 1, reason="Spark starts twenty times; make test-long")
@pytest.mark.spec("PL-1")
def test_a_spark_job_that_is_killed_again_and_again_publishes_each_row_once(
    network: LocalNetwork, tmp_path: Path
) -> None:
    """Every row of every file arrives once, those of a file one after the other in its order."""
    rng = Random(SEED)  # noqa: S311
    files = 0
    numbers, checkpoint = tmp_path / "numbers", tmp_path / "checkpoint"
    numbers.mkdir()

    def write() -> None:
        nonlocal files
        for file in range(files, files + 4):
            lines = [json.dumps({"file": file, "line": line, "text": "é"}) for line in range(LINES)]
            (tmp_path / "next").write_text("\n".join(lines))
            (tmp_path / "next").rename(numbers / f"{file}.json")
        files += 4

    def stumble() -> None:
        write()
        if rng.random() < 0.3:
            network.kill("B1")
            network.restart("B1")

    def job() -> int:
        write()
        run_and_kill(
            [
                Path(__file__).with_name("publishing_job.py"),
                *(numbers, checkpoint, ",".join(network.urls.values())),
            ],
            kills=KILLS,
            moments=[
                lambda: names(checkpoint / "offsets", "*"),
                lambda: names(checkpoint / "commits", "*"),
                lambda: names(checkpoint / "sterna", "*.rows"),
                lambda: content(checkpoint / "sterna" / "ledger.json"),
                lambda: content(checkpoint / "sterna" / "client" / f"{0:020}.log")[:65536],
            ],
            rng=rng,
            between=stumble,
        )
        return files * LINES

    events = published(network, tmp_path, "file >= 0", job)

    got = [(event.attributes["file"], event.attributes["line"]) for event in events]
    whole = [
        (file, [line for _, line in lines]) for file, lines in groupby(got, lambda row: row[0])
    ]
    assert sorted(whole) == [(file, list(range(LINES))) for file in range(files)], f"seed {SEED}"


@pytest.mark.spec("PL-2")
@pytest.mark.skipif(CAMPAIGN == 1, reason="Spark starts twenty times; make test-long")
def test_an_archive_that_is_killed_again_and_again_has_each_event_once(tmp_path: Path) -> None:
    """`sterna pipeline run` goes on where it was, while events are published."""
    rng = Random(SEED)  # noqa: S311
    tables = tmp_path / "tables"
    events = tables / "events"
    published: list[EventId] = []
    with network_in(tmp_path / "brokers", 2, journal={"enabled": True}) as network:
        command: list[str | Path] = [
            Path(sys.executable).with_name("sterna"),
            "pipeline",
            "run",
            network.directory,
        ]
        command += ["--out", tables, "--master", "local[2]", "--only", "events"]

        def publish() -> None:
            with blocking.connect(*network.urls.values(), client=f"c{len(published)}") as client:
                receipts = [client.publish(n=n) for n in range(rng.choice([1, 50, 500]))]
                published.extend(receipt.wait() for receipt in receipts)

        publish()
        asyncio.run(until(lambda: any(network.directory.rglob("*.arrows*"))))
        run_and_kill(
            command,
            kills=KILLS,
            moments=[
                lambda: names(tables / "_checkpoints", "**/offsets/*"),
                lambda: names(tables / "_checkpoints", "**/commits/*"),
                lambda: names(events / "_staged", "*"),
                lambda: names(events / "_delta_log", "*"),
                lambda: names(events, "*/*.parquet"),
            ],
            rng=rng,
            between=publish,
        )
    run_and_kill(command, kills=0, moments=[], rng=rng)  # Now the journals are complete.

    found = [(row["publisher"], row["seq"]) for row in stored(tables, "events")]
    assert sorted(found) == sorted(published), f"seed {SEED}"
