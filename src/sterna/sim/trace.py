"""A run as text, one line for each thing that happened."""

from collections.abc import Sequence

from sterna.core import facts, inputs
from sterna.core.confirming.facts import SubscriptionKnown
from sterna.core.facts import Fact
from sterna.core.handover.messages import (
    Arrival,
    Fetch,
    Located,
    Overtaking,
    Replay,
    Replayed,
    Resubscribe,
    Welcome,
)
from sterna.core.history.messages import (
    HistoryAsked,
    HistoryExpected,
    HistoryFound,
    Past,
    PastAsked,
)
from sterna.core.inputs import Input
from sterna.core.link import Ack, Data, Frame, Resume
from sterna.core.location.messages import MovingChange, MovingRoute
from sterna.core.messages import AdvertisementChange, Events, Message, Route, SubscriptionChange
from sterna.core.mobile.messages import (
    BranchMoved,
    EventOnward,
    FiltersKnown,
    Known,
    OwnFilters,
    SubscriberChange,
    SubscriberMigrated,
    SubscribersMoved,
    TableKnown,
)
from sterna.core.names import NodeId, RouteId, Time
from sterna.core.overlay.messages import Unicast
from sterna.core.presubscribing.messages import VirtualWanted
from sterna.model.event import Event, EventId
from sterna.sim.network import Fate, Observer, Pipe


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
        self._write(now, node, input_in_words(given))

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        if not self._frames and (fate.again or not isinstance(frame, Data)):
            return
        words = frame_in_words(frame, numbers=self._frames)
        marks = [name for name in fate.__struct_fields__ if getattr(fate, name)]
        if not self._frames:
            marks = [name for name in marks if name == "lost"]
        self._write(now, str(pipe), words + (f" ({', '.join(marks)})" if marks else ""))

    def fact(self, fact: Fact) -> None:
        words = fact_in_words(fact)
        if words is not None:
            self._write(fact.time, fact.at, words)

    def trouble(self, text: str, now: Time) -> None:
        self._write(now, "", text)

    def _write(self, now: Time, who: str, text: str) -> None:
        self.lines.append(f"{now / 1000:10.3f}  {who:12}  {text}".rstrip())


def frame_in_words(frame: Frame, *, numbers: bool) -> str:
    """A message, or what keeps a link going, as text."""
    match frame:
        case Data():
            number = f"{frame.seq}: " if numbers else ""
            return number + message_in_words(frame.message)
        case Ack():
            return f"Ack {frame.acknowledged}"
        case Resume():
            return f"Resume after {frame.acknowledged}" + " (answer)" * frame.answers
        case _:
            return type(frame).__name__


def fact_in_words(fact: Fact) -> str | None:
    """What a reader wants to know of a fact; None if messages and inputs show it already."""
    match fact:
        case facts.Delivered():
            return f"delivers {_events(fact.events)}"
        case facts.Recalled():
            return f"recalls {_events(fact.events)}"
        case facts.Stray():
            return f"ignores {_events(fact.events)}"
        case facts.Quenched():
            return f"quenches {_events(fact.events)}"
        case facts.Purged():
            return f"purges {_events(fact.events)}"
        case facts.Overtook():
            return f"has {_events(fact.events)} before what it has missed"
        case facts.Repeated():
            return f"has {_events(fact.events)} already"
        case facts.Missed():
            return f"has missed {_events(fact.events)}"
        case facts.Discarded():
            why = f": {fact.policy}" if fact.policy else ""
            return f"discards {_events(fact.events)} for {fact.client}{why}"
        case SubscriptionKnown():
            unasked = f", but not to {', '.join(fact.but_not)}" * bool(fact.but_not)
            return f"has heard that {fact.subscription} is known{unasked}"
        case facts.HandoverStarted():
            return f"looks for what {fact.client} left behind"
        case facts.JunctionFound():
            return f"is the junction for {fact.client}"
        case facts.HandoverFinished():
            return f"has {fact.client}: {fact.replayed} replayed, {fact.held} held back"
        case facts.ForgottenEarly():
            return f"has to forget {fact.client} before its time"
        case facts.MemoriesDiffer():
            return f"remembers other things than {fact.link}: they begin anew"
        case facts.LinkReset():
            return f"gives up {fact.given_up} unconfirmed: {fact.link} has lost its memory"
        case facts.Settled():
            return "settled"
        case _:
            return None


def message_in_words(message: Message) -> str:
    """A message as text, such as `SubscriptionChange +ann/1: price > 3`."""
    match message:
        case Events():
            return f"Events {_events(message.events)}"
        case SubscriptionChange() | AdvertisementChange():
            return f"{type(message).__name__} {_change(message.added, message.removed)}"
        case Arrival() if not message.born:
            return "Arrival for the first time"
        case Arrival():
            routes = [*message.subscriptions, *message.advertisements]
            words = f"Arrival, received {message.received} {_change(routes, ())}".rstrip()
            been = ", ".join(f"{b} until {t / 1000:g} ms" for t, b in message.connections)
            return f"{words} (at {been})" if been else words
        case Welcome():
            return f"Welcome, published {message.published}"
        case Replayed():
            return f"Replayed {_events(message.events)}" + _missed(message.missed)
        case Overtaking():
            return f"Overtaking {_events(message.events)}"
        case Located():
            return f"Located {message.client}"
        case Resubscribe():
            wanted = "; ".join(map(str, message.filters))
            return f"Resubscribe ({message.client}, {wanted}, {message.received})"
        case Fetch():
            wanted = "; ".join(map(str, message.filters))
            known = f"{message.client}, {wanted}, {message.received}, {message.junction}"
            return f"Fetch ({known})"
        case Replay():
            return f"Replay ({message.client}) {_events(message.events)}" + _missed(message.missed)
        case PastAsked():
            wanted = _past(message.events_max, message.since_us)
            return f"PastAsked +{message.route.id}: {message.route.filter}, {wanted}"
        case Past():
            return f"Past {message.subscription}: {_events(message.events) or 'nothing'}"
        case HistoryAsked():
            known = ", ".join(f"{p}#{first}-{last}" for p, first, last in message.known)
            wanted = _past(message.events_max, message.since_us)
            return f"HistoryAsked by {message.path[0]} {message.filter}, {wanted}" + (
                f", but {known}" if known else ""
            )
        case HistoryExpected():
            return f"HistoryExpected {message.count}"
        case HistoryFound():
            runs = ", ".join(f"{r.publisher}#{r.first}- {r.place}" for r in message.runs)
            found = _events(message.events) or "nothing"
            return f"HistoryFound {found}" + f" ({runs})" * bool(runs)
        case SubscriberChange():
            said = [*(f"+{r.id}: {r.filter}" for r in message.added)]
            said += [f"-{id_}" for id_ in message.removed]
            return f"SubscriberChange of {message.subscriber} {' '.join(said)}"
        case SubscriberMigrated():
            before = message.before or "nowhere"
            return f"SubscriberMigrated {message.subscriber}, before at {before}"
        case OwnFilters():
            wanted = "; ".join(str(route.filter) for route in message.routes)
            return f"OwnFilters {wanted or 'none'}"
        case SubscribersMoved():
            return f"SubscribersMoved {', '.join(message.subscribers)} of {message.broker}"
        case TableKnown():
            return f"TableKnown {', '.join(entry.subscriber for entry in message.entries)}"
        case BranchMoved():
            others = f", others {_known(message.others)}" if message.others else ""
            return f"BranchMoved {_known(message.behind)}{others}, hops {message.hops}"
        case FiltersKnown():
            wanted = "; ".join(str(route.filter) for route in message.routes)
            age = f"({message.subscriber}, {message.time}, {message.nearest})"
            return f"FiltersKnown {age}: {wanted}, hops {message.hops}"
        case EventOnward():
            return f"EventOnward {_events((message.event,))} to {message.subscriber}"
        case Unicast():
            return _unicast(message)
        case MovingChange():
            said = [*map(_moving, message.added), *(f"-{id_}" for id_ in message.removed)]
            return " ".join(["MovingChange", *["anew"] * message.anew, *said])
        case _:
            values = (
                f"{name}={value}"
                for name in message.__struct_fields__
                if (value := getattr(message, name)) is not None
            )
            return " ".join([type(message).__name__, *values])


def _known(known: Sequence[Known]) -> str:
    """Subscribers with how new and how near they are known."""
    return " ".join(f"({k.subscriber}, {k.time}, {k.hops})" for k in known)


def _past(events_max: int | None, since_us: Time | None) -> str:
    """How much of the past somebody asks for."""
    last = "all" if events_max is None else f"the last {events_max}"
    return last if since_us is None else f"{last} since {since_us / 1000:g} ms"


def _unicast(message: Unicast) -> str:
    """A message to a broker by name, such as `EventsFound to B4 (ann) pat#2`."""
    told = {name: getattr(message, name) for name in message.__struct_fields__}
    about = f" ({told['client']})" if "client" in told else ""
    words = [f"{type(message).__name__} to {message.to}{about}"]
    if told.get("is_here") is False:
        words.append("nothing")
    elif "events" in told or "ids" in told:
        words.append(_events(told["events" if "events" in told else "ids"]))
    if isinstance(message, VirtualWanted):
        wanted = (f"{each.filter} @ {each.place}" for each in message.routes)
        words.append("; ".join(wanted) or "nothing")
    if told.get("subscriptions") or told.get("added"):
        words.append(_change(told.get("subscriptions") or told["added"], ()))
    for name, text in (("elsewhere", "but at"), ("logged", "without"), ("others", "as well as")):
        if told.get(name):
            words.append(
                f"{text} {_events(told[name]) if name == 'logged' else ', '.join(told[name])}"
            )
    return " ".join(words)


def input_in_words(given: Input) -> str:
    """What an application does, as text."""
    match given:
        case inputs.Subscribe():
            return f"subscribes {given.subscription}: {given.filter}"
        case inputs.Unsubscribe():
            return f"unsubscribes {given.subscription}"
        case inputs.Confirm():
            return f"asks whether {given.subscription} is known"
        case inputs.Advertise():
            return f"advertises {given.advertisement}: {given.filter}"
        case inputs.Unadvertise():
            return f"unadvertises {given.advertisement}"
        case inputs.Publish():
            return "publishes " + _attributes(given.attributes.items())
        case inputs.Attach():
            return f"attaches to {given.broker}"
        case inputs.Detach():
            return "detaches"
        case inputs.MoveTo():
            return f"moves to {given.location}"
        case inputs.SetVariable():
            return f"sets ${given.name} = {given.value}"
        case _:
            return type(given).__name__


def _change(added: Sequence[Route], removed: Sequence[RouteId]) -> str:
    return " ".join([*(f"+{r.id}: {r.filter}" for r in added), *(f"-{id_}" for id_ in removed)])


def _moving(route: MovingRoute) -> str:
    away = "?" if route.delay_us is None else f"{route.delay_us / 1000:g} ms"
    return f"+{route.id}: {route.filter} @ {route.at} ({away})"


def _events(events: Sequence[Event | EventId]) -> str:
    return ", ".join(f"{event.publisher}#{event.seq}" for event in events) or "nothing"


def _missed(events: Sequence[EventId]) -> str:
    return f" without {_events(events)}" if events else ""


def _attributes(items: object) -> str:
    return " ".join(f"{name}={value}" for name, value in items)  # type: ignore[attr-defined]
