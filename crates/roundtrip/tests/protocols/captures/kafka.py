"""Kafka: a broker of Apache Kafka 4.1.1 with clients of librdkafka, and its own producer and consumer for measurements. Makes
kafka.pcapng.zst and kafka.json (requests by kind, as librdkafka counts them; those of connections that it has given up it counts no
longer), and the same of kafka-java (the number of requests that
two Java producers state, and how many of them asked for no acknowledgement) and kafka-java-consumer. kafka.py LIBRARIES, in an environment with
confluent-kafka 2.16.1; LIBRARIES are kafka_2.13 and kafka-tools with all that they depend on:

mvn dependency:copy-dependencies -DoutputDirectory=lib      # with a pom.xml that names both
python3 -m venv /tmp/kafka && /tmp/kafka/bin/pip install confluent-kafka && /tmp/kafka/bin/python kafka.py lib
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from recording import recording, running

PORT, CONTROLLER = 9092, 9093
BOOTSTRAP = f"127.0.0.1:{PORT}"
PROPERTIES = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={folder}/logs
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
group.initial.rebalance.delay.ms=500
"""


def java(libraries, main, *arguments, **options):
    command = ["java", "-Xmx512m", "-cp", f"{libraries}/*", main, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, **options).stdout


@contextmanager
def broker(libraries):
    with tempfile.TemporaryDirectory() as folder:
        properties = Path(folder) / "server.properties"
        properties.write_text(PROPERTIES.format(port=PORT, controller=CONTROLLER, folder=folder))
        format_it = ["format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(properties)]
        java(libraries, "kafka.tools.StorageTool", *format_it)
        command = ["java", "-Xmx512m", "-cp", f"{libraries}/*", "kafka.Kafka", str(properties)]
        with running(command, PORT):
            time.sleep(5)
            yield


class Statistics:
    """The requests of one client of librdkafka, by kind."""

    def __init__(self):
        self.last = {}

    def options(self):
        return {"bootstrap.servers": BOOTSTRAP, "statistics.interval.ms": 100, "stats_cb": self.take}

    def take(self, text):
        brokers = json.loads(text)["brokers"].values()
        self.last = sum((Counter(broker["req"]) for broker in brokers), Counter())


def produce(told, count, **options):
    statistics = Statistics()
    producer = Producer({**statistics.options(), **options})
    for number in range(count):
        producer.produce("orders-17", f"record {number}".encode())
        producer.poll(0)
    producer.flush(30)
    producer.poll(0.5)
    told.update(statistics.last)


def consume(told, count):
    """Reads the records, and then waits for others for two seconds."""
    statistics = Statistics()
    options = {"group.id": "billing", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 300, "client.id": "reader"}
    consumer = Consumer({**statistics.options(), **options})
    consumer.subscribe(["orders-17"])
    got = 0
    until = time.monotonic() + 30
    while time.monotonic() < until:
        message = consumer.poll(0.1)
        got += message is not None and message.error() is None
        if got == count and until > time.monotonic() + 2:
            until = time.monotonic() + 2
    assert got == count, got
    consumer.commit(asynchronous=False)
    # The last fetch ends, and is counted. What the group says at the end is not.
    consumer.pause(consumer.assignment())
    for _ in range(5):
        consumer.poll(0.2)
    told.update(statistics.last)
    consumer.close()


def refused(told):
    statistics = Statistics()
    producer = Producer({**statistics.options(), "topic.metadata.propagation.max.ms": 0, "client.id": "lost"})
    try:
        producer.list_topics("nowhere", timeout=5)
    except KafkaException:
        pass
    producer.poll(0.5)
    told.update(statistics.last)


def metric(text, name):
    """The figure that a Java client states."""
    found = re.findall(rf"^{name}:{{client-id=[^,}}]*}}\s*:\s*([\d.]+)\s*$", text, re.MULTILINE)
    assert len(found) == 1, (name, found, text)
    return int(float(found[0]))


def main():
    libraries = Path(sys.argv[1]).resolve()
    with broker(libraries):
        admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
        # One partition, so that each record without acknowledgement is one request.
        topics = [NewTopic("orders-17", num_partitions=2), NewTopic("measured", num_partitions=1)]
        for done in admin.create_topics(topics).values():
            done.result(30)
        del admin
        with recording("kafka", PORT) as result:
            told = Counter()
            produce(told, 300, **{"batch.num.messages": 1, "linger.ms": 0, "acks": 1, "client.id": "writer"})
            consume(told, 300)
            refused(told)
            result.update({name: count for name, count in told.items() if count})
        with recording("kafka-java", PORT) as result:
            measured = ["--bootstrap-server", BOOTSTRAP, "--topic", "measured"]
            each = ["--topic", "measured", "--record-size", "20", "--throughput", "-1", "--print-metrics"]
            properties = [f"bootstrap.servers={BOOTSTRAP}", "batch.size=1", "linger.ms=0"]
            main_class = "org.apache.kafka.tools.ProducerPerformance"
            counts = {"acknowledged": 400, "unacknowledged": 100}
            told = Counter(unacknowledged=counts["unacknowledged"])
            for kind, acks in (("acknowledged", "acks=all"), ("unacknowledged", "acks=0")):
                more = [*properties, acks, f"enable.idempotence={str(acks == 'acks=all').lower()}"]
                some = ["--num-records", str(counts[kind]), "--producer-props", *more]
                told["requests"] += metric(java(libraries, main_class, *each, *some), "producer-metrics:request-total")
            result.update(told)
        with recording("kafka-java-consumer", PORT) as result:
            some = ["--messages", "500", "--timeout", "5000", "--print-metrics"]
            text = java(libraries, "org.apache.kafka.tools.ConsumerPerformance", *measured, *some)
            metrics = {"Fetch": "fetch-manager-metrics:fetch", "OffsetCommit": "coordinator-metrics:commit"}
            result.update({name: metric(text, f"consumer-{kind}-total") for name, kind in metrics.items()})


main()
