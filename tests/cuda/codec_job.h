/* A batch of runs for the codec kernels of the device, drawn at random around a few settings, and the same batch for
 * the reference on the host. Ops compare every byte of what they may write.
 *
 * Excused are only what the formats leave open: the error of a poisoned block, and the bits of NaN.
 */
#ifndef CODEC_JOB_H
#define CODEC_JOB_H

#include "../kernel/kernel_testing.h"

#include "../../kernels/cuda_kernels.h"
#include "device_arena.h"

enum { JOB_RUNS = 320, JOB_INPUTS = 3 };

typedef enum job_feedback { JOB_NO_ERROR, JOB_IN_PLACE, JOB_SHADOW, JOB_DROPPED, JOB_FEEDBACKS } job_feedback_t;

enum { ROLE_VALUES, ROLE_LIVE, ROLE_ERROR, ROLE_SHADOW, ROLE_SCALES, ROLE_CODES, ROLE_OUT, ROLE_WORDS, ROLE_COUNT };

/* Of one run: its array in each role, by offset. */
typedef struct job_run {
    uint64_t n, seed, index;
    bool masked;
    job_feedback_t feedback;
    size_t at[ROLE_COUNT];
    size_t input_scales[JOB_INPUTS], input_codes[JOB_INPUTS];
} job_run_t;

typedef struct job {
    const lnt_codec_row_t *row;
    const lnt_codec_ops_t *ref;
    const lnt_cuda_codec_ops_t *cuda;
    lnt_codec_cfg_t cfg;
    lnt_dtype_t dtype;
    data_kind_t data;
    uint32_t n_runs, n_inputs;
    bool one; /* a batch of one that travels with the launch */
    job_run_t runs[JOB_RUNS];
} job_t;

static arena_t memory; /* one for all: copies and launches open every allocation of the layer in turn */

static inline void job_memory_create(size_t elements)
{
    memory = arena_create((size_t)256 * (elements / 8 + 4 * JOB_RUNS));
}

static inline void job_memory_destroy(void)
{
    arena_destroy(&memory);
}

static inline void job_fail(const job_t *job, const job_run_t *run, const char *what, int64_t at)
{
    ck_abort_msg("%s of %s, byte %" PRId64
                 ": block %u rule %d data \"%s\" input %s runs %u inputs %u one %d, run %d: n "
                 "%" PRIu64 " masked %d feedback %d seed %#" PRIx64 " index %#" PRIx64,
                 what, job->row->name, at, job->cfg.block, (int)job->cfg.scale_rule, data_rows[job->data].name,
                 lnt_dtype_name(job->dtype), job->n_runs, job->n_inputs, job->one, (int)(run - job->runs), run->n,
                 run->masked, (int)run->feedback, run->seed, run->index);
}

/* ---- sizes ---- */

static inline uint64_t job_blocks(const job_t *job, uint64_t n)
{
    return n / job->cfg.block + (n % job->cfg.block != 0);
}

static inline size_t job_scale_bytes(const job_t *job, uint64_t n)
{
    return job->row->has_scales ? 4 * (size_t)job_blocks(job, n) : 0;
}

static inline size_t job_code_bytes(const job_t *job, uint64_t n)
{
    return (size_t)((n * job->row->bits + 7) / 8);
}

/* ---- drawing ---- */

static inline uint64_t job_random_index(void)
{
    return rng_below(2) ? rng_below(1u << 20) : (rng_below(3) << 32) + UINT32_MAX - rng_below(300);
}

static inline size_t job_bytes(const job_t *job, const job_run_t *run, int role)
{
    size_t n = (size_t)run->n;
    const size_t bytes[ROLE_COUNT] = {[ROLE_VALUES] = n * lnt_dtype_size(job->dtype),
                                      [ROLE_LIVE] = run->masked ? (n + 7) / 8 : 0,
                                      [ROLE_ERROR] = run->feedback == JOB_NO_ERROR ? 0 : 4 * n,
                                      [ROLE_SHADOW] = run->feedback == JOB_SHADOW ? 4 * n : 0,
                                      [ROLE_SCALES] = job_scale_bytes(job, n),
                                      [ROLE_CODES] = job_code_bytes(job, n),
                                      [ROLE_OUT] = 4 * n,
                                      [ROLE_WORDS] = 4};
    return bytes[role];
}

static inline size_t job_unit(const job_t *job, int role)
{
    return role == ROLE_VALUES                                              ? lnt_dtype_size(job->dtype)
           : role == ROLE_LIVE || role == ROLE_SCALES || role == ROLE_CODES ? 1
                                                                            : 4;
}

/* Which array of a run comes last, and so ends at the inaccessible page, is drawn. */
static inline void job_place_run(job_t *job, job_run_t *run)
{
    int first = (int)rng_below(ROLE_COUNT);
    for (uint32_t i = 0; i < job->n_inputs; i++) {
        run->input_scales[i] = arena_place(&memory, job_scale_bytes(job, run->n), 1);
        run->input_codes[i] = arena_place(&memory, job_code_bytes(job, run->n), 1);
    }
    for (int i = 0; i < ROLE_COUNT; i++) {
        int role = (first + i) % ROLE_COUNT;
        run->at[role] = arena_place(&memory, job_bytes(job, run, role), job_unit(job, role));
    }
    memset(memory.given + run->at[ROLE_WORDS], 0, 4);
}

/* Numbers of the job's kind in the job's type. */
static inline void job_fill_values(const job_t *job, data_kind_t kind, uint64_t n, uint8_t *to)
{
    static float values[1 << 22];
    ck_assert_uint_le(n, sizeof(values) / sizeof(values[0]));
    data_fill(kind, values, n);
    lnt_array_ops_ref.narrow[job->dtype](values, n, to);
}

static inline void job_fill_run(const job_t *job, const job_run_t *run)
{
    uint8_t *live = memory.given + run->at[ROLE_LIVE];
    float *error = (float *)(void *)(memory.given + run->at[ROLE_ERROR]);
    float *out = (float *)(void *)(memory.given + run->at[ROLE_OUT]);
    unsigned density = (unsigned)rng_below(4);
    job_fill_values(job, job->data, run->n, memory.given + run->at[ROLE_VALUES]);
    if (run->feedback != JOB_NO_ERROR) data_fill(rng_below(2) ? DATA_NORMAL : job->data, error, run->n);
    for (uint64_t i = 0; run->masked && i < (run->n + 7) / 8; i++)
        live[i] = (uint8_t)(density == 0   ? 0
                            : density == 1 ? rng_next()
                            : density == 2 ? 0xff
                                           : rng_next() | rng_next());
    data_fill(DATA_NORMAL, out, run->n);
}

/* Coded runs that a server may have received: coded by the reference from sound numbers. */
static inline void job_fill_inputs(const job_t *job, const job_run_t *run)
{
    static const data_kind_t kinds[] = {DATA_NORMAL, DATA_SPARSE, DATA_MINUS_ZERO, DATA_TINY, DATA_PLUS_MINUS_MAX};
    for (uint32_t i = 0; i < job->n_inputs; i++) {
        uint8_t *from = memory.got; /* free at this time */
        lnt_encode_in_t in = {.values = from, .dtype = LNT_F32, .n = run->n, .index = rng_next()};
        lnt_encode_out_t out = {.scales = memory.given + run->input_scales[i],
                                .codes = memory.given + run->input_codes[i]};
        if (run->masked) in.live = memory.given + run->at[ROLE_LIVE];
        data_fill(kinds[rng_below(5)], (float *)(void *)from, run->n);
        job->ref->encode(&job->cfg, &in, &out);
    }
}

/* Places and fills what job->runs[].n, masked and feedback ask for. */
static inline void job_prepare(job_t *job)
{
    arena_reset(&memory);
    for (uint32_t r = 0; r < job->n_runs; r++) {
        job->runs[r].seed = rng_next();
        job->runs[r].index = job_random_index();
        job_place_run(job, &job->runs[r]);
    }
    for (uint32_t r = 0; r < job->n_runs; r++) {
        job_fill_run(job, &job->runs[r]);
        job_fill_inputs(job, &job->runs[r]);
    }
}

/* ---- the two sides ---- */

static inline void *job_want(const job_run_t *run, int role)
{
    return memory.want + run->at[role];
}

static inline void *job_device(const job_run_t *run, int role)
{
    return arena_device(&memory) + run->at[role];
}

static inline lnt_cuda_run_t job_device_run(const job_t *job, const job_run_t *run)
{
    lnt_cuda_run_t d = {.n = run->n,
                        .values = job_device(run, ROLE_VALUES),
                        .scales = job->row->has_scales ? job_device(run, ROLE_SCALES) : NULL,
                        .codes = job_device(run, ROLE_CODES),
                        .n_inputs = job->n_inputs,
                        .poisoned = job_device(run, ROLE_WORDS),
                        .out = job_device(run, ROLE_OUT),
                        .seed = run->seed,
                        .index = run->index};
    if (run->masked) d.live = job_device(run, ROLE_LIVE);
    if (run->feedback != JOB_NO_ERROR) d.error_in = job_device(run, ROLE_ERROR);
    if (run->feedback == JOB_IN_PLACE) d.error_out = job_device(run, ROLE_ERROR);
    if (run->feedback == JOB_SHADOW) d.error_out = job_device(run, ROLE_SHADOW);
    return d;
}

static inline lnt_encode_in_t job_ref_in(const job_t *job, const job_run_t *run)
{
    lnt_encode_in_t in = {.values = job_want(run, ROLE_VALUES),
                          .dtype = job->dtype,
                          .n = run->n,
                          .live = run->masked ? job_want(run, ROLE_LIVE) : NULL,
                          .error_in = run->feedback != JOB_NO_ERROR ? job_want(run, ROLE_ERROR) : NULL,
                          .seed = run->seed,
                          .index = run->index};
    return in;
}

static inline lnt_encode_out_t job_ref_out(const job_t *job, const job_run_t *run)
{
    lnt_encode_out_t out = {.scales = job->row->has_scales ? job_want(run, ROLE_SCALES) : NULL,
                            .codes = job_want(run, ROLE_CODES)};
    if (run->feedback == JOB_IN_PLACE) out.error_out = job_want(run, ROLE_ERROR);
    if (run->feedback == JOB_SHADOW) out.error_out = job_want(run, ROLE_SHADOW);
    return out;
}

static inline void *job_table(size_t at)
{
    return memory.given + at;
}

static inline const void *job_device_table(size_t at)
{
    return arena_device(&memory) + at;
}

static inline void job_fill_input_table(const job_t *job, const job_run_t *run, lnt_coded_run_t *inputs)
{
    for (uint32_t i = 0; i < job->n_inputs; i++)
        inputs[i] = (lnt_coded_run_t){job->row->has_scales ? arena_device(&memory) + run->input_scales[i] : NULL,
                                      arena_device(&memory) + run->input_codes[i]};
}

/* Lays out the batch of these runs and sends everything. Where arrays lie on the device is known only after this. */
static inline lnt_cuda_batch_t job_send(const job_t *job, uint32_t block,
                                        void (*describe)(uint32_t r, lnt_cuda_run_t *))
{
    lnt_cuda_batch_t batch = {.cut = {.n_runs = job->n_runs, .block = block}};
    size_t n_runs = job->n_runs, inputs_at = arena_place(&memory, n_runs * job->n_inputs * sizeof(lnt_coded_run_t), 16);
    size_t runs_at = arena_place(&memory, n_runs * sizeof(lnt_cuda_run_t), 16);
    size_t firsts_at = arena_place(&memory, (n_runs + 1) * sizeof(uint64_t), 16);
    lnt_cuda_run_t *runs = job_table(runs_at);
    for (uint32_t r = 0; r < n_runs; r++) {
        runs[r] = job_device_run(job, &job->runs[r]);
        runs[r].inputs = (const lnt_coded_run_t *)job_device_table(inputs_at) + r * job->n_inputs;
        job_fill_input_table(job, &job->runs[r], (lnt_coded_run_t *)job_table(inputs_at) + r * job->n_inputs);
        if (describe) describe(r, &runs[r]);
    }
    ck_assert_int_eq(lnt_cuda_batch_blocks(runs, job->n_runs, block, job_table(firsts_at), &batch.cut.n_blocks),
                     LNT_OK);
    batch.runs = job_device_table(runs_at);
    batch.cut.first_block = job_device_table(firsts_at);
    arena_send(&memory);
    return job->one ? lnt_cuda_batch_one(&runs[0], block) : batch;
}

static inline void job_receive(const job_t *job, const char *what, lnt_status_t status)
{
    if (status != LNT_OK) job_fail(job, &job->runs[0], what, (int64_t)status);
    device_ok(cudaDeviceSynchronize());
    arena_receive(&memory);
}

/* ---- comparison ---- */

static inline bool job_both_nan(const void *a, const void *b, lnt_dtype_t dtype)
{
    float x, y;
    lnt_array_ops_ref.widen[dtype](a, 1, &x);
    lnt_array_ops_ref.widen[dtype](b, 1, &y);
    return isnan(x) && isnan(y);
}

/* Takes over NaN where both sides have one. */
static inline void job_excuse_nan(arena_t *a, size_t at, uint64_t n, lnt_dtype_t dtype)
{
    size_t size = lnt_dtype_size(dtype);
    for (size_t i = at; i < at + n * size; i += size)
        if (memcmp(a->got + i, a->want + i, size) && job_both_nan(a->got + i, a->want + i, dtype))
            memcpy(a->want + i, a->got + i, size);
}

/* Did the block that starts at element `at` poison the run? Asked of the reference alone. */
static inline bool job_block_poisoned(const job_t *job, const job_run_t *run, lnt_encode_in_t in, uint64_t at)
{
    static uint8_t codes[4 << 16], scales[4];
    lnt_encode_out_t out = {.scales = scales, .codes = codes};
    in.values = (const uint8_t *)in.values + at * lnt_dtype_size(in.dtype);
    in.n = run->n - at < job->cfg.block ? run->n - at : job->cfg.block;
    in.index += at;
    if (in.live) in.live += at / 8;
    if (in.error_in) in.error_in += at;
    job->ref->encode(&job->cfg, &in, &out);
    return out.poisoned;
}

/* `in`: what was coded, with the error as it was before. */
static inline void job_excuse_poisoned(const job_t *job, const job_run_t *run, lnt_encode_in_t in)
{
    int role = run->feedback == JOB_IN_PLACE ? ROLE_ERROR : ROLE_SHADOW;
    if (in.error_in) in.error_in = (const float *)(const void *)(memory.given + run->at[ROLE_ERROR]);
    for (uint64_t at = 0; at < run->n; at += job->cfg.block) {
        uint64_t n = run->n - at < job->cfg.block ? run->n - at : job->cfg.block;
        if (!job_block_poisoned(job, run, in, at)) continue;
        if (run->feedback == JOB_IN_PLACE || run->feedback == JOB_SHADOW)
            memcpy((float *)job_want(run, role) + at, memory.got + run->at[role] + 4 * at, 4 * n);
        if (!job->row->has_scales) {
            lnt_dtype_t dtype = job->row->bits == 32 ? LNT_F32 : strncmp(job->row->name, "f16", 3) ? LNT_BF16 : LNT_F16;
            job_excuse_nan(&memory, run->at[ROLE_CODES] + at * job->row->bits / 8, n, dtype);
        }
    }
}

/* The array that byte `at` lies in or behind. */
static inline const char *job_array_of(const job_t *job, size_t at, const job_run_t **run_p, size_t *start_p)
{
    static const char *const roles[ROLE_COUNT] = {"values", "mask",  "error",  "shadow",
                                                  "scales", "codes", "output", "poison"};
    const char *name = "inputs";
    *run_p = &job->runs[0];
    *start_p = 0;
    for (uint32_t r = 0; r < job->n_runs; r++)
        for (int role = 0; role < ROLE_COUNT; role++) {
            if (job->runs[r].at[role] > at || job->runs[r].at[role] < *start_p) continue;
            *start_p = job->runs[r].at[role];
            *run_p = &job->runs[r];
            name = roles[role];
        }
    return name;
}

static inline void job_compare(const job_t *job, const char *what)
{
    int64_t at = arena_difference(&memory);
    const job_run_t *run;
    size_t start;
    char text[64];
    if (at < 0) return;
    const char *name = job_array_of(job, (size_t)at, &run, &start);
    snprintf(text, sizeof(text), "%s: %s", what, name);
    job_fail(job, run, text, at - (int64_t)start);
}

#endif
