/* Clipping: local norms while gradients become ready, their gather, and the factors (clip.h). Nothing durable changes
 * before the commit but this step's own numbers.
 */
#include "clip.h"

#include <math.h>
#include <string.h>

#include "optim_impl.h"
#include "pieces.h"

const char *const lnt_clip_words[] = {"global", "bucket", NULL};

static bool by_bucket(const lnt_optim_t *optim)
{
    return optim->options.clip != 0 && optim->options.clip_mode == LNT_CLIP_BUCKET;
}

/* The ratio of norms is measured before the freeze and used after it. */
static bool gathers(const lnt_optim_t *optim)
{
    return optim->options.clip_mode == LNT_CLIP_GLOBAL && optim->row->freezing != NULL;
}

/* ---- life ---- */

static lnt_status_t number_blocks(lnt_optim_t *optim)
{
    lnt_clip_t *clip = &optim->clip;

    clip->first_block = lnt_plan_alloc(optim->n_tensors * sizeof(*clip->first_block), "blocks of tensors");
    if (clip->first_block == NULL) return LNT_ERR_NO_MEMORY;
    for (uint32_t t = 0; t < optim->n_tensors; t++) {
        clip->first_block[t] = clip->n_blocks;
        clip->n_blocks += (optim->tensors[t].count + optim->norm_block - 1) / optim->norm_block;
    }
    clip->block_sums = lnt_plan_alloc(clip->n_blocks * sizeof(*clip->block_sums), "norms of blocks");
    return clip->block_sums != NULL ? LNT_OK : LNT_ERR_NO_MEMORY;
}

static lnt_status_t create_gather(lnt_optim_t *optim)
{
    lnt_comm_t *comm = lnt_plan_comm(optim->plan);
    lnt_comm_info_t info = {.struct_size = sizeof(info)};

    LNT_TRY(lnt_comm_get_info(comm, &info));
    optim->clip.n_ranks = info.n_ranks;
    optim->clip.norms = lnt_plan_alloc(info.n_ranks * sizeof(*optim->clip.norms), "norms of ranks");
    if (optim->clip.norms == NULL) return LNT_ERR_NO_MEMORY;
    return lnt_allgather_init(comm, sizeof(double) / sizeof(float), LNT_F32, NULL, &optim->clip.gather);
}

lnt_status_t lnt_clip_create(lnt_optim_t *optim)
{
    lnt_clip_t *clip = &optim->clip;

    if (optim->options.clip == 0) return LNT_OK;
    (void)pthread_mutex_init(&clip->lock, NULL);
    clip->active = true;
    if (gathers(optim)) LNT_TRY(create_gather(optim));
    if (!gathers(optim) && !by_bucket(optim)) return LNT_OK;
    LNT_TRY(number_blocks(optim));
    if (!by_bucket(optim)) return LNT_OK;
    clip->bucket_factors = lnt_plan_alloc(clip->n_blocks * sizeof(*clip->bucket_factors), "factors of buckets");
    return clip->bucket_factors != NULL ? LNT_OK : LNT_ERR_NO_MEMORY;
}

void lnt_clip_destroy(lnt_optim_t *optim)
{
    lnt_clip_t *clip = &optim->clip;

    (void)lnt_request_destroy(clip->gather);
    lnt_plan_free(clip->first_block);
    lnt_plan_free(clip->block_sums);
    lnt_plan_free(clip->bucket_factors);
    lnt_plan_free(clip->norms);
    if (clip->active) (void)pthread_mutex_destroy(&clip->lock);
}

uint64_t lnt_clip_memory(const lnt_optim_t *optim)
{
    const lnt_clip_t *clip = &optim->clip;
    uint64_t bytes = clip->n_ranks * sizeof(*clip->norms);

    if (clip->first_block != NULL) bytes += optim->n_tensors * sizeof(*clip->first_block);
    if (clip->block_sums != NULL) bytes += clip->n_blocks * sizeof(*clip->block_sums);
    if (clip->bucket_factors != NULL) bytes += clip->n_blocks * sizeof(*clip->bucket_factors);
    return bytes;
}

/* ---- local norms ---- */

/* Squares of this rank's gradient in a piece of a bucket, block by block. */
static void measure_span(lnt_optim_t *optim, const lnt_span_t *span)
{
    const uint64_t block = optim->norm_block, piece = LNT_SPAN_MAX / block * block;
    double *sums = optim->clip.block_sums + optim->clip.first_block[span->tensor] + span->offset / block;

    for (uint64_t at = 0; at < span->count; at += piece) {
        uint64_t count = span->count - at < piece ? span->count - at : piece;
        const float *grad = lnt_plan_local(optim->plan, span->tensor, span->offset + at, count, optim->scratch);
        for (uint64_t i = 0; i < count; i += block)
            *sums++ = lnt_arrays()->square_sum(grad + i, count - i < block ? count - i : block);
    }
}

static double sum_blocks(const lnt_optim_t *optim, const lnt_span_t *span)
{
    const uint64_t block = optim->norm_block;
    const double *sums = optim->clip.block_sums + optim->clip.first_block[span->tensor] + span->offset / block;
    double sum = 0;

    for (uint64_t i = 0; i < span->count; i += block)
        sum += *sums++;
    return sum;
}

/* A squared norm of what the caller passed, as a norm of gradients. */
static double unscaled_root(const lnt_optim_t *optim, double square)
{
    return sqrt(square) / optim->loss_scale / optim->micro_steps;
}

/* ---- by bucket ---- */

static void set_factor(lnt_optim_t *optim, uint32_t bucket, float factor)
{
    lnt_span_t span;

    for (size_t i = 0; lnt_plan_bucket_span(optim->plan, bucket, i, &span) == LNT_OK; i++) {
        uint64_t first = optim->clip.first_block[span.tensor] + span.offset / optim->norm_block;
        uint64_t end = first + (span.count + optim->norm_block - 1) / optim->norm_block;
        for (; first < end; first++)
            optim->clip.bucket_factors[first] = factor;
    }
}

/* A bucket above its share of the norm is brought down to it; a non-finite one is left to the vote. */
static void limit_bucket(lnt_optim_t *optim, uint32_t bucket, double square)
{
    lnt_plan_info_t info = {.struct_size = sizeof(info)};
    double norm = unscaled_root(optim, square), limit;

    (void)lnt_plan_get_info(optim->plan, &info);
    limit = optim->options.clip / sqrt(info.n_buckets);
    set_factor(optim, bucket, isfinite(norm) && norm > limit ? (float)(limit / norm) : 1);
}

static void bucket_ready(void *arg, uint32_t bucket)
{
    lnt_optim_t *optim = arg;
    lnt_span_t span;
    double square = 0;

    (void)pthread_mutex_lock(&optim->clip.lock);
    for (size_t i = 0; lnt_plan_bucket_span(optim->plan, bucket, i, &span) == LNT_OK; i++) {
        measure_span(optim, &span);
        square += sum_blocks(optim, &span);
    }
    if (by_bucket(optim)) limit_bucket(optim, bucket, square);
    (void)pthread_mutex_unlock(&optim->clip.lock);
}

float lnt_clip_bucket_factor(const lnt_optim_t *optim, const lnt_span_t *span)
{
    const lnt_clip_t *clip = &optim->clip;

    if (clip->bucket_factors == NULL) return 1;
    return clip->bucket_factors[clip->first_block[span->tensor] + span->offset / optim->norm_block];
}

static void produce_clipped(void *arg, const lnt_span_t *span, const void *grad, lnt_dtype_t dtype, float *out)
{
    if (grad == NULL) {
        memset(out, 0, span->count * sizeof(*out));
    } else {
        (void)lnt_arrays()->widen_scaled[dtype](grad, span->count, lnt_clip_bucket_factor(arg, span), out);
    }
}

void lnt_clip_program(lnt_optim_t *optim, lnt_program_params_t *program)
{
    if (!by_bucket(optim)) return;
    program->by_bucket = true;
    if (program->stage.produce_local == NULL) program->stage.produce_local = produce_clipped;
}

/* ---- one agreed norm ---- */

/* This rank's squared norm: blocks in their order, whatever buckets they lie in. */
static double local_square(const lnt_optim_t *optim)
{
    double sum = 0;

    for (uint64_t i = 0; i < optim->clip.n_blocks; i++)
        sum += optim->clip.block_sums[i];
    return sum;
}

static lnt_status_t gather_root(lnt_optim_t *optim)
{
    lnt_clip_t *clip = &optim->clip;
    const double mine = local_square(optim);
    double total = 0;

    LNT_TRY(lnt_request_start(clip->gather, &mine, clip->norms));
    LNT_TRY(lnt_request_wait(clip->gather));
    for (uint32_t r = 0; r < clip->n_ranks; r++)
        total += clip->norms[r];
    clip->root = unscaled_root(optim, total / clip->n_ranks);
    return LNT_OK;
}

static double *state_numbers(const lnt_optim_t *optim, const char *name)
{
    return (double *)(uintptr_t)lnt_optim_values(optim, name, NULL);
}

/* The norm of the mean gradient as it is estimated after the freeze. */
static double estimated_norm(const lnt_optim_t *optim)
{
    const double *state = state_numbers(optim, "clip_state");

    return (state[LNT_CLIP_RECORDED] != 0 ? state[LNT_CLIP_R] : 1) * optim->clip.root;
}

/* A norm that is not finite means gradients that are not: the vote skips the step on all ranks. */
static lnt_status_t all_ready(void *arg, double *factor_p)
{
    lnt_optim_t *optim = arg;
    double norm;

    LNT_TRY(gather_root(optim));
    if (!optim->frozen) return LNT_OK; /* the mean itself is going to be known */
    norm = estimated_norm(optim);
    if (!isfinite(norm)) return LNT_OK;
    optim->next_norm = norm;
    if (norm > optim->options.clip) *factor_p = optim->clip.factor = optim->options.clip / norm;
    return LNT_OK;
}

const lnt_step_hooks_t *lnt_clip_hooks(lnt_optim_t *optim)
{
    lnt_clip_t *clip = &optim->clip;

    clip->factor = 1;
    clip->root = 0;
    if (clip->block_sums == NULL) return NULL;
    memset(clip->block_sums, 0, clip->n_blocks * sizeof(*clip->block_sums));
    clip->hooks = (lnt_step_hooks_t){.arg = optim,
                                     .bucket_ready = bucket_ready,
                                     .all_ready = clip->gather != NULL ? all_ready : NULL,
                                     .hold = clip->gather != NULL && optim->frozen};
    return &clip->hooks;
}

/* ---- the decoded mean ---- */

static void add_piece(lnt_optim_t *optim, const lnt_piece_t *piece, void *sum_p)
{
    lnt_pieces_add_squares(optim, piece->value, piece->count, sum_p);
}

lnt_status_t lnt_clip_survey(void *arg, lnt_plan_t *plan, uint32_t program)
{
    lnt_optim_t *optim = arg;
    double square = 0;

    (void)plan;
    if (optim->options.clip == 0) return LNT_OK;
    for (uint32_t t = 0; t < optim->n_tensors; t++)
        LNT_TRY(lnt_pieces_each(optim, program, t, add_piece, &square));
    optim->next_norm = sqrt(square);
    optim->clipped = !by_bucket(optim) && optim->next_norm > optim->options.clip;
    if (!optim->clipped) return LNT_OK;
    optim->clip_scale = (float)(optim->options.clip / optim->next_norm);
    optim->clip.factor = (double)optim->clip_scale;
    return LNT_OK;
}

/* ---- the ratio of norms ---- */

static double mean_of_ratios(const double *ratios, uint64_t recorded)
{
    const uint64_t n = recorded < LNT_CLIP_RATIOS ? recorded : LNT_CLIP_RATIOS;
    double sum = 0;

    for (uint64_t i = recorded - n; i < recorded; i++) /* oldest first */
        sum += ratios[i % LNT_CLIP_RATIOS];
    return sum / (double)n;
}

void lnt_clip_committed(lnt_optim_t *optim)
{
    double *ratios, *state;
    uint64_t recorded;

    if (optim->clip.gather == NULL || optim->frozen || optim->clip.root <= 0) return;
    ratios = state_numbers(optim, "clip_ratios");
    state = state_numbers(optim, "clip_state");
    recorded = (uint64_t)state[LNT_CLIP_RECORDED];
    ratios[recorded++ % LNT_CLIP_RATIOS] = optim->next_norm / optim->clip.root;
    state[LNT_CLIP_RECORDED] = (double)recorded;
    state[LNT_CLIP_R] = mean_of_ratios(ratios, recorded);
}
