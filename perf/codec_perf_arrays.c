/* The arrays of a case: one table says how long each is and what it holds. All lie in one arena, each a few cache lines
 * further into its page than the one before; a second arena of the same size serves the yardsticks, and before that
 * the expected bytes.
 *
 * Data is a function of seed, array and place, so filling again restores it, whatever the number of threads.
 */
#include <stdlib.h>
#include <string.h>

#include "../src/base/error.h"
#include "codec_perf.h"

enum { PAGE = 4096, LINE = 64, STAGGER = 13 * LINE, STRIP = 512, JUNK = 0xa5 };

/* How many bytes n elements have. */
typedef enum size_kind { SIZE_F32, SIZE_BYTE, SIZE_DTYPE, SIZE_SCALES, SIZE_CODES } size_kind_t;
typedef enum fill_kind { FILL_NORMAL, FILL_POSITIVE, FILL_DEAD, FILL_RUNS, FILL_JUNK } fill_kind_t;

typedef struct array_row {
    const char *name;
    size_kind_t size;
    fill_kind_t fill;
    bool per_run; /* as often as there are runs */
} array_row_t;

static const array_row_t rows[ARRAYS] = {
    [ARRAY_INPUT] = {"input", SIZE_DTYPE, FILL_NORMAL, false},
    [ARRAY_ERROR] = {"error", SIZE_F32, FILL_NORMAL, false},
    [ARRAY_SHADOW] = {"shadow", SIZE_F32, FILL_JUNK, false},
    [ARRAY_SCALES] = {"scales", SIZE_SCALES, FILL_JUNK, false},
    [ARRAY_CODES] = {"codes", SIZE_CODES, FILL_JUNK, false},
    [ARRAY_RUN_SCALES] = {"scales of runs", SIZE_SCALES, FILL_RUNS, true},
    [ARRAY_RUN_CODES] = {"codes of runs", SIZE_CODES, FILL_RUNS, true},
    [ARRAY_OUTPUT] = {"output", SIZE_F32, FILL_NORMAL, false},
    [ARRAY_G] = {"g", SIZE_F32, FILL_NORMAL, false},
    [ARRAY_M] = {"m", SIZE_F32, FILL_NORMAL, false},
    [ARRAY_V] = {"v", SIZE_F32, FILL_POSITIVE, false},
    [ARRAY_X] = {"x", SIZE_F32, FILL_NORMAL, false},
    [ARRAY_DENOMINATOR] = {"denominator", SIZE_F32, FILL_POSITIVE, false},
    [ARRAY_DEAD] = {"dead", SIZE_BYTE, FILL_DEAD, false},
};

const char *codec_array_name(codec_array_t id)
{
    return rows[id].name;
}

/* ---- sizes and places ---- */

static uint64_t size_of(const codec_case_t *test, size_kind_t kind, uint64_t n)
{
    switch (kind) {
    case SIZE_F32:
        return n * sizeof(float);
    case SIZE_BYTE:
        return n;
    case SIZE_DTYPE:
        return n * lnt_dtype_size(test->dtype);
    case SIZE_SCALES:
        return test->row->has_scales ? (n + test->cfg.block - 1) / test->cfg.block * sizeof(float) : 0;
    default:
        return (n * test->row->bits + 7) / 8;
    }
}

uint8_t *codec_at(const codec_case_t *test, codec_array_t id, uint64_t first)
{
    return test->array[id] == NULL ? NULL : test->array[id] + size_of(test, rows[id].size, first);
}

static bool used(const codec_case_t *test, codec_array_t id)
{
    return ((test->op->reads | test->op->writes) >> id & 1u) != 0;
}

void codec_arrays_plan(codec_case_t *test)
{
    test->arena_bytes = test->working_set = 0;
    for (codec_array_t id = 0; id < ARRAYS; id++) {
        uint64_t bytes = used(test, id) ? size_of(test, rows[id].size, test->n) : 0;

        if (rows[id].per_run) bytes *= test->n_runs;
        test->array_bytes[id] = bytes;
        test->working_set += bytes;
        test->arena_bytes += (bytes + PAGE - 1) / PAGE * PAGE + STAGGER;
    }
    test->arena_bytes = (test->arena_bytes + PAGE - 1) / PAGE * PAGE;
    test->piece = codec_piece(test);
}

static uint64_t values_bytes(const codec_case_t *test)
{
    return (test->n_threads * test->piece * sizeof(float) + PAGE - 1) / PAGE * PAGE;
}

uint64_t codec_case_memory(const codec_case_t *test)
{
    return 2 * test->arena_bytes + values_bytes(test);
}

lnt_status_t codec_arrays_open(codec_case_t *test)
{
    uint64_t at = 0;

    test->arena = aligned_alloc(PAGE, test->arena_bytes);
    test->yard = aligned_alloc(PAGE, test->arena_bytes);
    test->values = aligned_alloc(PAGE, values_bytes(test));
    if (test->arena == NULL || test->yard == NULL || test->values == NULL)
        return lnt_error(LNT_ERR_NO_MEMORY, "measure smaller sizes", "%llu MiB could not be had",
                         (unsigned long long)(codec_case_memory(test) >> 20));
    for (codec_array_t id = 0; id < ARRAYS; id++) {
        test->array[id] = test->array_bytes[id] > 0 ? test->arena + at : NULL;
        if (test->array_bytes[id] > 0) at += (test->array_bytes[id] + PAGE - 1) / PAGE * PAGE + STAGGER;
    }
    return LNT_OK;
}

void codec_arrays_close(codec_case_t *test)
{
    free(test->arena);
    free(test->yard);
    free(test->values);
    test->arena = test->yard = NULL;
    test->values = NULL;
}

/* Each array counts once for being read and once for being written. */
double codec_counted_bytes(const codec_case_t *test)
{
    uint64_t sum = 0;

    for (codec_array_t id = 0; id < ARRAYS; id++)
        sum += test->array_bytes[id] * ((test->op->reads >> id & 1u) + (test->op->writes >> id & 1u));
    return (double)sum;
}

codec_part_t codec_part_of(uint64_t n, uint64_t unit, uint32_t member, uint32_t n_members)
{
    uint64_t n_units = (n + unit - 1) / unit;
    uint64_t first = n_units * member / n_members * unit, end = n_units * (member + 1) / n_members * unit;

    return (codec_part_t){.first = first, .n = (end < n ? end : n) - first, .thread = member};
}

/* ---- data ---- */

/* The output function of splitmix64. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = a + (b + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Roughly normal with deviation 1: the sum of four uniform numbers. */
static float normal(uint64_t stream, uint64_t index)
{
    uint64_t bits = mix(stream, index);
    int32_t sum = (int32_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));

    return (float)(sum - 2 * 65535) * (1.7320508f / 65536.0f);
}

static void fill_floats(fill_kind_t kind, uint64_t stream, uint64_t first, uint64_t n, float *values)
{
    for (uint64_t i = 0; i < n; i++) {
        float value = normal(stream, first + i);

        values[i] = kind == FILL_POSITIVE ? value * value + 1e-3f : value;
    }
}

static void fill_typed(const codec_case_t *test, uint64_t stream, const codec_part_t *part, codec_array_t id)
{
    float strip[STRIP];

    for (uint64_t i = 0; i < part->n; i += STRIP) {
        uint64_t n = part->n - i < STRIP ? part->n - i : STRIP;

        fill_floats(rows[id].fill, stream, part->first + i, n, strip);
        if (rows[id].size == SIZE_DTYPE)
            lnt_arrays()->narrow[test->dtype](strip, n, codec_at(test, id, part->first + i));
        else
            memcpy(codec_at(test, id, part->first + i), strip, n * sizeof(strip[0]));
    }
}

static void fill_dead(const codec_case_t *test, uint64_t stream, const codec_part_t *part, codec_array_t id)
{
    for (uint64_t i = part->first; i < part->first + part->n; i++)
        *codec_at(test, id, i) = mix(stream, i) % 1000 == 0;
}

/* Coded by the reference from values that pass through an f32 array, which is filled afterwards. */
static void fill_runs(const codec_case_t *test, uint64_t stream, const codec_part_t *part)
{
    const lnt_codec_ops_t *ops = &test->lanes[LANE_REF].ops;
    float *values =
        (float *)(void *)codec_at(test, test->array[ARRAY_ERROR] != NULL ? ARRAY_ERROR : ARRAY_OUTPUT, part->first);
    uint64_t scale_bytes = test->array_bytes[ARRAY_RUN_SCALES] / test->n_runs;
    uint64_t code_bytes = test->array_bytes[ARRAY_RUN_CODES] / test->n_runs;
    uint8_t *scales = codec_at(test, ARRAY_RUN_SCALES, part->first);

    for (uint32_t r = 0; r < test->n_runs; r++) {
        lnt_encode_in_t in = {.values = values, .dtype = LNT_F32, .n = part->n, .index = part->first, .seed = r};
        lnt_encode_out_t out = {.scales = scales == NULL ? NULL : scales + r * scale_bytes,
                                .codes = codec_at(test, ARRAY_RUN_CODES, part->first) + r * code_bytes};

        fill_floats(FILL_NORMAL, mix(stream, r), part->first, part->n, values);
        ops->encode(&test->cfg, &in, &out);
    }
}

static void fill_part(const codec_case_t *test, const codec_part_t *part, codec_array_t id)
{
    uint64_t stream = mix(test->world->seed, id);

    if (rows[id].fill == FILL_NORMAL || rows[id].fill == FILL_POSITIVE)
        fill_typed(test, stream, part, id);
    else if (rows[id].fill == FILL_DEAD)
        fill_dead(test, stream, part, id);
    else if (rows[id].fill == FILL_RUNS && id == ARRAY_RUN_CODES)
        fill_runs(test, stream, part);
    else if (rows[id].fill == FILL_JUNK)
        memset(codec_at(test, id, part->first), JUNK, size_of(test, rows[id].size, part->n));
}

/* Runs first, since they pass through an array that is filled after them. */
static void fill_all(void *arg, uint32_t member)
{
    const codec_case_t *test = arg;
    codec_part_t part = codec_part_of(test->n, test->cfg.block, member, test->n_threads);

    if (test->array[ARRAY_RUN_CODES] != NULL) fill_part(test, &part, ARRAY_RUN_CODES);
    for (codec_array_t id = 0; id < ARRAYS; id++) {
        if (test->array[id] != NULL && id != ARRAY_RUN_CODES) fill_part(test, &part, id);
    }
    fill_floats(FILL_NORMAL, mix(test->world->seed, ARRAYS), 0, test->piece, test->values + member * test->piece);
}

void codec_arrays_fill(codec_case_t *test)
{
    (void)team_run(&test->world->team, fill_all, test);
}
