/* The public codec calls: creation, sizes, and what they refuse. */
#include <linnet/context.h>

#include "kernel_testing.h"

static lnt_codec_t *create(const char *name, uint32_t block)
{
    lnt_codec_params_t params = {.struct_size = sizeof(params), .name = name, .block = block};
    lnt_codec_t *codec = NULL;
    ck_assert_int_eq(lnt_codec_create(&params, &codec), LNT_OK);
    return codec;
}

static void expect_refused(lnt_codec_params_t params, lnt_status_t status, const char *text)
{
    lnt_codec_t *codec = (lnt_codec_t *)&params;
    ck_assert_int_eq(lnt_codec_create(&params, &codec), status);
    ck_assert_ptr_eq(codec, (lnt_codec_t *)&params);
    ck_assert_msg(strstr(lnt_last_error()->cause, text) != NULL, "\"%s\" lacks \"%s\"", lnt_last_error()->cause, text);
}

START_TEST(every_listed_name_can_be_created)
{
    size_t n_rows;
    const lnt_codec_row_t *rows = lnt_codec_rows(&n_rows);
    const char *const *names = lnt_codec_list();
    for (size_t i = 0; i < n_rows; i++) {
        ck_assert_str_eq(names[i], rows[i].name);
        ck_assert_uint_eq(rows[i].id, i);
        lnt_codec_t *codec = create(names[i], 0);
        ck_assert_str_eq(lnt_codec_name(codec), names[i]);
        ck_assert_uint_eq(lnt_codec_block(codec), rows[i].default_block);
        lnt_codec_destroy(codec);
    }
    ck_assert_ptr_null(names[n_rows]);
    ck_assert_ptr_null(lnt_codec_row_by_name("sign"));
    lnt_codec_destroy(NULL);
}
END_TEST

START_TEST(bad_parameters_are_refused_by_name)
{
    const size_t size = sizeof(lnt_codec_params_t);
    expect_refused((lnt_codec_params_t){.struct_size = size, .name = "sign"}, LNT_ERR_INVALID_ARG, "sign1");
    expect_refused((lnt_codec_params_t){.struct_size = size, .name = "sign1", .block = 100}, LNT_ERR_INVALID_ARG,
                   "100");
    expect_refused((lnt_codec_params_t){.struct_size = size, .name = "sign1", .block = (1 << 24) + 64},
                   LNT_ERR_INVALID_ARG, "block");
    expect_refused((lnt_codec_params_t){.struct_size = size, .name = "int8", .scale_rule = LNT_SCALE_L1},
                   LNT_ERR_INVALID_ARG, "int8");
    expect_refused((lnt_codec_params_t){.struct_size = size}, LNT_ERR_INVALID_ARG, "name");
    expect_refused((lnt_codec_params_t){.struct_size = 1, .name = "f32"}, LNT_ERR_VERSION, "struct_size");
    ck_assert_int_eq(lnt_codec_create(NULL, NULL), LNT_ERR_INVALID_ARG);
}
END_TEST

/* The first codec of a process whose LINNET_KERNELS is this. */
static lnt_status_t first_codec(const char *kernels, lnt_codec_t *codec)
{
    if (kernels)
        setenv("LINNET_KERNELS", kernels, 1);
    else
        unsetenv("LINNET_KERNELS");
    lnt_kernels_select(NULL);
    return lnt_codec_init(codec, "sign1", 0, LNT_SCALE_L2);
}

START_TEST(kernels_are_chosen_by_the_environment)
{
    lnt_codec_t codec;
    ck_assert_int_eq(first_codec("ref", &codec), LNT_OK);
    ck_assert(codec.ops.encode == lnt_sign1_ops_ref.encode);
    ck_assert_int_eq(first_codec("abacus", &codec), LNT_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "abacus"));
    ck_assert_int_eq(first_codec(NULL, &codec), LNT_OK);
    ck_assert_ptr_eq(lnt_kernels_selected(), lnt_kernel_impl_by_name("auto"));
}
END_TEST

/* The word is known, so the error says what to use, not what is spelled like it. */
START_TEST(kernels_for_device_memory_are_refused_by_name)
{
    lnt_context_params_t params = {.struct_size = sizeof(params)};
    lnt_context_t *context = NULL;
    lnt_codec_t codec;
    ck_assert_ptr_null(lnt_kernel_impl_by_name("cuda"));
    ck_assert_int_eq(first_codec("cuda", &codec), LNT_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, "cuda_kernels.h"));
    ck_assert_ptr_nonnull(strstr(lnt_last_error()->cure, "avx512"));
    ck_assert_int_eq(lnt_context_create(&params, &context), LNT_ERR_CONFIG);
    ck_assert_ptr_null(context);
    ck_assert(!lnt_kernels_any_selected());
    unsetenv("LINNET_KERNELS");
}
END_TEST

/* A change of the environment reaches new contexts, not codecs made under those that run. */
START_TEST(a_running_process_keeps_its_kernels)
{
    lnt_context_params_t params = {.struct_size = sizeof(params)};
    lnt_context_t *context;
    lnt_codec_t codec;
    ck_assert_int_eq(first_codec("auto", &codec), LNT_OK);
    setenv("LINNET_KERNELS", "ref", 1);
    ck_assert_int_eq(lnt_context_create(&params, &context), LNT_OK);
    ck_assert_str_eq(lnt_kernels_selected()->name, "ref");
    setenv("LINNET_KERNELS", "auto", 1);
    ck_assert_int_eq(lnt_codec_init(&codec, "sign1", 0, LNT_SCALE_L2), LNT_OK);
    ck_assert_str_eq(lnt_kernels_selected()->name, "ref");
    ck_assert(codec.ops.encode == lnt_sign1_ops_ref.encode);
    ck_assert_int_eq(lnt_context_destroy(context), LNT_OK);
    unsetenv("LINNET_KERNELS");
}
END_TEST

/* All names can be asked for; what this machine cannot run is refused with what it lacks. */
START_TEST(every_implementation_has_a_name)
{
    size_t n_impls;
    const lnt_kernel_impl_t *impls = lnt_kernel_impls(&n_impls);
    lnt_codec_t codec;
    ck_assert_str_eq(lnt_kernel_choices[0], "auto");
    for (size_t i = 0; i < n_impls; i++) {
        ck_assert_str_eq(lnt_kernel_choices[1 + i], impls[i].name);
        ck_assert_ptr_eq(lnt_kernel_impl_by_name(impls[i].name), &impls[i]);
        lnt_status_t status = first_codec(impls[i].name, &codec);
        ck_assert_int_eq(status, impls[i].usable() ? LNT_OK : LNT_ERR_CONFIG);
        if (status != LNT_OK) ck_assert_ptr_nonnull(strstr(lnt_last_error()->cause, impls[i].doc));
    }
    ck_assert_str_eq(lnt_kernel_choices[1 + n_impls], "cuda");
    ck_assert_ptr_null(lnt_kernel_choices[2 + n_impls]);
    unsetenv("LINNET_KERNELS");
}
END_TEST

/* By definition: per block a scale (if any) and whole bytes; in 128 bits, so that nothing can wrap. */
static uint64_t size_by_definition(uint64_t n, uint64_t block, uint64_t bits, uint64_t scale)
{
    unsigned __int128 total = (unsigned __int128)(n / block) * (scale + block * bits / 8);
    uint64_t rest = n % block;
    if (rest) total += scale + (rest * bits + 7) / 8;
    return total > UINT64_MAX ? UINT64_MAX : (uint64_t)total;
}

static void other_decode(const lnt_codec_cfg_t *cfg, const uint8_t *scales, const uint8_t *codes, uint64_t n,
                         const uint8_t *live, float *out)
{
    (void)cfg, (void)scales, (void)codes, (void)n, (void)live, (void)out;
}

START_TEST(a_faster_row_may_bring_single_ops)
{
    lnt_codec_ops_t ops = lnt_sign1_ops_ref, expected = ops;
    const lnt_codec_ops_t faster = {.decode = other_decode};

    lnt_codec_ops_override(&ops, &(lnt_codec_ops_t){0});
    ck_assert(memcmp(&ops, &expected, sizeof(ops)) == 0);
    lnt_codec_ops_override(&ops, &faster);
    expected.decode = other_decode;
    ck_assert(memcmp(&ops, &expected, sizeof(ops)) == 0);
    lnt_codec_ops_override(&ops, &lnt_sign1_ops_ref);
    ck_assert(memcmp(&ops, &lnt_sign1_ops_ref, sizeof(ops)) == 0);
}
END_TEST

START_TEST(no_codec_is_no_crash)
{
    ck_assert_str_eq(lnt_codec_name(NULL), "none");
    ck_assert_uint_eq(lnt_codec_block(NULL), 0);
    ck_assert(lnt_codec_encoded_size(NULL, 5) == UINT64_MAX);
    ck_assert_int_eq(lnt_codec_encode(NULL, "", LNT_F32, 0, NULL, NULL, NULL), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_codec_encode_seeded(NULL, "", LNT_F32, 0, 1, 2, NULL, NULL, NULL), LNT_ERR_INVALID_ARG);
    lnt_codec_destroy(NULL);
}
END_TEST

START_TEST(encoded_sizes)
{
    const uint64_t bases[] = {0,          64,         1024,       5000,       1ull << 31,
                              1ull << 32, 1ull << 33, 1ull << 61, 1ull << 62, 1ull << 63};
    size_t n_rows;
    const lnt_codec_row_t *rows = lnt_codec_rows(&n_rows);
    for (size_t r = 0; r < n_rows; r++)
        for (uint32_t block = 64; block <= 1u << 24; block *= 4) {
            lnt_codec_t *codec = create(rows[r].name, block);
            for (size_t b = 0; b < sizeof(bases) / sizeof(bases[0]); b++)
                for (uint64_t k = 0; k < 132; k++) {
                    uint64_t n = bases[b] + k < 66 ? k : bases[b] + k - 66;
                    ck_assert_uint_eq(lnt_codec_encoded_size(codec, n),
                                      size_by_definition(n, block, rows[r].bits, rows[r].has_scales ? 4 : 0));
                }
            lnt_codec_destroy(codec);
        }
    lnt_codec_t *sign1 = create("sign1", 1024);
    ck_assert_uint_eq(lnt_codec_encoded_size(sign1, 0), 0);
    ck_assert_uint_eq(lnt_codec_encoded_size(sign1, 1), 5);
    ck_assert_uint_eq(lnt_codec_encoded_size(sign1, 1025), 4 + 128 + 4 + 1);
    lnt_codec_destroy(sign1);
}
END_TEST

START_TEST(encode_refuses_and_reports)
{
    float values[3] = {1, -2, NAN}, error[3] = {0};
    uint8_t wire[64];
    lnt_codec_t *codec = create("sign1", 0);
    ck_assert_int_eq(lnt_codec_encode(codec, values, (lnt_dtype_t)99, 3, NULL, NULL, wire), LNT_ERR_UNSUPPORTED);
    ck_assert_int_eq(lnt_codec_encode(codec, values, LNT_F32, 3, NULL, error, wire), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_codec_encode(codec, NULL, LNT_F32, 3, NULL, NULL, wire), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_codec_encode(NULL, values, LNT_F32, 3, NULL, NULL, wire), LNT_ERR_INVALID_ARG);
    ck_assert_int_eq(lnt_codec_encode(codec, NULL, LNT_F32, 0, NULL, NULL, NULL), LNT_OK);
    ck_assert_int_eq(lnt_codec_encode(codec, values, LNT_F32, 2, NULL, NULL, wire), LNT_OK);
    ck_assert_int_eq(lnt_codec_encode(codec, values, LNT_F32, 3, error, error, wire), LNT_SKIPPED_NONFINITE);
    ck_assert_int_eq(lnt_codec_decode(codec, wire, 5, 3, values), LNT_OK);
    for (int i = 0; i < 3; i++)
        ck_assert_float_eq(values[i], 0.0f);
    lnt_codec_destroy(codec);
}
END_TEST

/* Codecs with scales, two blocks; each bad scale in each block leaves the output alone. */
START_TEST(decode_refuses_bad_scales_and_sizes)
{
    const float bad[] = {-1.0f, -0.0f, NAN, -NAN, INFINITY, -INFINITY};
    float input[65], output[65], before[65];
    uint8_t wire[128];
    lnt_codec_t *codec = create((const char *[]){"sign1", "int8", "int4", "int4_hadamard"}[_i], 64);
    uint64_t bytes = lnt_codec_encoded_size(codec, 65);
    data_fill(DATA_NORMAL, input, 65);
    data_fill(DATA_NORMAL, output, 65);
    memcpy(before, output, sizeof(output));
    for (size_t k = 0; k < 12; k++) {
        ck_assert_int_eq(lnt_codec_encode(codec, input, LNT_F32, 65, NULL, NULL, wire), LNT_OK);
        memcpy(wire + 4 * (k % 2), &bad[k / 2], 4);
        ck_assert_int_eq(lnt_codec_decode(codec, wire, bytes, 65, output), LNT_ERR_CORRUPT);
        ck_assert_int_eq(lnt_codec_decode_add(codec, wire, bytes, 65, output), LNT_ERR_CORRUPT);
    }
    ck_assert_int_eq(lnt_codec_encode(codec, input, LNT_F32, 65, NULL, NULL, wire), LNT_OK);
    ck_assert_int_eq(lnt_codec_decode(codec, wire, bytes - 1, 65, output), LNT_ERR_CORRUPT);
    ck_assert_int_eq(lnt_codec_decode(codec, wire, bytes + 1, 65, output), LNT_ERR_CORRUPT);
    ck_assert_int_eq(lnt_codec_decode(codec, wire, UINT64_MAX, UINT64_MAX, output), LNT_ERR_CORRUPT);
    ck_assert_int_eq(lnt_codec_decode(codec, NULL, bytes, 65, output), LNT_ERR_INVALID_ARG);
    ck_assert_mem_eq(before, output, sizeof(output));
    ck_assert_int_eq(lnt_codec_decode(codec, NULL, 0, 0, NULL), LNT_OK);
    ck_assert_int_eq(lnt_codec_decode(codec, wire, bytes, 65, output), LNT_OK);
    lnt_codec_destroy(codec);
}
END_TEST

START_TEST(any_bytes_are_data_without_scales)
{
    const uint8_t wire[8] = {0, 0, 0xc0, 0x7f, 0xff, 0xff, 0xff, 0xff};
    float output[4];
    lnt_codec_t *f32 = create("f32", 0), *bf16 = create("bf16", 0);
    ck_assert_int_eq(lnt_codec_decode(f32, wire, 8, 2, output), LNT_OK);
    ck_assert_mem_eq(output, wire, 8);
    ck_assert_int_eq(lnt_codec_decode(bf16, wire, 8, 4, output), LNT_OK);
    ck_assert(isnan(output[1]));
    lnt_codec_destroy(f32);
    lnt_codec_destroy(bf16);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec_api");
    TCase *all = tcase_create("all");
    tcase_add_test(all, every_listed_name_can_be_created);
    tcase_add_test(all, bad_parameters_are_refused_by_name);
    tcase_add_test(all, kernels_are_chosen_by_the_environment);
    tcase_add_test(all, kernels_for_device_memory_are_refused_by_name);
    tcase_add_test(all, a_running_process_keeps_its_kernels);
    tcase_add_test(all, every_implementation_has_a_name);
    tcase_add_test(all, a_faster_row_may_bring_single_ops);
    tcase_add_test(all, no_codec_is_no_crash);
    tcase_add_test(all, encoded_sizes);
    tcase_add_test(all, encode_refuses_and_reports);
    tcase_add_loop_test(all, decode_refuses_bad_scales_and_sizes, 0, 4);
    tcase_add_test(all, any_bytes_are_data_without_scales);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
