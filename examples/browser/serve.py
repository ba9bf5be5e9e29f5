"""Two brokers with WebSockets, a car park at work, and a page that follows its offers."""

import asyncio
import itertools
import json
import sys
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import sterna
from sterna.net.local import LocalNetwork

HERE = Path(__file__).parent
CONFIG = {"mqtt": {"websocket": "127.0.0.1:0"}, "log": {"level": "warning"}}


class Page(SimpleHTTPRequestHandler):
    """The files of this folder, and where the brokers are."""

    brokers: dict[str, str]

    def do_GET(self) -> None:
        """Answer a request."""
        if self.path != "/brokers.json":
            super().do_GET()
            return
        body = json.dumps(self.brokers).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


async def offer(url: str) -> None:
    """Publish offers: what has a topic reaches MQTT clients, with attributes as properties."""
    async with sterna.connect(url, client="car parks") as parks:
        for number in itertools.count():
            name = ("Elm", "Oak", "Fir")[number % 3]
            price = 1 + number % 7 / 2
            text = f"{number % 50} free".encode()
            await parks.publish({"topic": f"parking/{name}", "price": price}, text)
            await asyncio.sleep(0.5)


if not (HERE / "node_modules" / "mqtt").is_dir():
    sys.exit("mqtt.js is not there; install it: npm ci --prefix examples/browser")
with (
    tempfile.TemporaryDirectory() as directory,
    LocalNetwork(2, directory=Path(directory), config=CONFIG) as network,
):
    Page.brokers = {name: f"ws://{network.mqtt_websocket(name)}" for name in network.names}
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Page, directory=HERE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    try:
        asyncio.run(offer(network.url("B1")))
    except KeyboardInterrupt:
        server.shutdown()
