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


def f32_encode(a, live, rule, first):
    return None, a.astype("<f4"), a, False


def bf16_encode(a, live, rule, first):
    bits = a.view(np.uint32)
    half = ((bits.astype(np.uint64) + 0x7fff + ((bits >> 16) & 1)) >> 16).astype("<u2")
    half = np.where(np.isnan(a), (bits >> 16) | 0x40, half).astype("<u2")      # NaN stays NaN, made quiet
    value = (half.astype(np.uint32) << 16).view(f32)
    return None, half, value, not np.isfinite(value).all()


def sign1_encode(a, live, rule, first):
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


def int8_encode(a, live, rule, first):
    s = f32(np.abs(a).max() / f32(127))
    if not np.isfinite(s * f32(127)):
        return f32(0), np.zeros(len(a), np.int8), np.zeros(len(a), f32), True
    q = np.rint(a / s) if s > 0 else np.zeros(len(a), f32)
    q = np.clip(q, -127, 127).astype(np.int8)
    return s, q, (q.astype(f32) * s).astype(f32), False


def nibbles(q):
    u = np.append(q & 15, [0] * (len(q) % 2)).astype(np.uint8)
    return u[0::2] | (u[1::2] << 4)


def int4_encode(a, live, rule, first):
    s = f32(np.abs(a).max() / f32(7))
    if not np.isfinite(s * f32(7)):
        return f32(0), nibbles(np.zeros(len(a), np.int8)), np.zeros(len(a), f32), True
    q = np.rint(a / s) if s > 0 else np.zeros(len(a), f32)
    q = np.clip(q, -7, 7).astype(np.int8)
    return s, nibbles(q), (q.astype(f32) * s).astype(f32), False


def rotate(v, live, factor):
    """Whole groups of 32 live elements: halves of growing size, sums before differences, then the factor."""
    v = v.copy()
    for i in range(0, len(v) - 31, 32):
        if not live[i:i + 32].all():
            continue
        g = v[i:i + 32].reshape(1, 32)
        for size in (1, 2, 4, 8, 16):
            pairs = g.reshape(-1, 2, size)
            g = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1)
        v[i:i + 32] = g.reshape(32) * f32(factor)
    return v


def int4_hadamard_encode(a, live, rule, first):
    w = rotate(a, live, 1)
    s = f32(np.abs(w).max() / f32(7))
    if not np.isfinite(s * f32(7) * f32(32)):
        return f32(0), nibbles(np.zeros(len(a), np.int8)), np.zeros(len(a), f32), True
    s, codes, value, _ = int4_encode(w, live, rule, first)
    return s, codes, rotate(value, live, 1 / 32), False


def f16_encode(a, live, rule, first):
    half = a.astype(np.float16)
    return None, half.astype("<f2"), half.astype(f32), not np.isfinite(half).all()


def mix(x):
    x = ((x ^ (x >> 16)) * 0x7feb352d) & 0xffffffff
    x = ((x ^ (x >> 15)) * 0x846ca68b) & 0xffffffff
    return x ^ (x >> 16)


def random_numbers(first, n):
    """Of seed 0 and indices below 2^32, where the key is 0: two rounds of mixing."""
    return [mix(mix(i)) for i in range(first, first + n)]


def by_chance(a, first, fraction, lowest, bits_below):
    """Whole steps of the format below |a|, and one more where the rest and a random fraction reach 1. -> codes"""
    codes = np.zeros(len(a), np.uint16)
    for i, (v, r) in enumerate(zip(a, random_numbers(first, len(a)))):
        if not np.isfinite(v):
            continue
        e = max(np.frexp(np.float64(abs(v)))[1] - 1 if v else lowest, lowest)
        steps = np.ldexp(np.float64(abs(v)), int(fraction - e))
        bits = bits_below(np.frexp(np.float64(abs(v)))[1] - 1)
        chance = np.ldexp(np.float64(r % (1 << bits)), -bits) if bits <= 31 else 0.0
        code = int(np.floor(steps)) + int(steps - np.floor(steps) + chance >= 1) + ((e - lowest) << fraction)
        codes[i] = code | (0x8000 if np.signbit(v) else 0)
    return codes


def bf16_sr_encode(a, live, rule, first):
    half = by_chance(a, first, 7, -126, lambda e: 16)
    half = np.where(np.isfinite(a), half, bf16_encode(a, live, rule, first)[1]).astype("<u2")
    value = (half.astype(np.uint32) << 16).view(f32)
    return None, half, value, not np.isfinite(value).all()


def f16_sr_encode(a, live, rule, first):
    half = np.minimum(by_chance(np.clip(a, -65536, 65536).astype(f32), first, 10, -14, lambda e: 13 + max(0, -14 - e)) & 0x7fff, 0x7c00)
    half = half | np.where(np.signbit(a), 0x8000, 0).astype(np.uint16)
    half = np.where(np.isfinite(a), half, f16_encode(a, live, rule, first)[1].view("<u2")).astype("<u2")
    value = half.view(np.float16).astype(f32)
    return None, half, value, not np.isfinite(value).all()


ENCODE = {"f32": f32_encode, "bf16": bf16_encode, "sign1": sign1_encode, "int8": int8_encode, "int4": int4_encode,
          "int4_hadamard": int4_hadamard_encode, "f16": f16_encode,
          "bf16_sr": bf16_sr_encode, "f16_sr": f16_sr_encode}


def encode_block(name, rule, a, live, first):
    """-> scale or None, code bytes, decoded, new error, poisoned. The finite check covers dead elements too."""
    bad = not np.isfinite(a).all()
    use = np.where(live & np.isfinite(a), a, f32(0)).astype(f32)
    s, codes, value, uncodable = ENCODE[name](use, live, rule, first)
    codes, value = codes.tobytes(), np.where(live, value, f32(0)).astype(f32)
    if (bad or uncodable) and s is None:      # no scale: values pass as they are
        s, codes, value, _ = ENCODE[name](np.where(live, a, f32(0)).astype(f32), live, rule, first)
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
        s, c, v, e, x = encode_block(name, rule, a[i:i + block], mask[i:i + block], i)
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
