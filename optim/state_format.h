/* Saved state as bytes (docs/state_format.md is normative): a header, then sections with names. Little-endian,
 * everything on 8-byte borders, each part with its CRC-32C, so that no single changed byte passes.
 */
#ifndef LNT_STATE_FORMAT_H
#define LNT_STATE_FORMAT_H

#include "optim_impl.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "saved state is little-endian: big-endian hosts need byte swaps");

#define LNT_STATE_MAGIC "LNTSTATE"
enum { LNT_STATE_VERSION = 1, LNT_STATE_SPARSE = 1 /* errors that are not listed are zero */ };

typedef struct lnt_state_header {
    uint8_t magic[8];
    uint32_t version, library_version;
    uint64_t bytes; /* of the whole blob */
    uint32_t n_sections, world, rank, n_nodes;
    uint64_t layout_hash, step, skipped;
    uint32_t phase, frozen, n_tensors, n_groups;
    double loss_scale, grad_norm, dead_share, dropped_norm;
    uint32_t micro_steps;
    char algorithm[28];  /* zero-padded */
    uint64_t model_hash; /* of the tensors alone; world and nodes stand beside it, for loading into another world */
    uint32_t flags;      /* LNT_STATE_SPARSE */
    uint32_t crc;        /* of all bytes before it */
} lnt_state_header_t;

_Static_assert(sizeof(lnt_state_header_t) == 160, "the header is the file format");

/* Every blob has these, and one section per array and per row of values of the algorithm. */
#define LNT_STATE_NODES "nodes"     /* u32 [world]: node of every rank */
#define LNT_STATE_TENSORS "tensors" /* lnt_state_tensor_t and name, per tensor */
#define LNT_STATE_GROUPS "groups"   /* f64 beta1^t, beta2^t per group */
#define LNT_STATE_MASTERS "masters" /* f32, all tensors one after the other; so are the arrays */
#define LNT_STATE_ERRORS "errors"   /* lnt_state_extent_t and data, per extent this rank owns; programs of this phase */
enum {
    LNT_STATE_COMMON_SECTIONS = 5,
    LNT_STATE_SECTIONS_MAX = LNT_STATE_COMMON_SECTIONS + LNT_ARRAYS_MAX + LNT_VALUES_MAX
};

/* In front of a section; crc covers name, bytes and the payload. */
typedef struct lnt_state_section {
    char name[LNT_STATE_NAME_BYTES]; /* zero-padded */
    uint32_t crc;
    uint64_t bytes; /* of the payload, a multiple of 8 */
} lnt_state_section_t;

_Static_assert(sizeof(lnt_state_section_t) == 32, "the header of a section is the file format");

typedef struct lnt_state_tensor {
    uint64_t count;
    uint32_t grad_dtype, param_dtype, group, name_bytes; /* the name follows, zero-padded to 8 */
} lnt_state_tensor_t;

typedef struct lnt_state_extent {
    uint32_t program, server, codec_worker, n_workers, tensor, reserved;
    uint64_t offset, count; /* count floats follow, zero-padded to 8 */
} lnt_state_extent_t;

static inline uint64_t lnt_state_padded(uint64_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* What all headers of one save share: 0 in place of what is a rank's own. */
lnt_state_header_t lnt_state_common_header(const lnt_state_header_t *header);

uint32_t lnt_state_section_crc(const lnt_state_section_t *section, const uint8_t *payload);

/* A blob whose bytes have been checked: header, and where the sections lie, in their order. */
typedef struct lnt_state_part {
    char name[LNT_STATE_NAME_BYTES];
    const uint8_t *payload;
    uint64_t bytes;
} lnt_state_part_t;

typedef struct lnt_state_blob {
    lnt_state_header_t header;
    lnt_state_part_t parts[LNT_STATE_SECTIONS_MAX]; /* [header.n_sections] */
} lnt_state_blob_t;

uint32_t lnt_state_sections(const lnt_optim_row_t *row);                   /* how many a blob of this algorithm has */
bool lnt_state_is_common(const lnt_optim_row_t *row, const char *section); /* the same on all ranks */

/* NULL if there is none of that name; the common ones are in every parsed blob. */
const lnt_state_part_t *lnt_state_find(const lnt_state_blob_t *blob, const char *name);

/* LNT_ERR_CORRUPT unless the bytes are a sound blob of this version; nothing is compared with the optimizer. */
lnt_status_t lnt_state_parse(const void *bytes, uint64_t n, lnt_state_blob_t *blob_p);

lnt_status_t lnt_state_corrupt(const char *what); /* reports it */

/* The extent at *pos of an errors section, moving *pos behind its values. False: there can be no such extent, whatever
 * the model; the caller knows which tensors there are. */
bool lnt_state_next_extent(const uint8_t *payload, uint64_t bytes, uint64_t *pos, lnt_state_extent_t *extent,
                           const uint8_t **values_p);

/* LNT_ERR_CORRUPT unless every saved error is finite: one that is not would poison all later steps. The error names
 * rank, section, program, owner, tensor and element. */
lnt_status_t lnt_state_check_errors(const lnt_state_blob_t *blob);

/* The second half of lnt_state_check: what is in the sections of a blob of this model, algorithm and plan. */
lnt_status_t lnt_state_check_content(const lnt_optim_t *optim, const lnt_state_blob_t *blob);

/* The blob fits this optimizer and plan; this rank of this world. LNT_ERR_STATE_MISMATCH names what differs. */
lnt_status_t lnt_state_check(lnt_optim_t *optim, const lnt_state_blob_t *blob);
lnt_status_t lnt_state_check_world(lnt_optim_t *optim, const lnt_state_blob_t *blob);

/* Errors on their way from the ranks that saved them to those that own them now. Nothing live is written before apply.
 */
typedef struct lnt_state_errors {
    lnt_error_extent_t *own; /* what this rank owns now, sorted by what it is of and where it begins */
    uint64_t *first;         /* [n_own] its first element in `values` */
    size_t n_own;
    float *values; /* of all owned extents, one after the other */
    uint8_t *seen;
    uint8_t *stream;  /* one rank's section at a time */
    bool sparse;      /* what no rank has is zero */
    uint32_t present; /* programs of which any rank has errors */
} lnt_state_errors_t;

lnt_status_t lnt_state_errors_measure(lnt_optim_t *optim, lnt_state_errors_t *errors, uint64_t longest_section);
void lnt_state_errors_release(lnt_state_errors_t *errors);
/* One rank's section. */
lnt_status_t lnt_state_errors_take(lnt_optim_t *optim, lnt_state_errors_t *errors, uint32_t programs,
                                   const uint8_t *section, uint64_t bytes);
/* Collective: section_bytes[r] is the length of rank r's errors section; mine is this rank's. */
lnt_status_t lnt_state_errors_collect(lnt_optim_t *optim, lnt_state_errors_t *errors, uint32_t programs,
                                      const uint8_t *mine, const uint64_t *section_bytes);
lnt_status_t lnt_state_errors_check(const lnt_state_errors_t *errors, uint32_t programs);
void lnt_state_errors_apply(const lnt_state_errors_t *errors, uint32_t programs);

#endif
