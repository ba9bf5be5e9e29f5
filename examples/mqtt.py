"""A phone with paho-mqtt, unmodified, goes from broker to broker and misses nothing."""

import queue
import tempfile
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from sterna.net.local import LocalNetwork

CONFIG = {"mqtt": {"listen": "127.0.0.1:0"}, "log": {"level": "warning"}}

got: queue.Queue[str] = queue.Queue()
subscribed: queue.Queue[int] = queue.Queue()


def device(client_id: str) -> paho.Client:
    """A client of MQTT 3.1.1 whose session lasts."""
    return paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id=client_id,
        clean_session=False,
        protocol=MQTTProtocolVersion.MQTTv311,
    )


with LocalNetwork(3, directory=Path(tempfile.mkdtemp()), config=CONFIG) as network:
    phone, parks = device("phone"), device("car parks")
    phone.on_message = lambda _client, _data, message: got.put(message.payload.decode())
    phone.on_subscribe = lambda _client, _data, number, *_: subscribed.put(number)

    parks.connect(*network.mqtt("B2"))
    parks.loop_start()
    for count, broker in enumerate(("B1", "B3", "B2", "B3")):
        phone.connect(*network.mqtt(broker))
        phone.loop_start()
        if not count:  # The session keeps the subscription.
            phone.subscribe("parking/+", qos=2)
            subscribed.get(timeout=30)
            network.wait_until_settled()
        parks.publish("parking/Elm", f"{10 - count} free", qos=2).wait_for_publish(30)
        print(f"at {broker}:", [got.get(timeout=30) for _ in range(2 if count else 1)])

        phone.disconnect()  # A tunnel. What is published meanwhile waits,
        phone.loop_stop()
        parks.publish("parking/Oak", f"{20 - count} free", qos=2).wait_for_publish(30)

    phone.connect(*network.mqtt("B1"))  # and comes with the next connection, wherever that is.
    phone.loop_start()
    print("at B1:", [got.get(timeout=30)])
    for client in (phone, parks):
        client.disconnect()
        client.loop_stop()
