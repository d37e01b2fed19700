/* Lanes on the host: one per implementation that has code of its own for the case, run by the pinned threads. */
#include <string.h>

#include "../optim/update.h"
#include "../src/base/error.h"
#include "codec_perf.h"

/* ---- which lanes ---- */

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

static bool wanted(const codec_case_t *test, uint32_t i)
{
    const codec_config_t *config = test->world->config;

    return tool_listed(config->impls, test->lanes[i].name) || (i == LANE_REF && config->compare) ||
           (i == test->n_lanes - 1 && tool_listed(config->impls, "auto"));
}

static lnt_status_t host_open(codec_case_t *test)
{
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);

    for (size_t i = 1; i < n_impls && test->n_lanes < CODEC_LANES_MAX; i++) {
        if (impls[i].usable() && adds_code(test, test->lanes[test->n_lanes - 1].impl, &impls[i]))
            codec_lane_add(test, impls[i].name, &impls[i]);
    }
    for (uint32_t i = 0; i < test->n_lanes; i++)
        test->lanes[i].timed = i < LANE_REF ? test->lanes[i].run != NULL : wanted(test, i);
    return LNT_OK;
}

/* ---- running ---- */

typedef struct sample {
    const codec_case_t *test;
    const codec_lane_t *lane;
    uint64_t repeats;
} sample_t;

static void run_share(void *arg, uint32_t member)
{
    const sample_t *sample = arg;
    const codec_lane_t *lane = sample->lane;
    codec_part_t part = codec_part_of(lane->n, lane->unit, member, sample->test->n_threads);

    for (uint64_t i = 0; i < sample->repeats && part.n > 0; i++)
        lane->run(sample->test, lane, &part);
}

static lnt_status_t host_time(codec_case_t *test, const codec_lane_t *lane, uint64_t repeats, double *seconds_p)
{
    sample_t sample = {test, lane, repeats};

    if (lane->impl != NULL) lnt_kernels_select(lane->impl);
    *seconds_p = team_run(&test->world->team, run_share, &sample);
    return LNT_OK;
}

static bool host_disturbed(const codec_case_t *test)
{
    return team_disturbed(&test->world->team);
}

/* Arrays are where the host sees them. */
static lnt_status_t nothing(codec_case_t *test)
{
    (void)test;
    return LNT_OK;
}

static void host_close(codec_case_t *test)
{
    (void)test;
}

static const char *host_absent(void)
{
    return NULL;
}

static const char *host_describe(void)
{
    return "host";
}

const codec_space_t codec_space_host = {.name = "host",
                                        .absent = host_absent,
                                        .describe = host_describe,
                                        .open = host_open,
                                        .close = host_close,
                                        .put = nothing,
                                        .get = nothing,
                                        .time = host_time,
                                        .disturbed = host_disturbed};
