/* The exchange over a network in memory, all ranks progressed by one thread with 0 to 4 helpers beside it, against
 * tests/exchange_oracle.h byte for byte: random maps, codecs, tensors, segments, masks, poison, vetoes, delivery
 * orders. Seed: LNT_TEST_SEED. */
#include <time.h>

#include "exchange_world.h"

enum { ROUNDS = 4, CASES = 24, PATIENCE = 1000, LIMIT = 100000 };

static uint64_t seed;

/* --- rounds --------------------------------------------------------------------------------------------------------
 */

static float random_value(int spread)
{
    float unit = (float)draw(1u << 20) / (1u << 20) - 0.5f;

    return draw(40) == 0 ? -0.0f : ldexpf(unit, (int)draw((uint64_t)spread + 1) - spread / 2);
}

static void put_value(bucket_t *bucket, uint32_t rank, uint64_t p, float value)
{
    uint16_t half;

    if (world.dtype == LNT_F32) {
        bucket->values[rank][p] = value;
        return;
    }
    half = (world.dtype == LNT_F16 ? oracle_f16 : oracle_bf16)(value);
    memcpy((uint8_t *)bucket->values[rank] + 2 * p, &half, 2);
}

/* Where means are squared: a value just below the largest one that can be, so that the error or the rounding of the
 * codec decides. Or one beyond it whose opposite some other rank has, so that the sum does not tell. */
static void draw_hot(bucket_t *bucket, uint64_t p, bool opposed)
{
    const oracle_t *o = &bucket->oracle;
    float most = 1.8446743e19f * (opposed ? 1.01f : 1 - (float)draw(1000) * 5e-6f) / (o->factor * (float)o->size[0]);

    for (uint32_t r = 0; r < o->n; r++) {
        float value = opposed && r % 2 != 0 ? -most : most;

        put_value(bucket, r, p, world.own_local ? 2 * value : value);
        bucket->more[r][p] = 0;
    }
    bucket->bias[p] = 0;
}

static void draw_inputs(bucket_t *bucket)
{
    oracle_t *o = &bucket->oracle;
    int spread = draw(3) != 0 ? 8 : world.dtype == LNT_F16 ? 28 : 60; /* no input is Inf */
    uint64_t hot = o->feeds_v && draw(2) ? draw(o->N + 1) : o->N;
    float nil = draw(2) ? 0.0f : -0.0f;
    uint64_t zeros = o->N == 0 ? 0 : draw(o->N), end = zeros + draw(3) * o->block; /* some whole blocks are zero */

    for (uint64_t p = 0; p < o->N; p++) {
        bool zero = p >= zeros && p < end;

        for (uint32_t r = 0; r < o->n; r++) {
            put_value(bucket, r, p, zero ? nil : random_value(spread));
            bucket->more[r][p] = zero ? nil : random_value(spread);
        }
        bucket->bias[p] = zero ? nil : random_value(spread);
        if (p == hot) {
            draw_hot(bucket, p, draw(3) == 0);
        }
    }
}

static void poison(bucket_t *bucket)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3.0e38f, 1e20f};
    uint32_t rank = (uint32_t)draw(world.n);

    if (bucket->oracle.N != 0) {
        put_value(bucket, rank, draw(bucket->oracle.N), bad[draw(sizeof(bad) / sizeof(bad[0]))]);
    }
}

/* What the sources and produce_local make of the values. */
static void form_inputs(bucket_t *bucket)
{
    for (uint32_t r = 0; r < world.n; r++) {
        for (uint64_t t = 0, p = 0; t < bucket->oracle.n_extents; t++) {
            const lnt_source_t *source = &bucket->sources[r][t];

            for (uint64_t i = 0; i < bucket->extents[t].count; i++, p++) {
                float value = source->values == NULL ? 0 : widened(bucket->values[r], world.dtype, p);

                value = source->accumulated == NULL ? value : value + bucket->more[r][p];
                bucket->oracle.input[r][p] = world.own_local ? 0.5f * value : value;
            }
        }
    }
}

static void draw_mask(bucket_t *bucket)
{
    oracle_t *o = &bucket->oracle;

    for (uint32_t t = 0, pos = 0; t < o->n_extents; pos += (uint32_t)o->count[t++]) {
        uint64_t begin = draw(o->count[t] + 1), count = draw(o->count[t] - begin + 1);
        int kind = (int)draw(4);

        for (uint64_t i = begin; i < begin + count; i++) {
            bucket->live[pos + i] = kind == 0 ? 1 : kind == 1 ? 0 : draw(4) != 0;
        }
        for (uint32_t r = 0; r < world.n; r++) {
            ck_assert_int_eq(lnt_exchange_set_live(bucket->exchange[r], t, bucket->extents[t].offset + begin, count,
                                                   kind == 0 ? NULL : bucket->live + pos + begin),
                             LNT_OK);
        }
    }
    oracle_mask(o);
}

static bool all_done(void)
{
    for (uint32_t r = 0; r < world.n; r++) {
        if (atomic_load(&world.job[r].state) != LNT_JOB_DONE) {
            return false;
        }
    }
    return true;
}

static void run_ranks(uint64_t sequence)
{
    uint64_t idle = 0;

    for (uint32_t r = 0; r < world.n; r++) {
        lnt_job_t *job = &world.job[r];

        job->graphs = world.graphs[r];
        job->n_graphs = world.n_buckets;
        job->ready = world.ready[r];
        job->sequence = sequence;
        atomic_store(&job->raised, world.bucket[0].oracle.veto[r] ? LNT_FRAME_VETO : 0);
        if (draw(2)) {
            lnt_exec_post(world.net.exec[r], job);
        } else {
            atomic_store(&job->state, LNT_JOB_IDLE);
        }
    }
    while (!all_done()) {
        uint32_t r = (uint32_t)draw(world.n);
        lnt_job_t *job = &world.job[r];
        bool moved = draw(2) ? fake_step(&world.net) : lnt_exec_progress(world.net.exec[r]);

        if (draw(20) == 0 && atomic_load(&job->state) == LNT_JOB_IDLE) {
            lnt_exec_post(world.net.exec[r], job); /* late: others' frames were held */
        } else if (atomic_load(&job->state) == LNT_JOB_RUNNING) {
            lnt_job_ready(world.net.exec[r], job, (uint32_t)draw(world.n_buckets));
        }
        idle = moved ? 0 : idle + 1;
        ck_assert_uint_lt(idle, LIMIT);
        if (idle > PATIENCE) {
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL); /* a helper may be at it */
        }
    }
    ck_assert_uint_eq(world.net.n_items, 0);
}

static void same_floats(const float *a, const float *b, uint64_t n, const char *what)
{
    for (uint64_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], 4) != 0) {
            ck_abort_msg("%s: element %d of %d is %.9g, not %.9g", what, (int)i, (int)n, (double)a[i], (double)b[i]);
        }
    }
}

static void check_output(const bucket_t *bucket, uint32_t rank)
{
    const oracle_t *o = &bucket->oracle;
    float *out = oracle_floats(o->N);
    uint32_t b = o->n_blocks == 0 ? 0 : (uint32_t)draw(o->n_blocks);

    lnt_exchange_read(bucket->exchange[rank], 0, o->N, out);
    same_floats(out, o->out, o->N, "output");
    if (o->n_blocks != 0) {
        lnt_exchange_read(bucket->exchange[rank], o->pos[b], o->N - o->pos[b], out);
        same_floats(out, o->out + o->pos[b], o->N - o->pos[b], "part of the output");
    }
    free(out);
}

static void check_errors(const bucket_t *bucket, uint32_t rank)
{
    const oracle_t *o = &bucket->oracle;
    lnt_owned_t worker = lnt_exchange_worker_error(bucket->exchange[rank]),
                server = lnt_exchange_server_error(bucket->exchange[rank]);
    uint64_t shard = 0, chunk = 0;
    uint32_t a = o->node[rank];

    for (uint32_t k = 0; k < o->n_blocks && oracle_errors(o); k++) {
        bool own = o->ranks[a][o->shard[k]] == rank;

        shard += own ? o->len[k] : 0;
        chunk += own && o->chunk[k] == a ? o->len[k] : 0;
        ck_assert(!own || (o->pos[k] >= worker.begin && o->pos[k] < worker.end));
    }
    ck_assert_uint_eq(worker.end - worker.begin, shard);
    ck_assert_uint_eq(server.end - server.begin, chunk);
    same_floats(worker.values, o->e[a] + worker.begin, shard, "worker error");
    same_floats(server.values, o->E + server.begin, chunk, "server error");
}

static void check_masks(const bucket_t *bucket, uint32_t rank)
{
    const oracle_t *o = &bucket->oracle;
    const uint8_t *active = lnt_exchange_active(bucket->exchange[rank]);
    bool any = memchr(bucket->live, 0, o->N) != NULL;

    ck_assert(any == (active != NULL));
    for (uint32_t k = 0; k < o->n_blocks; k++) {
        const uint8_t *bits = lnt_exchange_live(bucket->exchange[rank], o->pos[k], o->len[k]);

        ck_assert((bits != NULL) == (memchr(bucket->live + o->pos[k], 0, o->len[k]) != NULL));
        ck_assert(active == NULL || active[k] == o->active[k]);
        for (uint64_t i = 0; i < o->len[k] && bits != NULL; i++) {
            ck_assert_uint_eq(bits[i / 8] >> i % 8 & 1, bucket->live[o->pos[k] + i]);
        }
    }
}

static void check_bytes(void)
{
    for (uint32_t r = 0; r < world.n; r++) {
        uint64_t intra = 0, inter = 0;

        for (uint32_t b = 0; b < world.n_buckets; b++) {
            lnt_bytes_t bytes;

            ck_assert_int_eq(lnt_exchange_bytes(world.bucket[b].exchange[r], &bytes), LNT_OK);
            ck_assert_uint_eq(bytes.intra, world.bucket[b].oracle.intra[r]);
            ck_assert_uint_eq(bytes.inter, world.bucket[b].oracle.inter[r]);
            intra += bytes.intra;
            inter += bytes.inter;
        }
        ck_assert_uint_eq(world.net.intra[r], intra);
        ck_assert_uint_eq(world.net.inter[r], inter);
    }
    memset(world.net.intra, 0, sizeof(world.net.intra));
    memset(world.net.inter, 0, sizeof(world.net.inter));
}

static void check_round(int flags)
{
    check_bytes();
    for (uint32_t r = 0; r < world.n; r++) {
        ck_assert_int_eq(world.job[r].flags, flags);
        for (uint32_t b = 0; b < world.n_buckets; b++) {
            ck_assert_int_eq(world.graphs[r][b]->flags, world.bucket[b].oracle.flags);
            if (flags == 0) {
                lnt_exchange_commit(world.bucket[b].exchange[r]);
                check_output(&world.bucket[b], r);
            }
        }
    }
    for (uint32_t b = 0; b < world.n_buckets; b++) {
        if (flags == 0) {
            oracle_commit(&world.bucket[b].oracle);
        }
        for (uint32_t r = 0; r < world.n; r++) {
            check_errors(&world.bucket[b], r);
            if (!world.bucket[b].oracle.packed) {
                check_masks(&world.bucket[b], r);
            }
        }
    }
}

static void one_round(uint64_t sequence, bool clean)
{
    int flags = 0;

    for (uint32_t b = 0; b < world.n_buckets; b++) {
        bucket_t *bucket = &world.bucket[b];

        draw_inputs(bucket);
        if (!clean && draw(3) == 0) {
            poison(bucket);
        }
        for (uint32_t r = 0; r < world.n; r++) {
            bucket->oracle.veto[r] = b == 0 ? !clean && draw(12) == 0 : world.bucket[0].oracle.veto[r];
        }
        form_inputs(bucket);
        oracle_run(&bucket->oracle);
        flags |= bucket->oracle.flags;
    }
    run_ranks(sequence);
    check_round(flags);
}

/* Two sums of the same n terms, none negative and each exact in f64, in different orders: each is off by at most
 * (n - 1) roundings of 2^-53 of its value. */
static bool same_sum(double got, double want, double n_terms)
{
    return fabs(got - want) <= 2 * n_terms * 0x1p-53 * want;
}

static void drop_all(void)
{
    for (uint32_t b = 0; b < world.n_buckets; b++) {
        bucket_t *bucket = &world.bucket[b];
        double want = 0, got = 0, mine;

        for (uint64_t p = 0; p < bucket->oracle.N && oracle_errors(&bucket->oracle); p++) {
            for (uint32_t a = 0; a < bucket->oracle.M; a++) {
                want += (double)bucket->oracle.e[a][p] * (double)bucket->oracle.e[a][p];
                bucket->oracle.e[a][p] = 0;
            }
            want += (double)bucket->oracle.E[p] * (double)bucket->oracle.E[p];
            bucket->oracle.E[p] = 0;
        }
        for (uint32_t r = 0; r < world.n; r++) {
            lnt_exchange_drop_errors(bucket->exchange[r], &mine);
            got += mine;
            check_errors(bucket, r);
        }
        ck_assert(same_sum(got, want, (double)bucket->oracle.N * (bucket->oracle.M + 1.0)));
    }
}

static void run_world(void)
{
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (uint32_t b = 0; b < world.n_buckets && round != 0; b++) {
            if (!world.bucket[b].oracle.packed && draw(2)) {
                draw_mask(&world.bucket[b]);
            }
        }
        one_round(10 + round, round == 0);
        if (draw(8) == 0) {
            drop_all();
        }
    }
}

/* --- cases ---------------------------------------------------------------------------------------------------------
 */

static const struct map {
    uint32_t n;
    uint64_t label[FAKE_RANKS];
} maps[] = {
    {2, {0, 1}},          {4, {0, 1, 2, 3}},
    {4, {0, 0, 1, 1}},    {4, {0, 1, 0, 1}},
    {5, {0, 0, 0, 1, 1}}, {6, {0, 1, 1, 0, 2, 1}},
    {3, {0, 0, 0}},       {1, {0}},
    {5, {0, 1, 1, 0, 2}}, {8, {0, 0, 0, 0, 1, 1, 1, 1}},
};

static shape_t random_shape(const struct map *map, int codec, uint64_t most)
{
    static const uint32_t blocks[] = {64, 128, 192, 256, 1024};
    shape_t shape = {.n = map->n, .codec = codec};
    uint64_t left = most;

    memcpy(shape.label, map->label, sizeof(shape.label));
    shape.block = blocks[draw(5)];
    shape.n_extents = (uint32_t)draw(ORACLE_EXTENTS + 1);
    for (uint32_t t = 0; t < shape.n_extents; t++) {
        static const uint64_t short_ones[] = {0, 1, 63, 64, 65};
        uint64_t count = draw(2) ? short_ones[draw(5)] : draw(left / 2 + 1);

        shape.count[t] = draw(6) == 0 ? shape.block * draw(3) : count;
        shape.count[t] = shape.count[t] < left ? shape.count[t] : left;
        left -= shape.count[t];
    }
    shape.segment = draw(4) == 0 ? 0 : draw(3) == 0 ? most : 1 + draw(shape.block * 5);
    shape.packed = draw(4) == 0;
    shape.l1 = codec == ORACLE_SIGN1 && draw(3) == 0;
    shape.feeds_v = draw(3) == 0;
    shape.feedback = draw(4) != 0;
    shape.sum = draw(4) == 0;
    return shape;
}

static void random_case(const struct map *map, int codec, uint64_t most)
{
    uint32_t n_buckets = 1 + (uint32_t)draw(BUCKETS);
    shape_t shapes[BUCKETS];

    for (uint32_t b = 0; b < n_buckets; b++) {
        shapes[b] = random_shape(map, codec, most);
    }
    make_world(shapes, n_buckets, fake_random(&world.net));
    run_world();
    end_world();
}

static void seed_case(int number, int kind)
{
    world.net.random = (seed * 1000003 + (uint64_t)number * 101 + (uint64_t)kind) | 1;
    for (int i = 0; i < 20; i++) {
        fake_random(&world.net);
    }
}

START_TEST(fixed_maps_match_the_oracle)
{
    for (int codec = ORACLE_F32; codec < ORACLE_CODECS; codec++) {
        seed_case(_i, codec);
        random_case(&maps[_i], codec, 3000);
    }
}
END_TEST

START_TEST(random_maps_match_the_oracle)
{
    struct map map;
    uint64_t n_labels;

    seed_case(_i, 10);
    map.n = 1 + (uint32_t)draw(FAKE_RANKS);
    n_labels = draw(3) == 0 ? 2 * FAKE_RANKS : 6; /* now and then many nodes */
    for (uint32_t r = 0; r < FAKE_RANKS; r++) {
        map.label[r] = draw(1 + draw(n_labels)) * 1000;
    }
    random_case(&map, (int)draw(ORACLE_CODECS), 2000);
}
END_TEST

/* Blocks that do not fit the stack. */
START_TEST(large_blocks_match_the_oracle)
{
    shape_t shape;

    seed_case(_i, 20);
    shape = random_shape(&maps[_i], ORACLE_SIGN1 + _i % 4, 30000);
    shape.block = 4096 + 64 * (1 + (uint32_t)draw(20));
    shape.packed = draw(3) == 0;
    shape.segment = draw(20000);
    make_world(&shape, 1, fake_random(&world.net));
    run_world();
    end_world();
}
END_TEST

/* Compat grids: a worker scale over several blocks, also of 8, across chunks and segments. */
START_TEST(compat_grids_match_the_oracle)
{
    shape_t shape;

    seed_case(_i, 30);
    shape = random_shape(&maps[_i], ORACLE_SIGN1 + (int)draw(3), 3000);
    shape.block = 8 * (1 + (uint32_t)draw(40));
    shape.scale_block = shape.block * (1 + (uint32_t)draw(20));
    make_world(&shape, 1, fake_random(&world.net));
    run_world();
    end_world();
}
END_TEST

/* Same inputs, other segments and other delivery orders: same bytes. */
START_TEST(segments_and_order_leave_results_alone)
{
    float *first = NULL;
    shape_t shape;
    uint64_t random;

    seed_case(_i, 40);
    shape = random_shape(&maps[_i], ORACLE_SIGN1, 3000);
    random = fake_random(&world.net);
    for (uint64_t segment = 0; segment < 3; segment++) {
        shape.segment = segment * segment * 700;
        make_world(&shape, 1, random);
        draw_inputs(&world.bucket[0]);
        form_inputs(&world.bucket[0]);
        oracle_run(&world.bucket[0].oracle);
        world.net.random ^= segment << 20;
        run_ranks(1);
        ck_assert_int_eq(world.job[0].flags, world.bucket[0].oracle.flags);
        if (world.job[0].flags == 0) { /* inputs may lie at the border of what can be squared, or beyond it */
            check_output(&world.bucket[0], 0);
        }
        if (first == NULL) {
            first = oracle_floats(world.bucket[0].oracle.N);
            memcpy(first, world.bucket[0].oracle.out, world.bucket[0].oracle.N * sizeof(*first));
        }
        same_floats(first, world.bucket[0].oracle.out, world.bucket[0].oracle.N, "inputs of another segment size");
        end_world();
    }
    free(first);
}
END_TEST

static uint32_t seeds_after(shape_t *shape, uint64_t segment, uint64_t step)
{
    shape->segment = segment;
    spy.step = step;
    make_world(shape, 1, fake_random(&world.net));
    draw_inputs(&world.bucket[0]);
    run_ranks(1);
    end_world();
    return spy.n_seeds;
}

/* Index: the element's place in its tensor. Seed: of the tensor, the step, and who codes: two nodes and the server. */
START_TEST(encoders_know_the_place_of_elements)
{
    shape_t shape = {
        .n = 4, .label = {5, 5, 9, 9}, .codec = ORACLE_F32, .block = 64, .n_extents = 3, .count = {300, 0, 1000}};

    seed_case(0, 50);
    spy.on = true;
    ck_assert_uint_eq(seeds_after(&shape, 100, 7), 2 * 3);
    ck_assert_uint_eq(seeds_after(&shape, 700, 7), 2 * 3); /* segments do not matter */
    ck_assert_uint_eq(seeds_after(&shape, 700, 8), 4 * 3);
    memset(&spy, 0, sizeof(spy));
}
END_TEST

/* Every rank looks at its own values, however it forms them. */
START_TEST(squares_that_cancel_are_seen)
{
    shape_t shape = {
        .n = 2, .label = {1, 2}, .block = 64, .n_extents = 1, .count = {200}, .feeds_v = true, .sum = true};

    seed_case(0, 70);
    for (int k = 0; k < 80; k++) {
        shape.codec = (int)draw(ORACLE_CODECS);
        make_world(&shape, 1, fake_random(&world.net));
        draw_inputs(&world.bucket[0]);
        draw_hot(&world.bucket[0], draw(200), true);
        form_inputs(&world.bucket[0]);
        oracle_run(&world.bucket[0].oracle);
        run_ranks(1);
        ck_assert_int_eq(world.job[0].flags, world.bucket[0].oracle.flags);
        end_world();
    }
}
END_TEST

static void start_rank(uint32_t r)
{
    lnt_job_t *job = &world.job[r];

    job->graphs = world.graphs[r];
    job->n_graphs = 1;
    job->ready = world.ready[r];
    job->sequence = 1;
    lnt_exec_post(world.net.exec[r], job);
    lnt_job_ready(world.net.exec[r], job, 0);
}

/* Nobody waits for the frames of the own chunk: those for the next node are coded first, and leave at once. */
START_TEST(frames_for_others_are_coded_first)
{
    shape_t shape = {.n = 3, .label = {1, 2, 3}, .codec = ORACLE_SIGN1, .block = 64, .n_extents = 1, .count = {6000}};

    seed_case(0, 60);
    shape.segment = 64;
    no_helpers = true;
    make_world(&shape, 1, fake_random(&world.net));
    draw_inputs(&world.bucket[0]);
    for (uint32_t r = 0; r < world.n; r++) {
        uint32_t before = world.net.n_items;

        start_rank(r);
        ck_assert(lnt_exec_progress(world.net.exec[r]));
        ck_assert_uint_gt(world.net.n_items, before);
        for (uint32_t i = before; i < world.net.n_items; i++) {
            const lnt_frame_header_t *header = (const void *)world.net.items[i].send->frame;

            ck_assert_uint_eq(header->chunk, (r + 1) % 3);
            ck_assert_uint_eq(header->segment, i - before);
        }
    }
    while (!all_done()) {
        for (uint32_t r = 0; r < world.n; r++) {
            (void)lnt_exec_progress(world.net.exec[r]);
        }
        (void)fake_step(&world.net);
    }
    end_world();
    no_helpers = false;
}
END_TEST

int main(void)
{
    const int n_maps = (int)(sizeof(maps) / sizeof(maps[0]));
    const char *text = getenv("LNT_TEST_SEED");
    Suite *suite = suite_create("exchange");
    TCase *tests = tcase_create("exchange");
    SRunner *runner;
    int failed;

    seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    printf("LNT_TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, fixed_maps_match_the_oracle, 0, n_maps);
    tcase_add_loop_test(tests, random_maps_match_the_oracle, 0, CASES);
    tcase_add_loop_test(tests, large_blocks_match_the_oracle, 0, n_maps);
    tcase_add_loop_test(tests, compat_grids_match_the_oracle, 0, n_maps);
    tcase_add_loop_test(tests, segments_and_order_leave_results_alone, 0, n_maps);
    tcase_add_test(tests, encoders_know_the_place_of_elements);
    tcase_add_test(tests, squares_that_cancel_are_seen);
    tcase_add_test(tests, frames_for_others_are_coded_first);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
