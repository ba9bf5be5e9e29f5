"""`sterna clients`, `subscriptions` and `kick`: who is at a broker, what they want, and out."""

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from sterna.cli.output import NO, Json, console, errors, fail, print_json
from sterna.cli.talking import Url, broker_of
from sterna.errors import SternaError
from sterna.net.observer import ask, clients_of

Only = Annotated[
    str | None, typer.Option("--client", metavar="NAME", help="Only those of this client.")
]


def clients(url: Url = None, as_json: Json = False) -> None:
    """The clients of a broker: those that are here, and those that it keeps events for."""
    broker, found = _clients(url, as_json=as_json)
    if as_json:
        print_json({"at": broker, "clients": found})
        return
    table = Table()
    for title in ("client", "is here", "from"):
        table.add_column(title)
    for title in ("subscrip-\ntions", "kept\nevents", "unconfirmed\nmessages"):
        table.add_column(title, justify="right")
    for client in found:
        table.add_row(
            Text(client["name"]),
            Text("yes", "green") if client["is_here"] else Text("no", "yellow"),
            Text(client["address"] or ""),
            f"{len(client['subscriptions']):,}",
            f"{client['kept_events']:,}",
            f"{client['unconfirmed_messages']:,}",
        )
    if found:
        console.print(table)
    else:
        console.print(Text(f"{broker} has no clients"))


def subscriptions(url: Url = None, only: Only = None, as_json: Json = False) -> None:
    """What the clients of a broker subscribe to: a line for each, with its filter."""
    broker, found = _clients(url, as_json=as_json)
    chosen = [
        {"client": client["name"], **each}
        for client in found
        if only in {None, client["name"]}
        for each in client["subscriptions"]
    ]
    if as_json:
        print_json({"at": broker, "subscriptions": chosen})
        return
    for each in chosen:
        line = Text.assemble((each["client"], "bold"), "  ", each["filter"])
        if each["name"] != each["filter"]:
            line.append(f"  ({each['name']})", "dim")
        console.print(line, soft_wrap=True)
    if not chosen:
        errors.print(Text(f"nobody subscribes at {broker}" if only is None else _nothing(only)))


def kick(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[URL] CLIENT", help="A broker, and the name of a client there."),
    ],
    as_json: Json = False,
) -> None:
    """Send a client away, and forget it and what is kept for it.

    Its program ends with a ClosedError that says so; nothing keeps it from connecting again. The
    broker has to run on this machine.

    Exit status: 0 it was sent away, 1 the broker knows no such client, 2 on an error.
    """
    if len(words) > 2:
        fail(f"give a broker and one client, not {words[2]!r} as well", as_json=as_json)
    *given, client = words
    url = broker_of(given[0] if given else None, as_json=as_json)
    try:
        answer = ask(url, "kick", client=client)
    except SternaError as error:
        fail(str(error), as_json=as_json)
    if as_json:
        print_json(answer)
    elif answer["is_known"]:
        was = "was here" if answer["was_here"] else "was away"
        console.print(Text(f"{client} {was}, and is forgotten"))
    else:
        errors.print(Text(f"{answer['at']} has no client {client!r} (see `sterna clients`)"))
    if not answer["is_known"]:
        raise typer.Exit(NO)


def _nothing(client: str) -> str:
    return f"{client} subscribes to nothing here"


def _clients(url: str | None, *, as_json: bool) -> tuple[str, list[dict[str, Any]]]:
    try:
        return clients_of(broker_of(url, as_json=as_json))
    except SternaError as error:
        fail(str(error), as_json=as_json)
