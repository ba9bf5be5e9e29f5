"""A terminal with bash in it, as a person uses it: type, read, press Ctrl-C."""

import contextlib
import os
import pty
import re
import select
import signal
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_PROMPT = re.compile(rb"\x1e(\d+)\x1e")
_OVERWRITTEN = re.compile(r"[^\n]*\r(\x1b\[K)?(?!\n)|\r(?=\n)")
_CTRL_C = b"\x03"
_END_S = 30.0


class NotSeenError(Exception):
    """What was waited for did not appear."""


class Terminal:
    """Bash in a pseudo-terminal. What it prints is kept from one command to the next."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.command: str | None = None
        """What runs in it; None if bash waits for a command."""
        self._shown = b""
        self._pid, self._master = pty.fork()
        if self._pid == 0:
            # The prompt has the exit status of the last command between two characters that
            # no program prints.
            prompt = {"PS1": r"\036$?\036", "PS2": "", "HISTFILE": ""}
            os.chdir(directory)
            _show_no_input()
            bash = ["bash", "--noprofile", "--norc", "--noediting", "+H", "-i"]
            os.execvpe(bash[0], bash, {**environment, **prompt})  # noqa: S606 - bash.
        self.wait_for_end(_END_S)

    def type(self, command: str) -> None:
        """Type a command, into a terminal in which nothing runs."""
        assert self.command is None, f"{self.command!r} runs here"
        self._shown = b""
        self.command = command
        os.write(self._master, command.encode() + b"\n")

    @property
    def text(self) -> str:
        """What the last command has printed so far."""
        shown = _PROMPT.split(self._shown)[0]
        return _OVERWRITTEN.sub("", shown.decode(errors="replace"))

    def wait_for(self, is_shown: Callable[[str], bool], what: str, limit_s: float) -> None:
        """Wait until the last command has printed it. NotSeenError if it ends or takes longer."""
        deadline = time.monotonic() + limit_s
        while not is_shown(self.text):
            if _PROMPT.search(self._shown):
                raise NotSeenError(f"ended without {what}")
            self._read(deadline, f"did not print {what}")

    def wait_for_end(self, limit_s: float) -> int:
        """Wait until the last command has ended, and return its exit status."""
        deadline = time.monotonic() + limit_s
        while (prompt := _PROMPT.search(self._shown)) is None:
            self._read(deadline, "it did not end")
        self.command = None
        return int(prompt[1])

    def has_ended(self) -> bool:
        """Whether the last command has ended by now."""
        with contextlib.suppress(NotSeenError):
            self.wait_for_end(0)
        return self.command is None

    def press_ctrl_c(self) -> None:
        os.write(self._master, _CTRL_C)

    def close(self) -> None:
        """End bash, and whatever runs in it still."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.command is None:
                break
            with contextlib.suppress(OSError, NotSeenError):
                os.killpg(os.tcgetpgrp(self._master), number)
                self.wait_for_end(_END_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.close(self._master)
        os.waitpid(self._pid, 0)

    def _read(self, deadline: float, problem: str) -> None:
        ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise NotSeenError(problem)
        try:
            self._shown += os.read(self._master, 65536)
        except OSError:
            raise NotSeenError("bash has ended") from None


def _show_no_input() -> None:
    """Let the terminal print only what programs print, byte for byte."""
    attributes = termios.tcgetattr(0)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, attributes)
