#!/usr/bin/env python3
"""linnet-codec-perf on small sizes: check_codec_perf.py LINNET_CODEC_PERF SCRIPTS WORK_DIR [device]. SCRIPTS has compare.py and plot_codec.
Which cases run, what their rows say, bytes by formulas written out here, fractions from the row's own rates, what is refused and with
which exit code. No times. With `device`: -D cuda alone, of a build that plays device kernels on the host."""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

PERF, SCRIPTS, WORK = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
KEYS = ("codec impl op dtype block bytes threads gbs ns_per_elem frac_triad frac_memcpy inputs counted_bytes add_gbs memcpy_gbs "
        "frac_streams streams_gbs spread over_ref scale_rule device cpu l1d").split()
SIZE = {"f32": 4, "bf16": 2, "f16": 2}
# bits per element, bytes of scale per block, default block; codecs the build lacks are not asked for
CODECS = {"f32": (32, 0, 1024), "bf16": (16, 0, 1024), "sign1": (1, 4, 1024), "int8": (8, 4, 256), "int4": (4, 4, 128),
          "int4_hadamard": (4, 4, 128), "f16": (16, 0, 1024), "bf16_sr": (16, 0, 1024), "f16_sr": (16, 0, 1024)}
RULES = {"adam": ("step", 28), "onebit_step": ("frozen", 17)}
NO_ERROR = {"f32", "bf16_sr", "f16_sr"}  # codecs without error feedback
FEEDBACK = {"encode_ef", "encode_ef_shadow", "momentum_ef", "server"}
ENCODES = {"encode": 0, "encode_ef": 8, "encode_ef_shadow": 8, "momentum_ef": 12}  # bytes besides input and wire


def run(*arguments, code=0, env=None):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LINNET_")}
    done = subprocess.run([PERF, *arguments], capture_output=True, text=True, timeout=120, env=clean | (env or {}))
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def measure(*arguments):
    file = WORK / "codec_perf.jsonl"
    text = run(*arguments, "-J", str(file), "-n", "1", "-w", "0", "--seed", str(random.randrange(1, 1 << 62)))
    assert "0 lanes OK" in text and "disturbed" in text, text
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        assert list(row) == KEYS, f"keys are {list(row)}"
        check_row(row)
    return rows, text


def known_codecs():
    """What --codec takes, from its own complaint."""
    text = run("--codec", "no_such_codec_at_all", code=2)
    return set(re.search(r"known: all, (.*)", text).group(1).split(", "))


# ---- bytes by formula ----

def wire_bytes(codec, n, block):
    bits, scale, _ = CODECS[codec]
    return scale * -(-n // block) + (n * bits + 7) // 8


def counted(row):
    n = row["bytes"] // SIZE[row["dtype"]]
    if row["codec"] in RULES:
        return RULES[row["codec"]][1] * n
    wire = wire_bytes(row["codec"], n, row["block"])
    if row["op"] in ENCODES:
        return row["bytes"] + ENCODES[row["op"]] * n + wire
    return {"decode": wire + 4 * n, "decode_add": wire + 8 * n, "server": (row["inputs"] + 1) * wire + 8 * n}[row["op"]]


def near(a, b):
    return abs(a - b) <= 1e-3 * max(abs(a), abs(b))


def check_row(row):
    """One round: medians are that round's, so every number follows from the time and the two rates."""
    n, seconds = row["bytes"] // SIZE[row["dtype"]], row["bytes"] / row["gbs"] / 1e9
    assert row["counted_bytes"] == counted(row), row
    assert near(row["ns_per_elem"], seconds / n * 1e9), row
    assert near(row["frac_triad"], row["counted_bytes"] / seconds / 1e9 / row["add_gbs"]), row
    assert near(row["frac_memcpy"], row["counted_bytes"] / seconds / 1e9 / row["memcpy_gbs"]), row
    if row["frac_streams"] is None:
        assert row["streams_gbs"] is None and (row["impl"] == "cuda" or n < 256), row
    else:
        assert near(row["frac_streams"], row["counted_bytes"] / seconds / 1e9 / row["streams_gbs"]) and n >= 256, row
    assert (row["device"] == "host") == (row["impl"] != "cuda") and row["cpu"] and row["spread"] == 0, row
    assert row["scale_rule"] == ("none" if row["codec"] != "sign1" else row["scale_rule"]), row


# ---- checks ----

def expected_cases(codecs):
    for codec in codecs & set(RULES):
        yield codec, RULES[codec][0], "f32"
    for codec in codecs & set(CODECS):
        for op in [*ENCODES, "decode", "decode_add", "server"]:
            if codec in NO_ERROR and op in FEEDBACK:
                continue
            for dtype in SIZE if op in ENCODES else ["f32"]:
                yield codec, op, dtype


def check_everything():
    codecs = known_codecs()
    assert codecs <= set(CODECS) | set(RULES), f"codecs this test knows nothing of: {codecs - set(CODECS) - set(RULES)}"
    rows, text = measure("--codec", "all", "-d", "all", "-b", str(random.randrange(1, 9)), "-e", "50k", "-f", "8191")
    found = {(r["codec"], r["op"], r["dtype"]) for r in rows}
    assert found == set(expected_cases(codecs)), found ^ set(expected_cases(codecs))
    assert all(r["impl"] != "ref" or r["over_ref"] == 1 for r in rows) and {r["impl"] for r in rows} >= {"ref"}
    for r in rows:
        assert r["block"] == (0 if r["codec"] in RULES else CODECS[r["codec"]][2]), r
    assert "core to core" in text and "L1d" in text and "memory at most" in text, text


def check_numbers():
    cores = len(os.sched_getaffinity(0))
    threads = "1,2" if cores > 1 else "1"
    rows, _ = measure("--op", "server,momentum_ef", "--inputs", "1,3,64", "-t", threads, "-b", "100k", "-e", "300k", "-i", "100k",
                      "--scale-rule", "l1", "--impl", "auto")
    assert {r["inputs"] for r in rows if r["op"] == "server"} == {1, 3, 64} and {r["inputs"] for r in rows if r["op"] != "server"} == {1}
    assert {r["bytes"] for r in rows} == {102400, 204800, 307200} and {r["scale_rule"] for r in rows} == {"l1"}
    assert len(rows) == 4 * 3 * (2 if cores > 1 else 1), len(rows)
    blocks, _ = measure("--codec", "sign1,int8,adam", "--op", "encode_ef,server,step", "--block", "64,0,4096", "-b", "70k", "-e", "70k")
    assert {(r["codec"], r["block"]) for r in blocks} == {(c, b) for c in ("sign1", "int8") for b in (64, 4096, CODECS[c][2])} | {("adam", 0)}
    compared, _ = measure("--op", "decode", "--impl", "auto", "--compare", "-b", "8k", "-e", "8k")
    assert compared[0]["impl"] == "ref" and all(r["over_ref"] > 0 for r in compared), compared


def check_markdown():
    text = run("--codec", "all", "--markdown", "-b", "64k", "-e", "64k", "-n", "1", "-w", "0", "--impl", "ref")
    table = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert len(table) > 10 and len(set(table)) == 1, text
    assert "| sign1 | server of 4 | f32 | 1024 | 64 KiB | 1 | ref |" in text, text


def check_bars():
    """Those that fit the memory it may use; every line ends with a verdict. What is left out is listed and is no success."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LINNET_")}
    done = subprocess.run([PERF, "--bars", "--memory", "40m", "-n", "1", "-w", "0"], capture_output=True, text=True, timeout=120, env=clean)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    verdicts = re.findall(r" (met|MISSED|not there|left out: needs more than --memory)$", "\n".join(lines), re.M)
    assert len(verdicts) == len(lines) >= 20 and verdicts.count("left out: needs more than --memory") >= 9, done.stdout
    assert done.returncode == 1, done
    assert done.stdout.count("# not measured: ") == verdicts.count("left out: needs more than --memory") + verdicts.count("not there"), done.stdout
    assert f"# bars: {verdicts.count('met')} met, {verdicts.count('MISSED')} missed" in done.stdout, done.stdout
    none = run("--bars", "--memory", "1k", "-n", "1", "-w", "0", code=77)
    assert "# bars: 0 met, 0 missed" in none and " met\n" not in none, none


def check_full_disk():
    small = ("-b", "4k", "-e", "4k", "-n", "1", "-w", "0", "--op", "decode")
    assert "/dev/full could not be written whole" in run(*small, "-J", "/dev/full", code=1)
    assert "cannot write /no_such_folder/x" in run(*small, "-J", "/no_such_folder/x", code=1)


def check_refusals():
    assert "did you mean sign1?" in run("--codec", "sing1", code=2)
    assert "did you mean encode_ef?" in run("--op", "encode_fe", code=2)
    assert "did you mean auto?" in run("--impl", "atuo", code=2)
    assert "did you mean bf16?" in run("-d", "bf61", code=2)
    assert "did you mean --threads?" in run("--thraeds", "1", code=2)
    assert "multiples of 64" in run("--block", "100", code=2)
    assert "number of cores" in run("-t", "100000", code=2)
    assert "from 1 to 64" in run("--inputs", "65", code=2)
    assert "from 1 to 64" in run("--inputs", "4,x", code=2)
    assert "--begin is 0 or above --end" in run("-b", "2m", "-e", "1m", code=2)
    assert "none of these operations" in run("--codec", "adam", "--op", "decode", code=2)
    assert "a larger --memory" in run("-e", "128m", "--memory", "100m", code=2)
    assert "a list needs at least one" in run("--codec", "", code=2)


def compare(old, new, *arguments, code):
    files = []
    for name, rows in (("old", old), ("new", new)):
        files.append(WORK / f"codec_{name}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = subprocess.run([sys.executable, str(SCRIPTS / "compare.py"), *map(str, files), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout


def check_compare():
    old, _ = measure("--op", "encode,decode", "--impl", "ref", "-b", "4k", "-e", "64k", "-f", "4")
    change = lambda k, **more: [row | more if i == k else row for i, row in enumerate(old)]
    slower = lambda k, *keys: change(k, **{key: old[k][key] * 0.5 for key in keys})
    assert f"{len(old)} rows compared, 0 worse, 0 missing" in compare(old, old, code=0)
    text = compare(old, slower(2, "frac_triad", "frac_memcpy"), code=1)
    assert "1 worse" in text and f"bytes={old[2]['bytes']}" in text and f"op={old[2]['op']}" in text, text
    compare(old, slower(2, "frac_triad"), code=0)  # a yardstick that was lucky
    compare(old, slower(2, "frac_triad", "frac_memcpy"), "--tolerance", "0.6", code=0)
    compare(change(1, spread=0.6), slower(1, "frac_triad", "frac_memcpy"), code=0)
    assert "1 missing" in compare(old, old[1:], code=1)
    baselines = sorted((SCRIPTS / "baseline").glob("codec_*.jsonl"))
    assert baselines, "there is no baseline"
    for path in baselines:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert all(list(row) == KEYS for row in rows) and "0 worse, 0 missing" in compare(rows, rows, code=0), path
    assert "skipped: measured on" in compare(old, [row | {"l1d": 1} for row in old], code=77)
    compare(old, [row | {"l1d": 1} for row in old], "--any-cpu", code=0)


def check_plot():
    script, folder = str(SCRIPTS / "plot_codec"), WORK / "plots"
    if not shutil.which("gnuplot"):
        print("skipped: pictures of codecs: gnuplot is missing")
        return
    measure("--codec", "sign1,adam", "--op", "decode,step,server", "-b", "4k", "-e", "64k", "-f", "4")
    shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run(["sh", script, str(WORK / "codec_perf.jsonl"), str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("2 pictures") and done.stderr == "", done
    for name in ("sign1", "adam"):
        assert (folder / f"codec_{name}.png").read_bytes()[:4] == b"\x89PNG", name
    assert subprocess.run(["sh", script, "/no_such_file", str(folder)], capture_output=True, timeout=60).returncode == 2


def check_absent():
    """What is not there is said with exit code 77."""
    if not pathlib.Path("/dev/nvidiactl").exists():
        assert "skipped: cuda: " in run("-D", "cuda", code=77)
    head = re.search(r"# implementations:(.*)", run("-b", "4k", "-e", "4k", "-n", "1", "--op", "decode")).group(1)
    for name in re.findall(r"(\w+) \(not on this machine\)", head):
        assert f"this machine cannot run {name}" in run("--impl", name, code=77)


def check_device():
    """Every codec and operation that has a launcher, each compared with the reference before it is timed."""
    codecs = known_codecs()
    rows, text = measure("-D", "cuda", "--codec", "all", "-d", "all", "-b", str(random.randrange(1, 9)), "-e", "20k", "-f", "4999")
    found = {(r["codec"], r["op"], r["dtype"]) for r in rows}
    launched = {case for case in expected_cases(codecs) if case[0] in CODECS and case[1] != "momentum_ef"}
    assert found >= launched and found <= set(expected_cases(codecs)), found ^ launched
    assert {r["impl"] for r in rows} == {"cuda"} and "# device " in text, text


def main():
    seed = int(os.environ.get("LNT_TEST_SEED", random.randrange(1 << 32)))
    print(f"seed: LNT_TEST_SEED={seed}")
    random.seed(seed)
    if sys.argv[4:] == ["device"]:
        check_device()
        return
    for check in (check_everything, check_numbers, check_markdown, check_bars, check_full_disk, check_refusals, check_compare,
                  check_plot, check_absent):
        check()
        print(check.__name__, "passed", flush=True)


if __name__ == "__main__":
    main()
