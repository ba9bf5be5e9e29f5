"""Protocols from other packages, found by name or in a module.

A package announces a protocol with an entry point of the group `sterna.protocols`, named as the
protocol is. A protocol that no package announces is named with its module:
`my_package.round_trips:ROUND_TRIPS`.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from sterna.core.catalogue import LIVE  # Registers Sterna's own protocols.
from sterna.core.names import LocalProtocolError
from sterna.core.protocol import Kind, Protocol, UnknownProtocolError, named, register, registered
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


def choose(name: str, kind: Kind) -> Protocol:
    """The protocol that a network is to use; a ValueError that lists the choices if it cannot."""
    known = [each.name for each in registered() if each.kind is kind and each.name not in LIVE]
    choice = ", ".join([*known, "a protocol of an installed package", "module:ATTRIBUTE"])
    try:
        found = find(name)
    except UnknownProtocolError:
        raise ValueError(f"is {name!r}; choose one of {choice}") from None
    except PluginError as error:
        raise ValueError(f"names a protocol that cannot be found: {error}") from None
    if found.kind is not kind:
        raise ValueError(f"is {name!r}, which is for another purpose; choose one of {choice}")
    if found.name in LIVE:
        raise ValueError(f"is {name!r}, in which every broker takes part: leave it out")
    return found


def is_in_module(name: str) -> bool:
    """Whether a protocol is named with its module."""
    return ":" in name


def _by_name(name: str) -> Protocol:
    try:
        return named(name)
    except UnknownProtocolError:
        for point in entry_points(group=GROUP, name=name):
            protocol = _loaded(point.load, f"the entry point {name!r} of {GROUP}")
            if not isinstance(protocol, Protocol) or protocol.name != name:
                raise PluginError(
                    f"the entry point {name!r} of {GROUP} gives {protocol!r}, not that protocol"
                ) from None
            return _registered(protocol)
        raise


def _in_module(place: str) -> Protocol:
    module, _, attribute = place.partition(":")
    loaded = _loaded(partial(import_module, module), repr(place))
    if not hasattr(loaded, attribute):
        raise PluginError(f"the module {module} has no {attribute!r}")
    protocol = getattr(loaded, attribute)
    if not isinstance(protocol, Protocol):
        raise PluginError(f"{place!r} is a {type(protocol).__name__}, not a Protocol")
    return _registered(protocol)


def _loaded(load: Callable[[], Any], what: str) -> Any:
    """What `load` gives; PluginError if it fails, for a module may do anything when imported."""
    try:
        return load()
    except (ImportError, ValueError) as error:  # ValueError: the module has no name.
        raise PluginError(
            f"{what} cannot be imported ({error}): write module:ATTRIBUTE, and see that the "
            "module is on PYTHONPATH or installed"
        ) from error
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{what} cannot be imported: its module fails with {type(error).__name__} ({error})"
        ) from error


def _registered(protocol: Protocol) -> Protocol:
    try:
        return register(protocol)
    except ValueError as error:
        raise PluginError(str(error)) from None
