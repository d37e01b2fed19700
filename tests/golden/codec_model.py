"""The codecs of docs/numerics.md as a small model, and the writer of codec_vectors.txt.

    python3 codec_model.py > codec_vectors.txt          (needs numpy; the output is committed)

One case per line: codec block rule n live input error scales codes decoded new_error poisoned. Arrays are hexadecimal,
little-endian; "-" is an empty or absent array. Written apart from the C code: the C side must give these bytes for ever.
"""
import sys
import numpy as np

f32 = np.float32


def tree_sum(x):
    """128 virtual lanes, f64, increasing i; then (0+1)+(2+3) inside each group of four, then halving."""
    lanes = np.zeros(128)
    for i in range(0, len(x), 128):
        part = np.asarray(x[i:i + 128], np.float64)
        lanes[:len(part)] += part
    t = (lanes[0::4] + lanes[1::4]) + (lanes[2::4] + lanes[3::4])
    while len(t) > 1:
        t = t[:len(t) // 2] + t[len(t) // 2:]
    return t[0]


def f32_encode(a, live, rule):
    return None, a.astype("<f4"), a, False


def bf16_encode(a, live, rule):
    bits = a.view(np.uint32)
    half = ((bits.astype(np.uint64) + 0x7fff + ((bits >> 16) & 1)) >> 16).astype("<u2")
    half = np.where(np.isnan(a), (bits >> 16) | 0x40, half).astype("<u2")      # NaN stays NaN, made quiet
    value = (half.astype(np.uint32) << 16).view(f32)
    return None, half, value, not np.isfinite(value).all()


def sign1_encode(a, live, rule):
    count = int(live.sum())
    wide = a.astype(np.float64)
    s = f32(0)
    if count and rule == 1:
        s = f32(tree_sum(np.abs(wide)) / count)
    elif count:
        s = f32(np.sqrt(tree_sum(wide * wide) / count))
    bit = (a >= 0) & live
    value = np.where(bit, s, -s) if s > 0 else np.zeros(len(a), f32)
    return s, np.packbits(bit, bitorder="little"), value.astype(f32), False


def int8_encode(a, live, rule):
    s = f32(np.abs(a).max() / f32(127))
    if not np.isfinite(s * f32(127)):
        return f32(0), np.zeros(len(a), np.int8), np.zeros(len(a), f32), True
    q = np.rint(a / s) if s > 0 else np.zeros(len(a), f32)
    q = np.clip(q, -127, 127).astype(np.int8)
    return s, q, (q.astype(f32) * s).astype(f32), False


ENCODE = {"f32": f32_encode, "bf16": bf16_encode, "sign1": sign1_encode, "int8": int8_encode}


def encode_block(name, rule, a, live):
    """-> scale or None, code bytes, decoded, new error, poisoned. The finite check covers dead elements too."""
    bad = not np.isfinite(a).all()
    use = np.where(live & np.isfinite(a), a, f32(0)).astype(f32)
    s, codes, value, uncodable = ENCODE[name](use, live, rule)
    codes, value = codes.tobytes(), np.where(live, value, f32(0)).astype(f32)
    if (bad or uncodable) and s is None:      # no scale: values pass as they are
        s, codes, value, _ = ENCODE[name](np.where(live, a, f32(0)).astype(f32), live, rule)
        codes, value = codes.tobytes(), np.where(live, value, f32(0)).astype(f32)
    elif bad or uncodable:
        s, codes, value = None if s is None else f32(0), bytes(len(codes)), np.zeros(len(a), f32)
    error = np.where(live, a - value, f32(0)).astype(f32)
    return s, codes, value, error, bad or uncodable


def hexed(data):
    return data.hex() if len(data) else "-"


def write_case(name, block, rule, a_in, error, live):
    n = len(a_in)
    mask = np.ones(n, bool) if live is None else live
    a = (a_in + error).astype(f32)
    scales, codes, value, new, bad = b"", b"", b"", b"", False
    for i in range(0, n, block):
        s, c, v, e, x = encode_block(name, rule, a[i:i + block], mask[i:i + block])
        scales += b"" if s is None else np.array([s], "<f4").tobytes()
        codes, value, new, bad = codes + c, value + v.tobytes(), new + e.tobytes(), bad or x
    bits = b"" if live is None else np.packbits(live, bitorder="little").tobytes()
    print(name, block, rule, n, hexed(bits), hexed(a_in.tobytes()), hexed(error.tobytes()), hexed(scales), hexed(codes),
          hexed(value), hexed(new), int(bad))


def special(rng, n, kind):
    a = rng.normal(size=n).astype(f32)
    if kind == "zero":
        return np.where(np.arange(n) % 2, f32(-0.0), f32(0)).astype(f32)
    if kind == "huge":
        return (a * f32(1e30)).astype(f32)
    if kind == "tiny":
        return (a * f32(1e-40)).astype(f32)
    if kind == "sparse":
        return np.where(np.arange(n) % 9 == 4, a, f32(0)).astype(f32)
    if kind == "max":
        a[n // 2] = np.finfo(f32).max
    if kind == "nan":
        a[n // 2] = np.nan
    return a


def main():
    rng = np.random.default_rng(20240229)
    np.seterr(all="ignore")
    for name in ENCODE:
        for kind in ("normal", "zero", "huge", "tiny", "sparse", "max", "nan"):
            for n in (1, 7, 130):
                rule = int(rng.integers(2)) if name == "sign1" else 0
                error = (special(rng, n, "normal") * f32(0.25)).astype(f32) if rng.integers(2) else np.zeros(n, f32)
                if kind in ("zero", "tiny"):
                    error[:] = 0
                live = rng.integers(4, size=n) > 0 if rng.integers(2) else None
                write_case(name, 128 if rng.integers(2) else 64, rule, special(rng, n, kind), error, live)


if __name__ == "__main__":
    sys.exit(main())
