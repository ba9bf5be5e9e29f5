"""Turns of a broker's event loop."""

import asyncio
import time

from sterna.net.broker.turns import TURN_S, LoopTurn


def work(seconds: float) -> None:
    """Use the processor for so long."""
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def test_a_turn_is_over_when_enough_of_it_was_used() -> None:
    async def one() -> None:
        turn = LoopTurn(asyncio.get_running_loop())
        assert not turn.is_over
        for _ in range(3):
            began = time.perf_counter()
            work(TURN_S / 2)
            turn.use(time.perf_counter() - began)
        assert turn.is_over

    asyncio.run(one())


def test_time_in_which_other_threads_had_the_processor_was_not_used() -> None:
    async def one() -> None:
        turn = LoopTurn(asyncio.get_running_loop())
        for _ in range(100):
            turn.use(TURN_S / 25)  # By the clock; the processor has done nothing.
            assert not turn.is_over

    asyncio.run(one())


def test_another_turn_begins_with_nothing_used() -> None:
    async def two() -> None:
        turn = LoopTurn(asyncio.get_running_loop())
        turn.use(TURN_S / 2)
        work(2 * TURN_S)
        turn.use(2 * TURN_S)
        assert turn.is_over
        await asyncio.sleep(0)
        assert turn.used_s == 0

    asyncio.run(two())
