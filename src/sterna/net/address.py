"""Where a broker is: host and port, as `host:port` or as `sterna://host:port`."""

import re
from typing import NamedTuple

from sterna.errors import SternaError

SCHEME = "sterna"
PORT = 7461
"""The port on which a broker listens by default."""


class AddressError(SternaError, ValueError):
    """Text that is no address; says what one looks like."""


class Address(NamedTuple):
    """A host, by name or number, and a port."""

    host: str
    port: int
    """The port; 0 means any free one, for listening."""

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `127.0.0.1:7461`, `broker.example:7461` or `[::1]:7461`."""
        parts = _ADDRESS.fullmatch(text)
        if parts is None or int(parts["port"]) > _PORT_MAX:
            raise AddressError(f"{text!r} is no address: write host:port, such as 127.0.0.1:{PORT}")
        return cls(parts["name"] or parts["number"], int(parts["port"]))

    @classmethod
    def from_url(cls, url: str) -> "Address":
        """Read `sterna://127.0.0.1:7461`; without a port, the default one."""
        parts = _URL.fullmatch(url)
        text = "" if parts is None else parts["host"] + (parts["port"] or f":{PORT}")
        try:
            address = cls.parse(text)
        except AddressError:
            address = cls("", 0)
        if not address.port:
            raise AddressError(
                f"{url!r} is no address of a broker: write {SCHEME}://host:port, "
                f"such as {SCHEME}://127.0.0.1:{PORT}"
            )
        return address

    @property
    def url(self) -> str:
        return f"{SCHEME}://{self}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


_PORT_MAX = 65535
_ADDRESS = re.compile(
    r"(?:(?P<name>[A-Za-z0-9]([A-Za-z0-9._-]*))|\[(?P<number>[0-9A-Fa-f:.]+)\]):(?P<port>\d{1,5})",
    re.ASCII,
)
_URL = re.compile(rf"{SCHEME}://(?P<host>\[[^\]/]*\]|[^:/\[]+)(?P<port>:\d+)?/?", re.ASCII)
