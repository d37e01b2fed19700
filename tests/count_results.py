#!/usr/bin/env python3
"""Counts what really ran: count_results.py RESULTS LOGS reads ctest's JUnit files and prints the totals,
what was skipped and why, and the end of the output of every failure.

Unit of counting: a libcheck program counts each of its checks, from the line "100%: Checks: 7, Failures: 0, Errors: 0"
that it prints itself; any other test counts as one. A test that ran says what it left out in lines "skipped: WHAT: WHY";
each different one counts as one skipped. passed.txt, skipped.txt and broken.txt hold one line for each thing
that ran or could not run outside ctest, such as a build. The last line is "N passed, N failed, N skipped"; the exit code
is 1 when anything failed or nothing ran.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

SUMMARY = re.compile(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)$", re.M)
LEFT_OUT = re.compile(r"^skipped: (.+)$", re.M)

TAIL_LINES = 20


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures, self.skips = [], []

    def add_failed(self, name, count=1, output=""):
        self.failed += count
        self.failures.append((name, output))

    def add_skipped(self, name, why):
        self.skipped += 1
        self.skips.append(f"{name}: {why}")


def skip_reason(output):
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = [line for line in lines if "skip" in line.lower()]
    return (said or lines or ["the test did not say why"])[-1].removeprefix("skipped: ")


def count_case(case, preset, totals):
    name = f"{preset} {case.get('name')}"
    output = case.findtext("system-out") or ""
    status = case.get("status")
    if status in ("notrun", "disabled"):
        # exit code 77, unless ctest could not start it at all
        message = case.find("skipped").get("message", "") if case.find("skipped") is not None else ""
        if "SKIP_RETURN_CODE" in message:
            totals.add_skipped(name, skip_reason(output))
        else:
            totals.add_failed(f"{name} (not run: {message})")
        return
    for line in dict.fromkeys(LEFT_OUT.findall(output)):
        totals.add_skipped(name, line)
    checks = [tuple(map(int, match)) for match in SUMMARY.findall(output)]
    bad = sum(failures + errors for _, failures, errors in checks)
    good = sum(count for count, _, _ in checks) - bad
    if status == "fail":
        totals.add_failed(name, max(bad, 1), output)
        totals.passed += good
    elif bad:
        totals.add_failed(name, bad, output)
        totals.passed += good
    else:
        totals.passed += good if checks else 1


def count_junit(path, totals):
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except ElementTree.ParseError as error:
        totals.add_failed(f"{path} cannot be read: {error}")
        return
    if not cases:
        totals.add_failed(f"{path.stem}: no test ran")
    for case in cases:
        count_case(case, path.stem, totals)


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def main():
    results, logs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    totals = Totals()
    for path in sorted(results.glob("*.xml")):
        count_junit(path, totals)
    totals.passed += len(lines_of(results / "passed.txt"))
    for line in lines_of(results / "skipped.txt"):
        totals.add_skipped(*line.split(": ", 1))
    for line in lines_of(results / "broken.txt"):
        totals.add_failed(line)
    for text in totals.skips:
        print(f"skipped: {text}")
    for name, output in totals.failures:
        print(f"FAILED: {name} (whole logs: {logs})")
        print("\n".join(f"    {line}" for line in output.rstrip().splitlines()[-TAIL_LINES:]))
    print("counted: each check of a libcheck program, each other test as one")
    print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped")
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main())
