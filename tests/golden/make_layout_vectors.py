"""Layout vectors for tests/unit/test_layout.c, printed by the executable model (tests/model/layout.py).

    python3 make_layout_vectors.py > layout_vectors.txt

A case is two input lines (`case`, `nodes`) and what follows from them. The test reads the inputs, prints the same lines from
the library's functions and compares the text. Blocks are numbered inside a bucket; bits, scale: of the codec.

    case PACKED BLOCK BUCKET_ELEMS SEGMENT_ELEMS BITS SCALE_BYTES LENGTHS...
    nodes NODE_OF...
    bucket BEGIN COUNT N_BLOCKS          in elements of the flat vector (packed: of the list)
    dead BLOCK...                        blocks with an activity bit (an input too)
    run TENSOR OFFSET POS COUNT          packed grids only
    segment PHASE SHARD CHUNK BEGIN END BYTES OFFSET_OF_LAST_CODES
    sent RANK INTRA INTER
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model"))
import numpy as np
from layout import HEADER, Block, Topology, bytes_sent, cut_buckets, grid, section_bytes, segments, shards_chunks, split

MAPS = [[0], [0, 0, 0], [0, 1], [0, 0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 2], [0, 1, 1, 0, 2], [1, 0, 0, 2, 1, 1, 2],
        [0, 1, 2, 3, 0, 1, 2, 0, 3, 3, 2, 1, 0, 0, 1, 2], list(range(16))]
CODECS = [(1, 4), (8, 4), (4, 4), (32, 0), (16, 0)]


def lane(lengths, B):
    """Blocks over the list of all elements: they run over tensor borders."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    li = np.arange(len(owner))
    return [Block(o, -1, o, li[o:o + B]) for o in range(0, len(li), B)], owner


def print_runs(blocks, owner, lengths):
    base = np.concatenate([[0], np.cumsum(lengths)])
    for b in blocks:
        i = 0
        while i < b.n:
            t = owner[b.idx[i]]
            n = int((owner[b.idx] == t).sum())
            print("run", t, b.idx[i] - base[t], b.idx[i], n)
            i += n


def print_segments(phase, d, c, blocks, number, seg, bits, scale, plain):
    for s in segments(blocks, seg):
        code = lambda n: 4 * n if plain else (n * bits + 7) // 8
        size = sum((0 if plain else scale) + code(b.n) for b in s) + HEADER + (0 if phase == 0 else section_bytes(s))
        print("segment", phase, d, c, number[s[0].gid], number[s[-1].gid] + 1, size, sum(code(b.n) for b in s[:-1]))


def case(rng):
    packed, B = rng.random() < 0.3, rng.choice([64, 128, 192])
    lengths = [rng.choice([0, 1, 7, 63, 64, 65, 127, 130, 200, 257, 384]) for _ in range(rng.randrange(1, 9))]
    bucket, seg = rng.choice([64, 256, 700, 1 << 20]), rng.choice([64, 128, 300, 1 << 20])
    bits, scale = rng.choice(CODECS)
    nodes = rng.choice(MAPS)
    topo = Topology(nodes)
    print("case", int(packed), B, bucket, seg, bits, scale, *lengths)
    print("nodes", *nodes)
    if packed:
        blocks, owner = lane(lengths, B)
        cuts = [(0, sum(lengths))] if blocks else []
    else:
        blocks, cuts = grid(lengths, B), cut_buckets(lengths, B, bucket)
    for lo, hi in cuts:
        bl = [b for b in blocks if lo <= b.idx[0] < hi]
        number = {b.gid: k for k, b in enumerate(bl)}
        print("bucket", lo, hi - lo, len(bl))
        for b in bl:
            b.live = np.zeros(b.n, bool) if rng.random() < 0.3 else None
        print("dead", *[k for k, b in enumerate(bl) if b.live is not None])
        if packed:
            print_runs(bl, owner, lengths)
        for d, shard in enumerate(split(bl, topo.S)):
            print_segments(0, d, 0, shard, number, seg, bits, scale, True)
        for d, chunks in enumerate(shards_chunks(bl, topo)):
            for c, chunk in enumerate(chunks):
                print_segments(1, d, c, chunk, number, seg, bits, scale, topo.M == 1)
        intra, inter = bytes_sent(bl, topo, lambda n: scale + (n * bits + 7) // 8, seg)
        for r in range(topo.n):
            print("sent", r, intra[r], inter[r])


if __name__ == "__main__":
    rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 20260)
    for _ in range(40):
        case(rng)
