"""A client of AMQP 0-9-1, by Pika (python3-pika), which prints what it has asked for as JSON.

amqp.py PORT COUNT      methods, messages with and without confirms, and refusals
"""

import collections
import json
import sys

import pika
from pika.exceptions import ChannelClosedByBroker, NackError, ProbableAuthenticationError

asked = collections.Counter()


def call(name, method, *arguments, **options):
    asked[name] += 1
    return method(*arguments, **options)


def parameters(port, password="guest"):
    credentials = pika.PlainCredentials("guest", password)
    return pika.ConnectionParameters("127.0.0.1", port, credentials=credentials, heartbeat=1)


def connect(port):
    asked["login"] += 1
    asked["Conn.Open"] += 1
    return pika.BlockingConnection(parameters(port))


def closes(connection):
    # Pika closes its channels first.
    inner = getattr(connection, "_impl", connection)
    asked["Channel.Close"] += sum(one.is_open for one in inner._channels.values())
    call("Conn.Close", connection.close)


def methods(port, count):
    """Two channels of one connection, with messages that are not acknowledged."""
    connection = connect(port)
    one, two = (call("Channel.Open", connection.channel) for _ in range(2))
    call("Exch.Declare", one.exchange_declare, "logs.17", "topic")
    call("Queue.Declare", one.queue_declare, "jobs.17")
    call("Queue.Bind", one.queue_bind, "jobs.17", "logs.17", "created.#")
    for number in range(count):
        one.basic_publish("logs.17", "created.1", b"x" * (number * 997 % 300_000))
        got, _, body = call("Basic.Get", two.basic_get, "jobs.17", auto_ack=True)
        # A message may be on its way, still.
        asked["messages"] += got is not None
    call("Queue.Purge", two.queue_purge, "jobs.17")
    call("Basic.Qos", two.basic_qos, prefetch_count=10)
    received = []
    tag = call("Basic.Consume", two.basic_consume, "jobs.17", lambda *all: received.append(all))
    for _ in range(50):
        one.basic_publish("", "jobs.17", b"delivered")
    while len(received) < 50:
        connection.process_data_events(1)
        while asked["acknowledged"] < len(received):
            two.basic_ack(received[asked["acknowledged"]][1].delivery_tag)
            asked["acknowledged"] += 1
    call("Basic.Cancel", two.basic_cancel, tag)
    call("Tx.Select", one.tx_select)
    one.basic_publish("", "jobs.17", b"in a transaction")
    call("Tx.Commit", one.tx_commit)
    # Heartbeats come, of both sides.
    connection.sleep(1.5)
    call("Queue.Delete", two.queue_delete, "jobs.17")
    closes(connection)


def confirms(port, count):
    """Messages one by one, and refused."""
    connection = connect(port)
    channel = call("Channel.Open", connection.channel)
    call("Confirm.Select", channel.confirm_delivery)
    call("Queue.Declare", channel.queue_declare, "sure")
    for number in range(count):
        call("Basic.Publish", channel.basic_publish, "", "sure", b"x" * (number * 997 % 300_000))
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    call("Queue.Declare", channel.queue_declare, "full", arguments=full)
    for number in range(10):
        try:
            call("Basic.Publish", channel.basic_publish, "", "full", b"x")
        except NackError:
            asked["refused"] += 1
    call("Queue.Delete", channel.queue_delete, "sure")
    call("Queue.Delete", channel.queue_delete, "full")
    closes(connection)


def pipelined(port, count):
    """Messages that do not wait for the acknowledgements of those before them."""
    open_tags = set(range(1, count + 1))

    def declare(channel):
        call("Queue.Declare", channel.queue_declare, "many", callback=lambda _: publish(channel))

    def publish(channel):
        for number in range(count):
            call("Basic.Publish", channel.basic_publish, "", "many", b"y" * (number % 50))

    def acknowledged(channel, frame):
        tag, several = frame.method.delivery_tag, frame.method.multiple
        asked["multiple"] += several
        open_tags.difference_update(range(1, tag + 1) if several else [tag])
        if not open_tags:
            call("Queue.Delete", channel.queue_delete, "many", callback=lambda _: closes(connection))

    def select(channel):
        acknowledge = lambda frame: acknowledged(channel, frame)
        call("Confirm.Select", channel.confirm_delivery, acknowledge, callback=lambda _: declare(channel))

    asked["login"] += 1
    asked["Conn.Open"] += 1
    connection = pika.SelectConnection(
        parameters(port),
        on_open_callback=lambda one: call("Channel.Open", one.channel, on_open_callback=select),
        on_close_callback=lambda one, _: one.ioloop.stop(),
    )
    connection.ioloop.start()


def errors(port):
    connection = connect(port)
    for _ in range(3):
        channel = call("Channel.Open", connection.channel)
        try:
            call("Queue.Declare", channel.queue_declare, "none", passive=True)
        except ChannelClosedByBroker as error:
            assert error.reply_code == 404
            asked["missing"] += 1
    channel = call("Channel.Open", connection.channel)
    call("Confirm.Select", channel.confirm_delivery)
    try:
        call("Basic.Publish", channel.basic_publish, "none", "key", b"lost")
    except ChannelClosedByBroker:
        asked["missing"] += 1
    closes(connection)
    try:
        asked["login"] += 1
        pika.BlockingConnection(parameters(port, "wrong"))
    except ProbableAuthenticationError:
        asked["denied"] += 1


def main(port, count):
    methods(port, count)
    confirms(port, count)
    pipelined(port, 5 * count)
    errors(port)
    print(json.dumps(asked))


main(int(sys.argv[1]), int(sys.argv[2]))
