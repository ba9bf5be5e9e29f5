"""`sterna status`, `topology` and `queues`: what a broker reports of itself and its network."""

from typing import Any

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from sterna.cli.output import Json, console, fail, print_json
from sterna.cli.talking import Url, broker_of
from sterna.errors import SternaError
from sterna.net.observer import ask


def status(url: Url = None, as_json: Json = False) -> None:
    """The state of a broker: readiness, neighbours, clients, subscriptions, log."""
    answer = _ask(url, "status", as_json=as_json)
    if as_json:
        print_json(answer)
        return
    ready = ("ready", "green") if answer["is_ready"] else ("not ready", "yellow")
    console.print(Text.assemble((answer["name"], "bold"), " ", answer["address"], " ", ready))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in _rows(answer):
        table.add_row(name, value)
    console.print(table)


def topology(url: Url = None, as_json: Json = False) -> None:
    """The network, as the broker knows it."""
    answer = _ask(url, "topology", as_json=as_json)
    if as_json:
        print_json(answer)
        return
    down = {each["name"] for each in answer["neighbours"] if not each["is_up"]}
    neighbours: dict[str, list[str]] = {name: [] for name in answer["brokers"]}
    for one, other in answer["links"]:
        neighbours[one].append(other)
        neighbours[other].append(one)
    console.print(_tree(answer["at"], neighbours, down, answer.get("leader")))
    alone = answer.get("ad_hoc")
    if alone is not None and not alone["serves"]:
        others = ", ".join(alone["serving"]) or "no broker"
        console.print(f"asleep; {others} in reach serves", style="dim")
        return
    count = len(answer["brokers"])
    console.print(f"{count} broker{'s'[: count != 1]}", style="dim")
    if answer.get("cut_off"):  # An older broker does not tell.
        lost = ", ".join(answer["cut_off"])
        console.print(f"cut off: {lost}; events are kept for what was behind", style="yellow")


def queues(url: Url = None, as_json: Json = False) -> None:
    """What waits at a broker, and for whom."""
    answer = _ask(url, "queues", as_json=as_json)
    if as_json:
        print_json(answer)
        return
    table = Table()
    for title in ("for", "a", "is here"):
        table.add_column(title)
    for title in ("subscrip-\ntions", "unconfirmed\nmessages", "kept\nevents", "unsent\nbytes"):
        table.add_column(title, justify="right")
    for queue in answer["queues"]:
        table.add_row(
            Text(queue["name"]),
            queue["role"],
            Text("yes", "green") if queue["is_here"] else Text("no", "yellow"),
            *(
                f"{queue[key]:,}"
                for key in ("subscriptions", "unconfirmed_messages", "kept_events", "unsent_bytes")
            ),
        )
    if answer["queues"]:
        console.print(table)
    else:
        console.print(Text(f"{answer['at']} has neither neighbours nor clients"))


def _ask(url: str | None, what: str, *, as_json: bool) -> Any:
    try:
        return ask(broker_of(url, as_json=as_json), what)
    except SternaError as error:
        fail(str(error), as_json=as_json)


def _rows(answer: dict[str, Any]) -> list[tuple[str, Text]]:
    neighbours = Text(", ").join(
        Text(name) if is_up else Text(f"{name} (down)", "yellow")
        for name, is_up in answer["neighbours"].items()
    )
    log = answer["log"]
    written = (
        "none"
        if log is None
        else f"{log['bytes_on_disk']:,} bytes, {log['inputs_since_snapshot']:,} inputs "
        "since the last snapshot"
    )
    shown = Text(written)
    if log is not None and log.get("snapshots_failed"):  # An older broker does not tell.
        shown.append(f"; snapshots fail: {log['snapshot_problem']}", "yellow")
    return [
        ("version", Text(answer["version"])),
        ("neighbours", neighbours if answer["neighbours"] else Text("none")),
        *_ad_hoc(answer.get("ad_hoc")),  # An older broker does not tell.
        *_election(answer.get("election")),
        ("clients", Text(_clients(answer))),
        ("subscriptions", Text(f"{answer['subscriptions']:,}")),
        ("network", Text(f"{answer['strategy']} routing, {answer['handover']} handover")),
        ("durability", Text(answer["durability"])),
        ("log", shown),
        ("journal", Text(f"{answer['journal_bytes']:,} bytes")),
        ("inputs", Text(f"{answer['inputs']:,}")),
    ]


def _ad_hoc(told: dict[str, Any] | None) -> list[tuple[str, Text]]:
    if told is None:
        return []
    serves = Text("yes", "green") if told["serves"] else Text("no, it sleeps")
    if told["yields"]:
        serves.append("; its clients go to another broker that they hear", "dim")
    rows = [
        ("serves", serves),
        ("others serve", Text(", ".join(told["serving"]) or "none in reach")),
    ]
    if told["subscribers_lost"]:
        lost = f"{told['subscribers_lost']:,}, {told['kept_events']:,} events are kept"
        rows.append(("out of reach", Text(f"subscribers: {lost}", "yellow")))
    return rows


def _election(told: dict[str, Any] | None) -> list[tuple[str, Text]]:
    if told is None:
        return []
    if told["next_hop"] is None:
        place = "this broker"
    else:
        hops = told["hops"]
        place = f"{told['leader']}, {hops} hop{'s'[: hops != 1]} away by {told['next_hop']}"
    rows = [
        ("leader", Text(f"{place}, round {told['round']:,}")),
        ("in reach", Text(", ".join(told["in_reach"]) or "nobody")),
        ("partition", Text(f"{told['brokers']} brokers")),
    ]
    if told["cut_off"]:
        kept = ", ".join(f"{name} ({count:,} events)" for name, count in told["cut_off"].items())
        rows.append(("cut off", Text(kept, "yellow")))
    return rows


def _leads(name: str, leader: str | None) -> Text:
    return Text("  leader" if name == leader else "", "green")


def _clients(answer: dict[str, Any]) -> str:
    counted = f"{answer['clients_here']:,} here, {answer['clients_away']:,} away"
    elsewhere = answer.get("clients_elsewhere", 0)  # An older broker does not tell.
    return f"{counted}, {elsewhere:,} elsewhere" if elsewhere else counted


def _tree(root: str, neighbours: dict[str, list[str]], down: set[str], leader: str | None) -> Tree:
    """The network as a tree; a broker behind a link that is down is marked, and so is a leader."""
    whole = Tree(Text.assemble((root, "bold"), ("  asked", "dim"), _leads(root, leader)))
    places = [(root, "", whole)]
    while places:
        name, before, tree = places.pop()
        for other in neighbours[name]:
            if other == before:
                continue
            is_down = name == root and other in down
            label = Text(other) if not is_down else Text(f"{other}  down", "yellow")
            label.append_text(_leads(other, leader))
            places.append((other, name, tree.add(label)))
    return whole
