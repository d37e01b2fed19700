"""The published 1-bit Adam, 1-bit LAMB and 0/1 Adam (docs/optimizers.md, compat=deepspeed) as a small numpy program, and
random cases of them in the format of ../golden/README.md. Written from the formulas; shares no code with the library.

    python3 reference.py OUT_DIR [--seed S] [--cases K]

All elements lie in one flat vector; hyper-parameters are vectors too. Inputs are drawn again where a value comes so near
to a change of sign that rounding could turn it.
"""
import argparse
import copy
import math
import numpy as np
from make_vectors import Case

f32 = np.float32
MARGIN = 2e-5
RANKS = (1, 2, 3, 4, 5, 6, 7, 8)


def padded(count, n):
    step = n * math.lcm(n, 8)
    return -(-count // step) * step


class NearTie(Exception):
    pass


def check(values, scale):
    near = np.abs(values[values != 0])
    if scale > 0 and near.size and near.min() < MARGIN * scale:
        raise NearTie


def code(a):
    a64 = a.astype(np.float64)
    scale = f32(np.sqrt((a64 * a64).sum() / a.size))
    bits = a >= 0
    c = np.where(bits, scale, -scale).astype(f32)
    return scale, bits, c, a - c


class Buffer:
    """One unit: where its elements lie in the flat vector, and the errors of all ranks."""

    def __init__(self, where, n):
        self.where, self.n, self.size = where, n, padded(where.size, n)
        self.tail = np.zeros(self.size - where.size, f32)
        self.clear()

    def clear(self):
        self.worker = np.zeros((self.n, self.size), f32)
        self.server = np.zeros((self.n, self.size // self.n), f32)

    def reduce(self, values, log, number, keep_tail=False):
        """values [n][count] -> what all ranks decode."""
        n, chunk, coded = self.n, self.size // self.n, []
        for r in range(n):
            error = self.worker[r].copy()
            a = np.concatenate([values[r], self.tail if keep_tail else np.zeros_like(self.tail)]) + error
            scale, bits, c, self.worker[r] = code(a)
            check(a[(error != 0) | (np.abs(a) > 1e-6 * scale)], scale)  # values may be tiny by construction
            coded.append(c)
            log.worker(r, number, scale, bits)
        out = np.empty(self.size, f32)
        for j in range(n):
            part = slice(j * chunk, (j + 1) * chunk)
            z = coded[0][part].copy()
            for c in coded[1:]:
                z = z + c[part]
            z = z * f32(1.0 / n) + self.server[j]
            scale, bits, out[part], self.server[j] = code(z)
            check(z, scale)
            log.server(j, number, scale, bits)
        self.tail = out[self.where.size:].copy()
        return out[:self.where.size]


class Log:
    """What travelled in one call."""

    def __init__(self, n, buffers):
        self.n = n
        self.at = np.concatenate([[0], np.cumsum([b.size for b in buffers])]).astype(int)
        self.worker_scale, self.server_scale = np.zeros((n, len(buffers)), f32), np.zeros((n, len(buffers)), f32)
        self.worker_bits = np.zeros((n, self.at[-1] // 8), np.uint8)
        self.server_bits = np.zeros((n, self.at[-1] // 8 // n), np.uint8)
        self.calls = 0

    def worker(self, r, b, scale, bits):
        self.calls += r == 0
        self.worker_scale[r, b] = scale
        self.worker_bits[r, self.at[b] // 8:self.at[b + 1] // 8] = np.packbits(bits)

    def server(self, j, b, scale, bits):
        self.server_scale[j, b] = scale
        self.server_bits[j, self.at[b] // 8 // self.n:self.at[b + 1] // 8 // self.n] = np.packbits(bits)


class Optimizer:
    fused = False

    def __init__(self, problem):
        self.p, self.n = problem, problem.n
        shape = (self.n, problem.size)
        self.x = np.repeat(problem.x0[None], self.n, 0)
        self.m, self.v = np.zeros(shape, f32), np.zeros(shape, f32)
        self.frozen, self.step = False, 0
        self.units = [np.concatenate([problem.span(t) for t in problem.order])] if self.fused else \
            [problem.span(t) for t in range(len(problem.tensors))]
        self.buffers = [Buffer(where, self.n) for where in self.units]

    def mean(self, g):
        total = g[0].copy()
        for r in range(1, self.n):
            total = total + g[r]
        return total * f32(1.0 / self.n)

    def direction(self, m, v, x):
        u = m / (np.sqrt(v) + self.p.eps)
        return np.where(self.p.decay > 0, u + self.p.decay * x, u)

    def momentum(self, m, g):
        return self.p.b1 * m + self.p.o1 * g

    def moments(self, g, where=slice(None)):
        p = self.p
        self.m[:, where] = (p.b1 * self.m + p.o1 * g)[:, where]
        self.v[:, where] = (p.b2 * self.v + p.o2 * (g * g))[:, where]

    def numbers(self):
        return {}

    def arrays(self):
        return {"exp_avg": self.m, "exp_avg_sq": self.v}


class Adam(Optimizer):
    name, switch = "onebit_adam", "freeze_step"

    def call(self, g, lr, log):
        p, averaged = self.p, not self.frozen
        self.step += 1
        if self.step == 1:
            self.moments(self.mean(g), p.non_freeze)
            return averaged
        if averaged:
            self.moments(self.mean(g))
        else:
            self.compressed(g, log)
        self.x = self.x + (-lr) * self.direction(self.m, self.v, self.x)
        self.frozen = self.frozen or self.step >= p.hyper["freeze_step"]
        return averaged

    def compressed(self, g, log):
        p, local = self.p, self.momentum(self.m, g)
        self.moments(self.mean(g), p.non_freeze)
        for b, buffer in enumerate(self.buffers):
            if p.non_freeze[buffer.where[0]]:
                continue
            out = buffer.reduce(local[:, buffer.where], log, b) if self.n > 1 else local[0, buffer.where]
            self.m[:, buffer.where] = out * p.mask[buffer.where]


class Lamb(Optimizer):
    name, switch, fused = "onebit_lamb", "freeze_step", True

    def __init__(self, problem):
        super().__init__(problem)
        k = len(problem.tensors)
        self.fresh = np.zeros((self.n, problem.size), f32)
        self.average, self.factor, self.scaling, self.coeff = np.zeros(k), np.ones(k), np.zeros(k), np.zeros(k)

    def call(self, g, lr, log):
        p, averaged = self.p, not self.frozen
        self.step += 1
        if self.step == 1:
            return averaged
        (self.warm if averaged else self.compressed)(g, lr, log)
        self.frozen = self.frozen or self.step >= p.hyper["freeze_step"]
        return averaged

    def norm(self, a, t):
        return float(np.linalg.norm(a[0, self.p.span(t)].astype(np.float64)))

    def move(self, lr, u):
        for t in range(len(self.p.tensors)):
            s = self.p.span(t)
            self.x[:, s] = self.x[:, s] + f32(-self.p.lr64[t] * self.coeff[t]) * u[:, s]

    def warm(self, g, lr, log):
        p, h = self.p, self.p.hyper
        self.moments(self.mean(g))
        if self.step == h["freeze_step"]:
            self.fresh = self.v.copy()
        u = self.direction(self.m, self.v, self.x)
        for t in range(len(p.tensors)):
            a, b = self.norm(self.x, t), self.norm(u, t)
            c = min(max(a / b, h["min_coeff"]), h["max_coeff"]) if a != 0 and b != 0 else 1.0
            if c != 1:
                self.average[t] = h["coeff_beta"] * self.average[t] + (1 - h["coeff_beta"]) * c
            self.coeff[t] = c
        self.move(lr, u)

    def compressed(self, g, lr, log):
        p, h, old = self.p, self.p.hyper, self.m
        if not self.scaling.any():
            rms = np.array([self.norm(self.m, t) / math.sqrt(p.tensors[t]["count"]) for t in range(len(p.tensors))])
            self.scaling = rms.mean() / rms
        scaling = p.spread(self.scaling)
        local = self.momentum(self.m, g) * scaling
        where = self.buffers[0].where
        out = np.empty(p.size, f32)
        out[where] = self.buffers[0].reduce(local[:, where], log, 0, keep_tail=True) if self.n > 1 else local[0, where]
        self.m = np.repeat(((out / scaling) * p.mask)[None], self.n, 0)
        rebuilt = (self.m - old * p.b1) / p.o1
        self.fresh = p.b2 * self.fresh + p.o2 * (rebuilt * rebuilt)
        root = np.sqrt(self.v) + p.eps
        prelim, u = self.m / root, self.direction(self.m, self.v, self.x)
        quotient = root / (np.sqrt(self.fresh) + p.eps)
        for t in range(len(p.tensors)):
            f = float(quotient[0, p.span(t)].max())
            if p.decay[p.span(t)[0]] > 0:
                w = min(1.0, self.norm(prelim, t) / self.norm(u, t))
                f = f * w + 1 - w
            f = min(max(f, h["factor_min"]), h["factor_max"])
            last, theta = self.factor[t], h["factor_threshold"]
            self.factor[t] = f = min(max(f, last * (1 - theta)), last * (1 + theta))
            self.coeff[t] = self.average[t] * f
        self.move(lr, u)

    def numbers(self):
        return {"scaling_coeff": self.scaling, "lamb_coeff_freeze": self.average, "last_factor": self.factor, "lamb_coeff": self.coeff}

    def arrays(self):
        return {"exp_avg": self.m, "exp_avg_sq": self.v, "exp_avg_sq_fresh": self.fresh}


class ZeroOne(Optimizer):
    name, switch = "zero_one_adam", "var_freeze_step"

    def __init__(self, problem):
        super().__init__(problem)
        self.u = np.zeros((self.n, problem.size), f32)
        self.interval, self.counter, self.local, self.local_counter = 1, 0, 1, 0
        self.rates = np.zeros(len(problem.tensors))

    def reduce(self, values, log, mask_alone):
        p, out = self.p, np.empty(self.p.size, f32)
        for b, buffer in enumerate(self.buffers):
            w = buffer.where
            out[w] = buffer.reduce(values[:, w], log, b) * p.mask[w] if self.n > 1 else values[0, w]
        return out

    def call(self, g, lr, log):
        p, h = self.p, self.p.hyper
        self.step += 1
        averaged = not self.frozen and self.step % self.interval == 0
        if self.step == 1:
            return averaged
        if self.frozen:
            self.window(g, lr, log)
        else:
            self.first(g, lr, log, averaged)
        if not self.frozen and self.step > h["var_freeze_step"]:
            self.frozen = True
            for buffer in self.buffers:
                buffer.clear()
        return averaged

    def first(self, g, lr, log, averaged):
        if averaged:
            self.moments(self.mean(g))
        elif self.n > 1:
            self.m = self.momentum(self.m, self.reduce(g, log, False)[None])
        self.x = self.x + (-lr) * self.direction(self.m, self.v, self.x)
        if averaged:
            self.counter += 1
            if self.counter == self.p.hyper["var_update_scaler"]:
                self.counter, self.interval = 0, 2 * self.interval

    def window(self, g, lr, log):
        p, h = self.p, self.p.hyper
        self.m = self.momentum(self.m, g)
        self.rates = self.rates + p.lr64
        d = (-lr) * self.direction(self.m, self.v, self.x)
        self.x, self.u = self.x + d, self.u + d
        if self.step % self.local == 0:
            self.x = self.x - self.u
            root = np.sqrt(self.v) + p.eps
            out = self.reduce(self.u * root, log, True)
            self.m = np.repeat(-(out / p.spread(self.rates))[None], self.n, 0)
            self.x = self.x + out / root
            self.u, self.rates = np.zeros_like(self.u), np.zeros_like(self.rates)
        self.local_counter += 1
        if self.local_counter == h["local_step_scaler"]:
            self.local_counter, self.local = 0, min(h["local_step_clipper"], 2 * self.local)

    def numbers(self):
        return {"zo_lrs": self.rates[self.p.order],
                "zo_counters": np.array([self.interval, self.counter, self.local, self.local_counter, self.frozen], np.int32)}

    def arrays(self):
        return {"param_all": self.x, "exp_avg_all": self.m, "exp_avg_sq": self.v, "momentum_accumulator_all": self.u}


class Problem:
    """Random tensors, groups, schedule and gradients, as golden/README.md has them."""

    def __init__(self, rng, algorithm):
        self.rng, self.algorithm, self.n = rng, algorithm, int(rng.choice(RANKS))
        self.steps, self.closed = int(rng.integers(24, 40)), bool(rng.integers(2))
        self.draw_tensors()
        self.draw_groups()
        self.hyper = self.draw_hyper()
        self.x0 = (rng.standard_normal(self.size) * 0.5).astype(f32)
        self.h = np.where(self.live, 10.0 ** rng.uniform(-2, 0, self.size) * self.unit * 2048, 0).astype(f32)
        self.c = rng.standard_normal(self.size).astype(f32)
        self.amp, self.fixed = 1500.0 * 10.0 ** rng.uniform(-0.6, 0.6, self.size), rng.standard_normal(self.size)
        self.seeds = rng.integers(1 << 40, size=self.steps)

    def draw_tensors(self):
        rng, at, self.tensors = self.rng, 0, []
        for t in range(int(rng.integers(2, 7))):
            shape = [int(rng.integers(1, 200))] if rng.random() < 0.6 else [int(rng.integers(1, 30)), int(rng.integers(1, 12))]
            if t == 1 and rng.random() < 0.3:
                shape = [int(rng.integers(800, 6400)) // self.n]  # of more, some value would always lie near a tie
            count = int(np.prod(shape))
            self.tensors.append(dict(name="t%d" % t, shape=shape, offset=at, count=count, grad_exp=int(-rng.integers(9, 23)), live_rows=-1))
            at += count
        table = [int(rng.integers(4, 20)), 8]
        self.tensors.append(dict(name="table", shape=table, offset=at, count=table[0] * 8, grad_exp=-17, live_rows=table[0] // 2))
        self.size = at + table[0] * 8
        self.live = np.ones(self.size, bool)
        self.live[at + table[0] // 2 * 8:] = False
        self.unit = self.spread(np.array([math.ldexp(1, t["grad_exp"]) for t in self.tensors]))

    def span(self, t):
        return np.arange(self.tensors[t]["offset"], self.tensors[t]["offset"] + self.tensors[t]["count"])

    def spread(self, numbers):
        return np.repeat(np.asarray(numbers, f32), [t["count"] for t in self.tensors])

    def draw_groups(self):
        rng, k = self.rng, len(self.tensors)
        n_groups = int(rng.integers(1, min(k, 4)))
        of = [int(rng.integers(n_groups)) for _ in range(k - 1)]
        self.groups = []
        for g in range(n_groups):
            members = [t for t in range(k - 1) if of[t] == g]
            rng.shuffle(members)
            if members:
                self.groups.append(self.draw_group(members))
        self.groups.append(self.draw_group([k - 1], masked=1))
        rng.shuffle(self.groups)
        self.order = [t for g in self.groups for t in g["tensors"]]
        for g, group in enumerate(self.groups):
            for t in group["tensors"]:
                self.tensors[t]["group"] = g
        one = lambda key: np.array([self.groups[t["group"]][key] for t in self.tensors])
        self.b1, self.b2, self.eps, self.decay = (self.spread(one(k)) for k in ("beta1", "beta2", "eps", "weight_decay"))
        self.o1, self.o2 = self.spread(1 - one("beta1")), self.spread(1 - one("beta2"))
        self.mask = np.where(self.spread(one("masked")) * ~self.live, f32(0), f32(1))
        self.non_freeze = self.spread(one("non_freeze")) > 0

    def draw_group(self, members, masked=0):
        rng = self.rng
        return dict(lr=float(rng.choice([5e-4, 1e-3, 2e-3])), weight_decay=float(rng.choice([0, 0.01, 0.05])), beta1=float(rng.choice([0.8, 0.9])),
                    beta2=float(rng.choice([0.95, 0.99, 0.999])), eps=1e-8 if masked else float(rng.choice([1e-8, 1e-6])), masked=masked,
                    non_freeze=int(self.algorithm is Adam and not masked and rng.random() < 0.2), tensors=[int(t) for t in members])

    def draw_hyper(self):
        rng, freeze = self.rng, int(self.rng.integers(0, 14))
        if self.algorithm is ZeroOne:
            return dict(var_freeze_step=int(rng.integers(8, 18)), var_update_scaler=int(rng.integers(2, 5)),
                        local_step_scaler=int(rng.integers(2, 9)), local_step_clipper=int(rng.choice([1, 2, 3, 4, 8])))
        if self.algorithm is Adam:
            return dict(freeze_step=max(freeze, 3))
        return dict(freeze_step=max(freeze, 3), coeff_beta=float(rng.choice([0.8, 0.9])), factor_max=float(rng.choice([1.5, 4.0])),
                    factor_min=0.5, factor_threshold=float(rng.choice([0.05, 0.1])), max_coeff=float(rng.choice([0.3, 10.0])), min_coeff=0.01)

    def drawn(self, step):
        rng = np.random.Generator(np.random.PCG64(int(self.seeds[step])))
        common, own = rng.standard_normal(self.size), rng.standard_normal((self.n, self.size))
        v = 2500.0 * 0.2 * (0.7 * common + 0.7 * own) if self.closed else self.amp * (0.6 * self.fixed + 0.7 * common + 0.7 * own)
        v = np.clip(np.rint(v), -32767, 32767).astype(np.int16)
        v[:, ~self.live] = 0
        return v

    def gradient(self, step, x):
        g = self.drawn(step).astype(f32) * self.unit
        return self.h * (x - self.c) + g if self.closed else g

    def rates(self, step):
        fall = 1 - 0.5 * step / self.steps
        return np.array([g["lr"] * fall for g in self.groups])


class Recorder:
    def __init__(self):
        self.rows, self.steps = {}, {}

    def put(self, step, **arrays):
        for name, a in arrays.items():
            self.rows.setdefault(name, []).append(np.array(a))
            self.steps.setdefault(name, []).append(step)


def call(problem, opt, step, lr):
    """One call, with other inputs as long as a value comes too near to a tie. Values that hang on no input of this call
    may do so for ever: NearTie."""
    problem.lr64 = np.array([lr[t["group"]] for t in problem.tensors])
    for _ in range(40):
        tried, log = copy.deepcopy(opt, {id(problem): problem}), Log(opt.n, opt.buffers)
        try:
            return tried, log, tried.call(problem.gradient(step, tried.x), problem.spread(problem.lr64), log)
        except NearTie:
            problem.seeds[step] += 1
    raise NearTie


def play(problem):
    opt, out = problem.algorithm(problem), Recorder()
    for step in range(problem.steps):
        lr = problem.rates(step)
        opt, log, averaged = call(problem, opt, step, lr)
        out.put(step, lr=lr, grad_averaged=np.int32(averaged), step_counter=np.int32(opt.step), calls=np.int32(log.calls), **opt.numbers())
        if opt.n > 1:
            out.put(step, worker_scale=log.worker_scale, server_scale=log.server_scale, worker_bits=log.worker_bits, server_bits=log.server_bits)
        if step % 5 == 0 or step + 1 == problem.steps or abs(step - problem.hyper[opt.switch]) < 2:
            record_arrays(opt, out, step)
    return opt, out


def record_arrays(opt, out, step):
    out.put(step, param=opt.x[0], **{k: a if k.endswith("_all") else a[0] for k, a in opt.arrays().items()})
    if opt.n == 1:
        return
    out.put(step, worker_error=np.concatenate([b.worker for b in opt.buffers], 1), server_error=np.concatenate([b.server for b in opt.buffers], 1))
    if opt.fused and opt.buffers[0].tail.size:
        out.put(step, fused_tail=opt.buffers[0].tail)


def describe(problem, opt):
    sizes = [b.size for b in opt.buffers]
    at = 0
    for t, tensor in enumerate(problem.tensors):
        if opt.fused:
            tensor["fused_offset"] = 0
        else:
            tensor.update(err_offset=at, err_count=sizes[t], srv_offset=at // opt.n, srv_count=sizes[t] // opt.n)
            at += sizes[t]
    return dict(error_count=sum(sizes), server_error_count=sum(sizes) // opt.n, buffers=len(sizes), fused=int(opt.fused))


def reference_case(out, name, seed, algorithm):
    rng = np.random.default_rng(seed)
    problem = Problem(rng, algorithm)
    while True:
        try:
            opt, recorded = play(problem)
            break
        except NearTie:
            problem.seeds = rng.integers(1 << 40, size=problem.steps)
    head = dict(format=1, case=name, algorithm=algorithm.name, reference="tests/model/reference.py", world_size=problem.n, steps=problem.steps,
                mode="closed" if problem.closed else "open", param_count=problem.size, **describe(problem, opt), hyper=problem.hyper)
    case = Case(out, name)
    case.add("param_init", "f32", problem.x0)
    case.add("live", "u8", problem.live)
    if problem.closed:
        case.add("quad_h", "f32", problem.h)
        case.add("quad_c", "f32", problem.c)
    case.add("noise_q" if problem.closed else "grad_q", "i16", np.stack([problem.drawn(t) for t in range(problem.steps)]), range(problem.steps))
    kinds = {"float32": "f32", "float64": "f64", "int32": "i32", "uint8": "u8"}
    for key, rows in recorded.rows.items():
        a = np.stack(rows)
        case.add(key, kinds[a.dtype.name], a, recorded.steps[key])
    case.write(head, dict(groups=problem.groups, tensors=problem.tensors))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--cases", type=int, default=12)
    a = ap.parse_args()
    for i in range(a.cases):
        algorithm = (Adam, Lamb, ZeroOne)[i % 3]
        reference_case(a.out, "%s_%02d" % (algorithm.name, i), a.seed * 1000 + i, algorithm)


if __name__ == "__main__":
    main()
