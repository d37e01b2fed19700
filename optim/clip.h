/* Clipping (docs/optimizers.md): which norm, which factor, and where it is applied.
 *
 *   clip_mode=global   before a freeze (and where there is none) the norm of the decoded mean, applied at the commit.
 *                      After it r * root, where root is sqrt(mean over ranks of squared local norms) and r the ratio of
 *                      the two over the last warm-up steps; applied in the one factor of the step, so before the
 *                      exchange, which waits for it.
 *   clip_mode=bucket   every rank limits its own gradient of every bucket before the exchange; nothing waits.
 *
 * Local norms are f64 sums over blocks of optim->norm_block, added in block order, so they depend on no bucket.
 */
#ifndef LNT_CLIP_H
#define LNT_CLIP_H

#include <pthread.h>
#include <stddef.h>

#include <linnet/coll.h>
#include <linnet/optim.h>
#include <linnet/stage.h>

#include "../src/base/config.h"

typedef enum lnt_clip_mode { LNT_CLIP_GLOBAL, LNT_CLIP_BUCKET } lnt_clip_mode_t;

extern const char *const lnt_clip_words[];

// clang-format off
#define LNT_OPTION_CLIP \
    {"clip", "0", "largest norm of the mean gradient, all tensors together; 0: no clipping", \
     offsetof(lnt_optim_options_t, clip), LNT_CFG_F64, NULL, 0, 1e300}
#define LNT_OPTION_CLIP_MODE \
    {"clip_mode", "global", \
     "global: one norm and one factor for all, agreed by all ranks; bucket: every rank limits each bucket of its own " \
     "gradient to clip / sqrt(buckets) before the exchange", \
     offsetof(lnt_optim_options_t, clip_mode), LNT_CFG_ENUM, lnt_clip_words, 0, 0}
// clang-format on

/* What a step needs for it; empty where nothing is clipped. Part of the optimizer. */
typedef struct lnt_clip {
    pthread_mutex_t lock;  /* over the scratch: several threads may make tensors ready */
    bool active;           /* the option is set; the lock is made */
    uint64_t *first_block; /* [n_tensors] number of a tensor's first block */
    uint64_t n_blocks;     /* of all tensors */
    double *block_sums;    /* [n_blocks] squares of this rank's gradient; NULL where no local norm is needed */
    float *bucket_factors; /* [n_blocks] by block, since buckets hold whole blocks; NULL unless by bucket */
    double *norms;         /* [n_ranks] squared norms of all ranks; NULL unless they are gathered */
    uint32_t n_ranks;
    lnt_request_t *gather;
    lnt_step_hooks_t hooks; /* of the running step */
    double root;            /* of the running step: sqrt(mean over ranks of squared local norms), unscaled */
    double factor;          /* what the running step is multiplied by, the same on all ranks */
} lnt_clip_t;

enum { LNT_CLIP_RATIOS = 100 };                         /* warm-up steps that r is the mean of */
enum { LNT_CLIP_RECORDED, LNT_CLIP_R, LNT_CLIP_STATE }; /* numbers of the state: ratios ever recorded, their mean */

lnt_status_t lnt_clip_create(lnt_optim_t *optim); /* after its programs; nothing without the option */
void lnt_clip_destroy(lnt_optim_t *optim);
uint64_t lnt_clip_memory(const lnt_optim_t *optim);

/* A program whose values are gradients: with clip_mode=bucket its local stage multiplies them. */
void lnt_clip_program(lnt_optim_t *optim, lnt_program_params_t *program);
float lnt_clip_bucket_factor(const lnt_optim_t *optim, const lnt_span_t *span); /* for local stages of their own */

/* Of the step that begins; NULL: none. */
const lnt_step_hooks_t *lnt_clip_hooks(lnt_optim_t *optim);
/* After the vote: the norm of the decoded mean, and with clip_mode=global the factor of the commit pass. */
lnt_status_t lnt_clip_survey(void *arg, lnt_plan_t *plan, uint32_t program);
void lnt_clip_committed(lnt_optim_t *optim); /* before the row's own hook, which may freeze */

#endif
