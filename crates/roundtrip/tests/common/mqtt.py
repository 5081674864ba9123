"""A client of MQTT, by Eclipse Paho (python3-paho-mqtt), which prints what it has done as JSON.

mqtt.py PORT VERSION COUNT      publishes COUNT messages (version 4 is 3.1.1), subscribes, and is refused
"""

import json
import sys
import threading

from paho.mqtt import client as mqtt

MAX_IN_FLIGHT = 20


class Counter:
    """What the broker has answered, by kind."""

    def __init__(self):
        self.changed = threading.Condition()
        self.counts = {}
        self.codes = []

    def add(self, name, codes=()):
        with self.changed:
            self.counts[name] = self.counts.get(name, 0) + 1
            self.codes += codes
            self.changed.notify_all()

    def wait(self, name, count):
        with self.changed:
            done = self.changed.wait_for(lambda: self.counts.get(name, 0) >= count, 60)
            assert done, f"{name}: {self.counts} instead of {count}"


def client(version, counter, **options):
    clean = {} if version == 5 else {"clean_session": True}
    one = mqtt.Client(protocol=mqtt.MQTTv5 if version == 5 else mqtt.MQTTv311, **clean, **options)
    one.max_inflight_messages_set(MAX_IN_FLIGHT)
    one.on_connect = lambda *all: counter.add("connected", [int(getattr(all[3], "value", all[3]))])
    one.on_subscribe = lambda *_: counter.add("subscribed")
    one.on_unsubscribe = lambda *_: counter.add("unsubscribed")
    one.on_publish = lambda *_: counter.add("published")
    one.on_message = lambda *_: counter.add("received")
    return one


def main(port, version, count):
    counter = Counter()
    one = client(version, counter)
    one.connect("127.0.0.1", port)
    one.loop_start()
    counter.wait("connected", 1)
    one.subscribe([("home/+/lamp", 1), ("other/#", 0)])
    counter.wait("subscribed", 1)
    by_quality = [0, 0, 0]
    for number in range(count):
        quality = number % 3
        by_quality[quality] += 1
        one.publish(f"home/{number % 7}/lamp", "x" * (number * 37 % 5000), qos=quality)
    counter.wait("published", count)
    counter.wait("received", count)
    one.unsubscribe("home/+/lamp")
    counter.wait("unsubscribed", 1)
    one.subscribe("secret/#", 1)
    counter.wait("subscribed", 2)
    # The broker's list lets nobody write this.
    for _ in range(3):
        one.publish("secret/door", "open", qos=1)
    counter.wait("published", count + 3)
    one.disconnect()
    one.loop_stop()
    wrong = client(version, counter)
    wrong.username_pw_set("nobody", "wrong")
    wrong.connect("127.0.0.1", port)
    while counter.counts["connected"] < 2:
        wrong.loop(0.05)
    print(json.dumps({"published": by_quality, "codes": counter.codes, "received": counter.counts["received"]}))


main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
