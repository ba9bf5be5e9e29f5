"""Protocols from other packages, found by name or in a module.

A package announces a protocol with an entry point of the group `sterna.protocols`, named as the
protocol is. A protocol that no package announces is named with its module:
`my_package.round_trips:ROUND_TRIPS`.
"""

from importlib import import_module
from importlib.metadata import entry_points

from sterna.core import catalogue as _catalogue  # noqa: F401 - registers Sterna's own protocols.
from sterna.core.names import LocalProtocolError
from sterna.core.protocol import Protocol, UnknownProtocolError, named, register
from sterna.core.settings import Settings

GROUP = "sterna.protocols"


class PluginError(LocalProtocolError):
    """A protocol cannot be loaded; the message says what is wrong with its module or package."""


def require(settings: Settings) -> None:
    """Load the protocols that settings name; UnknownProtocolError if one is not installed."""
    for name in (*settings.protocols, settings.handover.protocol):
        try:
            _by_name(name)
        except UnknownProtocolError:
            if name not in settings.modules:
                raise
            _in_module(settings.modules[name])


def find(name: str) -> Protocol:
    """The protocol of this name, or in a module (`module:ATTRIBUTE`), loaded if need be."""
    return _in_module(name) if is_in_module(name) else _by_name(name)


def is_in_module(name: str) -> bool:
    """Whether a protocol is named with its module."""
    return ":" in name


def _by_name(name: str) -> Protocol:
    try:
        return named(name)
    except UnknownProtocolError:
        for point in entry_points(group=GROUP, name=name):
            protocol = point.load()
            if not isinstance(protocol, Protocol) or protocol.name != name:
                raise PluginError(
                    f"the entry point {name!r} of {GROUP} gives {protocol!r}, not that protocol"
                ) from None
            return register(protocol)
        raise


def _in_module(place: str) -> Protocol:
    module, _, attribute = place.partition(":")
    try:
        protocol = getattr(import_module(module), attribute)
    except (ImportError, ValueError) as error:  # ValueError: the module has no name.
        raise PluginError(
            f"{place!r} cannot be imported ({error}): write module:ATTRIBUTE, and see that the "
            "module is on PYTHONPATH or installed"
        ) from None
    except AttributeError:
        raise PluginError(f"the module {module} has no {attribute!r}") from None
    if not isinstance(protocol, Protocol):
        raise PluginError(f"{place!r} is a {type(protocol).__name__}, not a Protocol")
    return register(protocol)
