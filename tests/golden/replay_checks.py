#!/usr/bin/env python3
"""Checks of linnet-replay that need more than one run of it.

    replay_checks.py fresh TOOL CASES     draw cases with the executable model (tests/model) and replay them
    replay_checks.py reference TOOL CASES draw trajectories with a model of the published optimizers (tests/model) and replay them
    replay_checks.py spoilt TOOL CASES    change one value in each array of the stored cases in turn: the tool must notice
    replay_checks.py surroundings TOOL CASES  the same results, whatever the environment says of errors
    replay_checks.py variants TOOL CASES  write stored cases in other words that mean the same, and in some that nobody knows

Fresh cases need numpy; without it the check is skipped, aloud. LNT_TEST_SEED repeats a run.
"""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "model"
SKIP, N_FRESH, N_TRAJECTORIES = 77, 12, 6
SYSTEM_PYTHON = "/usr/bin/python3"  # where a package manager puts numpy, whatever comes first in PATH
# What goes in, and flags, which stay set whatever other bit is.
NOT_COMPARED = {"margin", "input", "live", "grad", "param_init", "grad_q", "noise_q", "quad_h", "quad_c", "lr", "replicas_equal"}
SPOILT = ["car_n2_7", "exchange_sign1_uneven", "adam_amsgrad_open", "onebit_adam_n2_non_freeze", "onebit_lamb_n2_tight_open",
          "zero_one_adam_n2_schedule_closed", "model_onebit_adam_uneven"]


def need_numpy():
    try:
        import numpy  # noqa: F401
    except ImportError:
        if sys.executable != SYSTEM_PYTHON and os.access(SYSTEM_PYTHON, os.X_OK) and "LNT_PYTHON_TRIED" not in os.environ:
            os.environ["LNT_PYTHON_TRIED"] = "1"
            os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON] + sys.argv)
        print("skipped: Python has no numpy (Debian: python3-numpy)")
        sys.exit(SKIP)


def replay(tool, case, **environment):
    done = subprocess.run([tool, str(case)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                          env={**os.environ, **environment})
    if "Sanitizer" in done.stdout or "runtime error" in done.stdout:
        return "a sanitizer's report", done.stdout  # its exit code may be that of a deviation
    return done.returncode, done.stdout


def draw_cases(out, seed):
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(MODEL))
    from make_vectors import MAPS, adam_case, exchange_case
    rng = random.Random(seed)
    for i in range(N_FRESH):
        codec = ("sign1", "int8", "int4", "f32")[i % 4]
        block = rng.choice([64, 128, 256, 1024])
        exchange_case(out, "fresh_%s_%02d" % (codec, i), rng.randrange(1 << 30), rng.choice(MAPS), codec, rng.choice([300, 1000, 3000]), block, 6)
    for i in range(N_FRESH // 2):
        adam_case(out, "fresh_onebit_adam_%02d" % i, rng.randrange(1 << 30), rng.choice(MAPS), rng.choice([500, 900]), 18, ("f32", "int8", "int4")[i % 3])


def draw_trajectories(out, seed):
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(MODEL))
    import reference
    for i in range(N_TRAJECTORIES):
        algorithm = (reference.Adam, reference.Lamb, reference.ZeroOne)[i % 3]
        reference.reference_case(out, "fresh_%s_%02d" % (algorithm.name, i), seed + i, algorithm)


def fresh(tool, cases):
    return replay_drawn(tool, draw_cases)


def reference(tool, cases):
    return replay_drawn(tool, draw_trajectories)


def replay_drawn(tool, draw):
    need_numpy()
    seed = int(os.environ.get("LNT_TEST_SEED") or random.SystemRandom().randrange(1 << 40))
    print("seed: LNT_TEST_SEED=%d" % seed)
    bad = 0
    with tempfile.TemporaryDirectory() as out:
        draw(out, seed)
        for case in sorted(pathlib.Path(out).iterdir()):
            code, text = replay(tool, case)
            bad += code != 0
            print(case.name, "replayed" if code == 0 else "exit %s\n%s" % (code, text))
    return bad != 0


def spoil(case, array):
    """Turns a bit in the middle of the array, in the top byte of its element: no tolerance hides it, not even in a zero.
    Of the model's runs the last element, which is no dead one and in no lane."""
    size = {"f64": 8, "f32": 4, "i32": 4, "u8": 1}[array["dtype"]]
    element = array["count"] - 1 if case.name.startswith("model_") else array["count"] // 2
    at = array["offset"] + (element + 1) * size - 1
    data = bytearray((case / "data.bin").read_bytes())
    data[at] ^= 0x40
    (case / "data.bin").write_bytes(data)


def spoilt(tool, cases):
    bad = 0
    with tempfile.TemporaryDirectory() as out:
        for case in [pathlib.Path(cases) / name for name in SPOILT]:
            for array in json.loads((case / "case.json").read_text())["arrays"]:
                if array["name"] in NOT_COMPARED or array["count"] == 0:
                    continue
                copy = pathlib.Path(out) / case.name
                shutil.copytree(case, copy)
                spoil(copy, array)
                code, _ = replay(tool, copy)
                bad += code != 1
                print("%s %s: %s" % (case.name, array["name"], "noticed" if code == 1 else "exit %s" % code))
                shutil.rmtree(copy)
    return bad != 0


def surroundings(tool, cases):
    bad = 0
    for name in SPOILT:
        for dtype in ("bf16", "int8"):
            code, text = replay(tool, pathlib.Path(cases) / name, LINNET_ERROR_DTYPE=dtype)
            bad += code != 0
            print("%s, errors in %s: %s" % (name, dtype, "replayed" if code == 0 else "exit %s\n%s" % (code, text)))
    return bad != 0


def write_case(case, head, data=None):
    """case.json as the format has it: one value, list element or array per line."""
    head, out = dict(head), []
    hyper = head.pop("hyper")
    lists = {key: head.pop(key) for key, value in list(head.items()) if isinstance(value, list) and all(isinstance(row, dict) for row in value)}
    for key, value in head.items():
        out.append("%s: %s" % (json.dumps(key), json.dumps(value)))
    out.append('"hyper": {\n' + ",\n".join("%s: %s" % (json.dumps(k), json.dumps(v)) for k, v in hyper.items()) + "\n}")
    for key, rows in lists.items():
        out.append('"%s": [\n' % key + ",\n".join(json.dumps(row) for row in rows) + "\n]")
    (case / "case.json").write_text("{\n" + ",\n".join(out) + "\n}\n")
    if data is not None:
        (case / "data.bin").write_bytes(data)


def turn_groups(head, data):
    """The groups in the opposite order, and with them the columns of lr; tensors keep their places."""
    n = len(head["groups"])
    head["groups"].reverse()
    for tensor in head["tensors"]:
        tensor["group"] = n - 1 - tensor["group"]
    lr = next(a for a in head["arrays"] if a["name"] == "lr")
    for row in range(lr["shape"][0]):
        at = lr["offset"] + 8 * n * row
        columns = [data[at + 8 * k:at + 8 * k + 8] for k in range(n)]
        data[at:at + 8 * n] = b"".join(reversed(columns))


def keep_few(head, data):
    """Fewer recorded arrays are fewer comparisons, not a wrong case."""
    head["arrays"] = [a for a in head["arrays"] if a["name"] in NOT_COMPARED or a["name"] == "param"]


def say_nothing(head, data):
    """Hyper-parameters that the reference takes and never reads."""
    head["hyper"].update(bias_correction=True, max_grad_norm=0.0, eps_inside_sqrt=False)


def start_at(freeze_step):
    def change(head, data):
        head["hyper"]["freeze_step"] = freeze_step
    return change


def rename(key, value):
    def change(head, data):
        head[key] = value
    return change


def strange_hyper(head, data):
    head["hyper"]["momentum_of_inertia"] = 1


def strange_array(head, data):
    head["arrays"][-1]["name"] = "angular_momentum"


def strange_list(head, data):
    head["groups"][0]["tensors"].append(0)


def list_outside(head, data):
    head["groups"][0]["tensors"].append(-7)


def tensor_outside(head, data):
    head["tensors"][1]["count"] = 10**9


def buffer_counts(tensor, worker, server):
    """Consistent with each other, but not what the unit pads to."""
    def change(head, data):
        head["tensors"][tensor].update(err_count=worker, srv_count=server)
    return change


def longer_buffers(head, data):
    """All of them one unit longer: a fused buffer, or the last tensor's."""
    head["error_count"] += 64 * head["world_size"]
    head["server_error_count"] += 64


def array_of(head, name):
    return next(a for a in head["arrays"] if a["name"] == name)


def wider(name):
    """The array's rows as one: a row of another width."""
    def change(head, data):
        array = array_of(head, name)
        array["shape"] = [1, array["count"]]
    return change


def paired(name):
    """Two rows as one: neither one rank's elements nor all ranks'."""
    def change(head, data):
        rows, width = array_of(head, name)["shape"]
        array_of(head, name)["shape"] = [rows // 2, 2 * width]
    return change


def as_flags(name):
    """What the reference has equal on all ranks: all there may be, of an algorithm that has less."""
    def change(head, data):
        array = array_of(head, name)
        array.update(name="replicas_equal", dtype="i32", shape=[1, array["count"]])
    return change


def turned_shape(name):
    """Two negative numbers whose product is right."""
    def change(head, data):
        array_of(head, name)["shape"] = [-1, -array_of(head, name)["count"]]
    return change


def swapped_buffers(first, second):
    """Lengths of two tensors' buffers: all sums are right."""
    def change(head, data):
        a, b = head["tensors"][first], head["tensors"][second]
        for key in ("err_count", "srv_count"):
            a[key], b[key] = b[key], a[key]
    return change


def worker_buffer_at(number, offset):
    def change(head, data):
        head["tensors"][number]["err_offset"] = offset
    return change


def unfuse(head, data):
    """A buffer per tensor of an algorithm that has one for all: sizes that fit the tensors, not the exchange."""
    n, at = head["world_size"], 0
    step = n * n * 4
    for tensor in head["tensors"]:
        worker = -(-tensor["count"] // step) * step
        tensor.update(err_offset=at, err_count=worker, srv_offset=at // n, srv_count=worker // n)
        at += worker
    head.update(fused=0, buffers=len(head["tensors"]), error_count=at, server_error_count=at // n)
    for array in head["arrays"]:
        width = {"worker_bits": at // 8 * n, "server_bits": at // 8}.get(array["name"])
        if width:  # from the start of the data: any bits will do
            array.update(shape=[array["shape"][0], width], count=array["shape"][0] * width, offset=0)


def rename_array(old, new):
    def change(head, data):
        array_of(head, old)["name"] = new
    return change


def tensor_at(number, offset, count):
    def change(head, data):
        head["tensors"][number].update(offset=offset, count=count)
    return change


def backwards(head, data):
    """A tensor of fewer than no elements, and the next begins before it: sums and places fit all the same."""
    before, last = head["tensors"][-2:]
    end = last["offset"] + last["count"]
    before["count"] = -10
    last["offset"] = before["offset"] - 10
    last["count"] = end - last["offset"]


def largest_bucket(count):
    def change(head, data):
        head["buckets"][0]["count"] = count
    return change


# Case, change, exit code, and of what deviates the array that cannot be compared at all.
VARIANTS = [("onebit_adam_n2_groups_schedule", turn_groups, 0), ("onebit_adam_n2_groups_schedule", keep_few, 0),
            ("onebit_adam_n2_non_freeze", say_nothing, 0), ("onebit_adam_n2_non_freeze", start_at(11), 1),
            ("onebit_adam_n2_non_freeze", strange_hyper, 77), ("onebit_adam_n2_non_freeze", rename("algorithm", "onebit_sgd"), 77),
            ("onebit_adam_n2_non_freeze", strange_array, 2), ("onebit_adam_n2_non_freeze", strange_list, 2),
            ("onebit_adam_n2_non_freeze", list_outside, 2), ("onebit_adam_n2_non_freeze", tensor_outside, 2),
            ("onebit_adam_n2_non_freeze", rename("mode", "ajar"), 2), ("onebit_adam_n2_non_freeze", rename("world_size", 3), 2),
            ("onebit_adam_n2_non_freeze", rename("buffers", 10**6), 2), ("onebit_adam_n2_non_freeze", rename("buffers", 1), 2),
            ("onebit_adam_n2_non_freeze", rename("fused", 1), 2), ("onebit_adam_n2_non_freeze", rename("error_count", -16), 2),
            ("onebit_adam_n2_non_freeze", rename("server_error_count", 176), 2), ("onebit_adam_n2_non_freeze", longer_buffers, 2),
            ("onebit_adam_n2_non_freeze", buffer_counts(4, 16, 8), 2), ("onebit_adam_n2_non_freeze", rename("error_count", 0), 2),
            ("onebit_lamb_n2_tight_open", longer_buffers, 2), ("onebit_lamb_n2_tight_open", rename("buffers", 5), 2),
            ("onebit_lamb_n2_tight_open", rename("error_count", 8), 2), ("adamw_closed", rename("buffers", 10**9), 2),
            ("onebit_lamb_n2_tight_open", unfuse, 1, "worker_bits"),
            ("onebit_adam_n2_non_freeze", wider("param"), 1, "param"), ("onebit_adam_n2_non_freeze", wider("step_counter"), 1, "step_counter"),
            ("came_wd_closed", wider("came_exp_avg_sq_row"), 1, "came_exp_avg_sq_row"),
            ("zero_one_adam_n2_schedule_closed", wider("zo_counters"), 1, "zo_counters"),
            ("zero_one_adam_n2_schedule_closed", wider("zo_lrs"), 1, "zo_lrs"),
            ("adamw_closed", rename_array("param", "came_exp_avg_sq"), 1, "came_exp_avg_sq"),
            ("model_onebit_adam_uneven", tensor_at(3, 170, 10**6), 2), ("model_onebit_adam_uneven", tensor_at(3, 10**9, 130), 2),
            ("model_onebit_adam_uneven", tensor_at(3, 160, 130), 2), ("model_onebit_adam_uneven", tensor_at(3, 170, 129), 2),
            ("model_onebit_adam_uneven", tensor_at(0, -7, 14), 2), ("model_onebit_adam_uneven", rename("node_count", 1), 2),
            ("model_onebit_adam_uneven", rename("nodes", [0, 1, 2]), 2), ("model_onebit_adam_uneven", largest_bucket(-4), 2),
            ("model_onebit_adam_uneven", backwards, 2), ("model_onebit_adam_uneven", rename("nodes", [0, 1]), 2),
            ("model_onebit_adam_uneven", rename("nodes", [0, 0, 1, 1]), 2),
            ("onebit_adam_n4_mask_wd_closed", paired("param"), 1, "param"), ("onebit_adam_n2_non_freeze", wider("calls"), 1, "calls"),
            ("onebit_adam_n2_non_freeze", wider("grad_averaged"), 1, "grad_averaged"),
            ("onebit_adam_n2_non_freeze", wider("param_spread"), 1, "param_spread"),
            ("onebit_lamb_n2_tight_open", wider("scaling_coeff"), 1, "scaling_coeff"),
            ("came_wd_closed", as_flags("exp_avg"), 1, "replicas_equal"),
            ("onebit_adam_n2_non_freeze", turned_shape("param"), 2), ("onebit_adam_n2_non_freeze", worker_buffer_at(0, 4), 2),
            ("onebit_adam_n2_non_freeze", worker_buffer_at(0, 328), 2), ("onebit_adam_n2_non_freeze", worker_buffer_at(0, 8 * 10**6), 2),
            ("onebit_adam_n2_non_freeze", swapped_buffers(0, 2), 2), ("onebit_adam_n2_non_freeze", buffer_counts(4, 96, 40), 2)]


def variants(tool, cases):
    bad = 0
    for number, (name, change, expected, *incomparable) in enumerate(VARIANTS):
        with tempfile.TemporaryDirectory() as out:
            source, case = pathlib.Path(cases) / name, pathlib.Path(out)
            head, data = json.loads((source / "case.json").read_text()), bytearray((source / "data.bin").read_bytes())
            change(head, data)
            write_case(case, head, data)
            code, text = replay(tool, case)
            right = code == expected and all(re.search(r"^\s+%s\s+\d+\s+inf\b" % array, text, re.M) for array in incomparable)
            bad += not right
            print("%s, variant %d: exit %s%s" % (name, number, code, "" if right else ", wanted %s\n%s" % ([expected] + incomparable, text)))
    return bad != 0


if __name__ == "__main__":
    sys.exit({"fresh": fresh, "reference": reference, "spoilt": spoilt, "surroundings": surroundings, "variants": variants}[sys.argv[1]](sys.argv[2], sys.argv[3]))
