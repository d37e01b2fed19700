#!/usr/bin/env python3
"""Compares two files of linnet-codec-perf: compare.py BASELINE NEW [--tolerance X] [--any-cpu].

Times of two runs cannot be compared, fractions of the same run's a += b and memcpy can, on one kind of machine. A row is worse when
both its fractions fell by more than the tolerance and the spread of the two runs. Exit code: 0 none is worse and none is missing,
1 some are, 2 wrong arguments, 77 the files come from different kinds of machines (--any-cpu compares all the same)."""
import argparse
import json
import sys

KEY = ("device", "codec", "op", "impl", "dtype", "block", "inputs", "scale_rule", "threads", "bytes")
FRACTIONS = ("frac_triad", "frac_memcpy")


def read(path):
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    if not rows:
        sys.exit(f"{path}: no rows")
    return {tuple(row[k] for k in KEY): row for row in rows}


def machines(rows):
    return {(row["cpu"], row["l1d"]) for row in rows.values()}


def name(key):
    return " ".join(f"{k}={v}" for k, v in zip(KEY, key) if k not in ("device", "inputs", "scale_rule"))


def ratio(old, new):
    """The better of the two fractions decides: one alone may be the yardstick's fault."""
    return max(new[f] / old[f] for f in FRACTIONS)


def compare(old, new, tolerance):
    worse = 0
    for key in sorted(set(old) & set(new), key=str):
        change = ratio(old[key], new[key])
        if change < 1 - tolerance - max(old[key]["spread"], new[key]["spread"]):
            print(f"worse: {change:.2f} of the baseline: {name(key)}: "
                  + ", ".join(f"{f} {old[key][f]:.3f} -> {new[key][f]:.3f}" for f in FRACTIONS))
            worse += 1
    return worse


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baseline")
    parser.add_argument("new")
    parser.add_argument("--tolerance", type=float, default=0.15)
    parser.add_argument("--any-cpu", action="store_true")
    arguments = parser.parse_args()
    old, new = read(arguments.baseline), read(arguments.new)
    if machines(old) != machines(new) and not arguments.any_cpu:
        print(f"skipped: measured on {sorted(machines(old))} and on {sorted(machines(new))}")
        return 77
    worse, missing = compare(old, new, arguments.tolerance), sorted(set(old) - set(new), key=str)
    for key in missing:
        print(f"missing: {name(key)}")
    print(f"{len(set(old) & set(new))} rows compared, {worse} worse, {len(missing)} missing, {len(set(new) - set(old))} new")
    return 1 if worse or missing else 0


if __name__ == "__main__":
    sys.exit(main())
