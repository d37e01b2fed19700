/* One case of the equality tests: an input, what the oracle makes of it, and the comparison of an implementation with
 * that. Everything an implementation sees lies in memory of its own between inaccessible pages, each piece at a place
 * of its own: at the front, at the back, or inside at any alignment that its type allows.
 */
#ifndef MATRIX_CASE_H
#define MATRIX_CASE_H

#include "codec_oracle.h"

enum { CASE_N = 1000003, CASE_BLOCKS = CASE_N / 64 + 2 };

typedef enum feedback { EF_NONE, EF_IN_PLACE, EF_SHADOW, EF_COUNT } feedback_t;

typedef struct test_case {
    const lnt_codec_row_t *row;
    lnt_codec_cfg_t cfg;
    uint64_t n, seed, index;
    data_kind_t data;
    lnt_dtype_t dtype;
    bool masked, stream;
    feedback_t feedback;
    /* Where the implementation reads and writes. */
    const char *impl;
    lnt_codec_ops_t ops;
    int run; /* 0: everything at the back of its memory; else anywhere */
} test_case_t;

static guarded_t in_mem, live_mem, error_mem, shadow_mem, scale_mem, code_mem, out_mem;

static struct {
    uint8_t values[4 * CASE_N], live[CASE_N / 8 + 1]; /* as given to the implementation */
    float error[CASE_N];
    float a[CASE_N]; /* input + error */
} given;

static struct {
    uint8_t codes[4 * CASE_N], scales[4 * CASE_BLOCKS];
    float error[CASE_N], values[CASE_N];
    bool poisoned[CASE_BLOCKS], any_poisoned;
} want;

static inline void case_setup(void)
{
    in_mem = guarded_create(4 * CASE_N);
    live_mem = guarded_create(CASE_N / 8 + 1);
    error_mem = guarded_create(4 * CASE_N);
    shadow_mem = guarded_create(4 * CASE_N);
    scale_mem = guarded_create(4 * CASE_BLOCKS);
    code_mem = guarded_create(4 * CASE_N);
    out_mem = guarded_create(4 * CASE_N);
}

static inline void case_teardown(void)
{
    guarded_t *all[] = {&in_mem, &live_mem, &error_mem, &shadow_mem, &scale_mem, &code_mem, &out_mem};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        guarded_destroy(all[i]);
}

static inline void case_fail(const test_case_t *t, const char *what)
{
    ck_abort_msg("%s of %s, kernels %s: block %u rule %d n %" PRIu64
                 " data \"%s\" input %s masked %d feedback %d stream "
                 "%d seed %#" PRIx64 " index %#" PRIx64 " run %d",
                 what, t->row->name, t->impl, t->cfg.block, (int)t->cfg.scale_rule, t->n, data_rows[t->data].name,
                 lnt_dtype_row(t->dtype)->name, t->masked, (int)t->feedback, t->stream, t->seed, t->index, t->run);
}

static inline void case_want(const test_case_t *t, bool holds, const char *what)
{
    if (!holds) case_fail(t, what);
}

static inline uint64_t case_code_bytes(const test_case_t *t)
{
    return (t->n * t->row->bits + 7) / 8;
}

static inline uint64_t case_scale_bytes(const test_case_t *t)
{
    return t->row->has_scales ? 4 * ((t->n + t->cfg.block - 1) / t->cfg.block) : 0;
}

static inline void *case_take(const test_case_t *t, guarded_t *memory, size_t bytes, size_t unit)
{
    return guarded_take_at(memory, bytes, t->run ? (guarded_place_t)rng_below(GUARDED_PLACES) : AT_BACK, unit);
}

static inline void *case_copy(const test_case_t *t, guarded_t *memory, const void *from, size_t bytes, size_t unit)
{
    return memcpy(case_take(t, memory, bytes, unit), from, bytes);
}

static inline bool case_guards_hold(void)
{
    const guarded_t *all[] = {&in_mem, &live_mem, &error_mem, &shadow_mem, &scale_mem, &code_mem, &out_mem};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i]->start && !guarded_intact(all[i])) return false;
    return true;
}

/* ---- what goes in ---- */

/* Stores element i in the case's type; the value it stands for. */
static inline float put_value(lnt_dtype_t dtype, uint64_t i, float value)
{
    uint16_t half = dtype == LNT_BF16 ? oracle_bf16(value) : oracle_f16(value);
    if (dtype == LNT_F32) {
        memcpy(given.values + 4 * i, &value, 4);
        return value;
    }
    memcpy(given.values + 2 * i, &half, 2);
    return dtype == LNT_BF16 ? oracle_bf16_value(half) : oracle_f16_value(half);
}

/* Three elements of the block are set anew, each smaller than the one before, so that the scale in f64 is as near as
 * can be to the middle between two f32. A sum that differs in its last bit, because it was added in another order, then
 * gives another scale; anywhere else a scale in f32 would hide it. */
static inline void move_to_border(const test_case_t *t, float *a, uint64_t n)
{
    bool squares = t->cfg.scale_rule == LNT_SCALE_L2;
    uint64_t places[3] = {rng_below(n / 3), n / 3 + rng_below(n / 3), 2 * (n / 3) + rng_below(n / 3)};
    long double all = 0, kept = 0, left;
    for (uint64_t i = 0; i < n; i++) {
        long double part = squares ? (long double)a[i] * (long double)a[i] : fabsl((long double)a[i]);
        all += part;
        if (i != places[0] && i != places[1] && i != places[2]) kept += part;
    }
    float below = (float)(squares ? sqrtl(all / (long double)n) : all / (long double)n);
    long double border = ((long double)below + (long double)nextafterf(below, INFINITY)) / 2;
    left = (long double)n * (squares ? border * border : border) - kept;
    for (int k = 0; k < 3 && left > 0; k++) {
        float x = (float)(squares ? sqrtl(left) : left);
        long double part = squares ? (long double)x * (long double)x : (long double)x;
        if (part > left) x = nextafterf(x, 0.0f);
        a[places[k]] = x;
        left -= squares ? (long double)x * (long double)x : (long double)x;
    }
}

/* Data whose rotation is what was drawn: exactly, where the step between codes is a power of two. */
static inline void rotate_back(float *a, uint64_t n)
{
    for (uint64_t i = 0; i + 32 <= n; i += 32) {
        oracle_hadamard(a + i, 32);
        for (int k = 0; k < 32; k++)
            a[i + (uint64_t)k] /= 32;
    }
}

static inline void fill_given(const test_case_t *t)
{
    data_fill(t->data, given.a, t->n);
    if (t->row->id == LNT_CODEC_INT4_HADAMARD && t->data == DATA_INT4_HALVES) rotate_back(given.a, t->n);
    if (t->data != DATA_SUM_BORDER) return;
    for (uint64_t i = 0; i < t->n; i += t->cfg.block) {
        uint64_t n = t->n - i < t->cfg.block ? t->n - i : t->cfg.block;
        if (n >= 64) move_to_border(t, given.a + i, n);
    }
}

/* With error feedback the kind of data is that of input + error: half of it comes from each, and both are exact. */
static inline void make_given(const test_case_t *t)
{
    fill_given(t);
    bool split = t->feedback != EF_NONE && (t->data == DATA_SUM_BORDER || rng_below(4));
    for (uint64_t i = 0; i < t->n; i++) {
        float value = put_value(t->dtype, i, split ? given.a[i] / 2 : given.a[i]);
        if (t->feedback != EF_NONE) {
            given.error[i] = split ? given.a[i] - value : (float)rng_normal();
            given.a[i] = value + given.error[i];
        } else
            given.a[i] = value;
    }
    unsigned density = (unsigned)rng_below(4);
    for (uint64_t i = 0; i < (t->n + 7) / 8; i++)
        given.live[i] = (uint8_t)(density == 0 ? 0 : density == 1 ? rng_next() : rng_next() | rng_next());
}

/* The oracle over the whole run. */
static inline void make_want(const test_case_t *t)
{
    want.any_poisoned = false;
    memset(want.codes, 0, case_code_bytes(t));
    for (uint64_t i = 0, k = 0; i < t->n; i += t->cfg.block, k++) {
        oracle_block_t b = {.a = given.a + i,
                            .n = t->n - i < t->cfg.block ? t->n - i : t->cfg.block,
                            .live = t->masked ? given.live + i / 8 : NULL,
                            .seed = t->seed,
                            .index = t->index + i,
                            .codes = want.codes + i * t->row->bits / 8};
        oracle_encode(&b, t->row, t->cfg.scale_rule);
        oracle_decode(&b, t->row, want.values + i);
        memcpy(want.scales + 4 * k, &b.scale, 4);
        want.poisoned[k] = b.poisoned;
        want.any_poisoned |= b.poisoned;
        for (uint64_t j = 0; j < b.n; j++)
            want.error[i + j] = oracle_live(&b, j) ? given.a[i + j] - want.values[i + j] : 0.0f;
    }
}

/* ---- what comes out ---- */

/* The error of a poisoned block may be anything. */
static inline void check_error(const test_case_t *t, const float *got)
{
    for (uint64_t i = 0, k = 0; i < t->n; i += t->cfg.block, k++) {
        uint64_t n = t->n - i < t->cfg.block ? t->n - i : t->cfg.block;
        case_want(t, want.poisoned[k] || !memcmp(got + i, want.error + i, 4 * n), "error");
    }
}

static inline const uint8_t *given_live(const test_case_t *t)
{
    return t->masked ? case_copy(t, &live_mem, given.live, (t->n + 7) / 8, 1) : NULL;
}

static inline lnt_encode_in_t given_input(const test_case_t *t, float **error_p)
{
    size_t size = lnt_dtype_row(t->dtype)->size;
    *error_p = case_copy(t, &error_mem, given.error, t->feedback == EF_NONE ? 0 : 4 * t->n, 4);
    return (lnt_encode_in_t){.values = case_copy(t, &in_mem, given.values, size * t->n, size),
                             .dtype = t->dtype,
                             .n = t->n,
                             .live = given_live(t),
                             .error_in = t->feedback == EF_NONE ? NULL : *error_p,
                             .seed = t->seed,
                             .index = t->index};
}

static inline void check_inputs_kept(const test_case_t *t, const lnt_encode_in_t *in)
{
    case_want(t, !memcmp(in->values, given.values, lnt_dtype_row(t->dtype)->size * t->n), "kept input");
    if (in->live) case_want(t, !memcmp(in->live, given.live, (t->n + 7) / 8), "kept mask");
    if (t->feedback == EF_SHADOW) case_want(t, !memcmp(in->error_in, given.error, 4 * t->n), "kept live error");
}

static inline void check_encode(const test_case_t *t)
{
    float *error, *shadow = case_take(t, &shadow_mem, t->feedback == EF_SHADOW ? 4 * t->n : 0, 4);
    lnt_encode_in_t in = given_input(t, &error);
    lnt_encode_out_t out = {.scales = case_take(t, &scale_mem, case_scale_bytes(t), 1),
                            .codes = case_take(t, &code_mem, case_code_bytes(t), 1),
                            .stream = t->stream};
    if (t->feedback != EF_NONE) out.error_out = t->feedback == EF_IN_PLACE ? error : shadow;
    t->ops.encode(&t->cfg, &in, &out);
    case_want(t, out.poisoned == want.any_poisoned, "poison");
    case_want(t, !memcmp(out.scales, want.scales, case_scale_bytes(t)), "scales");
    case_want(t, !memcmp(out.codes, want.codes, case_code_bytes(t)), "codes");
    if (out.error_out) check_error(t, out.error_out);
    check_inputs_kept(t, &in);
    case_want(t, case_guards_hold(), "memory beside encode");
}

/* What was there: something that shows a lost or doubled addition. */
static inline float old_value(uint64_t i)
{
    return (float)(i % 4093) * 0.37f - 700.0f;
}

static inline void check_decode(const test_case_t *t)
{
    const uint8_t *scales = case_copy(t, &scale_mem, want.scales, case_scale_bytes(t), 1);
    const uint8_t *codes = case_copy(t, &code_mem, want.codes, case_code_bytes(t), 1), *live = given_live(t);
    float *out = case_take(t, &out_mem, 4 * t->n, 4);
    t->ops.decode(&t->cfg, scales, codes, t->n, live, out);
    case_want(t, !memcmp(out, want.values, 4 * t->n), "decode");
    case_want(t, case_guards_hold(), "memory beside decode");
    for (uint64_t i = 0; i < t->n; i++)
        out[i] = old_value(i);
    t->ops.decode_add(&t->cfg, scales, codes, t->n, live, out);
    for (uint64_t i = 0; i < t->n; i++) {
        float sum = old_value(i) + want.values[i];
        case_want(t, !memcmp(&out[i], &sum, 4), "decode_add");
    }
    case_want(t, !memcmp(codes, want.codes, case_code_bytes(t)), "kept codes");
    case_want(t, case_guards_hold(), "memory beside decode_add");
}

/* Every implementation, twice: once at the back of the memory, once anywhere. */
static inline void check_given(test_case_t *t)
{
    make_want(t);
    for (const lnt_kernel_impl_t *impl = next_impl(NULL, t->row->id); impl; impl = next_impl(impl, t->row->id)) {
        t->impl = impl->name;
        t->ops = lnt_kernel_ops(impl, t->row->id);
        for (t->run = 0; t->run < 2; t->run++) {
            check_encode(t);
            check_decode(t);
        }
    }
}

#endif
