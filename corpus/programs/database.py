#!/usr/bin/python3
"""Queries of PostgreSQL (psycopg2) or MariaDB (pymysql): closed loop, open loop, pools, a connection for each query.

Prints one line of JSON like the Go client: what it measured itself.
"""
import argparse
import json
import random
import threading
import time

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("database", choices=["postgres", "mariadb"])
options.add_argument("--connections", type=int, default=1)
options.add_argument("--operations", type=int, default=100, help="operations of each connection")
options.add_argument("--queries", type=int, default=1, help="queries of an operation, one after another")
options.add_argument("--batch", action="store_true", help="send the queries of an operation as one")
options.add_argument("--query", default="select repeat('r', 200)")
options.add_argument("--rate", type=float, default=0, help="operations per second of each connection, at random times")
options.add_argument("--poll-ms", type=float, default=0, help="an operation at each tick of a clock")
options.add_argument("--think-ms", type=float, default=0)
options.add_argument("--reconnect", action="store_true", help="a connection for each operation")
options.add_argument("--begin", default="", help="run once on each connection")
options.add_argument("--timeout", type=float, default=20)
options = options.parse_args()
results, failures, guard = [], [], threading.Lock()


def connect():
    if options.database == "postgres":
        import psycopg2
        connection = psycopg2.connect(host="10.77.0.2", user="postgres", dbname="postgres", sslmode="disable",
                                      gssencmode="disable", options=f"-c statement_timeout={int(options.timeout * 1000)}")
        connection.autocommit = True
    else:
        import pymysql
        connection = pymysql.connect(host="10.77.0.2", user="corpus", database="corpus", autocommit=True,
                                     read_timeout=options.timeout)
    cursor = connection.cursor()
    if options.begin:
        cursor.execute(options.begin)
    return connection, cursor


def loop(number):
    chance = random.Random(number)
    connection, cursor = (None, None) if options.reconnect else connect()
    due = began = time.monotonic()
    for i in range(options.operations):
        if options.rate:
            due += chance.expovariate(options.rate)
        elif options.poll_ms:
            due = began + i * options.poll_ms / 1000
        else:
            due = time.monotonic() + (options.think_ms / 1000 if i else 0)
        time.sleep(max(0, due - time.monotonic()))
        start = time.monotonic()
        try:
            if options.reconnect:
                connection, cursor = connect()
            for _ in range(1 if options.batch else options.queries):
                cursor.execute(";".join([options.query] * options.queries) if options.batch else options.query)
                cursor.fetchall()
            if options.reconnect:
                connection.close()
        except Exception as failure:  # the drivers share no base class
            failures.append(str(failure))
            continue
        with guard:
            results.append((time.monotonic() - start) * 1e6)
    if not options.reconnect:
        connection.close()


begin = time.monotonic()
threads = [threading.Thread(target=loop, args=(i,)) for i in range(options.connections)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
seconds = time.monotonic() - begin
results.sort()
print(json.dumps({
    "operations": len(results), "failed": len(failures), "seconds": seconds, "rate": len(results) / seconds,
    "mean_us": sum(results) / max(1, len(results)), "p50_us": results[len(results) // 2] if results else 0,
    "p99_us": results[int(len(results) * 0.99)] if results else 0, "first_us": 0,
}))
