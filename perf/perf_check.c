/* Is the result right? Elements against the oracle, ranks against each other, in place against out of place, and with
 * error feedback the identity: result + what is left over = mean of the inputs + what was left over before.
 *
 * Where all ranks hold the same result each checks its share of the blocks, and hashes show that the results are the
 * same.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../src/base/error.h"
#include "../src/base/hash.h"
#include "perf_half.h"
#include "perf_oracle.h"

enum { SLICES = 16 };

/* What this rank found; summed over ranks at the end (largest for max_err). */
typedef struct findings {
    uint64_t wrong;
    double error_squares, exact_squares, max_err;
} findings_t;

/* With error feedback: sums over all ranks of what was left over, before and after the run. NULL: none. */
typedef struct leftover {
    float *before, *after;
} leftover_t;

static bool same_everywhere(const perf_case_t *test)
{
    return test->op != PERF_REDUCE_SCATTER;
}

/* ---- elements ---- */

typedef struct inspection {
    const perf_case_t *test;
    const void *output;
    uint64_t origin; /* element of the whole result that output begins with */
    bool value_known;
    const leftover_t *leftover;
} inspection_t;

static bool identity_holds(const inspection_t *in, const oracle_t *oracle, uint32_t i, uint64_t at, double got)
{
    const double before = in->leftover->before[at], after = in->leftover->after[at];
    const double slack = half_unit(half_of(oracle->dtype), got);

    return fabs(got + after - oracle->exact[i] - before) <=
           slack + 256 * 0x1p-24 * (fabs(got) + fabs(after) + fabs(before) + 1);
}

static void inspect_block(const inspection_t *in, const oracle_t *oracle, uint64_t first, uint32_t n, findings_t *found)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t at = first + i - in->origin;
        const double got = perf_value(in->output, at, oracle->dtype), error = got - oracle->exact[i];
        bool right = !in->value_known || fabs(got - oracle->value[i]) <= oracle->spread[i];

        right = right && isfinite(got) && (in->leftover->after == NULL || identity_holds(in, oracle, i, at, got));
        found->wrong += right ? 0 : 1;
        found->error_squares += error * error;
        found->exact_squares += oracle->exact[i] * oracle->exact[i];
        found->max_err = fmax(found->max_err, fabs(error));
    }
}

static lnt_status_t inspect(const inspection_t *in, const perf_lane_t *lane, findings_t *found)
{
    const uint32_t rank = in->test->world->info.rank, n_ranks = in->test->world->info.n_ranks;
    const bool shared = same_everywhere(in->test);
    oracle_t *oracle = malloc(sizeof(*oracle));
    uint64_t n_blocks;

    if (oracle == NULL) return perf_no_memory();
    oracle_init(oracle, in->test, lane);
    n_blocks = oracle_n_blocks(oracle);
    for (uint64_t k = 0; k < n_blocks; k++) {
        uint64_t first;
        uint32_t n;

        if ((shared ? k % n_ranks : k / (n_blocks / n_ranks)) != rank) continue;
        n = oracle_block(oracle, k, &first);
        inspect_block(in, oracle, first, n, found);
    }
    free(oracle);
    return LNT_OK;
}

/* ---- ranks against each other ---- */

static lnt_status_t compare_ranks(const perf_case_t *test, const void *output, findings_t *found)
{
    const perf_world_t *world = test->world;
    const uint64_t bytes = test->output_elems * lnt_dtype_size(perf_dtype(world->config));
    uint64_t mine[SLICES], *all = malloc((size_t)world->info.n_ranks * sizeof(mine));
    lnt_status_t status;

    for (uint64_t s = 0; s < SLICES; s++) {
        uint64_t begin = bytes * s / SLICES, end = bytes * (s + 1) / SLICES;
        mine[s] = lnt_hash64(0, (const char *)output + begin, end - begin);
    }
    status = (all != NULL) ? perf_gather(world->comm, world->info.n_ranks, mine, SLICES, all) : perf_no_memory();
    for (uint64_t s = 0; status >= 0 && s < SLICES; s++) {
        bool same = true;

        for (uint32_t r = 1; r < world->info.n_ranks; r++)
            same = same && all[r * SLICES + s] == all[s];
        found->wrong += (same || world->info.rank != 0) ? 0 : test->output_elems / SLICES + 1;
    }
    free(all);
    return status;
}

static lnt_status_t add_up(const perf_world_t *world, findings_t *found)
{
    uint64_t mine[4] = {found->wrong}, *all = malloc((size_t)world->info.n_ranks * sizeof(mine));
    lnt_status_t status;

    memcpy(mine + 1, &found->error_squares, 3 * sizeof(*mine));
    status = (all != NULL) ? perf_gather(world->comm, world->info.n_ranks, mine, 4, all) : perf_no_memory();
    *found = (findings_t){.wrong = 0};
    for (uint32_t r = 0; status >= 0 && r < world->info.n_ranks; r++) {
        double theirs[3];

        memcpy(theirs, all + r * 4 + 1, sizeof(theirs));
        found->wrong += all[r * 4];
        found->error_squares += theirs[0];
        found->exact_squares += theirs[1];
        found->max_err = fmax(found->max_err, theirs[2]);
    }
    free(all);
    return status;
}

/* ---- error feedback ---- */

/* Sum over ranks of worker errors (weighted as the server weighs them) and server errors, for every element. */
static lnt_status_t sum_leftover(const perf_case_t *test, const perf_lane_t *lane, float *sum)
{
    const bool mean = perf_redop(test->world->config) == LNT_MEAN;
    const float weight = mean ? (float)(1.0 / test->world->info.n_nodes) : 1.0f;
    lnt_coll_params_t params = {.struct_size = sizeof(params), .op = LNT_SUM};
    uint64_t w_at, w_n, s_at, s_n;
    float *errors;
    lnt_status_t status;

    LNT_TRY(lnt_residual_counts(lane->residual, &w_at, &w_n, &s_at, &s_n));
    errors = calloc(w_n + s_n + 1, sizeof(*errors));
    if (errors == NULL) return perf_no_memory();
    memset(sum, 0, test->count * sizeof(*sum));
    status = lnt_residual_read(lane->residual, errors, errors + w_n);
    for (uint64_t i = 0; status >= 0 && i < w_n; i++)
        sum[w_at + i] += errors[i] * weight;
    for (uint64_t i = 0; status >= 0 && i < s_n; i++)
        sum[s_at + i] += errors[w_n + i];
    free(errors);
    return (status < 0) ? status : lnt_allreduce(test->world->comm, sum, sum, test->count, LNT_F32, &params);
}

static lnt_status_t keeps_errors(const perf_case_t *test, const perf_lane_t *lane, bool *keeps_p)
{
    uint64_t n[2] = {0, 0}, offset;

    *keeps_p = false;
    if (lane->residual == NULL) return LNT_OK;
    LNT_TRY(lnt_residual_counts(lane->residual, &offset, &n[0], &offset, &n[1]));
    LNT_TRY(perf_gather_max(test->world->comm, test->world->info.n_ranks, n, 2));
    *keeps_p = n[0] > 0;
    return LNT_OK;
}

/* ---- one lane ---- */

static lnt_status_t judge(const perf_case_t *test, const perf_lane_t *lane, const void *output, bool value_known,
                          const leftover_t *leftover, findings_t *found)
{
    const uint64_t origin = same_everywhere(test) ? 0 : test->world->info.rank * test->count;
    inspection_t in = {
        .test = test, .output = output, .origin = origin, .value_known = value_known, .leftover = leftover};

    LNT_TRY(inspect(&in, lane, found));
    if (same_everywhere(test)) LNT_TRY(compare_ranks(test, output, found));
    return add_up(test->world, found);
}

/* Without error feedback and chance a second run must give the same bytes, in place or not. */
static lnt_status_t judge_again(perf_case_t *test, uint64_t *wrong_p)
{
    const size_t elem = lnt_dtype_size(perf_dtype(test->world->config));
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < test->output_elems; i++) {
        wrong += memcmp((char *)test->output + i * elem, (char *)test->both + i * elem, elem) != 0;
    }
    *wrong_p = wrong;
    return perf_gather_sum(test->world->comm, test->world->info.n_ranks, wrong_p, 1);
}

static lnt_status_t check_with(perf_case_t *test, perf_lane_t *lane, bool feedback, leftover_t *leftover)
{
    findings_t found = {.wrong = 0}, again = {.wrong = 0};
    double us;

    LNT_TRY(perf_lane_run(test, lane, false, &us));
    if (feedback) LNT_TRY(sum_leftover(test, lane, leftover->after));
    LNT_TRY(judge(test, lane, test->output, true, leftover, &found));
    lane->wrong[0] = found.wrong;
    lane->rel_err = (found.exact_squares > 0) ? sqrt(found.error_squares / found.exact_squares) : 0;
    lane->max_err = found.max_err;
    LNT_TRY(perf_lane_run(test, lane, true, &us));
    if (!feedback && !oracle_by_chance(lane)) return judge_again(test, &lane->wrong[1]);
    if (feedback) {
        memcpy(leftover->before, leftover->after, test->count * sizeof(float));
        LNT_TRY(sum_leftover(test, lane, leftover->after));
    }
    LNT_TRY(judge(test, lane, test->both, !feedback, leftover, &again));
    lane->wrong[1] = again.wrong;
    return LNT_OK;
}

lnt_status_t perf_check_lane(perf_case_t *test, perf_lane_t *lane)
{
    leftover_t leftover = {NULL, NULL};
    bool feedback;
    lnt_status_t status;

    LNT_TRY(keeps_errors(test, lane, &feedback));
    if (feedback) {
        leftover.before = calloc(test->count, sizeof(float));
        leftover.after = calloc(test->count, sizeof(float));
        if (leftover.before == NULL || leftover.after == NULL) {
            free(leftover.before);
            free(leftover.after);
            return perf_no_memory();
        }
    }
    status = check_with(test, lane, feedback, &leftover);
    free(leftover.before);
    free(leftover.after);
    return status;
}
