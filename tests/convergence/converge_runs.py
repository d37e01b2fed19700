"""Training runs: starting linnet-bert, keeping what is finished, reading what it wrote.

A finished run is NAME-sSEED.jsonl and NAME-sSEED.made, which says with which program and options it was made and how
long it took. A run is kept as long as neither has changed.
"""
import hashlib
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

RANKS = 4


class Skipped(Exception):
    """Something that is not installed."""


class Bench:
    """Where programs are and where results go."""

    def __init__(self, build, cache, out):
        self.build, self.cache, self.out = pathlib.Path(build), cache, pathlib.Path(out)
        self.program = self.build / "tests/bert/linnet-bert"
        self._hash = None
        self.out.mkdir(parents=True, exist_ok=True)

    def program_hash(self):
        if self._hash is None:
            parts = [self.program] + sorted(path for path in (self.build / "src").glob("*.so*") if not path.is_symlink())
            self._hash = hashlib.sha256(b"".join(path.read_bytes() for path in parts)).hexdigest()
        return self._hash

    def file(self, run, suffix=".jsonl"):
        return self.out / (run.id + suffix)


def command(bench, run, file):
    return [str(bench.program), "--cache", bench.cache, "--quiet", "--json", str(file), "--ranks", str(RANKS), "--eval-every",
            "100", "--nodes", str(run.nodes), "--seed", str(run.seed), *run.options]


def made_by(bench, run):
    return {"program": bench.program_hash(), "arguments": command(bench, run, "")[3:]}


def is_finished(bench, run):
    try:
        made = json.loads(bench.file(run, ".made").read_text())
    except (OSError, ValueError):
        return False
    return bench.file(run).exists() and made["made"] == made_by(bench, run)


def seconds(bench, run):
    return json.loads(bench.file(run, ".made").read_text())["seconds"]


def need_text():
    if subprocess.run(["sh", "-c", "command -v spm_train"], stdout=subprocess.DEVNULL, check=False).returncode != 0:
        raise Skipped("spm_train is missing (package sentencepiece)")
    if not pathlib.Path("/usr/share/dictd/gcide.dict.dz").exists():
        raise Skipped("the dictionary is missing (package dict-gcide)")


def environment():
    """One set of matrix kernels wherever they run: others round differently, and where the plateau ends that is worth 0.1."""
    try:
        has_avx2 = " avx2 " in pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii")
    except OSError:
        has_avx2 = False
    kernels = {"OPENBLAS_CORETYPE": "Zen"} if has_avx2 else {}
    return dict(os.environ, OPENBLAS_NUM_THREADS="1", **kernels)


def call(arguments):
    """An interrupt ends the child too, and with it its ranks."""
    child = subprocess.Popen(arguments, env=environment())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return child.wait()
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def train(bench, run):
    """Text of what went wrong, or None. The files of a run that failed or was skipped do not look finished."""
    work = bench.file(run, ".work")
    bench.file(run, ".made").unlink(missing_ok=True)
    bench.file(run).unlink(missing_ok=True)
    need_text()
    started = time.monotonic()
    status = call(command(bench, run, work))
    took = round(time.monotonic() - started, 1)
    if status != 0:
        return f"{run.id}: linnet-bert ended with status {status}: {' '.join(command(bench, run, work))}"
    work.rename(bench.file(run))
    final = result(bench, run)
    if not final.get("params_identical"):
        return f"{run.id}: parameters differ between ranks"
    bench.file(run, ".made").write_text(json.dumps({"made": made_by(bench, run), "seconds": took}) + "\n")
    return None


def lines(bench, run):
    with open(bench.file(run), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def result(bench, run):
    """The last line of a finished run; None if there is none."""
    try:
        return lines(bench, run)[-1]
    except (OSError, IndexError):
        return None


def loss(final):
    """Where the model sees [MASK]; a run that diverged wrote null."""
    value = final["eval_mask_loss"]
    return math.inf if value is None else value
