"""Cases of 1-bit Adam from the executable model (tests/model), for test_optim_model.c.

    python3 make_onebit_cases.py OUT_DIR SEED CASES

Without late comers, which test_optim_late.c is about: coordinates that are dead at the freeze get no gradient afterwards.
One file per case, little-endian:

    u32   magic "1BIT", n, nodes[n], n_tensors, lengths[n_tensors], non_freeze[n_tensors], T, freeze, block, warm codec, warm block,
          bucket elements, segment elements           (warm codec: 0 f32, 2 int8)
    f64   lr, beta1, beta2, eps, decay, clip, loss scale
    f32   parameters [N]
    T x { f32 gradients [n][N]; u32 committed, t, frozen; f64 powers [2];
          f32 x [N], m [N], v [N], denominator [N]; f32 worker errors [M][N], server errors [N]; u8 dead [N] }
"""
import os
import sys
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model"))
from codec import F32, INT8                       # noqa: E402
from layout import Topology                       # noqa: E402
from optim import OneBitAdam                      # noqa: E402

f32 = np.float32
MAPS = [[0, 1], [0, 1, 2], [0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1, 1], [0, 1, 1, 0, 2], [0, 0, 0], [0], [1, 0, 0, 2, 1, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7]]
BAD = [np.nan, np.inf, -np.inf]


def u32(*values):
    return np.array(values, "<u4").tobytes()


def draw_lengths(rng, small):
    if small:
        return [7, 63, 64 + int(rng.integers(80)), 0, 100]
    out = [int(rng.choice([0, 1, 7, 63, 64, 65, 127, 130, 257, 384, 500])) for _ in range(int(rng.integers(1, 7)))]
    return out + [130]


def errors(o, topo, n):
    """The model's table; None where nothing is kept."""
    worker, server = o.errors()
    return worker.astype(f32), server.astype(f32)


def write_case(path, rng, nodes, small):
    topo = Topology(nodes)
    lengths = draw_lengths(rng, small)
    total, steps = sum(lengths), 10 if small else 14
    clipped = not small and rng.random() < 0.5
    freeze = 100 if clipped and rng.random() < 0.2 else 5
    warm = int(rng.choice([0, 2]))
    block, warm_block = 128, 128 if warm == 0 else 64
    bucket, seg = int(rng.choice([256, 600, 1 << 20])), int(rng.choice([128, 300, 1 << 20]))
    decay, clip, scale = float(rng.choice([0.0, 0.01])), 5.0 if clipped else 0.0, float(rng.choice([1.0, 1024.0, 3.0]))
    apart = [int(rng.random() < 0.2) for _ in lengths]
    hyper = dict(lr=0.01, b1=0.9, b2=0.999, eps=1e-8, decay=decay, clip=clip, loss_scale=scale)
    x0 = rng.standard_normal(total).astype(f32)
    o = OneBitAdam(topo, lengths, x0, B=block, warm_B=warm_block, bucket=bucket, seg=seg, freeze=freeze, warm=INT8 if warm else F32,
                   non_freeze={t for t, a in enumerate(apart) if a}, **hyper)
    out = [u32(0x54494231, topo.n, *topo.node, len(lengths), *lengths, *apart, steps, freeze, block, warm, warm_block, bucket, seg),
           np.array([hyper["lr"], hyper["b1"], hyper["b2"], hyper["eps"], decay, clip, scale], "<f8").tobytes(), x0.astype("<f4").tobytes()]
    z = total - 100                                   # the last tensor: 20 never touched, 5 of rounding noise until the freeze
    for step in range(steps):
        g = [((rng.standard_normal(total) + 0.5 * rng.standard_normal(total)) * scale).astype(f32) for _ in range(topo.n)]
        for q in g:
            q[z:z + 20] = 0
            q[z + 40:z + 45] *= f32(1e-13 if o.phase == "warm" else 0)
            q[rng.random(total) < 0.02] = f32(-0.0)
        bad = step in (3, 7)
        if bad:
            g[int(rng.integers(topo.n))][int(rng.integers(total))] = f32(rng.choice(BAD))
        good = o.step(g)
        assert good != bad and not o.latch, "no late comers here"
        k, (worker, server), zero = o.ranks[0], errors(o, topo, total), np.zeros(total)
        out += [np.array(g, "<f4").tobytes(), u32(good, o.t, o.phase != "warm"), np.array([o.c1, o.c2], "<f8").tobytes()]
        out += [np.asarray(a, "<f4").tobytes() for a in (k.x, k.m, k.v, zero if o.vf is None else o.vf, worker, server)]
        out.append(np.asarray(zero if o.dead is None else o.dead, "u1").tobytes())
    with open(path, "wb") as f:
        f.write(b"".join(out))


def main():
    out, seed, cases = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.makedirs(out, exist_ok=True)
    for i in range(cases):
        rng = np.random.default_rng([seed, i])
        nodes = MAPS[int(rng.integers(len(MAPS)))] if cases > 2 else [[0, 1], [0, 0, 1]][i]
        write_case(os.path.join(out, "case%02d.bin" % i), rng, nodes, cases <= 2)


if __name__ == "__main__":
    main()
