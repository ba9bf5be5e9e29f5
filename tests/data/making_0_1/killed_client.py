"""A client process that does what it is told, one JSON line at a time, until it is killed.

`python -m tests.data.making_0_1.killed_client URL NAME STATE`
"""

import asyncio
import json
import sys
from typing import Any

from sterna.net.handles import Subscription

from sterna.net.client import Client, connect
from tests.data.kept import value_of


async def main(url: str, name: str, state: str) -> None:
    subscriptions: dict[str, Subscription] = {}
    async with connect(url, client=name, state=state) as client:
        _answer({"published": client.published})
        while line := await asyncio.to_thread(sys.stdin.readline):
            _answer(await _do(client, subscriptions, json.loads(line)))


async def _do(client: Client, subscriptions: dict[str, Subscription], told: dict[str, Any]) -> Any:
    match told["do"]:
        case "subscribe":
            name = told["name"]
            subscriptions[name] = client.subscribe(told["where"], name=name)
        case "take":
            subscription = subscriptions[told["name"]]
            return [list((await anext(subscription)).id) for _ in range(told["count"])]
        case "wait":
            while subscriptions[told["name"]].waiting < told["count"]:
                await asyncio.sleep(0.002)
        case "detach":
            await client.detach()
        case "publish":
            receipts = [
                client.publish(
                    {name: value_of(value) for name, value in attributes.items()},
                    bytes.fromhex(payload),
                )
                for attributes, payload in told["events"]
            ]
            if client.is_connected:
                await client.drain()
            while client._engine is not None and (client._pending or client._engine.held):
                await asyncio.sleep(0.002)  # What is published is in its state now.
            return [list(receipt.id) for receipt in receipts]
    return None


def _answer(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
