/* Stored cases of the codec model (codec_model.py): today's code gives the same bytes, and reads the old ones. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/codec.h"

enum { MAX_N = 256, FIELDS = 12 };

typedef struct stored {
    uint8_t bytes[4 * MAX_N];
    size_t size;
} stored_t;

typedef struct vector {
    lnt_codec_t codec;
    uint64_t n;
    stored_t live, input, error, scales, codes, decoded, new_error;
    bool poisoned;
} vector_t;

static void read_hex(const char *text, stored_t *s)
{
    s->size = strcmp(text, "-") ? strlen(text) / 2 : 0;
    ck_assert_uint_le(s->size, sizeof(s->bytes));
    for (size_t i = 0; i < s->size; i++) {
        unsigned byte;
        ck_assert_int_eq(sscanf(text + 2 * i, "%2x", &byte), 1);
        s->bytes[i] = (uint8_t)byte;
    }
}

static void read_vector(char *line, vector_t *v)
{
    char *field[FIELDS], *rest = NULL;
    for (int i = 0; i < FIELDS; i++) {
        field[i] = strtok_r(i ? NULL : line, " \n", &rest);
        ck_assert_ptr_nonnull(field[i]);
    }
    lnt_scale_rule_t rule = (lnt_scale_rule_t)atoi(field[2]);
    ck_assert_int_eq(lnt_codec_init(&v->codec, field[0], (uint32_t)atoi(field[1]), rule), LNT_OK);
    v->n = (uint64_t)atoi(field[3]);
    stored_t *arrays[] = {&v->live, &v->input, &v->error, &v->scales, &v->codes, &v->decoded, &v->new_error};
    for (int i = 0; i < 7; i++)
        read_hex(field[4 + i], arrays[i]);
    v->poisoned = atoi(field[11]);
}

static void check_vector(const vector_t *v)
{
    static float values[MAX_N], error[MAX_N], decoded[MAX_N];
    static uint8_t scales[4 * MAX_N], codes[4 * MAX_N];
    const uint8_t *live = v->live.size ? v->live.bytes : NULL;
    memcpy(values, v->input.bytes, v->input.size);
    memcpy(error, v->error.bytes, v->error.size);
    lnt_encode_in_t in = {.values = values, .dtype = LNT_F32, .n = v->n, .live = live, .error_in = error};
    lnt_encode_out_t out = {.scales = scales, .codes = codes, .error_out = error};
    v->codec.ops.encode(&v->codec.cfg, &in, &out);
    ck_assert_int_eq(out.poisoned, v->poisoned);
    ck_assert_mem_eq(scales, v->scales.bytes, v->scales.size);
    ck_assert_mem_eq(codes, v->codes.bytes, v->codes.size);
    if (!v->poisoned) ck_assert_mem_eq(error, v->new_error.bytes, v->new_error.size);
    ck_assert_uint_eq(v->scales.size + v->codes.size, lnt_codec_encoded_size(&v->codec, v->n));
    v->codec.ops.decode(&v->codec.cfg, v->scales.bytes, v->codes.bytes, v->n, live, decoded);
    ck_assert_mem_eq(decoded, v->decoded.bytes, v->decoded.size);
}

START_TEST(stored_vectors_hold)
{
    FILE *file = fopen(LNT_SOURCE_DIR "/tests/golden/codec_vectors.txt", "r");
    ck_assert_ptr_nonnull(file);
    static vector_t v;
    char *line = NULL;
    size_t room = 0, n_vectors = 0;
    while (getline(&line, &room, file) > 0) {
        read_vector(line, &v);
        check_vector(&v);
        n_vectors++;
    }
    free(line);
    fclose(file);
    ck_assert_uint_ge(n_vectors, 189);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec_vectors");
    TCase *all = tcase_create("all");
    tcase_add_test(all, stored_vectors_hold);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
