"""Reads from a page, in order, what its reader types into terminals and sees there.

Blocks in `sh`, `bash` and `console` are commands. In a `console` block, commands begin with `$ `
and what they print follows. A `text` block right after a block of commands is what the last of them
prints. All else stands in comments that readers do not see, each directly before the block that it
is about:

    <!-- newcomer: terminal 2 -->           typed there; what runs there is ended with Ctrl-C first.
                                            Without this: the first terminal in which nothing runs
    <!-- newcomer: skip REASON -->          not run
    <!-- newcomer: skip `BEGINNING` REASON -->    the commands that begin so are not run
    <!-- newcomer: status 1 `BEGINNING` -->       the exit status of such commands; else it is 0
    <!-- newcomer: first `COMMAND` -->      the page takes it for granted that this was run before
    <!-- newcomer: output -->               a `text` block: what the last command has printed
    <!-- newcomer: output of terminal 2 --> a `text` block: what is to be read there by now
    <!-- newcomer: ctrl-c 2 -->             by itself: Ctrl-C in that terminal
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

LANGUAGES = {"sh", "bash", "console"}

_FENCE = re.compile(r"^```(\w*)\s*$")
_COMMENT = re.compile(r"^<!-- newcomer: (.+) -->$")
_COMMAND = re.compile(r"^(?: {4})?(?:\$ )?(sterna|make|pip|python|source)\b")
_PREFIX = re.compile(r"`([^`]+)`\s*(.*)")


class PageError(ValueError):
    """A page has a block or a comment that cannot be played."""


@dataclass
class Command:
    """Something that the reader types."""

    line: int
    text: str
    terminal: int | None = None
    """Which terminal it is typed into; None is the first in which nothing runs."""
    skip: str | None = None
    """Why it is not run."""
    status: int = 0
    shows: str | None = None
    """What it prints, if the page shows it."""


@dataclass(frozen=True)
class Screen:
    """What the page says is to be read in a terminal at this point."""

    line: int
    terminal: int | None
    """None is the terminal of the last command."""
    text: str


@dataclass(frozen=True)
class CtrlC:
    """The reader presses Ctrl-C."""

    line: int
    terminal: int


Step = Command | Screen | CtrlC


@dataclass
class _Notes:
    """The comments before a block."""

    line: int = 0
    terminal: int | None = None
    skip: str | None = None
    skips: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)
    output: bool = False

    def read(self, said: str, line: int) -> None:
        self.line = line
        word, _, rest = said.partition(" ")
        match word, rest:
            case "terminal", number if number.isdecimal():
                self.terminal = int(number)
            case "status", which if status := re.fullmatch(r"(\d+) `([^`]+)`", which):
                self.statuses[status[2]] = int(status[1])
            case "skip", reason if reason:
                prefixed = _PREFIX.fullmatch(reason)
                if prefixed is None:
                    self.skip = reason
                elif prefixed[2]:
                    self.skips[prefixed[1]] = prefixed[2]
                else:
                    raise PageError(f"line {line}: say why {prefixed[1]!r} is not run")
            case "first", command if prefixed := _PREFIX.fullmatch(command):
                self.first.append(prefixed[1])
            case "output", "":
                self.output = True
            case "output", where if place := re.fullmatch(r"of terminal (\d+)", where):
                self.output, self.terminal = True, int(place[1])
            case _:
                raise PageError(f"line {line}: no such comment for the newcomer: {said!r}")


def steps_of(page: Path) -> list[Step]:
    """What the reader of a page does and sees, in order."""
    return read(page.read_text(encoding="utf-8"))


def read(text: str) -> list[Step]:
    """What the reader of a text does and sees, in order."""
    steps: list[Step] = []
    notes = _Notes()
    after_commands = False  # Only empty lines since the last block of commands.
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if (comment := _COMMENT.match(line)) is not None:
            if key := re.fullmatch(r"ctrl-c (\d+)", comment[1]):
                steps.append(CtrlC(number, int(key[1])))
            else:
                notes.read(comment[1], number)
        elif (fence := _FENCE.match(line)) is not None:
            block = []
            for _, inside in lines:
                if inside.startswith("```"):
                    break
                block.append(inside)
            steps += _steps(fence[1], block, notes, number, after_commands=after_commands)
            after_commands = fence[1] in LANGUAGES
            notes = _Notes()
        elif line.strip():
            after_commands = False
            if notes.line:
                raise PageError(f"line {notes.line}: no block follows this comment")
            if line.startswith("    ") and _COMMAND.match(line):
                raise PageError(f"line {number}: put commands between fences, as ```sh")
    if notes.line:
        raise PageError(f"line {notes.line}: no block follows this comment")
    return steps


def _steps(
    language: str, block: list[str], notes: _Notes, line: int, *, after_commands: bool
) -> list[Step]:
    if language in LANGUAGES:
        return [*_commands(language, block, notes, line)]
    if notes.output or (after_commands and language == "text" and notes.skip is None):
        return [Screen(line, notes.terminal, "\n".join(block))]
    if language in {"", "text"} and notes.skip is None:
        for offset, inside in enumerate(block, 1):
            if _COMMAND.match(inside):
                raise PageError(f"line {line + offset}: a command in a block that is not ```sh")
    return []


def _commands(language: str, block: list[str], notes: _Notes, line: int) -> list[Command]:
    found = [Command(line, text, terminal=notes.terminal, skip=notes.skip) for text in notes.first]
    read = _console(block, line) if language == "console" else _script(block, line)
    for command in read:
        command.terminal = notes.terminal
        command.skip = notes.skip
        for beginning, reason in notes.skips.items():
            if command.text.startswith(beginning):
                command.skip = reason
        for beginning, status in notes.statuses.items():
            if command.text.startswith(beginning):
                command.status = status
    for beginning in [*notes.skips, *notes.statuses]:
        if not any(command.text.startswith(beginning) for command in read):
            raise PageError(f"line {notes.line}: no command begins with {beginning!r}")
    return found + read


def _script(block: list[str], line: int) -> list[Command]:
    """The commands of a script: one a line, unless a line continues or has a document below it."""
    found: list[Command] = []
    open_until: str | None = None
    goes_on = False
    for offset, text in enumerate(block, 1):
        if goes_on or open_until is not None:
            found[-1].text += "\n" + text
            goes_on = open_until is None and text.endswith("\\")
            open_until = None if text == open_until else open_until
        elif text.strip() and not text.startswith("#"):
            found.append(Command(line + offset, text))
            goes_on = text.endswith("\\")
        if open_until is None and (document := re.search(r"<<'?(\w+)'?", text)):
            open_until = document[1] if text != document[1] else None
    return found


def _console(block: list[str], line: int) -> list[Command]:
    found: list[Command] = []
    for offset, text in enumerate(block, 1):
        if text.startswith("$ "):
            found.append(Command(line + offset, text.removeprefix("$ "), shows=""))
        elif not found:
            raise PageError(f"line {line + offset}: a console block begins with `$ `")
        else:
            found[-1].shows = f"{found[-1].shows}{text}\n"
    return found
