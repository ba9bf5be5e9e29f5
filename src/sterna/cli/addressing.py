"""Which broker a command is for: as it is written, by a context, or by default."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sterna.errors import SternaError
from sterna.net.address import PORT, SCHEME, Address, AddressError

VARIABLE = "STERNA_URL"
"""The environment variable with the broker, or brokers, of commands that name none."""

LOCAL = f"{SCHEME}://127.0.0.1:{PORT}"
"""The broker of commands that name none, if nothing else says which."""

_ADDRESS = re.compile(
    r"@\S*|[A-Za-z][A-Za-z0-9+.-]*://\S*|(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*):\d+/?",
    re.ASCII,
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


class ContextError(SternaError):
    """A context that cannot be used; the message says what to do."""


class Contexts(NamedTuple):
    """Names for brokers, as the user's configuration directory holds them."""

    addresses: Mapping[str, list[str]]
    """The brokers of each context."""
    current: str | None
    """The context of commands that name no broker."""

    @classmethod
    def load(cls) -> "Contexts":
        """Read them; ContextError if the file is none that was written here."""
        file = contexts_file()
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            addresses = {
                str(name): [str(url) for url in urls] for name, urls in document["contexts"].items()
            }
            current = document["current"]
        except FileNotFoundError:
            return cls({}, None)
        except OSError as error:
            raise ContextError(f"cannot read {file}: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ContextError(f"{file} is damaged: mend it, or remove it") from None
        return cls(addresses, current if current in addresses else None)

    def save(self) -> None:
        """Write them, all or nothing."""
        file = contexts_file()
        text = json.dumps({"current": self.current, "contexts": dict(self.addresses)}, indent=2)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            new = file.with_suffix(f".{os.getpid()}")
            new.write_text(text + "\n", encoding="utf-8")
            new.replace(file)
        except OSError as error:
            raise ContextError(f"cannot write {file}: {error.strerror}") from None

    def brokers(self, name: str) -> list[str]:
        """The brokers of a context; ContextError if there is none of this name."""
        if name not in self.addresses:
            known = ", ".join(self.addresses) or "none"
            raise ContextError(
                f"there is no context {name!r}; add it with `sterna context add`, or use another "
                f"one: {known}"
            )
        return self.addresses[name]


def contexts_file() -> Path:
    """Where contexts are stored."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "sterna" / "contexts.json"


def is_address(word: str) -> bool:
    """Whether a word of a command line stands for a broker, and is no filter or attribute."""
    return _ADDRESS.fullmatch(word) is not None


def is_name(word: str) -> bool:
    """Whether a context may be called so."""
    return _NAME.fullmatch(word) is not None


def with_scheme(word: str) -> str:
    """An address as a URL, whether it is written as one or as `host:port`."""
    word = word.strip()
    return word if "://" in word else f"{SCHEME}://{word}"


def brokers(word: str | None) -> list[str]:
    """The URLs that a word stands for: `sterna://host:port`, `host:port` or `@context`.

    Without a word, those of the environment, of the current context, or a broker on this machine.
    """
    if word is not None:
        if word.startswith("@"):
            return Contexts.load().brokers(word[1:])
        return [with_scheme(word)]
    given = os.environ.get(VARIABLE)
    if given:
        return _of_environment(given)
    contexts = Contexts.load()
    return [LOCAL] if contexts.current is None else contexts.brokers(contexts.current)


def split(words: list[str]) -> tuple[str | None, list[str]]:
    """The broker that the first word stands for, if it does, and the other words."""
    if words and is_address(words[0]):
        return words[0], words[1:]
    return None, words


def _of_environment(given: str) -> list[str]:
    urls = []
    for word in given.split(","):
        found = brokers(word.strip())
        for url in found:
            try:
                Address.from_url(url)
            except AddressError as error:
                raise ContextError(f"{VARIABLE} in the environment: {error}") from None
        urls += found
    return urls
