"""Plays pages as a newcomer would: real shells, one working directory, page after page.

`python -m tests.newcomer.play WORK PAGE…` prints a report as JSON: what was run, what was not and
why, and where a command did something else than its page says. With `--ports FIRST`, brokers listen
on other ports than on the pages, so that nobody else's are needed; otherwise a network of its own
(`unshare --net`) is expected around this process.
"""

import argparse
import contextlib
import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from sterna.errors import SternaError
from sterna.journal import read_journal
from sterna.net.local import wait_for
from sterna.net.observer import ask
from tests.newcomer import spark
from tests.newcomer.given import write_given
from tests.newcomer.pages import Command, CtrlC, Screen, Step, steps_of
from tests.newcomer.terminal import NotSeenError, Terminal
from tests.workers import quick_python

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
COMMAND_S = 400.0
"""A bound for single commands, on a machine that may be busy."""

STAYING = {
    r"sterna up\b(?!.*(--detach|-d\b))": r"Ctrl-C stops it",
    r"sterna sub\b(?!.*--(count|timeout))": r"listening at \S+",
    r"sterna broker\b(?!.*--(check|print-config))": r"listens on \S+",
}
"""Commands that run until they are ended, and what they print when they are ready."""

FAREWELLS = re.compile(r"stopped; their data stays in .*\n")
"""What commands print when they are ended, which pages need not show."""

PORT = 7461
"""The first port of the network that the pages are about."""

SCREEN = {"TERM": "dumb", "COLUMNS": "100", "LINES": "40", "NO_COLOR": "1"}
"""What programs know of the terminal."""

VARYING = (
    r"\S*/sterna-\w+",
    r"client-[0-9a-f]{12}",
    r"\d{4}-\d\d-\d\d",
    r"\d\d:\d\d:\d\d(?:\.\d+)?",
    r"\d[\d,.]* (?:µs|ms|s|min|kB|KB|MB|B)\b",
)
"""What differs from run to run: names of temporary folders and clients, times, durations, sizes.
Instead of what a page shows, there may be anything of the same form.
"""


@dataclass(frozen=True)
class Deviation:
    """A command that does not do what its page says."""

    page: str
    line: int
    command: str
    problem: str
    printed: str = ""


@dataclass
class Report:
    """What came of it."""

    ran: list[tuple[str, str]] = field(default_factory=list)
    """Commands, each with what it has printed."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Commands that were not run, each with the reason."""
    deviations: list[Deviation] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


class Session:
    """A newcomer with a page: terminals are opened as they are needed."""

    def __init__(self, name: str, directory: Path, first_port: int, report: Report) -> None:
        self.name = name
        self._directory = directory
        self._first_port = first_port
        self._report = report
        self._terminals: dict[int, Terminal] = {}
        self._typed: dict[int, Command] = {}
        self._shown: dict[int, str] = {}
        self._last = 1

    def play(self, steps: list[Step]) -> None:
        for step in steps:
            match step:
                case Command(skip=str(reason)):
                    self._report.skipped[f"{self.name}: {step.text}"] = reason
                case Command():
                    self._do(step)
                case Screen():
                    self._look(step)
                case CtrlC():
                    self._interrupt(step.terminal)
        for number in sorted(self._terminals, reverse=True):
            self._interrupt(number)

    def close(self) -> None:
        for terminal in self._terminals.values():
            terminal.close()

    def _do(self, command: Command) -> None:
        number = command.terminal or self._free()
        self._interrupt(number)
        if number not in self._terminals:
            self._terminals[number] = Terminal(self._directory, environment(self._directory.parent))
        terminal = self._terminals[number]
        self._last = number
        if command.text.startswith("sterna pipeline"):
            self._wait_for_journals()
        self._typed[number] = command
        self._shown.pop(number, None)
        terminal.type(self._with_ports(command.text))
        ready = next(
            (said for begins, said in STAYING.items() if re.match(begins, command.text)), None
        )
        try:
            if ready is not None:
                is_ready = re.compile(ready).search
                terminal.wait_for(lambda text: is_ready(text) is not None, ready, COMMAND_S)
                self._settle()
                return
            status = terminal.wait_for_end(COMMAND_S)
        except NotSeenError as error:
            self._deviate(number, str(error))
            self._give_up(number)
            return
        self._ended(number)
        if status != command.status:
            self._deviate(number, f"exit status {status} instead of {command.status}")
        if command.shows is not None:
            self._compare(number, command.shows)

    def _look(self, screen: Screen) -> None:
        """See whether a terminal shows, or will show, what the page says."""
        number = screen.terminal or self._last
        if number not in self._terminals:
            return  # Its command was not run.
        text = self._shown.get(number, "") + screen.text + "\n"
        self._shown[number] = text
        terminal = self._terminals[number]
        if terminal.command is None:
            self._compare(number, text)
            return
        try:
            terminal.wait_for(lambda shown: self._begins_with(shown, text), text, COMMAND_S)
        except NotSeenError:
            if terminal.has_ended():
                self._ended(number)
                self._compare(number, self._shown.pop(number))

    def _interrupt(self, number: int) -> None:
        """Press Ctrl-C where something runs; it ends well, and has shown what the page says."""
        terminal = self._terminals.get(number)
        if terminal is None or terminal.command is None:
            return
        if terminal.has_ended():
            self._ended(number)
            if number in self._shown:  # The page shows how it ends.
                self._compare(number, self._shown.pop(number))
            else:
                self._deviate(number, "ended by itself")
            return
        terminal.press_ctrl_c()
        try:
            status = terminal.wait_for_end(COMMAND_S)
        except NotSeenError:
            self._deviate(number, "Ctrl-C does not end it")
            self._give_up(number)
            return
        self._ended(number)
        if status not in {0, 130}:
            self._deviate(number, f"exit status {status} after Ctrl-C")
        if "Traceback" in terminal.text:
            self._deviate(number, "a trace after Ctrl-C")
        if number in self._shown:
            self._compare(number, self._shown.pop(number))

    def _ended(self, number: int) -> None:
        command = f"{self.name}: {self._typed[number].text}"
        self._report.ran.append((command, self._terminals[number].text))

    def _give_up(self, number: int) -> None:
        self._terminals.pop(number).close()

    def _free(self) -> int:
        """The first terminal in which nothing runs."""
        return next(
            number
            for number in range(1, 100)
            if number not in self._terminals or self._terminals[number].command is None
        )

    def _compare(self, number: int, expected: str) -> None:
        text = FAREWELLS.sub("", self._on_page(self._terminals[number].text))
        if not re.match(_pattern(expected) + r"\s*\Z", text):
            self._deviate(number, f"the page shows\n{expected}")

    def _begins_with(self, shown: str, expected: str) -> bool:
        known = expected.rstrip().removesuffix("…")
        return re.match(_pattern(known) + r"\s*?\n", self._on_page(shown)) is not None

    def _deviate(self, number: int, problem: str) -> None:
        command = self._typed[number]
        printed = self._terminals[number].text
        self._report.deviations.append(
            Deviation(self.name, command.line, command.text, problem, printed[-3000:])
        )

    def _settle(self) -> None:
        """Wait as long as typing takes a person: until all brokers that run have written what they
        have seen so far, and know all subscriptions of commands that run.
        """
        brokers, count = [], 0
        for number, terminal in self._terminals.items():
            if terminal.command is None:
                continue
            text = self._typed[number].text
            if text.startswith("sterna up"):
                brokers += re.findall(r"sterna://\S+", terminal.text)
            count += text.startswith("sterna sub")

        def is_known() -> bool:
            known = 0
            for url in brokers:
                try:
                    status = ask(url, "status")
                    if not status["is_settled"] or not status["journal_bytes"]:
                        return False
                    known += sum(
                        each["role"] == "client" and each["is_here"] and each["subscriptions"] > 0
                        for each in ask(url, "queues")["queues"]
                    )
                except SternaError:
                    return False
            return known >= count

        if brokers:
            wait_for(is_known, "the network does not settle", limit_s=COMMAND_S)

    def _wait_for_journals(self) -> None:
        """Wait, as a person would, until what was published shows up where somebody subscribes to
        it and keeps a journal, and a little longer: until it is in that journal.
        """
        published = sum(command.startswith(f"{self.name}: sterna pub")
                        for command, _ in self._report.ran)  # fmt: skip
        for terminal in self._terminals.values():
            keeps = re.match(r"sterna sub\b.*--journal (\S+)", terminal.command or "")
            if not (published and keeps):
                continue
            terminal.wait_for(_shows_event, "any event", COMMAND_S)
            wait_for(
                partial(_has_deliveries, self._directory / keeps[1]),
                "what was delivered does not get into the journal",
                limit_s=COMMAND_S,
            )

    def _with_ports(self, command: str) -> str:
        """The command with the ports that this session may use."""
        if self._first_port == PORT:
            return command
        command = re.sub(
            r"127\.0\.0\.1:(746[1-9])\b",
            lambda found: f"127.0.0.1:{int(found[1]) - PORT + self._first_port}",
            command,
        )
        if re.match(r"sterna up\b", command) and "--port" not in command:
            command = command.replace("sterna up", f"sterna up --port {self._first_port}", 1)
        if re.match(r"sterna broker\b(?!.*--print-config)", command):
            command = f"STERNA_LISTEN=127.0.0.1:{self._first_port} {command}"
        return command

    def _on_page(self, text: str) -> str:
        """The text with the ports of the pages."""
        for offset in range(9):
            text = text.replace(f":{self._first_port + offset}", f":{PORT + offset}")
        return text


def environment(work: Path) -> dict[str, str]:
    """The environment of a newcomer, without what the tests have set for themselves."""
    own = ("STERNA_", "XDG_", "COV", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {
        **kept,
        "PATH": f"{work / 'bin'}:{BIN}:{os.environ['PATH']}",
        "HOME": str(work / "home"),
        **SCREEN,
    }


def _shows_event(text: str) -> bool:
    """Whether `sterna sub` has printed an event after it has begun to listen."""
    return re.search(r"listening at \S+.*\n.*\S", text) is not None


def _has_deliveries(journal: Path) -> bool:
    batches = read_journal(journal)
    return any("Delivered" in batch.column("kind").to_pylist() for batch in batches)


def _pattern(expected: str) -> str:
    """A regular expression for a text on a page. `…` stands for anything."""
    return r"\A\s*" + r"\s*?\n".join(map(_line_pattern, expected.strip().splitlines()))


def _line_pattern(line: str) -> str:
    """A regular expression for one line of a page."""
    if line.strip() == "…":
        return r"(?:.*\n)*?.*"
    parts = re.split("(" + "|".join([*VARYING, "…"]) + ")", line.rstrip())
    return "".join(map(_part_pattern, parts))


def _part_pattern(part: str) -> str:
    if part == "…":
        return ".*"
    return next((form for form in VARYING if re.fullmatch(form, part)), re.escape(part))


def loopback_up() -> None:
    """Bring up the loopback device of a new network namespace."""
    up_and_running = 0x41
    with socket.socket() as any_socket, contextlib.suppress(OSError):
        set_flags = 0x8914
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", up_and_running))


@contextlib.contextmanager
def one_spark(work: Path, directory: Path) -> Iterator[None]:
    """Have all `sterna pipeline` commands done by one process, unless STERNA_NEWCOMER is `cold`."""
    folder = work / "bin"
    folder.mkdir()
    if os.environ.get("STERNA_NEWCOMER") == "cold":
        yield
        return
    address = work / "spark"
    command = folder / "sterna"
    asking = f'{sys.executable} -S {Path(spark.__file__)} ask {address} "$@"'
    command.write_text(
        f'#!/bin/sh\nif [ "$1" = pipeline ]; then exec {asking}; fi\nexec {BIN}/sterna "$@"\n'
    )
    command.chmod(0o755)
    serving = [sys.executable, "-m", "tests.newcomer.spark", "serve", str(address)]
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with quick_python(work) as python:
        own = {"PYTHONPATH": os.pathsep.join(path), "PYSPARK_PYTHON": str(python)}
        with (work / "spark.log").open("wb") as log:
            process = subprocess.Popen(
                serving,
                cwd=directory,  # Java has the directory in which it was started, for ever.
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment(work), **own},
            )
        try:
            wait_for(address.exists, "the process for Spark does not start", limit_s=60)
            yield
        finally:
            process.kill()
            process.wait()


def play(work: Path, pages: list[Path], first_port: int) -> Report:
    """Play pages in one working directory."""
    report = Report()
    directory = work / "work"
    directory.mkdir()
    (work / "home").mkdir()
    write_given(directory)
    read = {page: steps_of(page) for page in pages}
    typed = [step.text for steps in read.values() for step in steps if isinstance(step, Command)]
    needs_spark = any("sterna pipeline" in text for text in typed)
    with one_spark(work, directory) if needs_spark else contextlib.nullcontext():
        for page, steps in read.items():
            began = time.monotonic()
            session = Session(_name(page), directory, first_port, report)
            try:
                session.play(steps)
            finally:
                session.close()
            report.seconds[session.name] = round(time.monotonic() - began, 1)
    return report


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("work", type=Path)
    arguments.add_argument("pages", type=Path, nargs="+")
    arguments.add_argument("--ports", type=int, default=PORT)
    given = arguments.parse_args()
    if given.ports == PORT:
        loopback_up()
    report = play(given.work, [page.resolve() for page in given.pages], given.ports)
    json.dump(asdict(report), sys.stdout, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
