"""The client library without asyncio: each call waits itself, and threads may share a client."""

import tempfile
from pathlib import Path

import sterna
from sterna.net.local import LocalNetwork

with tempfile.TemporaryDirectory() as directory, LocalNetwork(1, directory=Path(directory)) as one:
    url = one.url("B1")

    with sterna.blocking.connect(url, client="thermometer") as thermometer:
        for degrees in (19.5, 21.0, 23.5):
            thermometer.publish(room="kitchen", degrees=degrees)  # On its way;
        thermometer.drain()  # and now a broker has all of them for good.

        with sterna.blocking.connect(url, client="fan", state=Path(directory) / "fan") as fan:
            warm = fan.subscribe("room = 'kitchen' AND degrees > 20", past=10)
            print("so far:", [warm.get(timeout=10).attributes["degrees"] for _ in range(2)])

        # The fan's program has ended. With a state, the network keeps for it what comes.
        thermometer.publish(room="kitchen", degrees=25.0).wait()

    with sterna.blocking.connect(url, client="fan", state=Path(directory) / "fan") as fan:
        for event in fan.subscribe("room = 'kitchen' AND degrees > 20"):
            print("meanwhile:", event.attributes["degrees"])
            break
