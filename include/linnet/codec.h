/* Codecs: wire formats for runs of numbers. Usable on their own, with no context and no communicator.
 *
 * A *run* is n consecutive elements cut into blocks of `block` elements from its first element on; the last block
 * is short. The encoded form of a run is: one f32 scale per block (none for f32, bf16 and f16), then the codes of all
 * blocks, each block on a byte border, first element in the least significant bits (docs/wire_format.md).
 * The encoded size depends on n and the codec alone, never on the data.
 *
 * Every function may be called from any thread; a codec is immutable after creation. Inputs and outputs are
 * borrowed for the call. Pointers need the alignment of their element only. n = 0 is legal everywhere.
 */
#ifndef LINNET_CODEC_H
#define LINNET_CODEC_H

#include <linnet/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lnt_scale_rule {
    LNT_SCALE_L2 = 0, /* sqrt(mean of squares): parity with the 1-bit papers (default) */
    LNT_SCALE_L1 = 1  /* mean of magnitudes: EF-signSGD; sign1 only */
} lnt_scale_rule_t;

typedef struct lnt_codec_params {
    size_t struct_size; /* sizeof(lnt_codec_params_t) */
    const char *name;   /* "sign1", "int8", "int4", ...; see lnt_codec_list */
    uint32_t block;     /* elements per block, a multiple of 64; 0: the codec's default */
    lnt_scale_rule_t scale_rule;
} lnt_codec_params_t;

/* LNT_ERR_INVALID_ARG (with the nearest name) for an unknown name, a block that is no multiple of 64 or above
 * 2^24, a scale rule the codec does not have. *codec_p is written on success only. */
LNT_API lnt_status_t lnt_codec_create(const lnt_codec_params_t *params, lnt_codec_t **codec_p);
LNT_API void lnt_codec_destroy(lnt_codec_t *codec); /* NULL is legal */

/* Names of all codecs in table order, NULL-terminated, static. */
LNT_API const char *const *lnt_codec_list(void);
LNT_API const char *lnt_codec_name(const lnt_codec_t *codec);
LNT_API uint32_t lnt_codec_block(const lnt_codec_t *codec);

/* Exact size in bytes of the encoded form of a run of n elements; UINT64_MAX if it does not fit 64 bits or codec is
 * NULL. (The two calls above say "none" and 0 for NULL.) */
LNT_API uint64_t lnt_codec_encoded_size(const lnt_codec_t *codec, uint64_t n);

/* Encode a run. `wire` receives lnt_codec_encoded_size(codec, n) bytes.
 *   input     n elements of `dtype`, host memory
 *   error_in  n floats added to the input before coding (error feedback), or NULL
 *   error_out n floats: (input + error_in) - decoded, or NULL. May equal error_in (in place) or be another buffer
 *             (a shadow); it must not overlap otherwise. Requires error_in.
 * A non-finite value, or a value whose code cannot be decoded to a finite one, returns LNT_SKIPPED_NONFINITE: then
 * `wire` holds a decodable frame whose poisoned blocks are zero (codecs without scales pass the values on), and
 * error_out is written but must not be used. Codecs that round by chance (bf16_sr, f16_sr) use seed 0 and index 0. */
LNT_API lnt_status_t lnt_codec_encode(const lnt_codec_t *codec, const void *input, lnt_dtype_t dtype, uint64_t n,
                                      const float *error_in, float *error_out, void *wire);

/* The same with a choice of random numbers: element i takes the one of (seed, index + i), whatever the machine, so a
 * run coded in pieces at the right index gives the same codes as in one. Use every pair once: the same numbers twice
 * repeat the same rounding errors. Other codecs ignore both. */
LNT_API lnt_status_t lnt_codec_encode_seeded(const lnt_codec_t *codec, const void *input, lnt_dtype_t dtype, uint64_t n,
                                             uint64_t seed, uint64_t index, const float *error_in, float *error_out,
                                             void *wire);

/* Decode a run, or add the decoded values to `output`. wire_bytes must be the exact size: otherwise, or when a
 * scale is negative or not finite, LNT_ERR_CORRUPT and `output` is untouched. */
LNT_API lnt_status_t lnt_codec_decode(const lnt_codec_t *codec, const void *wire, uint64_t wire_bytes, uint64_t n,
                                      float *output);
LNT_API lnt_status_t lnt_codec_decode_add(const lnt_codec_t *codec, const void *wire, uint64_t wire_bytes, uint64_t n,
                                          float *output);

#ifdef __cplusplus
}
#endif
#endif
