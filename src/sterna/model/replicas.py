"""What replication owes its user: the three properties of Huang and Garcia-Molina, section 5.

Several brokers watch the same subscriptions, each with losses of its own, and what they bring is
merged for one application. It must not notice that there are several brokers, except that it
misses less.

- **Ordered**: the events of each publisher are displayed in the order of their numbers.
- **Consistent**: a single broker could have displayed the same set of events. So nothing is
  displayed twice, and nothing that was never published.
- **Complete**: what a single broker would have displayed, had it received all that any of the
  brokers did, is displayed.

Each function lists the events that break a property; there are none where it holds.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from sterna.model.delivery import is_out_of_order
from sterna.model.event import EventId


class Verdict(NamedTuple):
    """Which of the three properties hold in a run."""

    ordered: bool
    consistent: bool
    complete: bool


def judge(
    displayed: Collection[EventId],
    received: Iterable[EventId],
    published: Collection[EventId] | None = None,
) -> Verdict:
    """Judge what an application was shown, given what any of the brokers had received for it."""
    return Verdict(
        ordered=not out_of_order(displayed),
        consistent=not inconsistent(displayed, published),
        complete=not missing(displayed, received),
    )


def out_of_order(displayed: Iterable[EventId]) -> list[EventId]:
    """The events that were displayed after a later one of their publisher."""
    last: dict[str, int] = {}
    late = []
    for id_ in displayed:
        before = last.get(id_.publisher, 0)
        if is_out_of_order(id_.seq, before):
            late.append(id_)
        last[id_.publisher] = max(id_.seq, before)
    return late


def inconsistent(
    displayed: Iterable[EventId], published: Collection[EventId] | None = None
) -> list[EventId]:
    """The events that no single broker would have displayed: again, or never published.

    Without `published`, only those displayed again are found.
    """
    seen: set[EventId] = set()
    wrong = []
    for id_ in displayed:
        if id_ in seen or (published is not None and id_ not in published):
            wrong.append(id_)
        seen.add(id_)
    return wrong


def missing(displayed: Iterable[EventId], received: Iterable[EventId]) -> list[EventId]:
    """The events that a broker has received for the application, and that were not displayed."""
    shown = set(displayed)
    return [id_ for id_ in dict.fromkeys(received) if id_ not in shown]
