#!/usr/bin/env python3
"""Analyses the captures of a share on a Spark cluster: one capture a task, all into one dataset.

    spark-submit analyze.py --captures /share/captures --dataset /share/dataset [--roundtrip /usr/bin/roundtrip]

Every worker sees both folders under the same path, and has the program. A task runs `roundtrip analyze --each` on its capture. Captures
that are in the dataset are skipped, so a job that was ended goes on where it was; a task whose worker dies is given to another one by
Spark. The driver prints one line of JSON: how many captures it analysed or found analysed, how many operations the dataset has, what failed.
"""
import argparse
import json
import os
import subprocess
import sys

ENDINGS = ('.pcap', '.pcapng', '.cap')


def captures(folder):
    """The captures below a folder."""
    for place, _, names in os.walk(folder):
        for name in names:
            plain = name.lower()
            for packed in ('.gz', '.zst'):
                plain = plain.removesuffix(packed)
            path = os.path.join(place, name)
            # As the program: links are not followed, and a pipe is no capture.
            if plain.endswith(ENDINGS) and os.path.isfile(path) and not os.path.islink(path):
                yield path


def analyse(program, dataset, capture):
    """Analyses one capture; what failed, or None. A program that could not run fails the task, so that Spark repeats it elsewhere."""
    done = subprocess.run(
        [program, 'analyze', '--each', '--jobs', '1', '--ops', dataset, '--json', capture],
        capture_output=True, text=True, check=False)
    if done.returncode < 0 or not done.stdout:
        raise RuntimeError(f'{capture}: {program} ended with {done.returncode}: {done.stderr[-1000:]}')
    failed = json.loads(done.stdout)['failed']
    return failed[0] if failed else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--captures', required=True)
    parser.add_argument('--dataset', required=True)
    parser.add_argument('--roundtrip', default='roundtrip')
    own = parser.parse_args()
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName('roundtrip analyze').getOrCreate()
    try:
        every = sorted(captures(own.captures))
        if not every:
            sys.exit(f'{own.captures}: no captures')
        os.makedirs(own.dataset, exist_ok=True)
        program, dataset = own.roundtrip, own.dataset
        tasks = spark.sparkContext.parallelize(every, len(every))
        failed = [one for one in tasks.map(lambda capture: analyse(program, dataset, capture)).collect() if one]
        folder = os.path.join(own.dataset, 'operations')
        operations = spark.read.parquet(folder).count() if os.path.isdir(folder) else 0
        print(json.dumps({'captures': len(every) - len(failed), 'operations': operations, 'failed': failed}))
    finally:
        spark.stop()
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
