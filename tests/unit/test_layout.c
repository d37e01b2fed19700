/* Layout rules against a list of blocks made in the plainest way, against lines printed by the executable model
 * (tests/golden/layout_vectors.txt), and as properties at sizes nobody could allocate. */
#include <string.h>

#include "../../src/coll/layout.h"
#include "../../src/transport/frame.h"
#include "testing.h"

enum { MAX_EXTENTS = 12, MAX_BLOCKS = 4096 };

static uint32_t below(uint32_t n)
{
    return (uint32_t)test_random_below(n);
}

/* ---- oracle: every block listed ------------------------------------------------------------------------------- */

typedef struct listed {
    uint64_t pos[MAX_BLOCKS + 1], n;
} listed_t;

static void list_blocks(listed_t *list, const lnt_extent_t *extents, size_t n_extents, uint32_t block, bool packed)
{
    uint64_t pos = 0, left_in_block = 0;

    list->n = 0;
    for (size_t e = 0; e < n_extents; ++e) {
        left_in_block = packed ? left_in_block : 0;
        for (uint64_t i = 0; i < extents[e].count; ++i, ++pos, --left_in_block) {
            if (left_in_block == 0) {
                list->pos[list->n++] = pos;
                left_in_block = block;
            }
        }
    }
    list->pos[list->n] = pos;
}

/* Extents of random tensors; each begins at a block border of its tensor. */
static size_t random_extents(lnt_extent_t *extents, uint32_t block)
{
    static const uint64_t counts[] = {0, 1, 7, 63, 64, 65, 127, 130, 200, 257, 384, 500};
    size_t n = below(MAX_EXTENTS + 1);

    for (size_t e = 0; e < n; ++e) {
        extents[e] = (lnt_extent_t){(uint32_t)e, (uint64_t)block * below(3), counts[below(12)]};
    }
    return n;
}

static uint64_t listed_codes(const listed_t *list, lnt_range_t range, uint32_t bits)
{
    uint64_t bytes = 0;

    for (uint64_t k = range.begin; k < range.end; ++k) {
        bytes += ((list->pos[k + 1] - list->pos[k]) * bits + 7) / 8;
    }
    return bytes;
}

static void check_parts(const lnt_grid_t *grid, const listed_t *list, lnt_range_t range, uint32_t n)
{
    const uint64_t n_elems = list->pos[range.end] - list->pos[range.begin];
    uint64_t next = range.begin;

    ck_assert_uint_eq(lnt_range_elems(grid, range), n_elems);
    for (uint32_t i = 0; i < n; ++i) {
        lnt_range_t part = lnt_layout_part(grid, range, n, i);

        ck_assert_uint_eq(part.begin, next);
        ck_assert_uint_ge(part.end, part.begin);
        for (uint64_t k = part.begin; k < part.end; ++k) {
            ck_assert_uint_eq((list->pos[k] - list->pos[range.begin]) * n / n_elems, i);
        }
        if (part.end > part.begin) {
            ck_assert(lnt_range_elems(grid, part) * n < n_elems + (uint64_t)grid->block * n); /* L2 */
        }
        next = part.end;
    }
    ck_assert_uint_eq(next, range.end);
}

static void check_segments(const lnt_grid_t *grid, const listed_t *list, lnt_range_t range, uint64_t segment_elems)
{
    uint32_t n = 0;

    for (uint64_t k = range.begin; k < range.end; ++n) {
        lnt_range_t segment = lnt_layout_segment(grid, range, k, segment_elems);
        uint64_t elems = list->pos[segment.end] - list->pos[k];

        ck_assert_uint_eq(segment.begin, k);
        ck_assert((segment.end > k) && (segment.end <= range.end));
        ck_assert((elems <= segment_elems) || (segment.end == k + 1));
        ck_assert((segment.end == range.end) || (list->pos[segment.end + 1] - list->pos[k] > segment_elems));
        k = segment.end;
    }
    ck_assert_uint_eq(lnt_layout_n_segments(grid, range, segment_elems), n);
}

static void check_runs(const lnt_grid_t *grid, const lnt_extent_t *extents, uint64_t begin, uint64_t end)
{
    uint64_t pos = begin;

    while (pos < end) {
        lnt_run_t run = lnt_layout_run(grid, pos, end);
        uint64_t first = 0;
        size_t e = 0;

        for (; first + extents[e].count <= pos; ++e) {
            first += extents[e].count;
        }
        ck_assert_uint_eq(run.pos, pos);
        ck_assert_uint_eq(run.tensor, extents[e].tensor);
        ck_assert_uint_eq(run.offset, extents[e].offset + pos - first);
        pos += run.count;
        ck_assert((run.count > 0) && (pos <= end) && (pos <= first + extents[e].count));
        ck_assert((pos == end) || (pos == first + extents[e].count) || (grid->packed && (pos % grid->block == 0)));
        ck_assert(!grid->packed || ((pos - 1) / grid->block == run.pos / grid->block));
    }
}

static void check_codes(const lnt_grid_t *grid, const listed_t *list, lnt_range_t range)
{
    static const lnt_codec_row_t rows[] = {{.bits = 1, .has_scales = true},
                                           {.bits = 4, .has_scales = true},
                                           {.bits = 8, .has_scales = true},
                                           {.bits = 16},
                                           {.bits = 32}};

    for (size_t i = 0; i < 5; ++i) {
        lnt_codec_t codec = {.row = &rows[i]};
        uint64_t scales = rows[i].has_scales ? 4 * (range.end - range.begin) : 0,
                 codes = listed_codes(list, range, rows[i].bits);
        uint64_t middle = range.begin + (range.end - range.begin) / 2;

        ck_assert_uint_eq(lnt_layout_scale_bytes(&codec, grid, range), scales);
        ck_assert_uint_eq(lnt_layout_code_bytes(&codec, grid, range), codes);
        ck_assert_uint_eq(lnt_layout_frame_bytes(&codec, grid, range, 9), 64 + scales + codes + 2);
        ck_assert_uint_eq(lnt_layout_code_offset(&codec, grid, range, middle),
                          listed_codes(list, (lnt_range_t){range.begin, middle}, rows[i].bits));
    }
    ck_assert_uint_eq(lnt_layout_mask_offset(grid, range.begin), listed_codes(list, (lnt_range_t){0, range.begin}, 1));
}

START_TEST(random_grids_match_a_list_of_blocks)
{
    static listed_t list;
    lnt_extent_t extents[MAX_EXTENTS];

    for (int i = 0; i < 3000; ++i) {
        uint32_t block = 64 * (1 + below(3));
        bool packed = below(2) != 0;
        size_t n_extents = random_extents(extents, block);
        lnt_grid_t grid;
        lnt_range_t range;

        list_blocks(&list, extents, n_extents, block, packed);
        ck_assert_int_eq(lnt_grid_init(&grid, extents, n_extents, block, packed), LNT_OK);
        ck_assert_uint_eq(grid.n_blocks, list.n);
        ck_assert_uint_eq(grid.n_elems, list.pos[list.n]);
        for (uint64_t k = 0; k <= list.n; ++k) {
            ck_assert_uint_eq(lnt_grid_pos(&grid, k), list.pos[k]);
        }
        range.begin = below((uint32_t)list.n + 1);
        range.end = range.begin + below((uint32_t)(list.n - range.begin) + 1);
        check_parts(&grid, &list, range, 1 + below(17));
        check_segments(&grid, &list, range, 1 + below(600));
        check_runs(&grid, extents, list.pos[range.begin], list.pos[range.end]);
        check_codes(&grid, &list, range);
        lnt_grid_release(&grid);
    }
}
END_TEST

/* ---- the model's lines ---------------------------------------------------------------------------------------- */

typedef struct vector_case {
    bool packed;
    uint32_t block, n_tensors;
    uint64_t bucket_elems, segment_elems, counts[16];
    lnt_codec_row_t row;
    lnt_codec_t codec;
    lnt_topo_t *topo;
    FILE *in, *out;
    uint64_t begin; /* of the next bucket in the flat vector */
} vector_case_t;

static size_t read_numbers(const char *text, uint64_t *numbers, size_t room)
{
    size_t n = 0;
    char *end;

    for (;; text = end) {
        uint64_t x = strtoull(text, &end, 10);

        if (end == text) {
            return n;
        }
        ck_assert_uint_lt(n, room);
        numbers[n++] = x;
    }
}

static void print_segments(const vector_case_t *c, const lnt_grid_t *grid, const uint8_t *dead, int phase, uint32_t d,
                           uint32_t chunk, lnt_range_t range)
{
    const bool plain = (phase == 0) || (c->topo->n_nodes == 1);
    const lnt_codec_t f32 = {.row = lnt_codec_row_by_name("f32")};
    const lnt_codec_t *codec = plain ? &f32 : &c->codec;

    for (uint64_t k = range.begin; k < range.end;) {
        lnt_range_t s = lnt_layout_segment(grid, range, k, c->segment_elems);
        uint64_t n_dead = 0;

        for (uint64_t b = s.begin; (phase != 0) && (b < s.end); ++b) {
            n_dead += dead[b];
        }
        fprintf(c->out, "segment %d %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", phase, d, chunk, s.begin,
                s.end, lnt_layout_frame_bytes(codec, grid, s, n_dead),
                lnt_layout_code_offset(codec, grid, s, s.end - 1));
        k = s.end;
    }
}

static void print_bucket(vector_case_t *c, const lnt_grid_t *grid, const uint8_t *dead)
{
    const lnt_range_t all = {0, grid->n_blocks};

    for (uint64_t pos = 0; grid->packed && (pos < grid->n_elems);) {
        lnt_run_t run = lnt_layout_run(grid, pos, grid->n_elems);

        fprintf(c->out, "run %u %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", run.tensor, run.offset, run.pos, run.count);
        pos += run.count;
    }
    for (uint32_t d = 0; d < c->topo->n_shards; ++d) {
        print_segments(c, grid, dead, 0, d, 0, lnt_layout_part(grid, all, c->topo->n_shards, d));
    }
    for (uint32_t d = 0; d < c->topo->n_shards; ++d) {
        lnt_range_t shard = lnt_layout_part(grid, all, c->topo->n_shards, d);

        for (uint32_t a = 0; a < c->topo->n_nodes; ++a) {
            print_segments(c, grid, dead, 1, d, a, lnt_layout_part(grid, shard, c->topo->n_nodes, a));
        }
    }
    for (uint32_t r = 0; r < c->topo->n_ranks; ++r) {
        lnt_bytes_t bytes;

        ck_assert_int_eq(lnt_layout_exchange_bytes(grid, c->topo, &c->codec, c->segment_elems, dead, r, &bytes),
                         LNT_OK);
        fprintf(c->out, "sent %u %" PRIu64 " %" PRIu64 "\n", r, bytes.intra, bytes.inter);
    }
}

/* The `dead` line of a bucket is an input: find it in the model's text, echo it. */
static lnt_status_t on_bucket(void *arg, const lnt_extent_t *extents, size_t n_extents)
{
    static uint8_t dead[MAX_BLOCKS];
    static uint64_t numbers[MAX_BLOCKS];
    vector_case_t *c = arg;
    lnt_grid_t grid;
    char line[8192];
    size_t n;

    ck_assert_int_eq(lnt_grid_init(&grid, extents, n_extents, c->block, c->packed), LNT_OK);
    fprintf(c->out, "bucket %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", c->begin, grid.n_elems, grid.n_blocks);
    c->begin += grid.n_elems;
    do {
        ck_assert_ptr_nonnull(fgets(line, sizeof(line), c->in));
    } while (strncmp(line, "dead", 4) != 0);
    memset(dead, 0, sizeof(dead));
    n = read_numbers(line + 4, numbers, MAX_BLOCKS);
    for (size_t i = 0; i < n; ++i) {
        dead[numbers[i]] = 1;
    }
    fputs(line, c->out);
    print_bucket(c, &grid, dead);
    lnt_grid_release(&grid);
    return LNT_OK;
}

static void run_case(vector_case_t *c, const char *case_line)
{
    uint64_t numbers[32], labels[32];
    lnt_extent_t extents[32];
    char line[512];
    size_t n = read_numbers(case_line + 5, numbers, 32);

    c->packed = numbers[0] != 0;
    c->block = (uint32_t)numbers[1];
    c->bucket_elems = numbers[2];
    c->segment_elems = numbers[3];
    c->row = (lnt_codec_row_t){.bits = (uint32_t)numbers[4], .has_scales = numbers[5] != 0};
    c->codec = (lnt_codec_t){.row = &c->row};
    c->n_tensors = (uint32_t)n - 6;
    c->begin = 0;
    memcpy(c->counts, numbers + 6, c->n_tensors * sizeof(numbers[0]));
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), c->in));
    ck_assert_int_eq(lnt_topo_create(labels, (uint32_t)read_numbers(line + 6, labels, 32), &c->topo), LNT_OK);
    fputs(case_line, c->out);
    fputs(line, c->out);
    for (uint32_t t = 0; t < c->n_tensors; ++t) {
        extents[t] = (lnt_extent_t){t, 0, c->counts[t]};
        n = (t == 0) ? c->counts[t] : n + c->counts[t];
    }
    if (!c->packed) {
        ck_assert_int_eq(lnt_layout_buckets(c->counts, c->n_tensors, c->block, c->bucket_elems, on_bucket, c), LNT_OK);
    } else if (n != 0) {
        on_bucket(c, extents, c->n_tensors);
    }
    lnt_topo_destroy(c->topo);
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 20);

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_gt(fread(text, 1, (1 << 20) - 1, file), 0);
    fclose(file);
    return text;
}

START_TEST(vectors_of_the_model)
{
    static char path[] = LNT_SOURCE_DIR "/tests/golden/layout_vectors.txt";
    char *made = NULL, *want = read_file(path), line[8192];
    size_t size = 0;
    vector_case_t c = {.in = fopen(path, "r"), .out = open_memstream(&made, &size)};
    int n_cases = 0;

    while (fgets(line, sizeof(line), c.in) != NULL) {
        if (strncmp(line, "case", 4) == 0) {
            run_case(&c, line);
            ++n_cases;
        }
    }
    fclose(c.in);
    fclose(c.out);
    ck_assert_int_eq(n_cases, 40);
    ck_assert_str_eq(made, want);
    free(made);
    free(want);
}
END_TEST

/* ---- properties at large sizes -------------------------------------------------------------------------------- */

/* Owners of blocks by the rule itself, in 128 bits. */
__extension__ typedef unsigned __int128 wide_t;

static void check_large(uint64_t count, uint32_t block, uint32_t n)
{
    const lnt_extent_t extents[] = {{0, 0, count}, {1, 0, 1}, {2, 0, count}};
    lnt_grid_t grid;
    uint64_t next = 0;
    lnt_range_t all;

    ck_assert_int_eq(lnt_grid_init(&grid, extents, 3, block, false), LNT_OK);
    all = (lnt_range_t){0, grid.n_blocks};
    ck_assert_uint_eq(grid.n_elems, 2 * count + 1);
    ck_assert_uint_eq(grid.n_blocks, 2 * ((count + block - 1) / block) + 1);
    for (uint32_t i = 0; i < n; ++i) {
        lnt_range_t part = lnt_layout_part(&grid, all, n, i);

        ck_assert_uint_eq(part.begin, next);
        next = part.end;
        if (part.begin < part.end) {
            ck_assert_uint_eq((uint64_t)((wide_t)lnt_grid_pos(&grid, part.begin) * n / grid.n_elems), i);
            ck_assert_uint_eq((uint64_t)((wide_t)lnt_grid_pos(&grid, part.end - 1) * n / grid.n_elems), i);
            ck_assert_uint_lt(lnt_range_elems(&grid, part), grid.n_elems / n + 1 + block);
        }
    }
    ck_assert_uint_eq(next, grid.n_blocks);
    ck_assert_uint_eq(lnt_layout_mask_offset(&grid, grid.n_blocks), 2 * ((count + 7) / 8) + 1);
    lnt_grid_release(&grid);
}

START_TEST(large_sizes)
{
    static const uint64_t counts[] = {(UINT64_C(1) << 31) - 1, UINT64_C(1) << 31, (UINT64_C(1) << 31) + 7,
                                      UINT64_C(1) << 33, (UINT64_C(1) << 54) + 3};

    for (size_t i = 0; i < 5; ++i) {
        check_large(counts[i], 1024, 1 + below(16));
        check_large(counts[i], 64, 1 + below(65535));
    }
}
END_TEST

START_TEST(too_large_is_refused)
{
    const lnt_extent_t extents[] = {{0, 0, UINT64_MAX - 5}, {1, 0, 10}};
    lnt_grid_t grid = {0};

    ck_assert_int_eq(lnt_grid_init(&grid, extents, 2, 64, true), LNT_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(lnt_grid_init(&grid, extents, 2, 65, true), LNT_ERR_INVALID_ARG);
    ck_assert_ptr_null(grid.pos);
}
END_TEST

/* L7 by the formula, over a grid whose owners are found by counting: the flat form must send exactly that. */
START_TEST(flat_bytes_are_the_formula)
{
    static listed_t list;
    lnt_codec_row_t row = {.bits = 1, .has_scales = true};
    lnt_codec_t sign1 = {.row = &row};

    for (int it = 0; it < 300; ++it) {
        lnt_extent_t extents[MAX_EXTENTS];
        size_t n_extents = random_extents(extents, 64);
        uint32_t n = 2 + below(15);
        uint64_t labels[16], chunk_bytes[16] = {0}, total = 0;
        lnt_topo_t *topo;
        lnt_grid_t grid;

        list_blocks(&list, extents, n_extents, 64, false);
        for (uint64_t k = 0; k < list.n; ++k) {
            chunk_bytes[list.pos[k] * n / list.pos[list.n]] += 64 + 4 + (list.pos[k + 1] - list.pos[k] + 7) / 8;
        }
        for (uint32_t r = 0; r < n; ++r) {
            labels[r] = r;
            total += chunk_bytes[r];
        }
        ck_assert_int_eq(lnt_topo_create(labels, n, &topo), LNT_OK);
        ck_assert_int_eq(lnt_grid_init(&grid, extents, n_extents, 64, false), LNT_OK);
        for (uint32_t r = 0; r < n; ++r) {
            lnt_bytes_t bytes;

            /* one block to a segment: a frame for each */
            ck_assert_int_eq(lnt_layout_exchange_bytes(&grid, topo, &sign1, 1, NULL, r, &bytes), LNT_OK);
            ck_assert_uint_eq(bytes.intra, 0);
            ck_assert_uint_eq(bytes.inter, total - chunk_bytes[r] + (n - 1) * chunk_bytes[r]);
        }
        lnt_grid_release(&grid);
        lnt_topo_destroy(topo);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layout");
    TCase *tcase = tcase_create("layout");

    tcase_add_test(tcase, random_grids_match_a_list_of_blocks);
    tcase_add_test(tcase, vectors_of_the_model);
    tcase_add_test(tcase, large_sizes);
    tcase_add_test(tcase, too_large_is_refused);
    tcase_add_test(tcase, flat_bytes_are_the_formula);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
