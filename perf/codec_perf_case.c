/* One case: its lanes, the comparison with the reference, and the rounds in which all lanes run in turn.
 *
 * A sample repeats the operation until it is long enough for the clock; where it repeats, one run that is not timed
 * comes first, so that what fits a cache is in it. A sample that lost its core is taken again, a few times; those that
 * stayed disturbed are counted. Fractions are formed inside a round, from neighbouring samples.
 */
#include <stdlib.h>
#include <string.h>

#include "../optim/update.h"
#include "../src/base/error.h"
#include "codec_perf.h"
#include "common_stats.h"

enum { TRIES = 4 };

static const double SAMPLE_SECONDS = 3e-3;

/* ---- lanes ---- */

static bool other_codec(const codec_case_t *test, const lnt_kernel_impl_t *a, const lnt_kernel_impl_t *b)
{
    lnt_codec_ops_t of_a = lnt_kernel_ops(a, test->row->id), of_b = lnt_kernel_ops(b, test->row->id);

    return memcmp(&of_a, &of_b, sizeof(of_a)) != 0;
}

static bool other_arrays(const lnt_kernel_impl_t *a, const lnt_kernel_impl_t *b)
{
    lnt_array_ops_t of_a = lnt_kernel_arrays(a), of_b = lnt_kernel_arrays(b);

    return memcmp(&of_a, &of_b, sizeof(of_a)) != 0;
}

static bool other_updates(const lnt_kernel_impl_t *a, const lnt_kernel_impl_t *b)
{
    lnt_update_ops_t of_a = lnt_update_ops_of(a), of_b = lnt_update_ops_of(b);

    return memcmp(&of_a, &of_b, sizeof(of_a)) != 0;
}

/* Does `impl` bring code of its own for this case, compared with the lane before it? */
static bool adds_code(const codec_case_t *test, const lnt_kernel_impl_t *before, const lnt_kernel_impl_t *impl)
{
    if (test->row != NULL && other_codec(test, before, impl)) return true;
    if (test->op->elementwise && other_arrays(before, impl)) return true;
    return (test->op->elementwise || test->row == NULL) && other_updates(before, impl);
}

static void add_lane(codec_case_t *test, const lnt_kernel_impl_t *impl)
{
    codec_lane_t *lane = &test->lanes[test->n_lanes++];

    *lane = (codec_lane_t){.name = impl->name,
                           .impl = impl,
                           .run = test->op->run,
                           .n = test->n,
                           .unit = test->cfg.block,
                           .counted_bytes = codec_counted_bytes(test)};
    if (test->row != NULL) lane->ops = lnt_kernel_ops(impl, test->row->id);
}

/* The reference is always there, since all others are compared with it; it is timed where somebody wants it. */
static void list_lanes(codec_case_t *test)
{
    const codec_config_t *config = test->world->config;
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);

    codec_yard_lanes(test);
    test->n_lanes = LANE_FIRST;
    for (size_t i = 0; i < n_impls && test->n_lanes < CODEC_LANES_MAX; i++) {
        if (impls[i].usable() && (i == 0 || adds_code(test, test->lanes[test->n_lanes - 1].impl, &impls[i])))
            add_lane(test, &impls[i]);
    }
    for (uint32_t i = 0; i < test->n_lanes; i++) {
        codec_lane_t *lane = &test->lanes[i];

        lane->timed = lane->impl == NULL || tool_listed(config->impls, lane->name) ||
                      (i == LANE_FIRST && config->compare) ||
                      (i == test->n_lanes - 1 && tool_listed(config->impls, "auto"));
    }
}

static lnt_status_t open_lanes(codec_case_t *test)
{
    list_lanes(test);
    for (uint32_t i = 0; i < test->n_lanes; i++) {
        test->lanes[i].seconds = calloc(test->world->config->iters, sizeof(double));
        if (test->lanes[i].seconds == NULL) return lnt_error(LNT_ERR_NO_MEMORY, NULL, "no memory for times");
    }
    return LNT_OK;
}

/* ---- the check ---- */

/* Copies what the operation wrote to the second arena, or compares it with what is there. False: it differs. */
static bool keep_or_compare(const codec_case_t *test, const codec_lane_t *lane, bool keep)
{
    uint64_t at = 0;

    for (codec_array_t id = 0; id < ARRAYS; id++) {
        if ((test->op->writes >> id & 1u) == 0 || test->array[id] == NULL) continue;
        if (keep) {
            memcpy(test->yard + at, test->array[id], test->array_bytes[id]);
        } else if (memcmp(test->yard + at, test->array[id], test->array_bytes[id]) != 0) {
            codec_report_wrong(test, lane, id, test->yard + at);
            return false;
        }
        at += test->array_bytes[id];
    }
    return true;
}

/* The same data every time: filling uses conversions, so they are the reference's. */
static void refill(codec_case_t *test)
{
    lnt_kernels_select(test->lanes[LANE_FIRST].impl);
    codec_arrays_fill(test);
}

/* The reference in one piece and one thread gives the bytes that every lane must give. */
static void check_lanes(codec_case_t *test)
{
    codec_lane_t *ref = &test->lanes[LANE_FIRST];

    refill(test);
    ref->run(test, ref, &(codec_part_t){.first = 0, .n = test->n, .thread = 0});
    (void)keep_or_compare(test, ref, true);
    for (uint32_t i = LANE_FIRST; i < test->n_lanes; i++) {
        codec_lane_t *lane = &test->lanes[i];

        if (!lane->timed) continue;
        refill(test);
        (void)test->world->space->time(test, lane, 1);
        lane->wrong = !keep_or_compare(test, lane, false);
        if (lane->wrong) {
            lane->timed = false;
            test->world->n_wrong++;
        }
    }
}

/* ---- the rounds ---- */

static double sample(codec_case_t *test, const codec_lane_t *lane)
{
    codec_world_t *world = test->world;
    double seconds = 0;

    for (uint32_t try = 0; try < TRIES; try++) {
        if (lane->repeats > 1) (void)world->space->time(test, lane, 1);
        seconds = world->space->time(test, lane, lane->repeats) / (double)lane->repeats;
        if (!team_disturbed(&world->team)) break;
        if (try + 1 == TRIES) world->n_disturbed++;
    }
    world->n_samples++;
    return seconds;
}

/* Doubles until the clock can be trusted, then scales. */
static void find_repeats(codec_case_t *test, codec_lane_t *lane)
{
    double seconds = 0;
    uint64_t repeats = 1;

    (void)test->world->space->time(test, lane, 1);
    for (;; repeats *= 2) {
        seconds = test->world->space->time(test, lane, repeats);
        if (seconds >= SAMPLE_SECONDS / 4) break;
    }
    lane->repeats = 1 + (uint64_t)(SAMPLE_SECONDS / seconds * (double)repeats);
    if (repeats == 1 && seconds >= SAMPLE_SECONDS) lane->repeats = 1;
}

static void measure(codec_case_t *test)
{
    const codec_config_t *config = test->world->config;

    for (uint32_t i = 0; i < test->n_lanes; i++) {
        if (test->lanes[i].timed) find_repeats(test, &test->lanes[i]);
    }
    for (uint32_t round = 0; round < config->warmup + config->iters; round++) {
        for (uint32_t i = 0; i < test->n_lanes; i++) {
            double seconds = test->lanes[i].timed ? sample(test, &test->lanes[i]) : 0;

            if (round >= config->warmup) test->lanes[i].seconds[round - config->warmup] = seconds;
        }
    }
}

/* ---- results ---- */

/* Median over rounds of (rate of the lane / rate of `other`), rates per counted byte or, with `per_run`, per run.
 * *spread_p: distance of the quartiles over the median. */
static double median_ratio(const codec_case_t *test, const codec_lane_t *lane, const codec_lane_t *other, bool per_run,
                           double *ratios, double *spread_p)
{
    uint32_t n = test->world->config->iters;
    double bytes = per_run ? 1 : lane->counted_bytes / other->counted_bytes, median;

    for (uint32_t i = 0; i < n; i++)
        ratios[i] = bytes * other->seconds[i] / lane->seconds[i];
    stats_sort(ratios, n);
    median = stats_quantile(ratios, n, 0.5);
    *spread_p = (stats_quantile(ratios, n, 0.75) - stats_quantile(ratios, n, 0.25)) / median;
    return median;
}

static void summarize_lane(const codec_case_t *test, codec_lane_t *lane, double *scratch)
{
    const codec_lane_t *ref = &test->lanes[LANE_FIRST];
    uint32_t n = test->world->config->iters;
    double unused;

    lane->frac_add = median_ratio(test, lane, &test->lanes[LANE_ADD], false, scratch, &lane->spread);
    lane->frac_copy = median_ratio(test, lane, &test->lanes[LANE_COPY], false, scratch, &unused);
    lane->speedup = lane->impl != NULL && ref->timed ? median_ratio(test, lane, ref, true, scratch, &unused) : 0;
    memcpy(scratch, lane->seconds, n * sizeof(*scratch));
    stats_sort(scratch, n);
    lane->median_seconds = stats_quantile(scratch, n, 0.5);
}

static lnt_status_t summarize(codec_case_t *test)
{
    double *scratch = calloc(test->world->config->iters, sizeof(*scratch));

    if (scratch == NULL) return lnt_error(LNT_ERR_NO_MEMORY, NULL, "no memory for times");
    for (uint32_t i = 0; i < test->n_lanes; i++) {
        if (test->lanes[i].timed) summarize_lane(test, &test->lanes[i], scratch);
    }
    free(scratch);
    return LNT_OK;
}

lnt_status_t codec_case_run(codec_case_t *test)
{
    LNT_TRY(codec_arrays_open(test));
    LNT_TRY(open_lanes(test));
    LNT_TRY(team_open(&test->world->team, test->n_threads));
    check_lanes(test);
    codec_yard_fill(test);
    measure(test);
    return summarize(test);
}

void codec_case_close(codec_case_t *test)
{
    for (uint32_t i = 0; i < test->n_lanes; i++)
        free(test->lanes[i].seconds);
    test->n_lanes = 0;
    team_close(&test->world->team);
    codec_arrays_close(test);
}
