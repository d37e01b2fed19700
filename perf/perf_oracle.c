/* The oracle: node sums, codes, the servers' mean and codes again for all-reduce; one coding for the others.
 *
 * Blocks begin at the first element of what one rank contributes to one part. Ownership, segments, transports change no
 * value and so do not appear.
 */
#include "perf_oracle.h"

#include <math.h>
#include <string.h>

#include "perf_half.h"

#define F32_UNIT 0x1p-24 /* largest relative error of one f32 operation */

enum { ROTATED = 32 }; /* elements of a group of int4_hadamard */

void oracle_init(oracle_t *oracle, const perf_case_t *test, const perf_lane_t *lane)
{
    *oracle = (oracle_t){.world = test->world,
                         .op = test->op,
                         .count = test->count,
                         .dtype = perf_dtype(test->world->config),
                         .redop = perf_redop(test->world->config),
                         .block = 1024};
    if (lane->codec != NULL) {
        oracle->codec = lnt_codec_name(lane->codec);
        oracle->block = lnt_codec_block(lane->codec);
    } else if (test->op == PERF_ALLREDUCE) {
        oracle->codec = lnt_dtype_name(oracle->dtype); /* a plain one sends what the dtype is */
    }
}

/* ---- codecs on intervals ---- */

static double widest(double middle, double low, double high)
{
    return fmax(fabs(high - middle), fabs(low - middle));
}

static void code_half(lnt_dtype_t dtype, const double *v, const double *dv, uint32_t n, double *out, double *spread)
{
    const half_t *half = half_of(dtype);

    for (uint32_t i = 0; i < n; i++) {
        out[i] = half_round(half, v[i]);
        spread[i] = widest(out[i], half_round(half, v[i] - dv[i]), half_round(half, v[i] + dv[i]));
    }
}

static void code_bf16(const double *v, const double *dv, uint32_t n, double *out, double *spread)
{
    code_half(LNT_BF16, v, dv, n, out, spread);
}

static void code_f16(const double *v, const double *dv, uint32_t n, double *out, double *spread)
{
    code_half(LNT_F16, v, dv, n, out, spread);
}

/* By chance up or down: within a unit, whatever the random numbers. */
static void code_by_chance(lnt_dtype_t dtype, const double *v, const double *dv, uint32_t n, double *out,
                           double *spread)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = v[i];
        spread[i] = dv[i] + half_unit(half_of(dtype), fabs(v[i]) + dv[i]);
    }
}

static void code_bf16_sr(const double *v, const double *dv, uint32_t n, double *out, double *spread)
{
    code_by_chance(LNT_BF16, v, dv, n, out, spread);
}

static void code_f16_sr(const double *v, const double *dv, uint32_t n, double *out, double *spread)
{
    code_by_chance(LNT_F16, v, dv, n, out, spread);
}

static double int_code(double v, double scale, double most)
{
    return (scale > 0) ? fmin(fmax(rint(v / scale), -most), most) : 0;
}

static void code_ints(double most, const double *v, const double *dv, uint32_t n, double *out, double *spread)
{
    double top = 0, dtop = 0, scale, dscale, relative;

    for (uint32_t i = 0; i < n; i++) {
        top = fmax(top, fabs(v[i]));
        dtop = fmax(dtop, dv[i]);
    }
    scale = top / most;
    dscale = dtop / most + 4 * F32_UNIT * scale;
    relative = (scale > dscale) ? dscale / (scale - dscale) : 0;
    for (uint32_t i = 0; i < n; i++) {
        double reach = dv[i] + fabs(v[i]) * (relative + 4 * F32_UNIT);
        double low = int_code(v[i] - reach, scale, most), high = int_code(v[i] + reach, scale, most),
               middle = int_code(v[i], scale, most);

        out[i] = middle * scale;
        spread[i] = widest(middle, low, high) * (scale + dscale) + fabs(middle) * dscale;
    }
}

static void code_int8(const double *v, const double *dv, uint32_t n, double *out, double *spread)
{
    code_ints(127, v, dv, n, out, spread);
}

static void code_int4(const double *v, const double *dv, uint32_t n, double *out, double *spread)
{
    code_ints(7, v, dv, n, out, spread);
}

/* The transform of whole groups as a sum over its matrix, whose signs are the parity of row and column. What 5 f32
 * additions may round away, and the spread of all that enters, is the spread of each result. */
static void rotate(double *v, double *dv, uint32_t n, double factor)
{
    for (uint32_t g = 0; g + ROTATED <= n; g += ROTATED) {
        double sum[ROTATED] = {0}, reach = 0;

        for (uint32_t k = 0; k < ROTATED; k++)
            reach += dv[g + k] + fabs(v[g + k]) * 5 * F32_UNIT;
        for (uint32_t i = 0; i < ROTATED; i++)
            for (uint32_t k = 0; k < ROTATED; k++)
                sum[i] += __builtin_parity(i & k) ? -v[g + k] : v[g + k];
        for (uint32_t i = 0; i < ROTATED; i++) {
            v[g + i] = sum[i] * factor;
            dv[g + i] = reach * factor;
        }
    }
}

static void code_int4_hadamard(const double *v, const double *dv, uint32_t n, double *out, double *spread)
{
    double rotated[ORACLE_BLOCK_MAX], drotated[ORACLE_BLOCK_MAX];

    memcpy(rotated, v, n * sizeof(*v));
    memcpy(drotated, dv, n * sizeof(*dv));
    rotate(rotated, drotated, n, 1);
    code_ints(7, rotated, drotated, n, out, spread);
    rotate(out, spread, n, 1.0 / ROTATED);
}

static void code_sign1(const double *v, const double *dv, uint32_t n, double *out, double *spread)
{
    double squares = 0, dsquares = 0, scale, dscale;

    for (uint32_t i = 0; i < n; i++) {
        squares += v[i] * v[i];
        dsquares += dv[i] * dv[i];
    }
    scale = sqrt(squares / n);
    dscale = sqrt(dsquares / n) + 4 * F32_UNIT * scale;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (v[i] >= 0) ? scale : -scale;
        spread[i] = dscale + ((fabs(v[i]) <= dv[i]) ? 2 * scale : 0);
    }
}

static void code_f32(const double *v, const double *dv, uint32_t n, double *out, double *spread)
{
    memcpy(out, v, n * sizeof(*out));
    memcpy(spread, dv, n * sizeof(*spread));
}

static const struct {
    const char *name;
    void (*code)(const double *v, const double *dv, uint32_t n, double *out, double *spread);
    bool by_chance;
} codes[] = {{"f32", code_f32, false},      {"bf16", code_bf16, false},
             {"f16", code_f16, false},      {"bf16_sr", code_bf16_sr, true},
             {"f16_sr", code_f16_sr, true}, {"int8", code_int8, false},
             {"int4", code_int4, false},    {"int4_hadamard", code_int4_hadamard, false},
             {"sign1", code_sign1, false}};

static size_t row_of(const char *codec)
{
    for (size_t i = 0; codec != NULL && i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (strcmp(codes[i].name, codec) == 0) return i;
    }
    return 0;
}

bool oracle_by_chance(const perf_lane_t *lane)
{
    return lane->codec != NULL && codes[row_of(lnt_codec_name(lane->codec))].by_chance;
}

static void code(const char *codec, const double *v, const double *dv, uint32_t n, double *out, double *spread)
{
    codes[row_of(codec)].code(v, dv, n, out, spread);
}

/* ---- sums ---- */

/* Sum of elements [first, first + n) of the inputs of the ranks of one group, times a factor. */
static void add_group(oracle_t *oracle, const uint32_t *group_of, uint32_t group, uint64_t first, uint32_t n,
                      double factor)
{
    const uint32_t n_ranks = oracle->world->map.n_ranks;

    memset(oracle->v, 0, n * sizeof(*oracle->v));
    memset(oracle->dv, 0, n * sizeof(*oracle->dv));
    for (uint32_t r = 0; r < n_ranks; r++) {
        if (group_of[r] != group) continue;
        for (uint32_t i = 0; i < n; i++) {
            double x = (double)perf_input(oracle->world->seed, r, first + i, oracle->dtype) * factor;
            oracle->v[i] += x;
            oracle->dv[i] += fabs(x) * (n_ranks + 2) * F32_UNIT;
        }
    }
}

/* Adds the coded group to the result. */
static void collect(oracle_t *oracle, const char *codec, uint32_t n, double factor)
{
    code(codec, oracle->v, oracle->dv, n, oracle->coded, oracle->dcoded);
    for (uint32_t i = 0; i < n; i++) {
        oracle->exact[i] += oracle->v[i] * factor;
        oracle->value[i] += oracle->coded[i] * factor;
        oracle->spread[i] +=
            (oracle->dcoded[i] + fabs(oracle->coded[i]) * (oracle->world->map.n_ranks + 2) * F32_UNIT) * factor;
    }
}

static void round_again(oracle_t *oracle, const char *codec, uint32_t n)
{
    memcpy(oracle->v, oracle->value, n * sizeof(*oracle->v));
    memcpy(oracle->dv, oracle->spread, n * sizeof(*oracle->dv));
    code(codec, oracle->v, oracle->dv, n, oracle->value, oracle->spread);
}

static void allreduce_block(oracle_t *oracle, uint64_t first, uint32_t n)
{
    const node_map_t *map = &oracle->world->map;
    const char *codec = (map->n_nodes > 1) ? oracle->codec : NULL;
    const bool mean = (oracle->redop == LNT_MEAN);

    for (uint32_t node = 0; node < map->n_nodes; node++) {
        add_group(oracle, map->node_of, node, first, n, mean ? (double)map->n_nodes / map->n_ranks : 1);
        collect(oracle, codec, n, mean ? 1.0 / map->n_nodes : 1);
    }
    round_again(oracle, codec, n);
}

/* Rank's own input only, or every rank coded apart and then added. */
static void single_block(oracle_t *oracle, uint32_t source, uint64_t first, uint32_t n, double factor)
{
    static uint32_t self[NODES_RANKS_MAX];

    for (uint32_t r = 0; r < oracle->world->map.n_ranks; r++)
        self[r] = r;
    add_group(oracle, self, source, first, n, 1);
    collect(oracle, oracle->codec, n, factor);
}

static void scatter_block(oracle_t *oracle, uint64_t first, uint32_t n)
{
    const uint32_t n_ranks = oracle->world->map.n_ranks;

    for (uint32_t r = 0; r < n_ranks; r++)
        single_block(oracle, r, first, n, (oracle->redop == LNT_MEAN) ? 1.0 / n_ranks : 1);
}

/* ---- blocks ---- */

static uint64_t blocks_of_run(const oracle_t *oracle)
{
    return (oracle->count + oracle->block - 1) / oracle->block;
}

uint64_t oracle_n_blocks(const oracle_t *oracle)
{
    return blocks_of_run(oracle) * (perf_formulas[oracle->op].per_rank ? oracle->world->map.n_ranks : 1);
}

uint32_t oracle_block(oracle_t *oracle, uint64_t k, uint64_t *first_p)
{
    const uint64_t run = k / blocks_of_run(oracle), at = k % blocks_of_run(oracle) * oracle->block;
    const uint32_t n = (uint32_t)((oracle->count - at < oracle->block) ? oracle->count - at : oracle->block);
    const uint64_t first = run * oracle->count + at;

    memset(oracle->exact, 0, n * sizeof(double));
    memset(oracle->value, 0, n * sizeof(double));
    memset(oracle->spread, 0, n * sizeof(double));
    if (oracle->op == PERF_ALLREDUCE) {
        allreduce_block(oracle, first, n);
    } else if (oracle->op == PERF_REDUCE_SCATTER) {
        scatter_block(oracle, first, n);
    } else {
        single_block(oracle, (uint32_t)run, at, n,
                     1); /* run: the source; a broadcast has one run, its root is rank 0 */
    }
    round_again(oracle, lnt_dtype_name(oracle->dtype), n);
    *first_p = first;
    return n;
}
