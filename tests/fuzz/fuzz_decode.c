/* Fuzz target: any bytes into decode give data or LNT_ERR_CORRUPT, and touch nothing else.
 *
 * Input: codec number, block / 64 - 1, count (2 bytes), length choice, then the wire. Exact-size heap buffers let the
 * sanitizers see one byte too far. Without libFuzzer: tests/kernel/test_fuzz_decode.c. With it (clang), the library
 * instrumented too: -DLINNET_FUZZ=ON -DCMAKE_C_FLAGS=-fsanitize=fuzzer-no-link,address
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <linnet/codec.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUZZ_HEADER = 5 };

static void check(int holds)
{
    if (!holds) abort();
}

static void decode_both(const lnt_codec_t *codec, const uint8_t *wire, size_t wire_bytes, uint64_t n)
{
    float *output = malloc(n * sizeof(*output) + 1), *before = malloc(n * sizeof(*before) + 1);
    check(output && before);
    memset(output, 0x5a, n * sizeof(*output));
    memcpy(before, output, n * sizeof(*output));
    lnt_status_t status = lnt_codec_decode(codec, wire, wire_bytes, n, output);
    check(status == LNT_OK || status == LNT_ERR_CORRUPT);
    if (wire_bytes != lnt_codec_encoded_size(codec, n)) check(status == LNT_ERR_CORRUPT);
    if (status == LNT_ERR_CORRUPT) check(!memcmp(before, output, n * sizeof(*output)));
    check(lnt_codec_decode_add(codec, wire, wire_bytes, n, output) == status);
    if (status == LNT_ERR_CORRUPT) check(!memcmp(before, output, n * sizeof(*output)));
    free(before);
    free(output);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < FUZZ_HEADER) return 0;
    size_t n_names = 0;
    while (lnt_codec_list()[n_names])
        n_names++;
    lnt_codec_params_t params = {.struct_size = sizeof(params),
                                 .name = lnt_codec_list()[data[0] % n_names],
                                 .block = 64u * (data[1] % 32u + 1u)};
    lnt_codec_t *codec = NULL;
    check(lnt_codec_create(&params, &codec) == LNT_OK);
    uint64_t n = (uint64_t)(data[2] + 256u * data[3]) % 4097;
    size_t have = size - FUZZ_HEADER, want = (size_t)lnt_codec_encoded_size(codec, n);
    size_t wire_bytes = data[4] % 8 ? want : have; /* mostly the right size, so that the decoder itself is reached */
    uint8_t *wire = calloc(1, wire_bytes + 1);
    check(wire != NULL);
    memcpy(wire, data + FUZZ_HEADER, have < wire_bytes ? have : wire_bytes);
    decode_both(codec, wire, wire_bytes, n);
    free(wire);
    lnt_codec_destroy(codec);
    return 0;
}
