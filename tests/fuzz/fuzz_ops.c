/* Fuzz target: the decoders behind the public calls, decode, decode_add and decode_sum of every usable implementation,
 * over any bytes as codes, scales and masks. What is compared: every value, bit for bit, with what the reference gives;
 * where one is NaN the other must be NaN, any of them. Under scales that no encoder writes (negative, Inf, NaN: public
 * calls refuse them before an op sees them) the values are the row's own affair, and only memory is watched.
 *
 * Input: codec, block / 64 - 1, count (2 bytes), runs - 1, bits (masked, add, scales made legal), then
 * what masks, scales and codes are filled with.
 */
#include "../../kernels/impl.h"
#include "fuzz_target.h"

enum { COUNT_MAX = 1200, RUNS_MAX = 17, MASKED = 1, ADD = 2, LEGAL = 4 };

typedef struct job {
    const lnt_codec_row_t *row;
    lnt_codec_cfg_t cfg;
    uint64_t n;
    uint32_t n_runs;
    unsigned bits;
    lnt_coded_run_t runs[RUNS_MAX];
    uint8_t *memory[2 * RUNS_MAX + 1]; /* scales and codes of each run, and the mask */
    size_t bytes[2 * RUNS_MAX + 1];
    const uint8_t *live;
    float *wanted, *got;
} job_t;

static const uint8_t *take(job_t *job, size_t which, const fuzz_input_t *in, size_t bytes)
{
    job->bytes[which] = bytes;
    job->memory[which] = fuzz_alloc(bytes);
    fuzz_fill(in, 7 * which, job->memory[which], bytes);
    return job->memory[which];
}

static void make_legal(uint8_t *scales, size_t bytes)
{
    for (size_t i = 3; i < bytes; i += 4)
        scales[i] &= 0x3f;
}

static void make_job(job_t *job, fuzz_input_t *in)
{
    size_t n_rows;
    job->row = lnt_codec_rows(&n_rows);
    job->row += fuzz_number(in, 1) % n_rows;
    job->cfg.block = 64u * ((uint32_t)fuzz_number(in, 1) % 70u + 1u);
    job->n = fuzz_number(in, 2) % (COUNT_MAX + 1);
    job->n_runs = (uint32_t)fuzz_number(in, 1) % RUNS_MAX + 1;
    job->bits = (unsigned)fuzz_number(in, 1);
    uint64_t n_blocks = (job->n + job->cfg.block - 1) / job->cfg.block;
    for (uint32_t r = 0; r < job->n_runs; r++) {
        job->runs[r].scales = take(job, 2 * r, in, job->row->has_scales ? 4 * n_blocks : 0);
        job->runs[r].codes = take(job, 2 * r + 1, in, (job->n * job->row->bits + 7) / 8);
        if (job->bits & LEGAL) make_legal(job->memory[2 * r], job->bytes[2 * r]);
        if (!job->row->has_scales) job->runs[r].scales = NULL;
    }
    const uint8_t *mask = take(job, 2 * RUNS_MAX, in, (job->n + 7) / 8);
    job->live = job->bits & MASKED ? mask : NULL;
    job->wanted = fuzz_alloc(4 * job->n);
    job->got = fuzz_alloc(4 * job->n);
}

static void end_job(job_t *job)
{
    for (uint32_t k = 0; k < 2 * job->n_runs; k++)
        fuzz_free(job->memory[k], job->bytes[k]);
    fuzz_free(job->memory[2 * RUNS_MAX], job->bytes[2 * RUNS_MAX]);
    fuzz_free(job->wanted, 4 * job->n);
    fuzz_free(job->got, 4 * job->n);
}

static bool same(float a, float b)
{
    return !memcmp(&a, &b, sizeof(a)) || (a != a && b != b);
}

static void compare(const job_t *job, const char *what)
{
    for (uint64_t i = 0; i < job->n; i++)
        fuzz_check(same(job->wanted[i], job->got[i]) || (job->row->has_scales && !(job->bits & LEGAL)), what);
}

static void start(const job_t *job, float *out)
{
    for (uint64_t i = 0; i < job->n; i++)
        out[i] = (float)i - 100.5f;
}

static void sum(const job_t *job, const lnt_codec_ops_t *ops, float *out)
{
    start(job, out);
    ops->decode_sum(&job->cfg, job->runs, job->n_runs, job->n, job->live, job->bits & ADD, out);
}

/* The same sum, run by run. */
static void sum_by_steps(const job_t *job, const lnt_codec_ops_t *ops, float *out)
{
    start(job, out);
    for (uint32_t r = 0; r < job->n_runs; r++)
        (r > 0 || job->bits & ADD ? ops->decode_add : ops->decode)(&job->cfg, job->runs[r].scales, job->runs[r].codes,
                                                                   job->n, job->live, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    job_t job = {.n = 0};
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);
    make_job(&job, &in);
    for (size_t k = 0; k < n_impls; k++) {
        if (!impls[k].usable()) continue;
        lnt_codec_ops_t ops = lnt_kernel_ops(&impls[k], job.row->id);
        if (k == 0) sum_by_steps(&job, &ops, job.wanted);
        sum_by_steps(&job, &ops, job.got);
        compare(&job, "decode and decode_add give the same values");
        sum(&job, &ops, job.got);
        compare(&job, "decode_sum gives the values of decode and decode_add");
    }
    end_job(&job);
    return 0;
}
