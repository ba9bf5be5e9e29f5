"""Which components a node has, and in which order, as its settings change."""

from collections.abc import Callable, Sequence

from sterna.core.component import Component, Handler
from sterna.core.messages import Message
from sterna.core.names import NodeId, Time
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
        self.beginning: list[Component] = []
        """Components that the settings have from now on, while others are asked to end for them."""
        self.worked_by: dict[str, Settings] = {}
        """The last settings that had these components, by their names."""
        self._lasting = self.components[:lasting]
        """The components that are there whatever the settings."""
        self._parts_of = parts_of
        self._arranged = arranged

    @property
    def is_configurable(self) -> bool:
        """Whether the components follow from settings, and so can change."""
        return self._parts_of is not None

    def handlers(self) -> dict[type[Message], Handler]:
        """Who handles which message; a component that is about to end yields to another."""
        staying = [each for each in self.components if each not in self.ending]
        return {
            message: handler
            for component in (*self.ending, *staying)
            for message, handler in component.handlers().items()
        }

    def prepare(self, settings: Settings, node: NodeId) -> list[Component]:
        """Make all components that settings ask for; an error if they do not go together.

        Those that are there already are made as well: their options may be wrong.
        """
        wanted = () if self._parts_of is None else self._parts_of(settings)
        unnamed = [each for each in self.components if self._is_unnamed(each)]
        made = [part.make(settings) for part in wanted]
        check(node, (*unnamed, *made))
        return made

    def configure(
        self, before: Settings, settings: Settings, made: Sequence[Component], now: Time
    ) -> None:
        """Have the components that were made of settings; those that are there already stay."""
        wanted = [type(each) for each in made]
        configured = {part: each for part in wanted if (each := self._part_of(part)) is not None}
        fresh = [each for each in made if type(each) not in configured]
        unwanted = [each for each in self.components if self._is_unwanted(each, wanted)]
        resumed = [each for each in configured.values() if each in self.ending]
        self.beginning = [*fresh, *resumed]
        self.ending = [each for each in unwanted if not each.end(now)]
        self.beginning = []
        self.worked_by = {e.name: self.worked_by.get(e.name, before) for e in self.ending}
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

    def _is_unnamed(self, component: Component) -> bool:
        """Whether it is there whatever the settings name."""
        return not component.name or component in self._lasting

    def _is_unwanted(self, component: Component, wanted: Sequence[type[Component]]) -> bool:
        return not self._is_unnamed(component) and type(component) not in wanted

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

    def add_ending(self, components: Sequence[Component], worked_by: dict[str, Settings]) -> None:
        """Have components that the settings do not have: a snapshot was made before their end."""
        self.ending, self.worked_by = [*components], worked_by
        rest = [each for each in self.components if each not in self._lasting]
        self.components = (*self._lasting, *components, *rest)
        self._arranged()

    def end_what_is_done(self, now: Time) -> None:
        """Remove the components that had something left to do when the settings removed them."""
        ended = [each for each in self.ending if each.end(now)]
        if ended:
            self.ending = [each for each in self.ending if each not in ended]
            self.components = tuple(each for each in self.components if each not in ended)
            self._arranged()


def check(node: NodeId, components: Sequence[Component]) -> None:
    """Check that each message has one component that handles it."""
    handled: set[type[Message]] = set()
    for component in components:
        for message in component.handlers():
            if message in handled:
                raise ValueError(
                    f"two components of {node} handle {message.__name__}: list only one of them"
                )
            handled.add(message)
