"""`once`: a property that is computed when it is first asked for, and then kept."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as once
else:

    class once:  # noqa: N801 - it is used like a function.
        """Like `functools.cached_property`, which has a lock for all objects in Python 3.11: there,
        a thread that computes the property of one object holds up all others.

        Two threads that ask for the same property at the same time both compute it.
        """

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._compute(instance)
            return value


__all__ = ["once"]
