"""Promises: what a broker owes another one, found by client and by number."""

from typing import ClassVar

import pytest

from sterna.core.handover.promises import Promise, Promises
from sterna.core.messages import Message


class Name(str):
    """A client's name that counts how often names are compared."""

    __slots__ = ()
    compared: ClassVar[list[int]] = [0]
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        self.compared[0] += 1
        return str.__eq__(self, other)


def promise(visit: int) -> Promise:
    return Promise(
        request=Message(),
        lost=[],
        held=[],
        missed=[],
        moving={},
        published=0,
        departing=0,
        visit=visit,
    )


@pytest.mark.spec("PM-4")
def test_the_promises_for_a_client_are_found_without_looking_at_those_for_others() -> None:
    """Brokers look for them at each question, and at each birth or departure."""
    promises = Promises()
    for number in range(1_000):
        promises[Name(f"c{number // 2}"), number] = promise(number)
    Name.compared[0] = 0

    found = promises.of(Name("c7"))

    assert [(key, each.visit) for key, each in found] == [(("c7", 14), 14), (("c7", 15), 15)]
    assert Name.compared[0] < 20


def test_promises_that_end_are_not_found_any_more() -> None:
    promises = Promises()
    for client, number in (("c", 1), ("d", 2), ("c", 3)):
        promises[client, number] = promise(number)

    assert list(promises) == [("c", 1), ("d", 2), ("c", 3)]
    del promises["c", 1]
    assert promises.pop(("c", 1), None) is None
    assert [key for key, _ in promises.of("c")] == [("c", 3)]
    promises.clear()
    assert not promises
    assert promises.of("c") == promises.of("d") == []
