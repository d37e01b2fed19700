#!/usr/bin/env python3
"""linnet-info as a user meets it: check_info.py LINNET_INFO WORK_DIR. The dry run is compared with the byte formula written out here."""
import os
import pathlib
import random
import re
import subprocess
import sys

INFO, WORK = sys.argv[1], pathlib.Path(sys.argv[2])
HEADER, BLOCK, SEGMENT = 64, 1024, 1 << 18


def run(*arguments, code=0, **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LINNET_") and k not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run([INFO, *arguments], capture_output=True, text=True, timeout=60, env=env | environment)
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def check_sections():
    text = run()
    for word in ("linnet 0.", "transports", "loop", "shm", "ucx", "memfd", "pidfd", "libsodium", "rank 0 of 1"):
        assert word in text, f"the summary does not mention {word}"
    assert "| variable |" in run("--config-md")
    assert "--plan" in run("--help")


def check_threads():
    assert "threads of this rank that code: 3" in run("-t", LINNET_THREADS="3")
    assert "threads of this rank that code: 1" in run("-t", LINNET_PROGRESS_THREAD="off")
    assert "LINNET_THREADS" in run("-t", code=1, LINNET_THREADS="65")


def check_secret():
    text = run("-c", LINNET_SECRET="wotan7", LINNET_TIMEOUT="7s")
    assert "wotan7" not in text and "LINNET_SECRET=(set, not shown)" in text
    assert "LINNET_TIMEOUT=7s" in text and "from the environment" in text


def check_full_disk():
    with open("/dev/full", "w") as full:
        done = subprocess.run([INFO, "-c"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and "standard output could not be written whole" in done.stderr, done


def check_refusals():
    assert "did you mean --topology?" in run("--topolgy", code=2)
    assert "--gbps" in run("--gbps", "fast", code=2)
    assert "--ranks needs a value" in run("--ranks", code=2)
    assert "LINNET_SPIN_US" in run("-t", code=1, LINNET_SPIN_US="soon")
    assert "did you mean LINNET_TIMEOUT" in run("-t", LINNET_TIMEOT="3s")
    plan = WORK / "refused.txt"
    plan.write_text("weight 10\nbias many\n")
    assert "line 2" in run("--plan", str(plan), code=2)
    plan.write_text("weight 10\n")
    assert "did you mean \"freeze_step\"?" in run("--plan", str(plan), "--options", "freze_step=3", code=1)
    assert "one label per rank" in run("--plan", str(plan), "--ranks", "3", "--nodes", "0,1", code=2)


def chunk_bytes(lengths, n):
    """Bytes of the sign1 frames of every chunk, and of the same chunks in f32. lengths: of the tensors in the one bucket."""
    blocks = [min(BLOCK, length - k) for length in lengths for k in range(0, length, BLOCK)]
    total, offset, chunks = sum(blocks), 0, [[] for _ in range(n)]
    for size in blocks:
        chunks[offset * n // total].append(size)
        offset += size
    signs = [sum(4 + (k + 7) // 8 for k in chunk) + HEADER * n_frames(chunk) for chunk in chunks]
    floats = [sum(4 * k for k in chunk) + HEADER * n_frames(chunk) for chunk in chunks]
    return signs, floats


def n_frames(chunk):
    """Segments are filled with whole blocks as far as they go."""
    frames, room = 0, 0
    for size in chunk:
        if size > room:
            frames, room = frames + 1, SEGMENT
        room -= size
    return frames


def check_dry_run():
    """Flat: rank i sends the other chunks once and its own n - 1 times."""
    lengths = [random.randrange(64, 1 << 20) for _ in range(5)]
    plan = WORK / "flat.txt"
    plan.write_text("# name count\n" + "".join(f"tensor{i} {n}  # here\n" for i, n in enumerate(lengths)))
    for n in (2, 3, 4):
        text = run("--plan", str(plan), "--ranks", str(n), "--bucket-bytes", "1g", "--segment-bytes", "1m")
        phases = {name: [int(x) for x in re.findall(r"^  \d+ +\d+ +0 +(\d+)$", body, re.M)]
                  for name, body in re.findall(r"^phase (\w+):.*\n((?:  .*\n)*)", text, re.M)}
        signs, floats = chunk_bytes(lengths, n)
        for phase, chunks in (("compressed", signs), ("warmup", floats)):
            expected = [sum(chunks) - chunks[i] + (n - 1) * chunks[i] for i in range(n)]
            assert phases[phase] == expected, f"{n} ranks, {phase}: {phases[phase]}, by formula {expected}\n{text}"
        assert "frozen" not in phases


def main():
    seed = int(os.environ.get("LNT_TEST_SEED", random.randrange(1 << 32)))
    print(f"seed: LNT_TEST_SEED={seed}")
    random.seed(seed)
    for check in (check_sections, check_threads, check_secret, check_full_disk, check_refusals, check_dry_run):
        check()
        print(check.__name__, "passed")


if __name__ == "__main__":
    main()
