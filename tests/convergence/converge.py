#!/usr/bin/env python3
"""Trains what convergence.table names and checks what it demands.

    converge.py list                         what ./run test does: a line per run, and per check with the runs it needs
    converge.py train RUN                    one run, e.g. adam-s0
    converge.py check CHECK                  one gate or ablation of finished runs, by the name that `list` gives it
    converge.py all [--docs DIR] [NAME...]   all runs that are not finished, or those named and what they are compared
                                             with; then every check they allow; tables, results.json, plot
    converge.py tables [--docs DIR]          the same without training, from whatever is there, whichever program made it

Exit: 0 all is well, 1 something is not, 77 what is needed is not installed, or a run that a check needs is not there.
"""
import argparse
import json
import sys
import time

import converge_checks
import converge_docs
import converge_runs
import converge_table


def say(text):
    print(text, flush=True)


def find(things, name, kind):
    for thing in things:
        if thing.id == name:
            return thing
    sys.exit(f"no {kind} {name}")


def list_test(table):
    tested = {run for run in table.runs if run.in_test}
    for run in table.runs:
        if run in tested:
            say(f"train {run.id}")
    for check in table.checks:
        if tested.issuperset(check.needs):
            say(f"check {check.id} {' '.join(run.id for run in check.needs)}")
    return 0


def train_one(table, bench, name):
    problem = converge_runs.train(bench, find(table.runs, name, "run"))
    say(problem or f"{name}: [MASK] loss {converge_runs.result(bench, find(table.runs, name, 'run'))['eval_mask_loss']}")
    return 1 if problem else 0


def check_one(table, bench, name):
    check = find(table.checks, name, "check")
    missing = [run.id for run in check.needs if not converge_runs.is_finished(bench, run)]
    if missing:
        say(f"skipped: no run {', '.join(missing)} of this program with these options")
        return 77
    results = {run.id: converge_runs.result(bench, run) for run in check.needs}
    good, text = converge_checks.judge(check, results)
    say(f"{'' if good else 'FAILED: '}{check.id}: {text}")
    return 0 if good else 1


def wanted_runs(table, names):
    """The named ones and what they are compared with, in the order of the table."""
    unknown = [name for name in names if name not in table.titles]
    if unknown:
        sys.exit(f"no run {', '.join(unknown)}; there are: {' '.join(table.titles)}")
    if not names:
        return table.runs
    wanted = {run for check in table.checks if check.run.name in names for run in check.needs}
    return [run for run in table.runs if run in wanted or run.name in names]


def steps_of(run):
    """Roughly, for the time that is left."""
    options = dict(zip(run.options, run.options[1:]))
    longer = ("lamb", "lambc", "lans", "came", "onebit_lamb", "frozen_lamb")
    return int(options.get("--steps", 1000 if options.get("--optim") in longer else 700))


def train_all(bench, runs):
    """Names of runs that failed."""
    todo = [run for run in runs if not converge_runs.is_finished(bench, run)]
    left = sum(steps_of(run) for run in todo)
    spent = done = 0
    failed = []
    say(f"convergence: {len(runs)} runs, {len(runs) - len(todo)} of them finished before with this program and these options")
    for number, run in enumerate(todo, 1):
        started = time.monotonic()
        problem = converge_runs.train(bench, run)
        spent, done, left = spent + time.monotonic() - started, done + steps_of(run), left - steps_of(run)
        if problem:
            failed.append(run.id)
            say(f"FAILED: {problem}")
        else:
            final = converge_runs.result(bench, run)
            say(f"convergence: {number} of {len(todo)}: {run.id}: [MASK] loss {converge_runs.loss(final):.3f}, "
                f"{final['wire_bytes_all'] / 1e6 / converge_runs.RANKS:.1f} MB per rank, "
                f"{converge_runs.seconds(bench, run):.0f} s; about {left * spent / done / 60:.0f} min left")
    return failed


def check_all(table, results):
    """One record for each check whose runs are there."""
    records = []
    for check in table.checks:
        if all(run.id in results for run in check.needs):
            good, text = converge_checks.judge(check, results)
            records.append({"check": check.id, "good": good, "text": text})
            say(f"{'' if good else 'FAILED: '}{check.id}: {text}")
    return records


def show(table, bench, finished, docs):
    """Checks, results.json, plot and tables of finished runs; with docs, their places in the documentation too. Returns the
    checks that failed."""
    results = {run.id: converge_runs.result(bench, run) for run in finished}
    seconds = {run.id: converge_runs.seconds(bench, run) for run in finished}
    records = check_all(table, results)
    (bench.out / "results.json").write_text(
        json.dumps({"runs": results, "seconds": seconds, "checks": records}, indent=1) + "\n")
    pages = converge_docs.Pages(table, results, records, seconds)
    converge_docs.plot(table, bench, finished, bench.out / "convergence.png", say)
    say(pages.text())
    if docs:
        converge_docs.update(pages, bench, docs)
        say(f"convergence: tables and plot of {docs}/convergence.md are written")
    bad = [record["check"] for record in records if not record["good"]]
    say(f"convergence: {len(finished)} of {len(table.runs)} runs, {sum(seconds.values()) / 60:.0f} min of training; "
        f"{len(records) - len(bad)} of {len(records)} checks are good")
    return bad


def do_all(table, bench, names, docs):
    try:
        failed = train_all(bench, wanted_runs(table, names))
    except converge_runs.Skipped as error:
        say(f"skipped: {error}")
        return 77
    finished = [run for run in table.runs if converge_runs.is_finished(bench, run)]
    bad = show(table, bench, finished, docs if not names else None)
    for name in failed + bad:
        say(f"FAILED: {name}")
    return 1 if failed or bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--cache", default="cache", help="directory of the prepared text")
    parser.add_argument("--out", default="out/convergence")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    commands.add_parser("train").add_argument("name")
    commands.add_parser("check").add_argument("name")
    commands.add_parser("tables").add_argument("--docs")
    everything = commands.add_parser("all")
    everything.add_argument("--docs")
    everything.add_argument("names", nargs="*")
    given = parser.parse_args()
    table = converge_table.read()
    if given.command == "list":
        return list_test(table)
    bench = converge_runs.Bench(given.build, given.cache, given.out)
    if given.command == "check":
        return check_one(table, bench, given.name)
    if given.command == "tables":
        there = [run for run in table.runs if bench.file(run).exists() and bench.file(run, ".made").exists()]
        return 1 if show(table, bench, there, given.docs) else 0
    if given.command == "all":
        return do_all(table, bench, given.names, given.docs)
    try:
        return train_one(table, bench, given.name)
    except converge_runs.Skipped as error:
        say(f"skipped: {error}")
        return 77


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
