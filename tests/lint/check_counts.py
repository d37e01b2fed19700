#!/usr/bin/env python3
"""tests/count_results.py on made-up results: check_counts.py COUNT_RESULTS. What was skipped must never count as passed."""
import pathlib
import subprocess
import sys
import tempfile

CHECKS = "100%: Checks: {}, Failures: 0, Errors: 0"


def case(name, status, output, message=""):
    skipped = f'<skipped message="{message}"/>' if message else ""
    return f'<testcase name="{name}" status="{status}">{skipped}<system-out>{output}</system-out></testcase>'


def count(cases, **texts):
    """Exit code and lines of one run; texts: lines of passed.txt, skipped.txt, broken.txt."""
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder)
        (results / "dev.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        for name, text in texts.items():
            (results / f"{name}.txt").write_text(text)
        done = subprocess.run([sys.executable, sys.argv[1], folder, "logs"], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


def expect(what, result, code, last, *lines):
    assert result[0] == code and result[1][-1] == last, f"{what}: {result}"
    for line in lines:
        assert line in result[1], f"{what}: no line {line!r} in {result}"


def main():
    run7, run3 = case("a", "run", CHECKS.format(7)), case("b", "run", CHECKS.format(3) + "\nskipped: ucx: no library\n")
    script, left = case("c", "run", "fine"), case("d", "notrun", "skipped: no spm_train", "SKIP_RETURN_CODE=77")
    expect("checks and a script", count([run7, script]), 0, "8 passed, 0 failed, 0 skipped")
    expect("a part left out", count([run3]), 0, "3 passed, 0 failed, 1 skipped", "skipped: dev b: ucx: no library")
    twice = case("b", "run", CHECKS.format(3) + "\nskipped: ucx: no library\nskipped: ucx: no library\nskipped: x: y")
    expect("the same line twice", count([twice]), 0, "3 passed, 0 failed, 2 skipped")
    expect("a script with a part left out", count([case("c", "run", "skipped: mpirun: missing")]), 0,
           "1 passed, 0 failed, 1 skipped")
    expect("exit 77", count([run7, left]), 0, "7 passed, 0 failed, 1 skipped", "skipped: dev d: no spm_train")
    expect("nothing ran", count([left]), 1, "0 passed, 0 failed, 1 skipped")
    expect("could not be started", count([run7, case("e", "notrun", "", "no program")]), 1, "7 passed, 1 failed, 0 skipped")
    failed = case("f", "fail", "60%: Checks: 5, Failures: 1, Errors: 1\nskipped: ucx: no library")
    expect("failures", count([failed]), 1, "3 passed, 2 failed, 1 skipped")
    expect("a failed script", count([run7, case("g", "fail", "boom")]), 1, "7 passed, 1 failed, 0 skipped", "    boom")
    expect("outside ctest", count([run7], passed="clang\n", skipped="x: why\n", broken="build\n"), 1,
           "8 passed, 1 failed, 1 skipped", "skipped: x: why")
    print("count_results.py counts right")


if __name__ == "__main__":
    main()
