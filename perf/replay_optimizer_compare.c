/* Comparison of one call with what the case recorded of it: one row of the table per array of the format.
 *
 * Units and tolerances are those of tests/golden/README.md: parameters and moments in units of max(|reference|, root
 * mean square of the tensor's live elements), errors and scales in units of the worker's scale, coefficients relative,
 * bits and counters exact.
 */
#include "replay_optimizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../optim/optim_impl.h"
#include "../src/core/plan_impl.h"

#define ERROR_TOLERANCE 2e-5
#define SCALE_TOLERANCE 1e-5
#define COEFFICIENT_TOLERANCE 1e-5

typedef struct array_row {
    const char *name, *dtype;
    const char *view;
    double (*deviation)(replay_run_t *run, const replay_recorded_t *recorded);
    double tolerance; /* 0: exact; negative: the model's */
} array_row_t;

/* ---- elements -------------------------------------------------------------------------------------------------- */

/* Root mean square of the live elements; of elements that are dead and not masked the largest magnitude: they may have
 * run away. */
static void units_of(const replay_model_t *model, const replay_tensor_t *tensor, const float *want, double *live_p,
                     double *dead_p)
{
    const uint8_t *live = (const uint8_t *)model->live.data + tensor->at.offset;
    double squares = 0, largest = 0, n = 0;

    for (size_t i = 0; i < tensor->at.count; ++i) {
        largest = replay_larger(largest, fabs((double)want[i]));
        squares += live[i] ? (double)want[i] * (double)want[i] : 0;
        n += live[i];
    }
    *live_p = (n > 0) ? sqrt(squares / n) : 0;
    *dead_p = model->groups[tensor->group].masked ? *live_p : largest;
}

static double compare_tensor(const replay_model_t *model, const replay_tensor_t *tensor, const float *got,
                             const float *want)
{
    const uint8_t *live = (const uint8_t *)model->live.data + tensor->at.offset;
    double unit[2], worst = 0;

    units_of(model, tensor, want, &unit[1], &unit[0]);
    for (size_t i = 0; i < tensor->at.count; ++i) {
        worst = replay_larger(worst, replay_largest(got + i, want + i, 1, unit[live[i] != 0]));
    }
    return worst;
}

/* Array of a rank in the order of the case; NULL: the algorithm has none. */
static const float *elements_of(replay_run_t *run, uint32_t rank, const char *view)
{
    const replay_model_t *model = &run->model;

    if (strcmp(view, "param") == 0) {
        return run->ranks[rank].x;
    }
    for (uint32_t p = 0; p < model->n_tensors; ++p) {
        const replay_piece_t *at = &model->tensors[model->tensor_at[p]].at;
        const float *values = lnt_optim_view(run->ranks[rank].optim, view, p);

        if (values == NULL) {
            return NULL;
        }
        memcpy(run->room + at->offset, values, at->count * sizeof(float));
    }
    return run->room;
}

/* One rank, or all where the row is that wide. */
static double deviation_elements(replay_run_t *run, const replay_recorded_t *recorded)
{
    const replay_model_t *model = &run->model;
    const float *want = replay_recorded_row(recorded, sizeof(float));
    double worst = 0;

    if ((recorded->width != model->n_elems) && (recorded->width != model->n_ranks * model->n_elems)) {
        return INFINITY;
    }
    for (uint32_t r = 0; r < recorded->width / model->n_elems; ++r, want += model->n_elems) {
        const float *got = elements_of(run, r, recorded->view);

        for (uint32_t t = 0; t < model->n_tensors; ++t) {
            const replay_tensor_t *tensor = &model->tensors[t];
            worst = (got == NULL) ? INFINITY
                                  : replay_larger(worst, compare_tensor(model, tensor, got + tensor->at.offset,
                                                                        want + tensor->at.offset));
        }
    }
    return worst;
}

/* What the reference has equal on all ranks is equal here: parameters, first and second moment. */
static double deviation_replicas(replay_run_t *run, const replay_recorded_t *recorded)
{
    static const char *const views[] = {"param", "exp_avg", "exp_avg_sq"};
    const int32_t *want = replay_recorded_row(recorded, sizeof(*want));
    const size_t n = run->model.n_elems;
    float *first = malloc(n * sizeof(*first));
    double differ = 0;

    for (size_t v = 0; (v < 3) && (v < recorded->width) && (first != NULL); ++v) {
        for (uint32_t r = 0; (r < run->model.n_ranks) && (want[v] != 0); ++r) {
            const float *got = elements_of(run, r, views[v]);

            if (got == NULL) {
                free(first);
                return INFINITY;
            }
            if (r == 0) {
                memcpy(first, got, n * sizeof(*first));
            }
            differ += replay_floats_differ(got, first, n, REPLAY_BITS_EQUAL);
        }
    }
    free(first);
    return (first != NULL) ? differ : INFINITY;
}

/* In units of the largest parameter. */
static double deviation_spread(replay_run_t *run, const replay_recorded_t *recorded)
{
    const double *want = replay_recorded_row(recorded, sizeof(*want));
    double spread = 0, unit = 0;

    if (recorded->width != 1) {
        return INFINITY;
    }
    for (size_t i = 0; i < run->model.n_elems; ++i) {
        unit = replay_larger(unit, fabs((double)run->ranks[0].x[i]));
        for (uint32_t r = 1; r < run->model.n_ranks; ++r) {
            spread = replay_larger(spread, fabs((double)run->ranks[r].x[i] - (double)run->ranks[0].x[i]));
        }
    }
    return (unit > 0) ? fabs(spread - *want) / unit : spread;
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

static double deviation_step(replay_run_t *run, const replay_recorded_t *recorded)
{
    lnt_optim_info_t info = {.struct_size = sizeof(info)};

    if (recorded->width != 1) {
        return INFINITY;
    }
    (void)lnt_optim_get_info(run->ranks[0].optim, &info);
    return fabs((double)info.step - *(const int32_t *)replay_recorded_row(recorded, sizeof(int32_t)));
}

/* The reference also codes zeros in call 0, to set up its buffers; nothing comes of it. */
static double deviation_calls(replay_run_t *run, const replay_recorded_t *recorded)
{
    double want;

    if (recorded->width != 1) {
        return INFINITY;
    }
    want = (recorded->step == 0) ? 0 : *(const int32_t *)replay_recorded_row(recorded, sizeof(int32_t));
    return fabs(replay_coded_exchanges(run) - want);
}

/* The first program of a compat row carries the mean gradient; call 0 does nothing with it. */
static double deviation_averaged(replay_run_t *run, const replay_recorded_t *recorded)
{
    bool averaged = (recorded->step == 0) || ((run->ranks[0].plan->step_programs & 1u) != 0);

    if (recorded->width != 1) {
        return INFINITY;
    }
    return averaged != (*(const int32_t *)replay_recorded_row(recorded, sizeof(int32_t)) != 0);
}

/* Numbers of the optimizer's state that belong to tensor or group `t`, in the case's order. */
static double deviation_values(replay_run_t *run, const replay_recorded_t *recorded)
{
    const replay_model_t *model = &run->model;
    uint64_t n = 0;
    const double *got = lnt_optim_values(run->ranks[0].optim, recorded->view, &n);
    bool f32 = strstr(recorded->array.line, "\"dtype\": \"f32\"") != NULL;
    double worst = 0;

    if ((got == NULL) || (recorded->width != model->n_tensors) || ((n != model->n_tensors) && (n != model->n_groups))) {
        return INFINITY;
    }
    for (uint32_t t = 0; t < model->n_tensors; ++t) {
        double want = f32 ? (double)((const float *)replay_recorded_row(recorded, sizeof(float)))[t]
                          : ((const double *)replay_recorded_row(recorded, sizeof(double)))[t];
        double value = got[(n == model->n_tensors) ? model->tensors[t].place : model->tensors[t].group];

        worst = replay_larger(worst, (want != value) ? fabs(value - want) / fabs(want) : 0);
    }
    return worst;
}

/* Intervals and counters of 0/1 Adam, and whether its variance stands. */
static double deviation_counters(replay_run_t *run, const replay_recorded_t *recorded)
{
    static const char *const names[] = {"var_interval", "var_counter", "local_interval", "local_counter"};
    const int32_t *want = replay_recorded_row(recorded, sizeof(*want));
    double differ = 0;

    if (recorded->width != 5) {
        return INFINITY;
    }
    for (size_t i = 0; i < 4; ++i) {
        const double *got = lnt_optim_values(run->ranks[0].optim, names[i], NULL);
        differ += (got == NULL) ? INFINITY : fabs(got[0] - want[i]);
    }
    return differ + (run->ranks[0].optim->frozen != (want[4] != 0));
}

/* Sums of learning rates, tensor by tensor in plan order. */
static double deviation_rates(replay_run_t *run, const replay_recorded_t *recorded)
{
    const replay_model_t *model = &run->model;
    const double *want = replay_recorded_row(recorded, sizeof(*want)), *got;
    uint64_t n = 0;
    double worst = 0;

    got = lnt_optim_values(run->ranks[0].optim, recorded->view, &n);
    if ((got == NULL) || (recorded->width != model->n_tensors) || (n != model->n_groups)) {
        return INFINITY;
    }
    for (uint32_t p = 0; p < model->n_tensors; ++p) {
        const double value = got[model->tensors[model->tensor_at[p]].group];
        worst = replay_larger(worst, (value != want[p]) ? fabs(value - want[p]) / fabs(want[p]) : 0);
    }
    return worst;
}

/* Of a tensor in CAME's statistics: rows, columns, or all elements of what is no matrix. */
static size_t statistics_of(const replay_tensor_t *tensor, const char *view)
{
    if (strstr(view, "_row") != NULL) {
        return tensor->rows;
    }
    return (strstr(view, "_col") != NULL) ? tensor->cols : (tensor->rows == 0) ? tensor->at.count : 0;
}

/* Of the tensors in the first n_places places. */
static size_t statistics_before(const replay_model_t *model, uint32_t n_places, const char *view)
{
    size_t n = 0;

    for (uint32_t p = 0; p < n_places; ++p) {
        n += statistics_of(&model->tensors[model->tensor_at[p]], view);
    }
    return n;
}

/* The library has them in plan order, the case tensor by tensor. Units: the root mean square of the tensor's. */
static double deviation_statistics(replay_run_t *run, const replay_recorded_t *recorded)
{
    const replay_model_t *model = &run->model;
    const float *want = replay_recorded_row(recorded, sizeof(*want));
    uint64_t n_all = 0;
    const double *got = lnt_optim_values(run->ranks[0].optim, recorded->view, &n_all);
    double worst = 0;

    if ((got == NULL) || (recorded->width != n_all) ||
        (n_all != statistics_before(model, model->n_tensors, recorded->view))) {
        return INFINITY;
    }
    for (uint32_t t = 0; t < model->n_tensors; ++t) {
        const size_t n = statistics_of(&model->tensors[t], recorded->view);
        const size_t at = statistics_before(model, model->tensors[t].place, recorded->view);
        double squares = 0;

        for (size_t i = 0; i < n; ++i) {
            squares += (double)want[i] * (double)want[i];
        }
        for (size_t i = 0; i < n; ++i, ++want) {
            const float value = (float)got[at + i];
            worst = replay_larger(worst, replay_largest(&value, want, 1, sqrt(squares / (double)n)));
        }
    }
    return worst;
}

/* The pads of the one buffer, in units of the worker's scale. */
static double deviation_tail(replay_run_t *run, const replay_recorded_t *recorded)
{
    const float *want = replay_recorded_row(recorded, sizeof(*want));
    uint64_t n = 0;
    const double *got = lnt_optim_values(run->ranks[0].optim, recorded->view, &n);
    double worst = 0;

    for (size_t i = 0; (got != NULL) && (n == recorded->width) && (i < n); ++i) {
        const float value = (float)got[i];
        worst = replay_larger(worst, replay_largest(&value, want + i, 1, (double)run->ranks[0].last_scales[0]));
    }
    return ((got != NULL) && (n == recorded->width)) ? worst : INFINITY;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

static const array_row_t rows[] = {
    {"param", "f32", "param", deviation_elements, -1},
    {"param_all", "f32", "param", deviation_elements, -1},
    {"exp_avg", "f32", "exp_avg", deviation_elements, -1},
    {"exp_avg_all", "f32", "exp_avg", deviation_elements, -1},
    {"exp_avg_sq", "f32", "exp_avg_sq", deviation_elements, -1},
    {"max_exp_avg_sq", "f32", "max_exp_avg_sq", deviation_elements, -1},
    {"exp_avg_sq_fresh", "f32", "exp_avg_sq_fresh", deviation_elements, -1},
    {"momentum_accumulator", "f32", "accumulator", deviation_elements, -1},
    {"momentum_accumulator_all", "f32", "accumulator", deviation_elements, -1},
    {"came_exp_avg_sq", "f32", "exp_avg_sq", deviation_statistics, -1},
    {"came_exp_avg_sq_row", "f32", "exp_avg_sq_row", deviation_statistics, -1},
    {"came_exp_avg_sq_col", "f32", "exp_avg_sq_col", deviation_statistics, -1},
    {"came_exp_avg_res_row", "f32", "exp_avg_res_row", deviation_statistics, -1},
    {"came_exp_avg_res_col", "f32", "exp_avg_res_col", deviation_statistics, -1},
    {"zo_counters", "i32", NULL, deviation_counters, 0},
    {"zo_lrs", "f64", "lr_sum", deviation_rates, COEFFICIENT_TOLERANCE},
    {"fused_tail", "f32", "fused_tail", deviation_tail, -1},
    {"scaling_coeff", "f64", "scaling_coeff", deviation_values, COEFFICIENT_TOLERANCE},
    {"lamb_coeff_freeze", "f64", "lamb_coeff_freeze", deviation_values, COEFFICIENT_TOLERANCE},
    {"last_factor", "f64", "last_factor", deviation_values, COEFFICIENT_TOLERANCE},
    {"lamb_coeff", "f64", "lamb_coeff", deviation_values, COEFFICIENT_TOLERANCE},
    {"trust_ratio", "f32", "lamb_coeff", deviation_values, COEFFICIENT_TOLERANCE},
    {"replicas_equal", "i32", NULL, deviation_replicas, 0},
    {"param_spread", "f64", NULL, deviation_spread, -1},
    {"step_counter", "i32", NULL, deviation_step, 0},
    {"calls", "i32", NULL, deviation_calls, 0},
    {"grad_averaged", "i32", NULL, deviation_averaged, 0},
    {"worker_scale", "f32", NULL, replay_deviation_worker_scale, SCALE_TOLERANCE},
    {"server_scale", "f32", NULL, replay_deviation_server_scale, SCALE_TOLERANCE},
    {"worker_bits", "u8", NULL, replay_deviation_worker_bits, 0},
    {"server_bits", "u8", NULL, replay_deviation_server_bits, 0},
    {"worker_error", "f32", NULL, replay_deviation_worker_error, ERROR_TOLERANCE},
    {"server_error", "f32", NULL, replay_deviation_server_error, ERROR_TOLERANCE},
};

/* What goes in, and what says how much room rounding has. */
static const char *const inputs[] = {"param_init", "live", "grad_q", "noise_q", "quad_h", "quad_c", "lr", "margin"};

static const array_row_t *row_named(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

static bool is_input(const char *name)
{
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); ++i) {
        if (strcmp(inputs[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* "steps" of an array; -1: nothing of this call. */
static int64_t row_at(const case_array_t *array, uint32_t step)
{
    const char *at = strstr(array->line, "\"steps\": [");

    at = (at != NULL) ? strchr(at, '[') : NULL;
    for (int64_t row = 0; (at != NULL) && (*at != ']') && (*at != '\0'); ++row) {
        char *end;
        if (strtoull(at + 1, &end, 10) == step) {
            return (end != at + 1) ? row : -1;
        }
        at = end;
    }
    return -1;
}

bool replay_compare_known(const replay_run_t *run, char *problem, size_t size)
{
    const case_file_t *file = run->model.file;
    const size_t n = case_list_size(file, "arrays");

    for (size_t i = 0; i < n; ++i) {
        char name[64] = "";
        case_array_t array;

        field_text(case_element(file, "arrays", i), "name", name, sizeof(name));
        if (is_input(name)) {
            continue;
        }
        if ((row_named(name) == NULL) || !case_array(file, name, row_named(name)->dtype, &array) ||
            (array.n_dims == 0) || (array.shape[0] == 0)) {
            snprintf(problem, size, "array \"%s\" is unknown, or its values are not what it should hold", name);
            return false;
        }
    }
    return true;
}

/* Where a bit differs: with the right formula rounding cannot do that above some 1e-6. */
static void tell_margin(const replay_run_t *run, uint32_t step, const char *name, double deviation)
{
    case_array_t margins;
    int64_t row = -1;

    if (case_array(run->model.file, "margin", "f32", &margins) && (margins.n_dims == 2) && (margins.shape[1] == 2)) {
        row = row_at(&margins, step);
    }
    if ((row >= 0) && ((size_t)row < margins.shape[0])) {
        const float *margin = (const float *)margins.data + 2 * row;
        fprintf(stderr, "call %u: %g of %s differ; nearest value to a tie: worker %g, server %g scales\n", step,
                deviation, name, (double)margin[0], (double)margin[1]);
    }
}

void replay_compare(replay_run_t *run, uint32_t step)
{
    replay_note_scales(run);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        replay_recorded_t recorded = {.step = step, .view = rows[i].view};
        double deviation;
        int64_t row;

        if (!case_array(run->model.file, rows[i].name, rows[i].dtype, &recorded.array)) {
            continue;
        }
        row = row_at(&recorded.array, step);
        if ((row < 0) || ((size_t)row >= recorded.array.shape[0])) {
            continue;
        }
        recorded.row = (size_t)row;
        recorded.width = recorded.array.count / recorded.array.shape[0];
        deviation = rows[i].deviation(run, &recorded);
        replay_report_add(run->report, rows[i].name, step, deviation,
                          (rows[i].tolerance < 0) ? run->model.tolerance : rows[i].tolerance);
        if ((deviation > 0) && (strcmp(rows[i].dtype, "u8") == 0)) {
            tell_margin(run, step, rows[i].name, deviation);
        }
    }
}
