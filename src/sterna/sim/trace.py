"""A run as text, one line for each thing that happened."""

from collections.abc import Sequence

from sterna.core import facts, inputs
from sterna.core.facts import Fact
from sterna.core.inputs import Input
from sterna.core.link import Ack, Data, Frame, Resume
from sterna.core.messages import AdvertisementChange, Events, Message, Route, SubscriptionChange
from sterna.core.names import NodeId, RouteId, Time
from sterna.model.event import Event
from sterna.sim.network import Observer, Pipe


class Trace(Observer):
    """Writes down what applications do, what nodes send, what is delivered and what goes wrong.

    With `frames` also what keeps links going: acknowledgements, and what got lost or was repeated.
    """

    def __init__(self, *, frames: bool = False) -> None:
        self.lines: list[str] = []
        self._frames = frames

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    def given(self, node: NodeId, given: Input, now: Time) -> None:
        self._write(now, node, _in_words(given))

    def sent(self, pipe: Pipe, frame: Frame, fate: str, now: Time) -> None:
        if isinstance(frame, Data) and (fate == "first" or self._frames):
            mark = "" if fate == "first" else f" ({fate})"
            number = f"{frame.seq}: " if self._frames else ""
            self._write(now, str(pipe), number + message_in_words(frame.message) + mark)
        elif self._frames:
            lost = " (lost)" if fate == "lost" else ""
            self._write(now, str(pipe), _link_in_words(frame) + lost)

    def fact(self, fact: Fact) -> None:
        match fact:
            case facts.Delivered():
                self._write(fact.time, fact.at, f"delivers {_events(fact.events)}")
            case facts.Stray():
                self._write(fact.time, fact.at, f"ignores {_events(fact.events)}")
            case facts.Quenched():
                self._write(fact.time, fact.at, f"quenches {_events(fact.events)}")
            case facts.Purged():
                self._write(fact.time, fact.at, f"purges {_events(fact.events)}")
            case facts.LinkReset():
                text = f"{fact.link} has lost its memory; {fact.given_up} messages given up"
                self._write(fact.time, fact.at, text)
            case facts.Settled():
                self._write(fact.time, "", "settled")
            case _:
                pass

    def trouble(self, text: str, now: Time) -> None:
        self._write(now, "", text)

    def _write(self, now: Time, who: str, text: str) -> None:
        self.lines.append(f"{now / 1000:10.3f}  {who:12}  {text}".rstrip())


def message_in_words(message: Message) -> str:
    """`SubscriptionChange +ann/1: price > 3`."""
    match message:
        case Events():
            return f"Events {_events(message.events)}"
        case SubscriptionChange() | AdvertisementChange():
            return f"{type(message).__name__} {_change(message.added, message.removed)}"
        case _:
            values = (
                f"{name}={value}"
                for name in message.__struct_fields__
                if (value := getattr(message, name)) is not None
            )
            return " ".join([type(message).__name__, *values])


def _in_words(given: Input) -> str:
    match given:
        case inputs.Subscribe():
            return f"subscribes {given.subscription}: {given.filter}"
        case inputs.Unsubscribe():
            return f"unsubscribes {given.subscription}"
        case inputs.Advertise():
            return f"advertises {given.advertisement}: {given.filter}"
        case inputs.Unadvertise():
            return f"unadvertises {given.advertisement}"
        case inputs.Publish():
            return "publishes " + _attributes(given.attributes.items())
        case _:
            return type(given).__name__


def _change(added: Sequence[Route], removed: Sequence[RouteId]) -> str:
    return " ".join([*(f"+{r.id}: {r.filter}" for r in added), *(f"-{id_}" for id_ in removed)])


def _events(events: Sequence[Event]) -> str:
    return ", ".join(f"{event.publisher}#{event.seq}" for event in events)


def _attributes(items: object) -> str:
    return " ".join(f"{name}={value}" for name, value in items)  # type: ignore[attr-defined]


def _link_in_words(frame: Frame) -> str:
    match frame:
        case Ack():
            return f"Ack {frame.acknowledged}"
        case Resume():
            return f"Resume after {frame.acknowledged}" + " (answer)" * frame.answers
        case _:
            return type(frame).__name__
