/* The table of spaces, and the lanes that every space has. */
#include "codec_perf.h"

#if !defined(LINNET_DEVICE_KERNELS)
static const char *cuda_absent(void)
{
    return "this build has no device kernels (LINNET_WITH_CUDA, and nvcc)";
}

static const codec_space_t codec_space_cuda = {.name = "cuda", .absent = cuda_absent};
#else
extern const codec_space_t codec_space_cuda;
#endif

static const codec_space_t *const spaces[] = {&codec_space_host, &codec_space_cuda};

const codec_space_t *codec_space(int device)
{
    return spaces[device];
}

codec_lane_t *codec_lane_add(codec_case_t *test, const char *name, const lnt_kernel_impl_t *impl)
{
    codec_lane_t *lane = &test->lanes[test->n_lanes++];

    *lane = (codec_lane_t){.name = name,
                           .impl = impl,
                           .run = test->op->run,
                           .n = test->n,
                           .unit = test->cfg.block,
                           .counted_bytes = codec_counted_bytes(test)};
    if (test->row != NULL && impl != NULL) lane->ops = lnt_kernel_ops(impl, test->row->id);
    return lane;
}

void codec_lanes_begin(codec_case_t *test)
{
    size_t n_impls;
    const lnt_kernel_impl_t *ref = lnt_kernel_impls(&n_impls);

    codec_yard_lanes(test);
    test->lanes[LANE_STREAMS] = codec_streams_lane(test);
    test->n_lanes = LANE_REF;
    (void)codec_lane_add(test, ref->name, ref);
}
