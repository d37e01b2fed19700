/* CAME (Luo et al., ACL 2023, arXiv 2307.02047): Adam's second moment of a matrix kept as means of its rows and
 * columns, and the momentum divided by how far it is from the last directions, kept the same way. One program, one
 * phase.
 *
 * Statistics are values of the state, f64. A survey makes those to come in optim->work, with the factors that follow
 * from them; consume forms the directions again with these. Tensors without a shape are vectors: their second moment
 * is kept whole, in f64, and there is no confidence.
 */
#include <math.h>
#include <string.h>

#include "optim_impl.h"
#include "pieces.h"
#include "plain_options.h"

enum { ROWS, COLS, RES_ROWS, RES_COLS, WHOLE, N_VALUES }; /* values: of squares, of distances, of vectors */
enum { NEXT, RES_NEXT, FACTOR, RES_FACTOR, N_LISTS };     /* lists in optim->work, one for rows and one for columns */

// clang-format off
static const lnt_cfg_row_t options[] = {
    LNT_OPTION_CODEC, LNT_OPTION_CODEC_BLOCK, LNT_OPTION_CLIP, LNT_OPTION_CLIP_MODE, LNT_SCALING_OPTIONS,
    {"beta3", "0.9999", "weight of the past in the statistics of distances",
     offsetof(lnt_optim_options_t, beta3), LNT_CFG_F64, NULL, 0, 0.9999999999},
    {"eps1", "1e-30", "added to squares of gradients", offsetof(lnt_optim_options_t, eps1), LNT_CFG_F64, NULL, 1e-300, 1},
    {"eps2", "1e-16", "added to squares of distances", offsetof(lnt_optim_options_t, eps2), LNT_CFG_F64, NULL, 1e-300, 1},
    {"clip_threshold", "1", "largest root mean square of a tensor's direction",
     offsetof(lnt_optim_options_t, clip_threshold), LNT_CFG_F64, NULL, 1e-30, 1e30},
    LNT_OPTION_ERROR_FEEDBACK,
    {NULL, NULL, NULL, 0, LNT_CFG_U32, NULL, 0, 0}};
// clang-format on

/* ---- where things are ---- */

static uint64_t count_rows(const lnt_optim_t *optim)
{
    uint64_t n = 0;

    for (uint32_t t = 0; t < optim->n_tensors; t++)
        n += optim->tensors[t].rows;
    return n;
}

static uint64_t count_cols(const lnt_optim_t *optim)
{
    uint64_t n = 0;

    for (uint32_t t = 0; t < optim->n_tensors; t++)
        n += optim->tensors[t].cols;
    return n;
}

static uint64_t count_whole(const lnt_optim_t *optim)
{
    uint64_t n = 0;

    for (uint32_t t = 0; t < optim->n_tensors; t++)
        n += optim->tensors[t].rows == 0 ? optim->tensors[t].count : 0;
    return n;
}

static uint64_t work_count(const lnt_optim_t *optim)
{
    return N_LISTS * (count_rows(optim) + count_cols(optim)) + optim->n_tensors;
}

static double *rows_of(const lnt_optim_t *optim, uint32_t list, const lnt_optim_tensor_t *tensor)
{
    return optim->work + list * optim->n_values[ROWS] + tensor->row_at;
}

static double *cols_of(const lnt_optim_t *optim, uint32_t list, const lnt_optim_tensor_t *tensor)
{
    return optim->work + N_LISTS * optim->n_values[ROWS] + list * optim->n_values[COLS] + tensor->col_at;
}

/* What a direction is divided by, so that its root mean square keeps its limit. */
static double *divisor_of(const lnt_optim_t *optim, const lnt_optim_tensor_t *tensor)
{
    return optim->work + N_LISTS * (optim->n_values[ROWS] + optim->n_values[COLS]) + (tensor - optim->tensors);
}

/* ---- a walk over elements ---- */

typedef struct walk {
    const lnt_optim_tensor_t *tensor;
    uint64_t row, col;                 /* of the next element; of a vector: row is its place */
    const double *rows, *cols, *whole; /* factors of the matrix; second moment of the vector */
    const double *res_rows, *res_cols;
    double b2, o2, eps1;
    float divisor, clip;
    const lnt_adam_consts_t *k;
} walk_t;

static walk_t walk_from(const lnt_optim_t *optim, const lnt_optim_tensor_t *tensor, uint64_t offset)
{
    const lnt_optim_group_t *group = &optim->groups[tensor->group];

    return (walk_t){.tensor = tensor,
                    .row = tensor->rows != 0 ? offset / tensor->cols : offset,
                    .col = tensor->rows != 0 ? offset % tensor->cols : 0,
                    .rows = rows_of(optim, FACTOR, tensor),
                    .cols = cols_of(optim, FACTOR, tensor),
                    .res_rows = rows_of(optim, RES_FACTOR, tensor),
                    .res_cols = cols_of(optim, RES_FACTOR, tensor),
                    .whole = optim->values[WHOLE] + tensor->whole_at,
                    .b2 = group->values.beta2,
                    .o2 = 1 - group->values.beta2,
                    .eps1 = optim->options.eps1,
                    .divisor = (float)*divisor_of(optim, tensor),
                    .clip = lnt_pieces_clip(optim),
                    .k = &group->k};
}

static void go_on(walk_t *walk)
{
    if (++walk->col < walk->tensor->cols) return;
    walk->col = 0;
    walk->row++;
}

/* Second moment of a vector's element after this step. */
static double whole_ahead(const walk_t *walk, float g)
{
    return walk->b2 * walk->whole[walk->row] + walk->o2 * ((double)g * (double)g + walk->eps1);
}

/* Statistics of nothing but a tiny eps make factors that are no f32, times a gradient of 0. */
static float times(float value, double factor)
{
    const float limit = 1e30f, product = value * (float)(factor < 1e30 ? factor : 1e30);

    return product > limit ? limit : product < -limit ? -limit : product;
}

/* The direction of the element under the walk. */
static float direction(const walk_t *walk, float g)
{
    float u = walk->tensor->rows != 0 ? times(g, walk->rows[walk->row] * walk->cols[walk->col])
                                      : (float)((double)g / sqrt(whole_ahead(walk, g)));

    return u / walk->divisor;
}

/* ---- the survey ---- */

static void add_squares(lnt_optim_t *optim, const lnt_piece_t *piece, void *arg)
{
    walk_t walk = walk_from(optim, piece->tensor, piece->offset);
    double *rows = rows_of(optim, NEXT, piece->tensor), *cols = cols_of(optim, NEXT, piece->tensor);

    (void)arg;
    for (uint64_t i = 0; i < piece->count; i++, go_on(&walk)) {
        double g = (double)(piece->value[i] * walk.clip), square = g * g + walk.eps1;
        rows[walk.row] += square;
        cols[walk.col] += square;
    }
}

static void add_directions(lnt_optim_t *optim, const lnt_piece_t *piece, void *arg)
{
    walk_t walk = walk_from(optim, piece->tensor, piece->offset);

    for (uint64_t i = 0; i < piece->count; i++, go_on(&walk))
        piece->value[i] = direction(&walk, piece->value[i] * walk.clip);
    lnt_pieces_add_squares(optim, piece->value, piece->count, arg);
}

static void add_distances(lnt_optim_t *optim, const lnt_piece_t *piece, void *arg)
{
    walk_t walk = walk_from(optim, piece->tensor, piece->offset);
    double *rows = rows_of(optim, RES_NEXT, piece->tensor), *cols = cols_of(optim, RES_NEXT, piece->tensor);
    const float *m = lnt_optim_f32(optim, LNT_ADAM_M) + piece->at;

    (void)arg;
    for (uint64_t i = 0; i < piece->count; i++, go_on(&walk)) {
        float u = direction(&walk, piece->value[i] * walk.clip);
        double distance = (double)(u - lnt_adam_momentum(walk.k, m[i], u));
        rows[walk.row] += distance * distance + optim->options.eps2;
        cols[walk.col] += distance * distance + optim->options.eps2;
    }
}

/* Sums become running means, and factors 1 / sqrt(row / mean of rows) and 1 / sqrt(column). */
static void finish(lnt_optim_t *optim, const lnt_optim_tensor_t *tensor, uint32_t list, uint32_t values, double beta)
{
    const double *old_rows = optim->values[values] + tensor->row_at;
    const double *old_cols = optim->values[values + 1] + tensor->col_at;
    double *rows = rows_of(optim, list, tensor), *cols = cols_of(optim, list, tensor), mean = 0;

    for (uint64_t r = 0; r < tensor->rows; r++) {
        rows[r] = beta * old_rows[r] + (1 - beta) * (rows[r] / (double)tensor->cols);
        mean += rows[r];
    }
    mean /= (double)tensor->rows;
    for (uint64_t r = 0; r < tensor->rows; r++)
        rows_of(optim, list + FACTOR, tensor)[r] = 1 / sqrt(rows[r] / mean);
    for (uint64_t c = 0; c < tensor->cols; c++) {
        cols[c] = beta * old_cols[c] + (1 - beta) * (cols[c] / (double)tensor->rows);
        cols_of(optim, list + FACTOR, tensor)[c] = 1 / sqrt(cols[c]);
    }
}

static void clear(lnt_optim_t *optim, const lnt_optim_tensor_t *tensor, uint32_t list)
{
    memset(rows_of(optim, list, tensor), 0, tensor->rows * sizeof(double));
    memset(cols_of(optim, list, tensor), 0, tensor->cols * sizeof(double));
}

static lnt_status_t survey_tensor(lnt_optim_t *optim, uint32_t program, uint32_t number)
{
    const lnt_optim_tensor_t *tensor = &optim->tensors[number];
    double square = 0, rms;

    *divisor_of(optim, tensor) = 1;
    if (tensor->rows != 0) {
        clear(optim, tensor, NEXT);
        LNT_TRY(lnt_pieces_each(optim, program, number, add_squares, NULL));
        finish(optim, tensor, NEXT, ROWS, optim->groups[tensor->group].values.beta2);
    }
    LNT_TRY(lnt_pieces_each(optim, program, number, add_directions, &square));
    rms = tensor->count != 0 ? sqrt(square / (double)tensor->count) : 0;
    if (rms > optim->options.clip_threshold) *divisor_of(optim, tensor) = rms / optim->options.clip_threshold;
    if (tensor->rows == 0) return LNT_OK;
    clear(optim, tensor, RES_NEXT);
    LNT_TRY(lnt_pieces_each(optim, program, number, add_distances, NULL));
    finish(optim, tensor, RES_NEXT, RES_ROWS, optim->options.beta3);
    return LNT_OK;
}

static lnt_status_t survey(void *arg, lnt_plan_t *plan, uint32_t program)
{
    lnt_optim_t *optim = arg;

    LNT_TRY(lnt_clip_survey(optim, plan, program));
    for (uint32_t t = 0; t < optim->n_tensors; t++)
        LNT_TRY(survey_tensor(optim, program, t));
    return LNT_OK;
}

static void consume(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live)
{
    lnt_optim_t *optim = arg;
    uint64_t at;
    const lnt_optim_tensor_t *tensor = lnt_optim_span(optim, span, &at);
    walk_t walk = walk_from(optim, tensor, span->offset);
    float *m = lnt_optim_f32(optim, LNT_ADAM_M) + at, *x = tensor->x + span->offset;

    (void)live;
    for (uint64_t i = 0; i < span->count; i++, go_on(&walk)) {
        float g = value[i] * walk.clip, step;
        step = m[i] = lnt_adam_momentum(walk.k, m[i], direction(&walk, g));
        if (tensor->rows != 0) {
            step = times(step, walk.res_rows[walk.row] * walk.res_cols[walk.col]);
        } else {
            optim->values[WHOLE][tensor->whole_at + walk.row] = whole_ahead(&walk, g);
        }
        x[i] = (x[i] - walk.k->w * x[i]) - walk.k->lr * step;
    }
    lnt_plan_publish(optim->plan, span->tensor, span->offset, span->count);
}

/* ---- the row ---- */

static lnt_status_t committed(lnt_optim_t *optim)
{
    const lnt_optim_tensor_t *first = optim->tensors;

    if (optim->n_tensors == 0) return LNT_OK;
    memcpy(optim->values[ROWS], rows_of(optim, NEXT, first), optim->n_values[ROWS] * sizeof(double));
    memcpy(optim->values[COLS], cols_of(optim, NEXT, first), optim->n_values[COLS] * sizeof(double));
    memcpy(optim->values[RES_ROWS], rows_of(optim, RES_NEXT, first), optim->n_values[ROWS] * sizeof(double));
    memcpy(optim->values[RES_COLS], cols_of(optim, RES_NEXT, first), optim->n_values[COLS] * sizeof(double));
    return LNT_OK;
}

static lnt_status_t add_programs(lnt_optim_t *optim)
{
    return lnt_adam_add_program(optim, (lnt_stage_t){.survey = survey, .consume = consume});
}

static const lnt_state_array_t arrays[] = {
    [LNT_ADAM_M] = {.name = "exp_avg", .elem_bytes = sizeof(float)},
    [LNT_ADAM_M + 1] = {.name = NULL},
};

static const lnt_state_values_t values[] = {
    [ROWS] = {.name = "exp_avg_sq_row", .count = count_rows, .low = 0, .high = 1e300},
    [COLS] = {.name = "exp_avg_sq_col", .count = count_cols, .low = 0, .high = 1e300},
    [RES_ROWS] = {.name = "exp_avg_res_row", .count = count_rows, .low = 0, .high = 1e300},
    [RES_COLS] = {.name = "exp_avg_res_col", .count = count_cols, .low = 0, .high = 1e300},
    [WHOLE] = {.name = "exp_avg_sq", .count = count_whole, .low = 0, .high = 1e300},
    [N_VALUES] = {.name = NULL},
};

const lnt_optim_row_t lnt_came_row = {.name = "came",
                                      .doc = "Adam with factored second moments and a factored confidence",
                                      .options = options,
                                      .phases = lnt_adam_phases,
                                      .arrays = arrays,
                                      .values = values,
                                      .check = lnt_adam_check,
                                      .add_programs = add_programs,
                                      .work_count = work_count,
                                      .n_scratch = 1,
                                      .committed = committed};
