/* Every implementation of every codec against the oracle, byte for byte: sizes around blocks, all kinds of data,
 * element types, masks, error feedback none, in place and into a shadow. All buffers end at an inaccessible page.
 */
#include "codec_oracle.h"

enum { MAX_N = 5000, MAX_BLOCKS = MAX_N / 64 + 2 };

typedef enum feedback { EF_NONE, EF_IN_PLACE, EF_SHADOW, EF_COUNT } feedback_t;

typedef struct test_case {
    const lnt_codec_row_t *row;
    lnt_codec_ops_t ops;
    lnt_codec_cfg_t cfg;
    uint64_t n;
    data_kind_t data;
    lnt_dtype_t dtype;
    bool masked;
    feedback_t feedback;
    unsigned odd; /* the input starts this many bytes off */
} test_case_t;

static guarded_t in_mem, live_mem, error_mem, shadow_mem, scale_mem, code_mem, out_mem;

static float input[MAX_N], error[MAX_N], a[MAX_N];
static uint8_t live_copy[MAX_N / 8 + 1];
static uint8_t want_codes[4 * MAX_N], want_scales[4 * MAX_BLOCKS];
static float want_error[MAX_N], want_values[MAX_N];
static bool block_poisoned[MAX_BLOCKS];

static void setup(void)
{
    in_mem = guarded_create(4 * MAX_N + 8);
    live_mem = guarded_create(MAX_N);
    error_mem = guarded_create(4 * MAX_N);
    shadow_mem = guarded_create(4 * MAX_N);
    scale_mem = guarded_create(4 * MAX_BLOCKS);
    code_mem = guarded_create(4 * MAX_N);
    out_mem = guarded_create(4 * MAX_N);
}

static void teardown(void)
{
    guarded_t *all[] = {&in_mem, &live_mem, &error_mem, &shadow_mem, &scale_mem, &code_mem, &out_mem};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        guarded_destroy(all[i]);
}

static uint64_t code_bytes(const test_case_t *t)
{
    return (t->n * t->row->bits + 7) / 8;
}

static uint64_t scale_bytes(const test_case_t *t)
{
    return t->row->has_scales ? 4 * ((t->n + t->cfg.block - 1) / t->cfg.block) : 0;
}

static size_t input_bytes(const test_case_t *t)
{
    return (size_t)t->n * (t->dtype == LNT_F32 ? 4 : 2) + t->odd;
}

/* Fills input, error, a and the guarded copies of input and mask. */
static void *make_input(const test_case_t *t)
{
    uint8_t *bytes = (uint8_t *)guarded_take(&in_mem, input_bytes(t)) + 0;
    data_fill(t->data, input, t->n);
    for (uint64_t i = 0; i < t->n; i++) {
        if (t->dtype == LNT_BF16) {
            uint16_t half = isnan(input[i]) ? 0x7fc1 : oracle_bf16(input[i]);
            input[i] = oracle_bf16_value(half);
            memcpy(bytes + 2 * i, &half, 2);
        } else
            memcpy(bytes + 4 * i, &input[i], 4);
    }
    data_fill(t->data == DATA_NAN || t->data == DATA_INF ? DATA_NORMAL : t->data, error, t->n);
    for (uint64_t i = 0; i < t->n; i++)
        live_copy[i / 8] = (uint8_t)rng_next() | (uint8_t)rng_next();
    for (uint64_t i = 0; i < t->n; i++)
        a[i] = t->feedback == EF_NONE ? input[i] : input[i] + error[i];
    return bytes;
}

/* The oracle over the whole run. */
static bool make_expected(const test_case_t *t)
{
    bool any = false;
    memset(want_codes, 0, sizeof(want_codes));
    for (uint64_t i = 0, k = 0; i < t->n; i += t->cfg.block, k++) {
        oracle_block_t b = {.a = a + i, .n = t->n - i < t->cfg.block ? t->n - i : t->cfg.block};
        b.live = t->masked ? live_copy + i / 8 : NULL;
        b.codes = want_codes + i * t->row->bits / 8;
        oracle_encode(&b, t->row, t->cfg.scale_rule);
        memcpy(want_scales + 4 * k, &b.scale, 4);
        block_poisoned[k] = b.poisoned;
        any |= b.poisoned;
        for (uint64_t j = 0; j < b.n; j++) {
            want_values[i + j] = oracle_get(&b, t->row, j);
            want_error[i + j] = oracle_live(&b, j) ? a[i + j] - want_values[i + j] : 0.0f;
        }
    }
    return any;
}

static void describe(const test_case_t *t, const char *what)
{
    ck_abort_msg("%s: %s block %u rule %d n %" PRIu64 " data %d dtype %d masked %d feedback %d odd %u", what,
                 t->row->name, t->cfg.block, (int)t->cfg.scale_rule, t->n, (int)t->data, (int)t->dtype, t->masked,
                 (int)t->feedback, t->odd);
}

static void check_errors(const test_case_t *t, const float *got)
{
    for (uint64_t i = 0; i < t->n; i++)
        if (!block_poisoned[i / t->cfg.block] && memcmp(&got[i], &want_error[i], 4)) describe(t, "error");
}

static void check_decode(const test_case_t *t, const uint8_t *scales, const uint8_t *codes, const uint8_t *live)
{
    float *out = guarded_take(&out_mem, 4 * t->n);
    t->ops.decode(&t->cfg, scales, codes, t->n, live, out);
    if (memcmp(out, want_values, 4 * t->n)) describe(t, "decode");
    data_fill(DATA_NORMAL, out, t->n);
    float sums[MAX_N];
    for (uint64_t i = 0; i < t->n; i++)
        sums[i] = out[i] + want_values[i];
    t->ops.decode_add(&t->cfg, scales, codes, t->n, live, out);
    if (memcmp(out, sums, 4 * t->n)) describe(t, "decode_add");
    if (!guarded_intact(&out_mem, 4 * t->n)) describe(t, "guard of output");
}

static void run_encode(const test_case_t *t, const void *values, const uint8_t *live, bool want_poison)
{
    float *live_error = guarded_take(&error_mem, 4 * t->n), *shadow = guarded_take(&shadow_mem, 4 * t->n);
    memcpy(live_error, error, 4 * t->n);
    lnt_encode_in_t in = {.values = values,
                          .dtype = t->dtype,
                          .n = t->n,
                          .live = live,
                          .error_in = t->feedback == EF_NONE ? NULL : live_error};
    lnt_encode_out_t out = {.scales = guarded_take(&scale_mem, scale_bytes(t)),
                            .codes = guarded_take(&code_mem, code_bytes(t))};
    if (t->feedback != EF_NONE) out.error_out = t->feedback == EF_IN_PLACE ? live_error : shadow;
    t->ops.encode(&t->cfg, &in, &out);
    if (out.poisoned != want_poison) describe(t, "poison");
    if (memcmp(out.codes, want_codes, code_bytes(t))) describe(t, "codes");
    if (memcmp(out.scales, want_scales, scale_bytes(t))) describe(t, "scales");
    if (out.error_out) check_errors(t, out.error_out);
    if (t->feedback != EF_IN_PLACE && memcmp(live_error, error, 4 * t->n)) describe(t, "live error changed");
    if (!guarded_intact(&code_mem, code_bytes(t)) || !guarded_intact(&scale_mem, scale_bytes(t)) ||
        !guarded_intact(&error_mem, 4 * t->n) || !guarded_intact(&shadow_mem, 4 * t->n))
        describe(t, "guard of encode");
    check_decode(t, out.scales, out.codes, live);
}

static void run_case(const test_case_t *t)
{
    void *values = make_input(t);
    size_t mask_bytes = (t->n + 7) / 8;
    uint8_t *live = guarded_take(&live_mem, mask_bytes);
    memcpy(live, live_copy, mask_bytes);
    bool poison = make_expected(t);
    if (t->odd) { /* the same bytes one further, at the end of the page */
        memmove((uint8_t *)values + t->odd, values, input_bytes(t) - t->odd);
        values = (uint8_t *)values + t->odd;
    }
    for (int run = 0; run < 2; run++)
        run_encode(t, values, t->masked ? live : NULL, poison);
}

static void run_sizes(test_case_t t)
{
    const uint64_t block = t.cfg.block,
                   sizes[] = {0, 1, 7, 33, 63, 64, 65, 127, 129, block - 1, block, block + 1, 5000};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (int variant = 0; variant < 2 * 2 * EF_COUNT; variant++) {
            t.n = sizes[s];
            t.dtype = variant % 2 ? LNT_BF16 : LNT_F32;
            t.masked = variant / 2 % 2;
            t.feedback = (feedback_t)(variant / 4);
            t.odd = (unsigned)rng_below(4);
            run_case(&t);
        }
}

START_TEST(every_row)
{
    const uint32_t blocks[] = {64, 256, 1024, 4096};
    size_t n_rows, n_impls;
    const lnt_codec_row_t *row = lnt_codec_rows(&n_rows) + _i / DATA_COUNT;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);
    for (size_t k = 0; k < n_impls; k++)
        for (size_t b = 0; b < 4; b++)
            for (int rule = 0; rule <= (row->has_scale_rule ? 1 : 0); rule++) {
                test_case_t t = {.row = row, .ops = lnt_kernel_ops(&impls[k], row->id)};
                t.cfg = (lnt_codec_cfg_t){blocks[b], (lnt_scale_rule_t)rule};
                t.data = (data_kind_t)(_i % DATA_COUNT);
                if (impls[k].usable()) run_sizes(t);
            }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec_matrix");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_unchecked_fixture(all, setup, teardown);
    tcase_add_loop_test(all, every_row, 0, LNT_CODEC_COUNT * DATA_COUNT);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
