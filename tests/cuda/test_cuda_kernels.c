/* The codec kernels of the device against the reference of the host, byte for byte: every op, codec, element type,
 * block, size around blocks, mask, kind of error feedback, kind of data and alignment; one run by itself and batches of
 * hundreds. One program for a GPU and for the layer that runs kernels on the host (tests/cuda_on_cpu), there once in
 * each order of threads.
 */
#include "codec_job.h"

#include "../../kernels/float_bits.h"
#include "../../kernels/reduce_tree.h"

static job_t job;
static lnt_codec_ops_t ref;

enum { SMALL_MEMORY = 16000, BATCH_MEMORY = 160000 };

static void setup(void)
{
    job_memory_create(SMALL_MEMORY);
}

static void enlarge_memory(size_t elements)
{
    job_memory_destroy();
    job_memory_create(elements);
}

static void choose_codec(int id)
{
    size_t n_rows;
    job.row = lnt_codec_rows(&n_rows) + id;
    ref = lnt_kernel_ops(lnt_kernel_impl_by_name("ref"), job.row->id);
    job.ref = &ref;
    job.cuda = lnt_cuda_codec_ops(job.row->id);
    ck_assert_ptr_nonnull(job.cuda);
}

static void draw_settings(void)
{
    job.cfg.scale_rule = job.row->has_scale_rule && rng_below(2) ? LNT_SCALE_L1 : LNT_SCALE_L2;
    job.data = (data_kind_t)rng_below(DATA_COUNT);
}

static void one_run(uint64_t n)
{
    job.n_runs = 1;
    job.one = rng_below(4) != 0;
    job.runs[0].n = n;
}

/* ---- ops ---- */

static bool squares_fit(const lnt_encode_in_t *in)
{
    static float wide[1 << 22];
    lnt_array_ops_ref.widen[in->dtype](in->values, in->n, wide);
    return lnt_array_ops_ref.squares_fit(wide, in->error_in, in->live, in->n);
}

/* What the reference makes of `in`, into the job's arrays. */
static void encode_ref(const job_run_t *run, lnt_encode_in_t in, bool squares)
{
    static float decoded[1 << 22];
    lnt_encode_out_t out = job_ref_out(&job, run);
    uint32_t *word = job_want(run, ROLE_WORDS);
    bool fit = !squares || squares_fit(&in);
    job.ref->encode(&job.cfg, &in, &out);
    if (squares && fit) {
        job.ref->decode(&job.cfg, out.scales, out.codes, run->n, in.live, decoded);
        fit = lnt_array_ops_ref.squares_fit(decoded, NULL, NULL, run->n);
    }
    *word |= out.poisoned || !fit;
}

static void check_encode(void)
{
    bool squares = rng_below(4) == 0;
    job.n_inputs = 0;
    job_prepare(&job);
    lnt_cuda_batch_t batch = job_send(&job, job.cfg.block, NULL);
    for (uint32_t r = 0; r < job.n_runs; r++)
        encode_ref(&job.runs[r], job_ref_in(&job, &job.runs[r]), squares);
    job_receive(&job, "encode", job.cuda->encode(&job.cfg, &batch, job.dtype, squares, NULL));
    for (uint32_t r = 0; r < job.n_runs; r++)
        job_excuse_poisoned(&job, &job.runs[r], job_ref_in(&job, &job.runs[r]));
    job_compare(&job, "encode");
}

static void describe_single_input(uint32_t r, lnt_cuda_run_t *d)
{
    d->n_inputs = 0;
    d->codes = arena_device(&memory) + job.runs[r].input_codes[0];
    d->scales = arena_device(&memory) + job.runs[r].input_scales[0];
}

/* decode, decode_add or decode_sum. */
static void check_decode(uint32_t n_inputs, bool add)
{
    job.n_inputs = n_inputs ? n_inputs : 1;
    job_prepare(&job);
    lnt_cuda_batch_t batch = job_send(&job, job.cfg.block, n_inputs ? NULL : describe_single_input);
    for (uint32_t r = 0; r < job.n_runs; r++) {
        const job_run_t *run = &job.runs[r];
        lnt_coded_run_t inputs[JOB_INPUTS];
        for (uint32_t i = 0; i < job.n_inputs; i++)
            inputs[i] = (lnt_coded_run_t){memory.want + run->input_scales[i], memory.want + run->input_codes[i]};
        job.ref->decode_sum(&job.cfg, inputs, job.n_inputs, run->n, run->masked ? job_want(run, ROLE_LIVE) : NULL, add,
                            job_want(run, ROLE_OUT));
    }
    job_receive(&job, "decode_sum", job.cuda->decode_sum(&job.cfg, &batch, add, NULL));
    job_compare(&job, add ? "decode_sum, added" : "decode_sum");
}

/* The reference in three steps: sum, factor, encode. */
static void check_serve(void)
{
    static float sum[1 << 22];
    bool squares = rng_below(4) == 0;
    float factor = rng_below(8) ? 1.0f / 3.0f : 3e38f; /* the latter overflows most sums */
    job.n_inputs = 1 + (uint32_t)rng_below(JOB_INPUTS);
    job_prepare(&job);
    lnt_cuda_batch_t batch = job_send(&job, job.cfg.block, NULL);
    job_receive(&job, "serve", job.cuda->serve(&job.cfg, &batch, factor, squares, NULL));
    for (uint32_t r = 0; r < job.n_runs; r++) {
        const job_run_t *run = &job.runs[r];
        lnt_encode_in_t in = job_ref_in(&job, run);
        lnt_coded_run_t inputs[JOB_INPUTS];
        for (uint32_t i = 0; i < job.n_inputs; i++)
            inputs[i] = (lnt_coded_run_t){memory.want + run->input_scales[i], memory.want + run->input_codes[i]};
        job.ref->decode_sum(&job.cfg, inputs, job.n_inputs, run->n, in.live, false, sum);
        (void)lnt_array_ops_ref.scale(sum, run->n, factor);
        in.values = sum;
        in.dtype = LNT_F32;
        encode_ref(run, in, squares);
        job_excuse_poisoned(&job, run, in);
    }
    job_compare(&job, "serve");
}

/* ---- pieces ---- */

/* Each run is a piece of a block: measured after something else, finished, and coded under a scale. The measure lies in
 * the run's `out`, the scale behind it. */
enum { MEASURE_ROOM = (int)((sizeof(lnt_measure_t) + 64) / 4) };

static size_t measure_at(const job_run_t *run)
{
    return (run->at[ROLE_OUT] + 15) / 16 * 16;
}

/* Lanes of which many cancel, and swallow what is added to them before they do: any other order of summation shows in
 * the scale. The sum is not negative. */
static void fill_lanes(double *lanes)
{
    for (int i = 0; i < LNT_TREE_LANES; i++)
        lanes[i] = rng_normal();
    for (int i = 0; i < LNT_TREE_LANES / 4; i++) {
        double large = ldexp(1.0, 50 + (int)rng_below(10));
        int plus = (int)rng_below(LNT_TREE_LANES), minus = (int)rng_below(LNT_TREE_LANES);
        if (plus != minus && fabs(lanes[plus]) < 100 && fabs(lanes[minus]) < 100)
            lanes[plus] = large, lanes[minus] = -large;
    }
    double sum = lnt_tree_combine(lanes);
    for (int i = 0; i < LNT_TREE_LANES && sum < 0; i++)
        lanes[i] = -lanes[i];
}

static uint64_t first[JOB_RUNS];

static void describe_piece(uint32_t r, lnt_cuda_run_t *d)
{
    d->first = first[r];
    d->measure = (lnt_measure_t *)(void *)(arena_device(&memory) + measure_at(&job.runs[r]));
    d->scale = (float *)(void *)(d->measure + 1);
}

static void start_measure(uint32_t r)
{
    lnt_measure_t *m = (lnt_measure_t *)(void *)(memory.given + measure_at(&job.runs[r]));
    memset(m, 0, sizeof(*m));
    fill_lanes(m->lanes);
    m->count = rng_below(100);
    m->amax_bits = rng_below(2) ? 0 : lnt_f32_bits((float)rng_normal()) & 0x7fffffffu;
    if (job.data == DATA_INF) m->poisoned = rng_below(2) != 0;
    first[r] = 32 * rng_below(40);
}

static void check_finish(uint32_t r, const lnt_measure_t *got)
{
    const job_run_t *run = &job.runs[r];
    lnt_measure_t *m = (lnt_measure_t *)(void *)(memory.want + measure_at(run));
    lnt_encode_in_t in = job_ref_in(&job, run);
    float scale, got_scale;
    bool poisoned = false;
    uint32_t word;
    job.ref->measure(&job.cfg, &in, first[r], m);
    if (m->poisoned != got->poisoned) job_fail(&job, run, "measure: poison", 0);
    if (!m->poisoned && memcmp(m->lanes, got->lanes, sizeof(m->lanes))) job_fail(&job, run, "measure: lanes", 0);
    if (m->count != got->count) job_fail(&job, run, "measure: count", 0);
    if (!m->poisoned && m->amax_bits != got->amax_bits) job_fail(&job, run, "measure: maximum", 0);
    scale = job.ref->finish(&job.cfg, m, &poisoned);
    memcpy(&got_scale, got + 1, sizeof(got_scale));
    if (memcmp(&scale, &got_scale, 4)) job_fail(&job, run, "finish: scale", 0);
    memcpy(&word, memory.got + run->at[ROLE_WORDS], 4);
    if (word != poisoned) job_fail(&job, run, "finish: poison", 0);
}

static void check_measure(void)
{
    job.n_inputs = 0;
    job_prepare(&job);
    for (uint32_t r = 0; r < job.n_runs; r++)
        start_measure(r);
    lnt_cuda_batch_t batch = job_send(&job, job.cfg.block, describe_piece);
    ck_assert_int_eq(job.cuda->measure(&job.cfg, &batch, job.dtype, NULL), LNT_OK);
    job_receive(&job, "finish", job.cuda->finish(&job.cfg, &batch, NULL));
    for (uint32_t r = 0; r < job.n_runs; r++)
        check_finish(r, (const lnt_measure_t *)(const void *)(memory.got + measure_at(&job.runs[r])));
}

static void check_encode_scaled(uint32_t unit)
{
    static const float scales[] = {0.0f, 0.3f, 1.0f, 1e-40f, 1e30f};
    float chosen[JOB_RUNS];
    job.n_inputs = 0;
    job_prepare(&job);
    for (uint32_t r = 0; r < job.n_runs; r++) {
        start_measure(r);
        chosen[r] = scales[rng_below(5)];
        memcpy(memory.given + measure_at(&job.runs[r]) + sizeof(lnt_measure_t), &chosen[r], 4);
    }
    lnt_cuda_batch_t batch = job_send(&job, unit, describe_piece);
    job_receive(&job, "encode_scaled", job.cuda->encode_scaled(&job.cfg, &batch, job.dtype, NULL));
    for (uint32_t r = 0; r < job.n_runs; r++) {
        const job_run_t *run = &job.runs[r];
        lnt_encode_in_t in = job_ref_in(&job, run);
        lnt_encode_out_t out = job_ref_out(&job, run);
        job.ref->encode_scaled(&job.cfg, &in, job.row->has_scales ? chosen[r] : 0.0f, &out);
        *(uint32_t *)job_want(run, ROLE_WORDS) |= out.poisoned;
        lnt_codec_cfg_t cfg = job.cfg;
        if (job.row->has_scales) job.cfg.block = 1u << 24; /* the whole piece is excused */
        if (out.poisoned) job_excuse_poisoned(&job, run, in);
        job.cfg = cfg;
    }
    job_compare(&job, "encode_scaled");
}

/* ---- checks ---- */

static const uint32_t blocks[] = {64, 256, 1024, 4096, 128, 512, 1536};
enum { N_BLOCKS = sizeof(blocks) / sizeof(blocks[0]), MAIN_BLOCKS = 4, N_SIZES = 6 };

static uint64_t size_of(int i)
{
    const uint64_t block = job.cfg.block,
                   sizes[N_SIZES] = {0, 1, block - 1, block, block + 1, 2 * block + 1 + rng_below(2 * block)};
    return sizes[i];
}

/* Every combination of what changes the path through a kernel; data and alignments by chance. */
START_TEST(encode_gives_the_bytes_of_the_reference)
{
    choose_codec(_i / LNT_DTYPE_COUNT);
    job.dtype = (lnt_dtype_t)(_i % LNT_DTYPE_COUNT);
    rng_fork((uint64_t)_i);
    for (int variant = 0; variant < N_BLOCKS * N_SIZES * 2 * JOB_FEEDBACKS; variant++) {
        int b = variant % N_BLOCKS, rest = variant / N_BLOCKS;
        job.cfg.block = blocks[b];
        if (device_case_left_out() || (b >= MAIN_BLOCKS && rng_below(4))) continue;
        draw_settings();
        one_run(size_of(rest % N_SIZES));
        job.runs[0].masked = rest / N_SIZES % 2;
        job.runs[0].feedback = (job_feedback_t)(rest / N_SIZES / 2);
        check_encode();
    }
}
END_TEST

/* Every kind of data with every codec, type and misalignment. */
START_TEST(all_data_is_coded_alike)
{
    choose_codec(_i);
    rng_fork((uint64_t)_i);
    for (int variant = 0; variant < DATA_COUNT * LNT_DTYPE_COUNT * 4; variant++) {
        if (device_case_left_out()) continue;
        draw_settings();
        job.cfg.block = blocks[rng_below(N_BLOCKS)];
        job.data = (data_kind_t)(variant % DATA_COUNT);
        job.dtype = (lnt_dtype_t)(variant / DATA_COUNT % LNT_DTYPE_COUNT);
        one_run(1 + rng_below(3000));
        job.runs[0].masked = rng_below(2);
        job.runs[0].feedback = (job_feedback_t)rng_below(JOB_FEEDBACKS);
        check_encode();
    }
}
END_TEST

START_TEST(decoders_and_servers_give_the_bytes_of_the_reference)
{
    choose_codec(_i);
    rng_fork((uint64_t)_i);
    for (int variant = 0; variant < N_BLOCKS * N_SIZES * 2; variant++) {
        if (device_case_left_out()) continue;
        job.cfg.block = blocks[variant % N_BLOCKS];
        draw_settings();
        job.dtype = LNT_F32;
        job.runs[0].masked = variant / N_BLOCKS % 2;
        job.runs[0].feedback = (job_feedback_t)rng_below(JOB_FEEDBACKS);
        one_run(size_of(variant / N_BLOCKS / 2));
        for (uint32_t n_inputs = 0; n_inputs <= JOB_INPUTS; n_inputs++)
            check_decode(n_inputs, rng_below(2));
        check_serve();
    }
}
END_TEST

START_TEST(pieces_give_the_bytes_of_the_reference)
{
    choose_codec(_i);
    rng_fork((uint64_t)_i);
    for (int round = 0; round < 60; round++) {
        if (device_case_left_out()) continue;
        draw_settings();
        job.cfg.block = blocks[rng_below(N_BLOCKS)];
        job.dtype = (lnt_dtype_t)rng_below(LNT_DTYPE_COUNT);
        job.one = rng_below(2);
        job.n_runs = job.one ? 1 : 1 + (uint32_t)rng_below(3);
        for (uint32_t r = 0; r < job.n_runs; r++) {
            job.runs[r].n = MEASURE_ROOM + rng_below(round % 4 ? 1300 : 5000);
            job.runs[r].masked = rng_below(2);
            job.runs[r].feedback = (job_feedback_t)rng_below(JOB_FEEDBACKS);
        }
        check_measure();
        check_encode_scaled(blocks[rng_below(N_BLOCKS)]);
    }
}
END_TEST

/* As many as a model has, most of them small and some empty. */
static void draw_batch(uint32_t n_runs)
{
    job.one = false;
    job.n_runs = n_runs;
    for (uint32_t r = 0; r < n_runs; r++) {
        job.runs[r].n = rng_below(8) == 0 ? 0 : rng_below(rng_below(10) ? 300 : 4000);
        job.runs[r].masked = rng_below(3) == 0;
        job.runs[r].feedback = (job_feedback_t)rng_below(JOB_FEEDBACKS);
    }
}

START_TEST(many_tensors_go_in_one_launch)
{
    choose_codec(_i);
    enlarge_memory(BATCH_MEMORY);
    rng_fork((uint64_t)_i);
    for (int round = 0; round < 4; round++) {
        if (device_case_left_out()) continue;
        draw_settings();
        job.cfg.block = round == 0 ? job.row->default_block : blocks[rng_below(N_BLOCKS)];
        job.dtype = (lnt_dtype_t)rng_below(LNT_DTYPE_COUNT);
        draw_batch(2 + (uint32_t)rng_below(round == 0 ? JOB_RUNS - 2 : 30));
        check_encode();
        check_decode((uint32_t)rng_below(JOB_INPUTS + 1), rng_below(2));
        check_serve();
    }
}
END_TEST

/* More blocks than the largest grid has warps. */
START_TEST(what_the_grid_leaves_over_is_coded_too)
{
    choose_codec(LNT_CODEC_SIGN1);
    enlarge_memory(2200000);
    draw_settings();
    job.data = DATA_NORMAL;
    job.dtype = LNT_F32;
    job.cfg.block = 64;
    one_run(64 * (4 * 8192 + 100) + 7);
    job.runs[0].masked = false;
    job.runs[0].feedback = JOB_SHADOW;
    check_encode();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cuda kernels");
    TCase *t = tcase_create("codecs");
    tcase_add_checked_fixture(t, setup, job_memory_destroy);
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, encode_gives_the_bytes_of_the_reference, 0, LNT_CODEC_COUNT * LNT_DTYPE_COUNT);
    tcase_add_loop_test(t, all_data_is_coded_alike, 0, LNT_CODEC_COUNT);
    tcase_add_loop_test(t, decoders_and_servers_give_the_bytes_of_the_reference, 0, LNT_CODEC_COUNT);
    tcase_add_loop_test(t, pieces_give_the_bytes_of_the_reference, 0, LNT_CODEC_COUNT);
    tcase_add_loop_test(t, many_tensors_go_in_one_launch, 0, LNT_CODEC_COUNT);
    tcase_add_test(t, what_the_grid_leaves_over_is_coded_too);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    const char *order = getenv("LNT_EMU_ORDER");
    if (device_absent()) return 77;
    printf("order of threads: %s\n", order ? order : "forward, or the device's own");
    return run_suite(suite());
}
