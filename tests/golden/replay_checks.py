#!/usr/bin/env python3
"""Checks of linnet-replay that need more than one run of it.

    replay_checks.py fresh TOOL CASES     draw exchange cases with the executable model (tests/model) and replay them
    replay_checks.py spoilt TOOL CASES    change one value in each array of the stored cases in turn: the tool must notice

Fresh cases need numpy; without it the check is skipped, aloud. LNT_TEST_SEED repeats a run.
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "model"
SKIP, N_FRESH = 77, 12
SYSTEM_PYTHON = "/usr/bin/python3"  # where a package manager puts numpy, whatever comes first in PATH
NOT_COMPARED = {"margin", "input", "live"}  # the last two are what goes in


def need_numpy():
    try:
        import numpy  # noqa: F401
    except ImportError:
        if sys.executable != SYSTEM_PYTHON and os.access(SYSTEM_PYTHON, os.X_OK) and "LNT_PYTHON_TRIED" not in os.environ:
            os.environ["LNT_PYTHON_TRIED"] = "1"
            os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON] + sys.argv)
        print("skipped: Python has no numpy (Debian: python3-numpy)")
        sys.exit(SKIP)


def replay(tool, case):
    done = subprocess.run([tool, str(case)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout


def draw_cases(out, seed):
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(MODEL))
    from make_vectors import MAPS, exchange_case
    rng = random.Random(seed)
    for i in range(N_FRESH):
        codec = ("sign1", "int8", "int4", "f32")[i % 4]
        block = rng.choice([64, 128, 256, 1024])
        exchange_case(out, "fresh_%s_%02d" % (codec, i), rng.randrange(1 << 30), rng.choice(MAPS), codec, rng.choice([300, 1000, 3000]), block, 6)


def fresh(tool, cases):
    need_numpy()
    seed = int(os.environ.get("LNT_TEST_SEED") or random.SystemRandom().randrange(1 << 40))
    print("seed: LNT_TEST_SEED=%d" % seed)
    bad = 0
    with tempfile.TemporaryDirectory() as out:
        draw_cases(out, seed)
        for case in sorted(pathlib.Path(out).iterdir()):
            code, text = replay(tool, case)
            bad += code != 0
            print(case.name, "replayed" if code == 0 else "exit %d\n%s" % (code, text))
    return bad != 0


def spoil(case, array):
    """Adds one to a byte in the middle of the array: the top byte of its element, which no tolerance hides."""
    size = {"f32": 4, "i32": 4, "u8": 1}[array["dtype"]]
    at = array["offset"] + (array["count"] // 2 + 1) * size - 1
    data = bytearray((case / "data.bin").read_bytes())
    data[at] ^= 1
    (case / "data.bin").write_bytes(data)


def spoilt(tool, cases):
    bad = 0
    with tempfile.TemporaryDirectory() as out:
        for case in [pathlib.Path(cases) / name for name in ("car_n2_7", "exchange_sign1_uneven")]:
            for array in json.loads((case / "case.json").read_text())["arrays"]:
                if array["name"] in NOT_COMPARED or array["count"] == 0:
                    continue
                copy = pathlib.Path(out) / case.name
                shutil.copytree(case, copy)
                spoil(copy, array)
                code, _ = replay(tool, copy)
                bad += code != 1
                print("%s %s: %s" % (case.name, array["name"], "noticed" if code == 1 else "exit %d" % code))
                shutil.rmtree(copy)
    return bad != 0


if __name__ == "__main__":
    sys.exit({"fresh": fresh, "spoilt": spoilt}[sys.argv[1]](sys.argv[2], sys.argv[3]))
