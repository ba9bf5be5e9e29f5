"""`sterna reload`: have a running broker read its configuration again."""

import typer
from rich.text import Text

from sterna.cli.output import NO, Json, console, errors, fail, print_json
from sterna.cli.talking import Url, broker_of
from sterna.errors import SternaError
from sterna.net.observer import ask

RELOAD_S = 60.0
"""How long it may take to read a large movement graph."""


def reload(url: Url = None, as_json: Json = False) -> None:
    """Have a broker read its configuration again, and apply what has changed.

    The broker has to run on this machine. It reads the file and the options that it was started
    with, and the movement graph. Clients stay connected, unless they lack a protocol that is new,
    and nothing that waits for them is lost. What can only be changed by a restart is listed. If the
    configuration is wrong, nothing changes.

    Exit status: 0 applied, 1 the configuration is wrong, 2 the broker does not answer.
    """
    try:
        report = ask(broker_of(url, as_json=as_json), "reload", timeout_s=RELOAD_S)
    except SternaError as error:
        fail(str(error), as_json=as_json)
    if as_json:
        print_json(report)
    elif report["error"] is not None:
        message = f"{report['name']} changes nothing: {report['error']}"
        errors.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    else:
        for what, keys in (("applied", "applied"), ("needs a restart", "needs_restart")):
            if report[keys]:
                console.print(Text(f"{what}: {', '.join(report[keys])}"), soft_wrap=True)
        if not report["applied"] and not report["needs_restart"]:
            console.print("nothing has changed")
    if report["error"] is not None:
        raise typer.Exit(NO)
