"""The rules that all commands follow: docs/reference/command-rules.md has them for users."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

from sterna.cli import addressing
from sterna.cli.output import warn
from sterna.model.spelling import near_names

HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
"""The context settings of the command itself; those below it inherit them."""

PREFIX = "STERNA_"
OTHER_VARIABLES = ("STERNA_CAMPAIGN", "STERNA_GOLDEN", "STERNA_MUTANT")
"""Variables that no command reads, but our tests and tools do."""

READ_A_CONFIGURATION = {"broker", "up"}
"""The commands that refuse variables of the configuration that there are not."""

_WORDS = {
    **dict.fromkeys(("int", "int range", "list[int]"), "N"),
    **dict.fromkeys(("float", "float range", "list[float]"), "NUMBER"),
    **dict.fromkeys(("str", "list[str]"), "TEXT"),
    **dict.fromkeys(("path", "file", "directory"), "PATH"),
}
"""What help says instead of the names of Python's types."""


class Commands(TyperGroup):
    """The command `sterna`, with all commands below it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in _tree(self):
            _polish(command)

    def make_context(self, *words: Any, **settings: Any) -> Any:
        """Read the command line; this prints help, too."""
        _polish(self)  # The options for completion have come since.
        with reader_may_leave():
            return super().make_context(*words, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run what was asked for."""
        with reader_may_leave():
            return super().invoke(ctx)


# ---- Output that nobody reads


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """End quietly when the reader of the output, such as `head`, has seen enough."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError as error:
        _drop_output()
        before = error.__context__
        raise typer.Exit(before.exit_code if isinstance(before, typer.Exit) else 0) from None
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        _drop_output()  # A console has noticed it.
        raise typer.Exit(0) from None


def _drop_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _to_nowhere(stream)


def _to_nowhere(stream: TextIO) -> None:
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# ---- Variables


def tell_unknown_variables(ctx: typer.Context) -> None:
    """Warn about variables that somebody has set for Sterna, and that it does not read."""
    if not any(name.startswith(PREFIX) for name in os.environ):
        return
    known = [*known_variables(), *_read_by(ctx.command)]
    is_checked = ctx.invoked_subcommand in READ_A_CONFIGURATION
    for name in unknown_variables(os.environ, known):
        if not (is_checked and name.startswith(_sections())):
            warn(f"{name} is set, and is not a variable of Sterna{_meant(name, known)}")


def _meant(name: str, known: Sequence[str]) -> str:
    """Which one may be meant; that all begin alike makes none of them likely."""
    own = [each.removeprefix(PREFIX) for each in known if each not in OTHER_VARIABLES]
    near = near_names(name.removeprefix(PREFIX), own)
    return f"; did you mean {PREFIX}{near[0]}?" if near else ""


def unknown_variables(environment: Mapping[str, str], known: Sequence[str]) -> list[str]:
    """The variables that are called as if they were ours, and mean nothing."""
    return [name for name in sorted(environment) if name.startswith(PREFIX) and name not in known]


def known_variables() -> list[str]:
    """All variables that Sterna, its tests or its tools read, apart from those of options."""
    from sterna.net.config import BrokerConfig, keys, sections, variable  # noqa: PLC0415

    own = [variable("", key.name) for key in keys(BrokerConfig)]
    for name, section in sections(BrokerConfig).items():
        own += [variable(name, key.name) for key in keys(section)]
    return [*own, addressing.VARIABLE, *OTHER_VARIABLES]


def _sections() -> tuple[str, ...]:
    from sterna.net.config import BrokerConfig, sections, variable  # noqa: PLC0415

    return tuple(variable(name, "") + "_" for name in sections(BrokerConfig))


def _read_by(group: Any) -> Iterator[str]:
    """The variables that options and arguments read."""
    for command in _tree(group):
        for parameter in command.params:
            named = parameter.envvar or ()
            yield from [named] if isinstance(named, str) else named


# ---- Help


def _tree(command: Any) -> Iterator[Any]:
    """A command and all below it."""
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from _tree(below)


def _polish(command: Any) -> None:
    """Have help speak to users: words in capitals for values, and nothing for switches."""
    context = typer.Context(command, **HELP)
    for parameter in [*command.params, command.get_help_option(context)]:
        _polish_parameter(parameter, context)


def _polish_parameter(parameter: Any, context: typer.Context) -> None:
    if not hasattr(parameter, "display_type"):
        return  # An older typer says it well.
    if parameter.param_type_name == "argument":
        parameter.display_type_rich = lambda ctx: None  # noqa: ARG005 - its name says it.
    elif parameter.metavar is None:
        shown = parameter.display_type(context).strip("<>")
        choices = shown.removeprefix("list[").removesuffix("]")
        parameter.metavar = "" if parameter.is_flag else _WORDS.get(shown, choices)
