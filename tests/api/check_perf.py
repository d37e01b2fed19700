#!/usr/bin/env python3
"""linnet-perf on small sizes: check_perf.py LINNET_PERF WORK_DIR. Every operation and codec on four worlds must be right; the bytes
must be those of the formulas below, written from docs/architecture.md (L1 to L7), and the ratios what they promise. No times."""
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import time

PERF, WORK = sys.argv[1], pathlib.Path(sys.argv[2])
HEADER, SEGMENT = 64, 1 << 18
KEYS = ("op codec algo dtype ranks nodes count bytes t_us_min t_us_median t_us_p99 algbw_gbs busbw_gbs wire_bytes "
        "wire_bytes_inter ratio rel_err max_err wrong speedup transport emulated_gbps cpu l1d").split()
# bits per element, bytes of scale per block, elements per block
CODECS = {"f32": (32, 0, 1024), "bf16": (16, 0, 1024), "sign1": (1, 4, 1024), "int8": (8, 4, 256), "int4": (4, 4, 128),
          "int4_hadamard": (4, 4, 128), "f16": (16, 0, 1024), "bf16_sr": (16, 0, 1024), "f16_sr": (16, 0, 1024)}
WORLDS = {"flat": [0, 1, 2], "2x2": [0, 0, 1, 1], "uneven": [0, 0, 0, 1, 1], "one node": [0, 0]}


def run(*arguments, code=0, env=None, **options):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LINNET_") and k not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run([PERF, *arguments], capture_output=True, text=True, timeout=120, env=clean | (env or {}), **options)
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def measure(*arguments):
    file = WORK / "perf.jsonl"
    run(*arguments, "-J", str(file), "-n", "1", "-w", "0", "--seed", str(random.randrange(1, 1 << 62)))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        assert list(row) == KEYS, f"keys are {list(row)}"
    return rows


# ---- bytes by formula: blocks are lists of their numbers of elements ----

def blocks_of(count, block):
    return [min(block, count - k) for k in range(0, count, block)]


def parts(blocks, n):
    """L2: block k belongs to floor(o_k * n / N)."""
    result, offset, total = [[] for _ in range(n)], 0, sum(blocks)
    for size in blocks:
        result[offset * n // total].append(size)
        offset += size
    return result


def frames(blocks, codec):
    """L4, L5: whole blocks while they fit the segment; every frame has a header."""
    bits, scale, _ = CODECS[codec]
    total, room = 0, 0
    for size in blocks:
        if size > room:
            total, room = total + HEADER, SEGMENT
        room -= size
        total += scale + (size * bits + 7) // 8
    return total


def exchange(count, codec, nodes):
    """L3, L7: bytes of every rank inside its node and between nodes, for an all-reduce."""
    members = [[r for r, node in enumerate(nodes) if node == a] for a in sorted(set(nodes))]
    n_shards, wire = min(map(len, members)), codec if len(members) > 1 else "f32"
    shards = parts(blocks_of(count, CODECS[codec][2]), n_shards)
    sent = [[0, 0] for _ in nodes]
    for a, ranks in enumerate(members):
        for local, rank in enumerate(ranks):
            for d, shard in enumerate(shards):
                if d != local:
                    sent[rank][0] += frames(shard, "f32")
                    continue
                chunks = [frames(chunk, wire) for chunk in parts(shard, len(members))]
                sent[rank][0] += (len(ranks) - 1) * sum(chunks)
                sent[rank][1] += sum(chunks) - chunks[a] + (len(members) - 1) * chunks[a]
    return sent


def plain_frames(count, codec):
    """Vectors of the flat operations: without a codec blocks of 64 elements, which makes no difference to these sizes."""
    return frames(blocks_of(count, CODECS[codec][2]), codec)


def flat(op, count, codec, nodes, plain):
    """Bytes of every rank in the operations that have no hierarchy. Coded reduce-scatters end with a vote: a header to everybody."""
    sent, one = [[0, 0] for _ in nodes], plain_frames(count, codec)
    for rank, node in enumerate(nodes):
        for peer, other in enumerate(nodes):
            if peer != rank and (op != "broadcast" or rank == 0):
                vote = HEADER if op == "reduce_scatter" and not plain and count > 0 else 0
                sent[rank][other != node] += one + vote
    return sent


def check_bytes(row, nodes):
    plain = row["codec"] == row["dtype"]
    sent = (exchange(row["count"], row["codec"], nodes) if row["op"] == "allreduce" else
            flat(row["op"], row["count"], row["codec"], nodes, plain))
    expected = max(a + b for a, b in sent), max(b for a, b in sent)
    assert (row["wire_bytes"], row["wire_bytes_inter"]) == expected, f"bytes by formula {expected}: {row}"


def check_everything(name, nodes, *more):
    labels = ",".join(map(str, nodes))
    size = str(random.randrange(60000, 250000))
    rows = measure("--op", "all", "--codec", "all", "--node-map", labels, "-b", "4", "-e", size, "-f", "97", *more)
    for op in ("allreduce", "reduce_scatter", "allgather", "broadcast"):
        for codec in CODECS:
            assert any(r["op"] == op and r["codec"] == codec for r in rows), f"{name}: no row for {op} {codec}"
    for row in rows:
        assert row["wrong"] == 0, row
        assert row["ranks"] == len(nodes) and row["nodes"] == len(set(nodes)), row
        assert row["algo"] == {"flat": "flat", "2x2": "hier", "uneven": "hier", "one node": "local"}[name], row
        check_bytes(row, nodes)


def check_ratios():
    """4 MiB: flat at least 28 times fewer bytes than an f32 ring; between nodes at least 28 times fewer than the f32 hierarchy."""
    row = measure("--codec", "sign1", "--ranks", "4", "-b", "4m", "-e", "4m", "-c", "0")[0]
    check_bytes(row, [0, 1, 2, 3])
    assert row["ratio"] >= 28 and row["wrong"] is None, row
    rows = {r["codec"]: r for r in measure("--codec", "f32,sign1", "--ranks", "4", "--nodes", "2", "-b", "4m", "-e", "4m")}
    for row in rows.values():
        check_bytes(row, [0, 0, 1, 1])
    assert rows["f32"]["wire_bytes_inter"] >= 28 * rows["sign1"]["wire_bytes_inter"], rows


def check_formulas(row):
    n, t = row["ranks"], row["t_us_median"] * 1e-6
    factor = {"allreduce": 2 * (n - 1) / n, "broadcast": 1}.get(row["op"], (n - 1) / n)
    assert abs(row["algbw_gbs"] / (row["bytes"] / t / 1e9) - 1) < 1e-3, row
    assert abs(row["busbw_gbs"] / (factor * row["bytes"] / t / 1e9) - 1) < 1e-3, row
    assert abs(row["ratio"] / (factor * row["bytes"] / row["wire_bytes"]) - 1) < 1e-3, row


def check_variants():
    for row in measure("--op", "all", "--codec", "all", "--residual", "-o", "sum", "-b", "300k", "-e", "300k", "--ranks", "4", "--nodes", "2"):
        assert row["wrong"] == 0, row
        check_formulas(row)
    for dtype in ("bf16", "f16"):
        for row in measure("--op", "all", "-d", dtype, "-b", "100k", "-e", "100k", "--ranks", "3", "--emulate-gbps", "1"):
            assert row["wrong"] == 0 and row["dtype"] == dtype and row["emulated_gbps"] == 1, row
    text = run("--codec", "sign1", "-b", "3m", "-e", "3m", "-n", "1", "-w", "0", "--threads", "3", env={"LINNET_THREADS": "2"})
    assert "# threads of a rank that code: 3;" in text and "# Out of bounds values : 0 OK" in text, text
    text = run("-b", "4k", "-e", "4k", "--emulate-gbps", "2", "-n", "1", "-w", "0", "--codec", "sign1")
    assert "EMULATED" in text and text.count(" emulated\n") == 1 and "# Out of bounds values : 0 OK" in text, text


def check_environment():
    """Two processes started from outside, over the store."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    env = {k: v for k, v in os.environ.items() if not k.startswith("LINNET_")}
    ranks = [subprocess.Popen([PERF, "-b", "4k", "-e", "4k", "-n", "1", "-w", "0", "--nodes", "2"], stdout=subprocess.PIPE, text=True,
                              env=env | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": str(r), "WORLD_SIZE": "2"})
             for r in range(2)]
    output = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0] and "0 OK" in output[0] and output[1] == "", output


def check_lost_rank():
    """A rank that is killed is named by the launcher and, as PEER_LOST, by a survivor; the exit code is not 0, and nobody is left behind."""
    tool = subprocess.Popen([PERF, "-b", "8m", "-e", "8m", "-n", "100000", "--ranks", "3", "-c", "0"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)
    children = pathlib.Path(f"/proc/{tool.pid}/task/{tool.pid}/children")
    while not (line := tool.stdout.readline()).startswith("# ranks 3,"):  # the communicator stands
        assert line, "the ranks did not start"
    time.sleep(random.random())
    pids = [int(pid) for pid in children.read_text().split()]
    victim = random.randrange(3)
    os.kill(pids[victim], 9)
    errors = tool.communicate(timeout=60)[1]
    assert tool.returncode == 1 and f"rank {victim} was lost: killed by signal 9" in errors, errors
    assert re.search(rf"a peer was lost: rank {victim} .*reported by rank (?!{victim}\))\d", errors), errors
    assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), "ranks were left behind"


def check_full_disk():
    """Results that do not arrive are an error, whatever was measured."""
    small = [PERF, "-b", "4k", "-e", "4k", "-n", "1", "-w", "0", "--codec", "none"]
    assert "/dev/full could not be written whole" in run(*small[1:], "-J", "/dev/full", code=1)
    with open("/dev/full", "w") as full:
        done = subprocess.run(small, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and "standard output could not be written whole" in done.stderr, done


def check_lost_before_start():
    """Whoever dies while others start: nobody else is blamed."""
    for rank in range(3):
        tool = subprocess.Popen([PERF, "-b", "4k", "-e", "4k", "--ranks", "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        children = pathlib.Path(f"/proc/{tool.pid}/task/{tool.pid}/children")
        deadline = time.monotonic() + 30
        while len(pids := children.read_text().split()) <= rank:
            assert time.monotonic() < deadline, "the ranks did not start"
        os.kill(int(pids[rank]), 9)
        errors = tool.communicate(timeout=60)[1]
        blamed = set(re.findall(r"rank (\d+) is to blame", errors))
        assert tool.returncode == 1 and blamed <= {str(rank)}, errors


def check_refusals():
    assert "did you mean sign1?" in run("--codec", "sing1", code=2)
    assert "did you mean allreduce?" in run("--op", "allredcue", code=2)
    assert "did you mean --emulate-gbps?" in run("--emulate-gbs", "1", code=2)
    assert "one label per rank" in run("--ranks", "2", "--node-map", "0,1,1", code=2)
    assert "--begin is above --end" in run("-b", "2m", "-e", "1m", code=2)
    text = run("-b", "4k", "-e", "4k", "--nodes", "2", code=1, env={"LINNET_EMULATE_GBPS": "1e-9"})
    assert "LINNET_EMULATE_GBPS" in text and "1e-09 Gbit/s" in text, text


def main():
    seed = int(os.environ.get("LNT_TEST_SEED", random.randrange(1 << 32)))
    print(f"seed: LNT_TEST_SEED={seed}")
    random.seed(seed)
    checks = [(f"everything, {name}", lambda name=name, nodes=nodes: check_everything(name, nodes)) for name, nodes in WORLDS.items()]
    checks += [(check.__name__, check) for check in
               (check_ratios, check_variants, check_environment, check_lost_rank,
                check_lost_before_start, check_full_disk, check_refusals)]
    for name, check in checks:
        check()
        print(name, "passed", flush=True)


if __name__ == "__main__":
    main()
