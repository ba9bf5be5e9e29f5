"""Which components a node has, and in which order, as its settings change."""

from collections.abc import Callable, Sequence

from sterna.core.component import Component, Handler
from sterna.core.messages import Message
from sterna.core.names import Time
from sterna.core.settings import Settings

PartsOf = Callable[[Settings], Sequence[type[Component]]]
"""The components that settings ask for."""


class Arrangement:
    """The components of a node: those that it always has, and those that its settings ask for.

    `arranged` is called whenever they have changed, before any of them is asked to do something.
    """

    def __init__(
        self,
        components: Sequence[Component],
        parts_of: PartsOf | None,
        arranged: Callable[[], None],
        *,
        lasting: int,
    ) -> None:
        self.components = tuple(components)
        self.ending: list[Component] = []
        """Components that the settings do not have any more, and that are not done yet."""
        self._lasting = self.components[:lasting]
        """The components that are there whatever the settings."""
        self._parts_of = parts_of
        self._arranged = arranged

    @property
    def is_configurable(self) -> bool:
        """Whether the components follow from settings, and so can change."""
        return self._parts_of is not None

    def handlers(self) -> dict[type[Message], Handler]:
        """Who handles which message."""
        found: dict[type[Message], Handler] = {}
        for component in self.components:
            for message, handler in component.handlers().items():
                if message in found:
                    raise ValueError(
                        f"two components of {component.node.id} handle {message.__name__}: "
                        "list only one of them"
                    )
                found[message] = handler
        return found

    def configure(self, settings: Settings, now: Time) -> None:
        """Have the components that other settings ask for; those that stay are configured anew."""
        wanted = () if self._parts_of is None else self._parts_of(settings)
        configured = {part: each for part in wanted if (each := self._part_of(part)) is not None}
        fresh = [part.make(settings) for part in wanted if part not in configured]
        unwanted = [each for each in self.components if self._is_unwanted(each, wanted)]
        resumed = [each for each in configured.values() if each in self.ending]
        self.ending = [each for each in unwanted if not each.end(now)]
        ended = [each for each in unwanted if each not in self.ending]
        self._arrange([each for each in self.components if each not in ended], fresh, wanted)
        for component in (*self._lasting, *configured.values()):
            component.configure(settings, now)
        for component in resumed:
            component.resume(now)
        for component in fresh:
            component.begin(now)

    def _part_of(self, kind: type[Component]) -> Component | None:
        return next((each for each in self.components if type(each) is kind), None)

    def _is_unwanted(self, component: Component, wanted: Sequence[type[Component]]) -> bool:
        is_optional = component.name and component not in self._lasting
        return bool(is_optional) and type(component) not in wanted

    def _arrange(
        self,
        kept: Sequence[Component],
        fresh: Sequence[Component],
        wanted: Sequence[type[Component]],
    ) -> None:
        """Put components in the order of the settings, behind those that they do not name."""
        by_type = {type(each): each for each in (*kept, *fresh)}
        others = [each for each in kept if type(each) not in wanted]
        self.components = (*others, *(by_type[part] for part in wanted))
        self._arranged()

    def add_ending(self, component: Component) -> None:
        """Have a component that the settings do not have: a snapshot was made before its end."""
        self.ending.append(component)
        rest = [each for each in self.components if each not in self._lasting]
        self.components = (*self._lasting, component, *rest)
        self._arranged()

    def end_what_is_done(self, now: Time) -> None:
        """Remove the components that had something left to do when the settings removed them."""
        ended = [each for each in self.ending if each.end(now)]
        if ended:
            self.ending = [each for each in self.ending if each not in ended]
            self.components = tuple(each for each in self.components if each not in ended)
            self._arranged()
