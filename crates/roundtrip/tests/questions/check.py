"""check.py PAGE OPS.parquet ANALYSIS.json: runs each query of the page in DuckDB.

What does not hold is told, one line each, and makes the exit code 1: a query that fails or has no row where the file must give some, and
figures of the first one that are not those of the analysis.
"""
import json
import os
import re
import sys

import duckdb

# Questions that have no row for some files: words of the heading, and whether this file must give rows.
MAY_BE_EMPTY = {
    'fail': "SELECT count(*) FROM 'ops.parquet' WHERE outcome = 'failed'",
    'where does the time go': "SELECT count(*) FROM 'ops.parquet' WHERE coalesce(c1_ns, s1_ns) IS NOT NULL",
}
ANY = "SELECT count(*) FROM 'ops.parquet' WHERE whole_ns IS NOT NULL"


def questions(page):
    """Headings, each with its SQL blocks."""
    for section in re.split(r'^## ', page, flags=re.M)[1:]:
        yield section.splitlines()[0].strip(), re.findall(r'^```sql\n(.*?)^```', section, flags=re.M | re.S)


def answer(database, heading, blocks):
    """The columns and rows of a question's query."""
    if len(blocks) != 1:
        raise ValueError(f'{len(blocks)} SQL blocks instead of one')
    result = database.execute(blocks[0])
    names, rows = [column[0] for column in result.description], result.fetchall()
    condition = next((sql for word, sql in MAY_BE_EMPTY.items() if word in heading.lower()), ANY)
    if not rows and database.execute(condition).fetchone()[0] > 0:
        raise ValueError('no row, but some are expected')
    return [dict(zip(names, row)) for row in rows]


def differences(rows, services):
    """Where the first question's figures are not the analysis'."""
    known = {(one['service'] or '', one['operation']): one for one in services}
    if len(known) == len(services) and known.keys() != {(row['service'], row['operation']) for row in rows}:
        yield f'other services: {[(row["service"], row["operation"]) for row in rows]}'
    for row in rows:
        one = known.get((row['service'], row['operation']))
        if one is None:
            continue
        for key in ('operations', 'failed'):
            if row[key] != one[key]:
                yield f'{one["operation"]}: {key} {row[key]}, not {one[key]}'
        for key in ('p50_us', 'p99_us', 'max_us'):
            if abs(row[key] - one[key]) > 0.011 * one[key] + 0.1:
                yield f'{one["operation"]}: {key} {row[key]}, not {one[key]}'


def main():
    page, operations, analysis = sys.argv[1:]
    asked = list(questions(open(page, encoding='utf-8').read()))
    services = json.load(open(analysis, encoding='utf-8'))['services']
    os.chdir(os.path.dirname(os.path.abspath(operations)))
    database = duckdb.connect()
    wrong = [] if len(asked) >= 10 else [f'only {len(asked)} questions']
    for place, (heading, blocks) in enumerate(asked):
        try:
            rows = answer(database, heading, blocks)
        except (ValueError, duckdb.Error) as error:
            wrong.append(f'{heading}: {" ".join(str(error).split())}')
            continue
        if 'where does the time go' in heading.lower():
            sums = {}
            for row in rows:
                if row['percent'] is not None:
                    name = (row['service'], row['operation'])
                    sums[name] = sums.get(name, 0) + row['percent']
            wrong += [f'{heading}: the parts of {name} are {sum:.1f} %' for name, sum in sums.items() if abs(sum - 100) > 1]
        if 'wait longest' in heading.lower():
            longest = database.execute("SELECT max(whole_ns) FROM 'ops.parquet' WHERE NOT partial").fetchone()[0] / 1e6
            busy = max(row['waiting_ms'] for row in rows)
            if len(services) == 1 and services[0]['connections'] == services[0]['operations'] and busy < 0.9 * longest:
                wrong.append(f'{heading}: {busy} ms, but an operation took {longest}')
        if place == 0:
            wrong += differences(rows, services)
            # The comparison itself can fail.
            other = [{**one, 'p99_us': one['p99_us'] * 1.05, 'operations': one['operations'] + 1} for one in services]
            if len(list(differences(rows, other))) < 2 * min(len(rows), 1):
                wrong.append('figures that are wrong are not noticed')
    print('\n'.join(wrong))
    sys.exit(1 if wrong else 0)


main()
