#!/usr/bin/env python3
"""The checks of whole training runs on made-up results: what must fail does, and an ablation that passes its gates too.
And the table: every run is judged, lines that make no sense are refused."""
import json
import pathlib
import tempfile
import unittest.mock

import converge
import converge_checks
import converge_docs
import converge_runs
import converge_table
from converge_table import Table, TableError

RUNS = """nodes 4 2
run a | 0 1 | test | --optim a | A
run b | 0 1 | full | --optim b | B
"""
RULES = {
    "below": ("gate below 5.3 a", {"a": 5.3}, {"a": 5.31}),
    "above-by": ("gate above-by 0.1 a b", {"a": 4.6, "b": 4.55}, {"a": 4.6, "b": 4.45}),
    "above-by, better": ("gate above-by 0.1 a b", {"a": 4, "b": 5}, {"a": 5, "b": 4}),
    "within": ("gate within 0.1 a b", {"a": 4.6, "b": 4.55}, {"a": 4.4, "b": 4.55}),
    "diverged": ("gate below 5.3 a", {"a": 4}, {"a": None}),
    "other diverged": ("gate within 0.1 a b", {"a": 4, "b": 4}, {"a": 4, "b": None}),
    "both diverged": ("gate within 0.1 a b", {"a": 4, "b": 4}, {"a": None, "b": None}),
    "above-by, other diverged": ("gate above-by 0.1 a b", {"a": 4, "b": 4}, {"a": 4, "b": None}),
    "ablation": ("ablation a | below 5.3 | above-by 0.1 b", {"a": 4.7, "b": 4.5}, {"a": 4.55, "b": 4.5}),
    "ablation, other diverged": ("ablation a | below 4 | above-by 0.1 b", {"a": 4.7, "b": 4.5}, {"a": 4.7, "b": None}),
    "ablation, within diverged": ("ablation a | below 4 | within 0.1 b", {"a": 4.7, "b": 4.5}, {"a": 4.7, "b": None}),
    "ablation, NaN": ("ablation a | below 5.3", {"a": 6}, {"a": None}),
}


def final(value, **more):
    return {"eval_mask_loss": value, "wire_bytes_all": 100, "last_phase": "compressed", **more}


def judge(line, finals):
    table = Table(RUNS + "gate below 9 a b\n" + line)
    check = table.checks[-1]
    return converge_checks.judge(check, {run.id: finals[run.name] for run in check.needs})


def expect(what, line, finals, good):
    verdict, text = judge(line, finals)
    assert verdict is good, f"{what}: {verdict}: {text}"


def check_rules():
    for what, (line, good, bad) in RULES.items():
        expect(what, line, {name: final(value) for name, value in good.items()}, True)
        expect(what, line, {name: final(value) for name, value in bad.items()}, False)
    for sent, good in ((9, True), (10, True), (11, False)):
        finals = {"a": final(4, wire_bytes_all=sent), "b": final(4, wire_bytes_all=100)}
        expect("bytes", "gate fewer-bytes 10 a b", finals, good)
    for kept in (True, False, None):
        finals = {"a": final(4, **({} if kept is None else {"unused_rows_equal": kept}))}
        expect("rows", "gate rows-kept a", finals, kept is True)
    finals = {"a": final(4, unused_rows_equal=True, last_phase="warmup")}
    expect("rows, nothing compressed", "gate rows-kept a", finals, False)
    finals = {"a": final(4, unused_rows_equal=False, last_phase="warmup")}
    expect("rows, ablation in the warm-up", "ablation a | rows-kept", finals, False)
    expect("rows, ablation not looked at", "ablation a | rows-kept", {"a": final(4)}, False)
    expect("rows, ablation", "ablation a | rows-kept", {"a": final(4, unused_rows_equal=False)}, True)
    expect("rows, ablation passes", "ablation a | rows-kept", {"a": final(4, unused_rows_equal=True)}, False)


def pretend(bench, run):
    """A finished run."""
    bench.file(run).write_text(json.dumps(final(4)) + "\n")
    bench.file(run, ".made").write_text(json.dumps({"made": converge_runs.made_by(bench, run), "seconds": 1}) + "\n")


def missing_text():
    raise converge_runs.Skipped("no text")


def check_stale():
    """Runs of another program are not judged, and are gone when a new one cannot be made."""
    table = Table(RUNS + "gate below 9 a b")
    run, check = table.runs[0], table.checks[0].id
    with tempfile.TemporaryDirectory() as out:
        program = pathlib.Path(out) / "tests/bert/linnet-bert"
        program.parent.mkdir(parents=True)
        for text, code in (("first", 0), ("second", 77)):
            program.write_text(text)
            bench = converge_runs.Bench(out, "cache", out)
            if code == 0:
                pretend(bench, run)
            assert converge.check_one(table, bench, check) == code, f"check of the {text} program"
        with unittest.mock.patch.object(converge_runs, "need_text", missing_text):
            try:
                converge_runs.train(bench, run)
                raise AssertionError("trained without text")
            except converge_runs.Skipped:
                assert converge_runs.result(bench, run) is None, "the old run is still there"


def check_seeds():
    table = Table(RUNS + "gate below 9 a b\ngate fewer-bytes 2 a b\ngate within 1 a b\nablation a | below 2")
    names = [check.id for check in table.checks]
    assert "fewer-bytes.a.b-s0" in names and "fewer-bytes.a.b-s1" not in names, names  # seed 1 is not flat
    assert "within.a.b-s1" in names and "ablation.a-s1" in names, names
    assert len(names) == len(set(names)), names


def check_refusals():
    for line in ("gate below 5 c", "gate nearby 5 a", "gate below x a", "gate within 0.1 a", "run a | 0 | test | -x | A",
                 "run c | 0 | sometimes | -x | C", "run c | 5 | test | -x | C", "ablation a", "nonsense", "plot c",
                 "run c | 0 | test | -x | judged by nobody"):
        try:
            Table(RUNS + "gate below 9 a b\n" + line)
        except TableError:
            continue
        raise AssertionError(f"accepted: {line}")


def check_page():
    page = "before\n<!-- losses -->\nold\n<!-- /losses -->\nafter\n"
    assert converge_docs.replace(page, "losses", "new") == "before\n<!-- losses -->\nnew\n<!-- /losses -->\nafter\n"


def main():
    check_rules()
    check_stale()
    check_seeds()
    check_refusals()
    check_page()
    table = converge_table.read()
    names = [check.id for check in table.checks] + [run.id for run in table.runs]
    assert len(names) == len(set(names)), names
    print(f"gates and ablations judge right; the table has {len(table.runs)} runs and {len(table.checks)} checks")


if __name__ == "__main__":
    main()
