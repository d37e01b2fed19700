/* Fuzz target: lnt_codec_decode and lnt_codec_decode_add. Any bytes of any length for any count give data or
 * LNT_ERR_CORRUPT; what is refused leaves the output alone.
 *
 * Input: codec, block / 64 - 1, what the count is, count (2 or 8 bytes), what the length is, then the wire.
 */
#include "fuzz_target.h"

#include <linnet/codec.h>

enum { COUNT_MAX = 4096, HUGE_COUNT = 7, LENGTH_AS_GIVEN = 0 };

static lnt_codec_t *make_codec(fuzz_input_t *in)
{
    size_t n_names = 0;
    while (lnt_codec_list()[n_names])
        n_names++;
    lnt_codec_params_t params = {.struct_size = sizeof(params), .name = lnt_codec_list()[fuzz_number(in, 1) % n_names]};
    params.block = 64u * ((uint32_t)fuzz_number(in, 1) % 70u + 1u);
    lnt_codec_t *codec = NULL;
    fuzz_check(lnt_codec_create(&params, &codec) == LNT_OK, "the codec can be created");
    return codec;
}

/* Decodes, then adds, and looks at what must not have changed. `count` floats are there. */
static void decode_both(const lnt_codec_t *codec, const uint8_t *wire, size_t wire_bytes, uint64_t n, size_t count)
{
    size_t bytes = count * sizeof(float);
    float *output = fuzz_alloc(bytes), *before = fuzz_alloc(bytes);
    memset(output, 0x5a, bytes);
    memcpy(before, output, bytes);
    lnt_status_t status = lnt_codec_decode(codec, wire, wire_bytes, n, output);
    fuzz_check(status == LNT_OK || status == LNT_ERR_CORRUPT, "decode gives data or LNT_ERR_CORRUPT");
    if (wire_bytes != lnt_codec_encoded_size(codec, n)) fuzz_check(status == LNT_ERR_CORRUPT, "the length is checked");
    if (status == LNT_ERR_CORRUPT) fuzz_check(!memcmp(before, output, bytes), "refused by decode, output kept");
    fuzz_check(lnt_codec_decode_add(codec, wire, wire_bytes, n, output) == status, "decode_add agrees with decode");
    if (status == LNT_ERR_CORRUPT) fuzz_check(!memcmp(before, output, bytes), "refused by decode_add, output kept");
    fuzz_free(before, bytes);
    fuzz_free(output, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    lnt_codec_t *codec = make_codec(&in);
    bool huge = fuzz_number(&in, 1) % 8 == HUGE_COUNT;
    uint64_t n = huge ? fuzz_number(&in, 8) : fuzz_number(&in, 2) % (COUNT_MAX + 1);
    bool as_given =
        fuzz_number(&in, 1) % 8 == LENGTH_AS_GIVEN || n > COUNT_MAX; /* else the decoder itself is reached */
    size_t wire_bytes = as_given ? in.left : (size_t)lnt_codec_encoded_size(codec, n);
    if (n <= COUNT_MAX || wire_bytes != lnt_codec_encoded_size(codec, n)) { /* else the caller promises that memory */
        uint8_t *wire = fuzz_alloc(wire_bytes);
        memset(wire, 0, wire_bytes);
        if (in.left) memcpy(wire, in.at, in.left < wire_bytes ? in.left : wire_bytes);
        decode_both(codec, wire, wire_bytes, n, n <= COUNT_MAX ? (size_t)n : 16);
        fuzz_free(wire, wire_bytes);
    }
    lnt_codec_destroy(codec);
    return 0;
}
