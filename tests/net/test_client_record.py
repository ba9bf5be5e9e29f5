"""The positions in a client's journal never go back, whatever its runs go on with."""

import os
import shutil
from itertools import count, groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.core.clock import Clock
from sterna.core.facts import Detached, Fact, RecordBegun, Restarted
from sterna.core.settings import Settings
from sterna.journal import Place
from sterna.net.client.driver import ClientDriver
from sterna.net.client.life import Life
from sterna.net.client.record import STARTED, Record
from sterna.net.records import Began, decode_note
from sterna.net.storage import Log
from tests.journal.made import contents

LIVES = count(1)


def made(number: int) -> list[Fact]:
    """What happened at an input."""
    return [Detached(at="car", time=0, link=str(number))]


def fail(error: Exception) -> None:
    raise error


def run(path: Path, numbers: range, state: str | None, *, written: int | None = None) -> None:
    """Run a program that is given numbers; it is killed when only some facts were written."""
    record = Record(path / "journal", "car")
    began = Began(node="car", incarnation=next(LIVES), settings=Settings())
    engine: Any = SimpleNamespace(clock=Clock(lambda: 0, lambda: 0), began=began, inputs=0)
    engine.node = SimpleNamespace(in_force=lambda _now: [])
    log: Log | None = None
    if state is None:
        record.open(None, fail)
        record.begin(engine)
    else:
        log, recovery = Log.open(path / state)
        record.open(log, fail)
        first, *inputs = [*recovery.records] or [b""]
        if not log.appended:
            log.append(str(began.incarnation).encode())
        else:
            engine.began = Began(node="car", incarnation=int(first), settings=Settings())
        record.expect(engine.began)
        for position, data in enumerate(inputs, 2):
            if decode_note(data) is None:
                record.add(position, made(int(data[1:])), 0)
        record.resume(engine, log)
    for done, number in enumerate(numbers):
        if done == written:
            record.sync()
        engine.inputs += 1
        position = engine.inputs if log is None else log.append(b"\xff%d" % number)
        record.add(position, made(number), 0)
    if log is not None:
        log.close()
    if written is None:
        record.close()


def after(path: Path, end: Place) -> tuple[list[str], Place]:
    """What a follower of the journal gets that has read up to a place, and where it is then."""
    new = [each for each in contents(path / "journal") if each[0] > end]
    places = [place for place, _ in new]
    assert places == sorted(set(places)), "each place is there once, in order"
    words = {RecordBegun: "begun", Restarted: "again"}
    told = [fact.link if isinstance(fact, Detached) else words[type(fact)] for _, fact in new]
    return told, places[-1]


@pytest.mark.spec("PL-2")
def test_a_follower_gets_every_run_whatever_it_goes_on_with(tmp_path: Path) -> None:
    """Without a state; with a new one; killed and again; with others between; with an old copy."""
    end = Place(-1, -1)
    told: list[list[str]] = []

    def goes_on(*arguments: Any, **options: Any) -> None:
        nonlocal end
        run(tmp_path, *arguments, **options)
        seen, end = after(tmp_path, end)
        told.append(seen)

    goes_on(range(100), None)
    goes_on(range(100, 105), "state")
    goes_on(range(105, 110), "state", written=3)
    goes_on(range(110, 112), "state")
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    goes_on(range(112, 115), None)
    goes_on(range(115, 118), "another")
    goes_on(range(118, 121), "state")
    goes_on(range(121, 123), "state", written=1)
    shutil.rmtree(tmp_path / "another")
    goes_on(range(123, 125), "another")
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "copy").rename(tmp_path / "state")
    goes_on(range(125, 127), "state")
    goes_on(range(127, 129), "state")

    assert told == [
        ["begun", *map(str, range(100))],
        ["begun", "100", "101", "102", "103", "104"],
        ["again", "105", "106", "107"],
        ["108", "109", "again", "110", "111"],
        ["begun", "112", "113", "114"],
        ["begun", "115", "116", "117"],
        ["begun", "118", "119", "120"],
        ["again", "121"],
        ["begun", "123", "124"],
        ["begun", "125", "126"],
        ["again", "127", "128"],
    ]


@pytest.mark.spec("PL-2")
def test_a_state_that_has_lost_its_end_goes_on_after_what_is_recorded(tmp_path: Path) -> None:
    """It uses positions of its log again, but none of the journal."""
    run(tmp_path, range(2), "state")
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    run(tmp_path, range(2, 9), "state")
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "copy").rename(tmp_path / "state")
    _, end = after(tmp_path, Place(-1, -1))

    run(tmp_path, range(10, 13), "state", written=1)
    run(tmp_path, range(13, 14), "state")

    assert after(tmp_path, end)[0] == ["again", "10", "11", "12", "again", "13"]


@pytest.mark.spec("PL-2")
def test_a_run_is_on_disk_before_anything_says_that_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(handle: int) -> None:
        number = os.fstat(handle).st_ino
        files = [*tmp_path.glob("journal/*"), *tmp_path.glob("state/recorded-in")]
        synced.extend(path.name for path in files if path.stat().st_ino == number)

    monkeypatch.setattr(os, "fsync", sync)
    run(tmp_path, range(1), "state", written=1)

    names = [name for name, _ in groupby(name.partition("-0")[0] for name in synced)]
    assert names == ["car", "car.life", "recorded-in"]


def test_the_start_of_a_run_is_not_taken_for_an_acknowledgement() -> None:
    """Both are notes in the log of a state."""
    driver = ClientDriver(Life("car"), journal=None, tell=None)
    acknowledged: list[str] = []
    deliveries: Any = SimpleNamespace(done_before=acknowledged.append)
    driver.serve(keeper=deliveries, deliveries=deliveries, publications=deliveries)

    for note in (STARTED, b"3 all", STARTED):
        driver.noted(note)

    assert acknowledged == ["3 all"]
