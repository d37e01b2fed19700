/* Saved state as bytes (docs/state_format.md is normative): a header, then sections in fixed order. Little-endian,
 * everything on 8-byte borders, each part with its CRC-32C, so that no single changed byte passes.
 */
#ifndef LNT_STATE_FORMAT_H
#define LNT_STATE_FORMAT_H

#include "optim_impl.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "saved state is little-endian: big-endian hosts need byte swaps");

#define LNT_STATE_MAGIC "LNTSTATE"
enum { LNT_STATE_VERSION = 1 };

typedef struct lnt_state_header {
    uint8_t magic[8];
    uint32_t version, library_version;
    uint64_t bytes; /* of the whole blob */
    uint32_t n_sections, world, rank, n_nodes;
    uint64_t layout_hash, step, skipped;
    uint32_t phase, frozen, n_tensors, n_groups;
    double loss_scale, grad_norm, dead_share, dropped_norm;
    uint32_t micro_steps;
    char algorithm[28];   /* zero-padded */
    uint32_t reserved[3]; /* 0 */
    uint32_t crc;         /* of all bytes before it */
} lnt_state_header_t;

_Static_assert(sizeof(lnt_state_header_t) == 160, "the header is the file format");

enum {
    LNT_STATE_NODES,   /* u32 [world]: node of every rank */
    LNT_STATE_TENSORS, /* lnt_state_tensor_t and name, per tensor */
    LNT_STATE_GROUPS,  /* f64 beta1^t, beta2^t per group */
    LNT_STATE_MASTERS, /* f32, all tensors one after the other; so are the next four */
    LNT_STATE_EXP_AVG,
    LNT_STATE_EXP_AVG_SQ,
    LNT_STATE_DENOMINATOR, /* empty before the freeze */
    LNT_STATE_DEAD,        /* u8; empty before the freeze */
    LNT_STATE_ERRORS,      /* lnt_state_extent_t and data, per extent this rank owns, of the programs of this phase */
    LNT_STATE_SECTIONS
};

/* In front of a section; crc covers id, bytes and the payload. */
typedef struct lnt_state_section {
    uint32_t id, crc;
    uint64_t bytes; /* of the payload, a multiple of 8 */
} lnt_state_section_t;

typedef struct lnt_state_tensor {
    uint64_t count;
    uint32_t grad_dtype, param_dtype, group, name_bytes; /* the name follows, zero-padded to 8 */
} lnt_state_tensor_t;

typedef struct lnt_state_extent {
    uint32_t program, server, codec_worker, n_nodes, tensor, reserved;
    uint64_t offset, count; /* count floats follow, zero-padded to 8 */
} lnt_state_extent_t;

static inline uint64_t lnt_state_padded(uint64_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

uint32_t lnt_state_section_crc(const lnt_state_section_t *section, const uint8_t *payload);

/* A blob whose bytes have been checked: header, and where the payloads lie. */
typedef struct lnt_state_blob {
    lnt_state_header_t header;
    const uint8_t *payload[LNT_STATE_SECTIONS];
    uint64_t bytes[LNT_STATE_SECTIONS];
} lnt_state_blob_t;

/* LNT_ERR_CORRUPT unless the bytes are a sound blob of this version; nothing is compared with the optimizer. */
lnt_status_t lnt_state_parse(const void *bytes, uint64_t n, lnt_state_blob_t *blob_p);

/* The blob fits this optimizer, plan and world. LNT_ERR_STATE_MISMATCH names what differs. */
lnt_status_t lnt_state_check(lnt_optim_t *optim, const lnt_state_blob_t *blob);

/* Errors on their way from the ranks that saved them to those that own them now. Nothing live is written before apply.
 */
typedef struct lnt_state_errors {
    lnt_error_extent_t *own; /* what this rank owns now */
    size_t n_own;
    float *values; /* of all owned extents, one after the other */
    uint8_t *seen;
    uint8_t *stream; /* one rank's section at a time */
} lnt_state_errors_t;

lnt_status_t lnt_state_errors_measure(lnt_optim_t *optim, lnt_state_errors_t *errors, uint64_t longest_section);
void lnt_state_errors_release(lnt_state_errors_t *errors);
/* Collective: section_bytes[r] is the length of rank r's errors section; mine is this rank's. */
lnt_status_t lnt_state_errors_collect(lnt_optim_t *optim, lnt_state_errors_t *errors, uint32_t programs,
                                      const uint8_t *mine, const uint64_t *section_bytes);
lnt_status_t lnt_state_errors_check(const lnt_state_errors_t *errors, uint32_t programs);
void lnt_state_errors_apply(const lnt_state_errors_t *errors, uint32_t programs);

#endif
