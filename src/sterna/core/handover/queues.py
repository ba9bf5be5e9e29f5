"""In which events for one subscription wait, in their order; its policy says which of them do not.

Whatever the policy is, an event that comes costs the same however many wait, but for `ttl`, where
it costs the logarithm of that at most.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import cast

from sterna.core.names import NEVER, Time
from sterna.model.event import Event, Scalar
from sterna.model.queue_policies import PolicyKind, QueuePolicy

KEY_CHARACTERS_MAX = 100
"""Of longer keys only a digest is remembered."""

STALE_MAX = 64
"""So many times of events that have left are remembered before the others are sorted anew."""

Values = list[int | float | bool | str | None]
"""What a policy goes by, for each event of a queue."""


class Queue(ABC):
    """The numbers of events, the oldest first. Without a policy all wait."""

    policy: QueuePolicy | None = None

    @abstractmethod
    def enter(self, number: int, event: Event, now: Time, waited: Time) -> Sequence[int]:
        """An event comes; it has waited elsewhere. Which ones wait no longer, maybe itself?"""

    @abstractmethod
    def shift(self) -> int:
        """The oldest one leaves; there is one."""

    @property
    @abstractmethod
    def oldest(self) -> int | None:
        """The oldest one; None if nothing waits."""

    @abstractmethod
    def __len__(self) -> int:
        """How many wait."""

    @abstractmethod
    def __iter__(self) -> Iterator[int]:
        """Their numbers, the oldest first."""

    # ---- Time

    def expire(self, now: Time) -> Sequence[int]:
        """Those leave that have waited too long for the policy."""
        del now
        return ()

    @property
    def due(self) -> Time:
        """When the policy lets the next one go; NEVER if it goes by no time."""
        return NEVER

    # ---- Snapshots

    def values(self) -> Values:
        """What the policy goes by, for each event; empty if it needs nothing."""
        return []

    @abstractmethod
    def restore(self, numbers: Sequence[int], values: Values, now: Time) -> None:
        """Go on with what a snapshot has held, or with what has waited on other terms.

        Where the values are missing, the policy says nothing about these events.
        """


class Plain(Queue):
    """All events wait."""

    def __init__(self) -> None:
        self._numbers: deque[int] = deque()

    def enter(self, number: int, event: Event, now: Time, waited: Time) -> Sequence[int]:
        del event, now, waited
        self._numbers.append(number)
        return ()

    def shift(self) -> int:
        return self._numbers.popleft()

    @property
    def oldest(self) -> int | None:
        return self._numbers[0] if self._numbers else None

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def restore(self, numbers: Sequence[int], values: Values, now: Time) -> None:
        del values, now
        self._numbers.extend(numbers)


class Ring(Plain):
    """`ring(n)`: the last n events wait."""

    def __init__(self, policy: QueuePolicy) -> None:
        super().__init__()
        self.policy = policy

    def enter(self, number: int, event: Event, now: Time, waited: Time) -> Sequence[int]:
        super().enter(number, event, now, waited)
        return [self.shift() for _ in range(len(self) - self.policy.count)] if self.policy else ()


class Valued(Queue):
    """What policies have in common that go by a value of each event, or by its time."""

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy: QueuePolicy = policy
        self._waiting: OrderedDict[int, Scalar | None] = OrderedDict()
        """The value of each event; None: the policy says nothing about it."""

    def shift(self) -> int:
        oldest = next(iter(self._waiting))
        self._leave(oldest)
        return oldest

    def _leave(self, number: int) -> None:
        del self._waiting[number]

    @property
    def oldest(self) -> int | None:
        return next(iter(self._waiting), None)

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[int]:
        return iter(self._waiting)

    def values(self) -> Values:
        return list(self._waiting.values())

    def restore(self, numbers: Sequence[int], values: Values, now: Time) -> None:
        del now
        for number, value in zip(numbers, values or [None] * len(numbers), strict=True):
            self._add(number, value)

    @abstractmethod
    def _add(self, number: int, value: Scalar | None) -> Sequence[int]:
        """An event comes with a value. Which ones leave?"""


class LastPer(Valued):
    """`last_per(key)`: of the events with the same key, the last one waits."""

    def __init__(self, policy: QueuePolicy) -> None:
        super().__init__(policy)
        self._last: dict[tuple[bool, Scalar], int] = {}
        """The number of the event of each key, and whether this is a boolean: True equals 1."""

    def enter(self, number: int, event: Event, now: Time, waited: Time) -> Sequence[int]:
        del now, waited
        return self._add(number, _short(self.policy.value(event.attributes)))

    def _add(self, number: int, value: Scalar | None) -> Sequence[int]:
        self._waiting[number] = value
        if value is None:
            return ()
        before = self._last.get(_key(value))
        if before is not None:
            self._leave(before)
        self._last[_key(value)] = number
        return () if before is None else (before,)

    def _leave(self, number: int) -> None:
        value = self._waiting.pop(number)
        if value is not None:
            del self._last[_key(value)]


class Extreme(Valued):
    """`max(value)` and `min(value)`: the event with the greatest or least value waits.

    Of several with the same value the first one does.
    """

    def __init__(self, policy: QueuePolicy) -> None:
        super().__init__(policy)
        self._best: int | None = None

    def enter(self, number: int, event: Event, now: Time, waited: Time) -> Sequence[int]:
        del now, waited
        return self._add(number, self.policy.value(event.attributes))

    def _add(self, number: int, value: Scalar | None) -> Sequence[int]:
        if value is None:
            self._waiting[number] = None
            return ()
        best = self._best
        if best is not None and not self._is_better(value, self._waiting[best]):
            return (number,)
        if best is not None:
            del self._waiting[best]
        self._waiting[number], self._best = value, number
        return () if best is None else (best,)

    def _is_better(self, value: Scalar, than: Scalar | None) -> bool:
        a, b = cast("float", value), cast("float", than)
        return a > b if self.policy.kind is PolicyKind.MAX else a < b

    def _leave(self, number: int) -> None:
        super()._leave(number)
        if number == self._best:
            self._best = None


class Lifetimes(Valued):
    """`ttl(time)`: events wait so long, here and elsewhere together. The value is until when."""

    def __init__(self, policy: QueuePolicy) -> None:
        super().__init__(policy)
        self._times: list[tuple[Time, int]] = []
        """The times of all, and of some that have left, as a heap."""

    def enter(self, number: int, event: Event, now: Time, waited: Time) -> Sequence[int]:
        del event
        if waited >= self.policy.ttl_us:
            return (number,)
        return self._add(number, now - waited + self.policy.ttl_us)

    def _add(self, number: int, value: Scalar | None) -> Sequence[int]:
        self._waiting[number] = value
        heappush(self._times, (int(value or 0), number))
        if len(self._times) > 2 * len(self._waiting) + STALE_MAX:
            self._times = [(int(until or 0), each) for each, until in self._waiting.items()]
            heapify(self._times)
        return ()

    def expire(self, now: Time) -> Sequence[int]:
        gone: list[int] = []
        while self.due <= now:
            _, number = heappop(self._times)
            self._leave(number)
            gone.append(number)
        return gone

    @property
    def due(self) -> Time:
        while self._times and self._times[0][1] not in self._waiting:
            heappop(self._times)
        return self._times[0][0] if self._times else NEVER

    def waited(self, now: Time) -> Iterator[tuple[int, Time]]:
        """For how long each has waited."""
        for number, until in self._waiting.items():
            yield number, max(0, now - int(until or 0) + self.policy.ttl_us)

    def restore(self, numbers: Sequence[int], values: Values, now: Time) -> None:
        super().restore(numbers, values or [now + self.policy.ttl_us] * len(numbers), now)


_QUEUES: dict[PolicyKind, type[Ring | Valued]] = {
    PolicyKind.TTL: Lifetimes,
    PolicyKind.LAST_PER: LastPer,
    PolicyKind.MAX: Extreme,
    PolicyKind.MIN: Extreme,
    PolicyKind.RING: Ring,
}


def queue_for(policy: QueuePolicy | None) -> Queue:
    """An empty queue with a policy, or without."""
    return Plain() if policy is None else _QUEUES[policy.kind](policy)


def _key(value: Scalar) -> tuple[bool, Scalar]:
    return isinstance(value, bool), value


def _short(key: Scalar | None) -> Scalar | None:
    """A key, or a digest that stands for a long one."""
    if not isinstance(key, str) or len(key) <= KEY_CHARACTERS_MAX:
        return key
    return f"{len(key)}:{blake2b(key.encode(errors='surrogatepass'), digest_size=24).hexdigest()}"
