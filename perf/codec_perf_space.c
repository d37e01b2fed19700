/* Where lanes run: the threads of this machine, or a device. One row each. */
#include "codec_perf.h"

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

static double host_time(codec_case_t *test, const codec_lane_t *lane, uint64_t repeats)
{
    sample_t sample = {test, lane, repeats};

    if (lane->impl != NULL) lnt_kernels_select(lane->impl);
    return team_run(&test->world->team, run_share, &sample);
}

static const char *host_absent(void)
{
    return NULL;
}

static const char *cuda_absent(void)
{
    return "this build has no device kernels";
}

static const codec_space_t spaces[] = {
    {.name = "host", .absent = host_absent, .time = host_time},
    {.name = "cuda", .absent = cuda_absent, .time = NULL},
};

const codec_space_t *codec_space(int device)
{
    return &spaces[device];
}
