/* One case: the comparison with the reference, and the rounds in which all lanes run in turn.
 *
 * A sample repeats the operation until it is long enough for the clock; where it repeats, one run that is not timed
 * comes first, so that what fits a cache is in it. A sample that lost its core is taken again, a few times; those that
 * stayed disturbed are counted. Fractions are formed inside a round, from neighbouring samples.
 */
#include <stdlib.h>
#include <string.h>

#include "../src/base/error.h"
#include "codec_perf.h"
#include "common_stats.h"

enum { TRIES = 4 };

static const double SAMPLE_SECONDS = 3e-3;

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
    lnt_kernels_select(test->lanes[LANE_REF].impl);
    codec_arrays_fill(test);
}

static lnt_status_t check_lane(codec_case_t *test, codec_lane_t *lane)
{
    const codec_space_t *space = test->world->space;
    double unused;

    refill(test);
    LNT_TRY(space->put(test));
    LNT_TRY(space->time(test, lane, 1, &unused));
    LNT_TRY(space->get(test));
    lane->wrong = !keep_or_compare(test, lane, false);
    lane->timed = !lane->wrong;
    test->world->n_wrong += lane->wrong;
    return LNT_OK;
}

/* The reference in one piece and one thread gives the bytes that every lane must give. */
static lnt_status_t check_lanes(codec_case_t *test)
{
    codec_lane_t *ref = &test->lanes[LANE_REF];

    refill(test);
    ref->run(test, ref, &(codec_part_t){.first = 0, .n = test->n, .thread = 0});
    (void)keep_or_compare(test, ref, true);
    for (uint32_t i = LANE_REF; i < test->n_lanes; i++) {
        if (test->lanes[i].timed) LNT_TRY(check_lane(test, &test->lanes[i]));
    }
    refill(test);
    return test->world->space->put(test);
}

/* ---- the rounds ---- */

static lnt_status_t sample(codec_case_t *test, const codec_lane_t *lane, double *seconds_p)
{
    codec_world_t *world = test->world;

    for (uint32_t try = 0; try < TRIES; try++) {
        if (lane->repeats > 1) LNT_TRY(world->space->time(test, lane, 1, seconds_p));
        LNT_TRY(world->space->time(test, lane, lane->repeats, seconds_p));
        if (!world->space->disturbed(test)) break;
        if (try + 1 == TRIES) world->n_disturbed++;
    }
    *seconds_p /= (double)lane->repeats;
    world->n_samples++;
    return LNT_OK;
}

/* Doubles until the clock can be trusted, then scales. */
static lnt_status_t find_repeats(codec_case_t *test, codec_lane_t *lane)
{
    double seconds = 0;
    uint64_t repeats = 1;

    LNT_TRY(test->world->space->time(test, lane, 1, &seconds));
    for (;; repeats *= 2) {
        LNT_TRY(test->world->space->time(test, lane, repeats, &seconds));
        if (seconds >= SAMPLE_SECONDS / 4) break;
    }
    lane->repeats = 1 + (uint64_t)(SAMPLE_SECONDS / seconds * (double)repeats);
    if (repeats == 1 && seconds >= SAMPLE_SECONDS) lane->repeats = 1;
    return LNT_OK;
}

static lnt_status_t run_round(codec_case_t *test, uint32_t round)
{
    for (uint32_t i = 0; i < test->n_lanes; i++) {
        codec_lane_t *lane = &test->lanes[i];

        if (lane->timed) LNT_TRY(sample(test, lane, &lane->seconds[round]));
    }
    return LNT_OK;
}

/* Rounds of the warm-up are overwritten. */
static lnt_status_t measure(codec_case_t *test)
{
    const codec_config_t *config = test->world->config;

    for (uint32_t i = 0; i < test->n_lanes; i++) {
        if (test->lanes[i].timed) LNT_TRY(find_repeats(test, &test->lanes[i]));
    }
    for (uint32_t i = 0; i < config->warmup; i++)
        LNT_TRY(run_round(test, 0));
    for (uint32_t i = 0; i < config->iters; i++)
        LNT_TRY(run_round(test, i));
    return LNT_OK;
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
    const codec_lane_t *ref = &test->lanes[LANE_REF];
    uint32_t n = test->world->config->iters;
    double unused;

    lane->frac_add = median_ratio(test, lane, &test->lanes[LANE_ADD], false, scratch, &lane->spread);
    lane->frac_copy = median_ratio(test, lane, &test->lanes[LANE_COPY], false, scratch, &unused);
    lane->frac_streams = test->lanes[LANE_STREAMS].timed
                             ? median_ratio(test, lane, &test->lanes[LANE_STREAMS], false, scratch, &unused)
                             : 0;
    lane->speedup = lane >= ref && ref->timed ? median_ratio(test, lane, ref, true, scratch, &unused) : 0;
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

static lnt_status_t open_times(codec_case_t *test)
{
    for (uint32_t i = 0; i < test->n_lanes; i++) {
        test->lanes[i].seconds = calloc(test->world->config->iters, sizeof(double));
        if (test->lanes[i].seconds == NULL) return lnt_error(LNT_ERR_NO_MEMORY, NULL, "no memory for times");
    }
    return LNT_OK;
}

static bool anything_timed(const codec_case_t *test)
{
    for (uint32_t i = LANE_REF; i < test->n_lanes; i++) {
        if (test->lanes[i].timed) return true;
    }
    return false;
}

lnt_status_t codec_case_run(codec_case_t *test)
{
    LNT_TRY(team_open(&test->world->team, test->n_threads));
    LNT_TRY(codec_arrays_open(test));
    codec_lanes_begin(test);
    LNT_TRY(test->world->space->open(test));
    if (!anything_timed(test)) {
        test->world->n_left_out++;
        return LNT_OK;
    }
    LNT_TRY(open_times(test));
    LNT_TRY(check_lanes(test));
    if (!anything_timed(test)) return LNT_OK;
    codec_yard_fill(test);
    LNT_TRY(measure(test));
    return summarize(test);
}

void codec_case_close(codec_case_t *test)
{
    test->world->space->close(test);
    for (uint32_t i = 0; i < test->n_lanes; i++)
        free(test->lanes[i].seconds);
    test->n_lanes = 0;
    team_close(&test->world->team);
    codec_arrays_close(test);
}
