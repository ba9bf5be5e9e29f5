"""`sterna context`: names for brokers, so that nobody has to type their addresses."""

from typing import Annotated

import typer
from rich.text import Text

from sterna.cli.addressing import LOCAL, VARIABLE, Contexts, is_name, with_scheme
from sterna.cli.output import Json, console, errors, fail, print_json
from sterna.errors import SternaError
from sterna.net.address import Address

app = typer.Typer(
    help="Name brokers, and choose those of commands that name none.\n\n"
    f"Such a command uses {VARIABLE} in the environment (several: with commas between them), else "
    f"the context in use, else {LOCAL}. `@NAME` stands for a context in all commands."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="What the context is called.")]


@app.command()
def add(
    name: Name,
    urls: Annotated[
        list[str],
        typer.Argument(metavar="URL…", help="A broker, and others to go to if that one is gone."),
    ],
    select: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
) -> None:
    """Name a broker, or several of one network: `@NAME` stands for them in all commands."""
    try:
        contexts = Contexts.load()
        if not is_name(name):
            fail(f"{name!r} is no name: it has letters, digits, `-`, `_` and `.`")
        if name in contexts.addresses:
            fail(f"there is a context {name!r} already; remove it first")
        addresses = [Address.from_url(with_scheme(url)).url for url in urls]
        current = name if select else contexts.current
        Contexts({**contexts.addresses, name: addresses}, current).save()
    except SternaError as error:
        fail(str(error))


@app.command(name="list")
def list_(as_json: Json = False) -> None:
    """All contexts; the one in use is marked."""
    contexts = _load(as_json=as_json)
    if as_json:
        print_json({"current": contexts.current, "contexts": dict(contexts.addresses)})
        return
    width = max(map(len, contexts.addresses), default=0)
    for name, urls in contexts.addresses.items():
        mark = "*" if name == contexts.current else " "
        console.print(Text(f"{mark} {name:{width}}  {' '.join(urls)}"), soft_wrap=True)
    if not contexts.addresses:
        errors.print("there are none; add one with: sterna context add NAME URL", markup=False)


@app.command()
def use(name: Name) -> None:
    """Use a context in all commands that name no broker, unless STERNA_URL is set."""
    contexts = _load()
    try:
        contexts.brokers(name)
        contexts._replace(current=name).save()
    except SternaError as error:
        fail(str(error))


@app.command()
def remove(name: Name) -> None:
    """Forget a context."""
    contexts = _load()
    try:
        contexts.brokers(name)
        rest = {key: urls for key, urls in contexts.addresses.items() if key != name}
        Contexts(rest, None if contexts.current == name else contexts.current).save()
    except SternaError as error:
        fail(str(error))


def _load(*, as_json: bool = False) -> Contexts:
    try:
        return Contexts.load()
    except SternaError as error:
        fail(str(error), as_json=as_json)
