"""A terminal for tests: what a command shows there while it works."""

import os
import pty
import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from rich.console import Console

COLUMNS = 80

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """All lines that were shown, one after the other, also those that were replaced."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def read(self, terminal: int) -> None:
        """Read until nobody writes any more."""
        shown = b""
        try:
            while part := os.read(terminal, 65_536):
                shown += part
        except OSError:  # So Linux says that the other end is closed.
            pass
        text = _CONTROL.sub("", shown.decode())
        self.lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """Have commands of the pipeline show their progress on a pseudo-terminal."""
    ours, theirs = pty.openpty()
    screen = Screen()
    reader = Thread(target=screen.read, args=(ours,))
    reader.start()
    try:
        with os.fdopen(theirs, "w", encoding="utf-8") as file:
            console = Console(file=file, width=COLUMNS, _environ={"TERM": "xterm-256color"})
            assert console.is_terminal
            with monkeypatch.context() as patch:
                patch.setattr("sterna.cli.pipeline.options.errors", console)
                yield screen
    finally:
        reader.join()
        os.close(ours)
