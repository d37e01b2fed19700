/* Reading the case of an optimizer: tensors, groups, inputs. Knows no algorithm; what does not fit is named. */
#include <linnet/stage.h>

#include "replay_optimizer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 4096 };

typedef struct reader {
    replay_model_t *model;
    char *problem;
    size_t size;
} reader_t;

__attribute__((format(printf, 2, 3))) static bool refuse(const reader_t *reader, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(reader->problem, reader->size, format, args);
    va_end(args);
    return false;
}

static bool read_head(const reader_t *reader)
{
    replay_model_t *model = reader->model;
    const case_file_t *file = model->file;
    int64_t n_ranks = case_integer(file, "world_size", 0), n_steps = case_integer(file, "steps", 0);
    char mode[16] = "";

    if ((n_ranks < 1) || (n_ranks > REPLAY_MAX_RANKS) || (n_steps < 1) || (n_steps > INT32_MAX)) {
        return refuse(reader, "world_size %lld, steps %lld", (long long)n_ranks, (long long)n_steps);
    }
    case_text(file, "mode", mode, sizeof(mode));
    model->closed = strcmp(mode, "closed") == 0;
    if (!model->closed && (strcmp(mode, "open") != 0)) {
        return refuse(reader, "mode \"%s\" is neither open nor closed", mode);
    }
    model->n_ranks = (uint32_t)n_ranks;
    model->n_steps = (uint32_t)n_steps;
    model->n_elems = (size_t)case_integer(file, "param_count", 0);
    model->n_worker = (size_t)case_integer(file, "error_count", 0);
    model->n_server = (size_t)case_integer(file, "server_error_count", 0);
    model->n_buffers = (size_t)case_integer(file, "buffers", 0);
    model->fused = case_integer(file, "fused", 0) != 0;
    model->n_tensors = (uint32_t)case_list_size(file, "tensors");
    model->n_groups = (uint32_t)case_list_size(file, "groups");
    if ((model->n_elems == 0) || (model->n_tensors == 0) || (model->n_tensors > MAX_TENSORS) ||
        (model->n_groups == 0) || (model->n_groups > MAX_TENSORS)) {
        return refuse(reader, "%zu parameters in %u tensors and %u groups", model->n_elems, model->n_tensors,
                      model->n_groups);
    }
    return true;
}

/* Groups of plain optimizers have no betas and eps of their own. */
static void read_group(const replay_model_t *model, uint32_t number)
{
    const char *line = case_element(model->file, "groups", number);
    replay_group_t *group = &model->groups[number];
    lnt_group_t *values = &group->values;
    double betas[3];

    lnt_group_defaults(values);
    values->eps = model->algorithm->eps;
    if (case_numbers(model->file, "betas", betas, 3) >= 2) {
        values->beta1 = betas[0];
        values->beta2 = betas[1];
    }
    case_number(model->file, "eps", &values->eps);
    field_number(line, "lr", &values->lr);
    field_number(line, "weight_decay", &values->weight_decay);
    field_number(line, "beta1", &values->beta1);
    field_number(line, "beta2", &values->beta2);
    field_number(line, "eps", &values->eps);
    group->masked = field_integer(line, "masked", 0) != 0;
    values->non_freeze = field_integer(line, "non_freeze", 0) != 0;
}

static size_t padded(const replay_model_t *model, size_t count)
{
    return (size_t)lnt_unit_padded(count, model->n_ranks);
}

static bool lies_in(const replay_piece_t *piece, size_t room)
{
    return (piece->offset % 8 == 0) && (piece->offset <= room) && (piece->count <= room - piece->offset);
}

/* A buffer per tensor, or one for all. Each is as long as the library pads what it is of. */
static bool read_buffers(const reader_t *reader, const char *line, replay_tensor_t *tensor)
{
    const replay_model_t *model = reader->model;

    if ((model->n_worker == 0) || model->fused) {
        return true;
    }
    tensor->worker =
        (replay_piece_t){(size_t)field_integer(line, "err_offset", -1), (size_t)field_integer(line, "err_count", -1)};
    tensor->server =
        (replay_piece_t){(size_t)field_integer(line, "srv_offset", -1), (size_t)field_integer(line, "srv_count", -1)};
    if (!lies_in(&tensor->worker, model->n_worker) || !lies_in(&tensor->server, model->n_server) ||
        (tensor->worker.count != padded(model, tensor->at.count)) ||
        (tensor->server.count * model->n_ranks != tensor->worker.count)) {
        return refuse(reader, "the error buffers of a tensor of %zu elements do not fit", tensor->at.count);
    }
    return true;
}

/* Plain optimizers have no buffers; otherwise their number and lengths follow from the tensors. */
static bool check_buffers(const reader_t *reader)
{
    const replay_model_t *model = reader->model;
    size_t n_elems = 0, n_worker = 0, n_buffers = model->fused ? 1 : model->n_tensors;

    for (uint32_t t = 0; t < model->n_tensors; ++t) {
        n_elems += model->tensors[t].at.count;
        n_worker += model->tensors[t].worker.count;
    }
    n_worker = ((model->n_worker != 0) && model->fused) ? padded(model, n_elems) : n_worker;
    n_buffers = (model->n_worker != 0) ? n_buffers : 0;
    if ((model->n_buffers != n_buffers) || (model->n_worker != n_worker) ||
        (model->n_server * model->n_ranks != n_worker)) {
        return refuse(reader, "%zu error buffers of %zu and %zu elements do not fit %u tensors on %u ranks",
                      model->n_buffers, model->n_worker, model->n_server, model->n_tensors, model->n_ranks);
    }
    return true;
}

static bool read_tensor(const reader_t *reader, uint32_t number)
{
    const replay_model_t *model = reader->model;
    const char *line = case_element(model->file, "tensors", number);
    replay_tensor_t *tensor = &model->tensors[number];
    int64_t shape[3], group = field_integer(line, "group", -1);
    size_t n_dims = field_integers(line, "shape", shape, 3);

    tensor->at = (replay_piece_t){(size_t)field_integer(line, "offset", -1), (size_t)field_integer(line, "count", -1)};
    tensor->exponent = (int)field_integer(line, "grad_exp", 0);
    tensor->place = UINT32_MAX;
    if ((group < 0) || (group >= model->n_groups) || (tensor->at.offset > model->n_elems) ||
        (tensor->at.count > model->n_elems - tensor->at.offset)) {
        return refuse(reader, "tensor %u lies outside", number);
    }
    tensor->group = (uint32_t)group;
    if (n_dims == 2) {
        tensor->rows = (uint64_t)shape[0];
        tensor->cols = (uint64_t)shape[1];
    }
    return read_buffers(reader, line, tensor);
}

/* Every tensor once, group after group, in the order of the groups' lists. */
static bool place_tensors(const reader_t *reader)
{
    replay_model_t *model = reader->model;
    int64_t *members = calloc(model->n_tensors, sizeof(*members));
    uint32_t n_placed = 0;

    for (uint32_t g = 0; (members != NULL) && (g < model->n_groups); ++g) {
        const char *line = case_element(model->file, "groups", g);
        size_t n = field_integers(line, "tensors", members, model->n_tensors);

        for (size_t i = 0; i < n; ++i) {
            replay_tensor_t *tensor = NULL;

            if ((members[i] >= 0) && (members[i] < model->n_tensors)) {
                tensor = &model->tensors[members[i]];
            }
            if ((tensor == NULL) || (tensor->place != UINT32_MAX) || (tensor->group != g)) {
                free(members);
                return refuse(reader, "the list of group %u is wrong", g);
            }
            tensor->place = n_placed;
            model->tensor_at[n_placed++] = (uint32_t)members[i];
        }
    }
    free(members);
    return (n_placed == model->n_tensors) ? true : refuse(reader, "some tensor is in no group");
}

static bool read_inputs(const reader_t *reader)
{
    replay_model_t *model = reader->model;
    const case_file_t *file = model->file;
    const size_t n = model->n_elems, all = (size_t)model->n_steps * model->n_ranks * n;

    if (!case_array(file, "param_init", "f32", &model->init) || (model->init.count != n) ||
        !case_array(file, "live", "u8", &model->live) || (model->live.count != n) ||
        !case_array(file, "lr", "f64", &model->lr) || (model->lr.count != (size_t)model->n_steps * model->n_groups) ||
        !case_array(file, model->closed ? "noise_q" : "grad_q", "i16", &model->drawn) || (model->drawn.count != all)) {
        return refuse(reader, "inputs are missing or have another size");
    }
    if (model->closed && (!case_array(file, "quad_h", "f32", &model->quad_h) || (model->quad_h.count != n) ||
                          !case_array(file, "quad_c", "f32", &model->quad_c) || (model->quad_c.count != n))) {
        return refuse(reader, "quad_h or quad_c is missing");
    }
    return true;
}

bool replay_model_read(replay_model_t *model, const case_file_t *file, char *problem, size_t size, int *code_p)
{
    const reader_t reader = {model, problem, size};

    model->file = file;
    *code_p = REPLAY_USAGE;
    if (!read_head(&reader)) {
        return false;
    }
    model->tensors = calloc(model->n_tensors, sizeof(*model->tensors));
    model->tensor_at = calloc(model->n_tensors, sizeof(*model->tensor_at));
    model->groups = calloc(model->n_groups, sizeof(*model->groups));
    if ((model->tensors == NULL) || (model->tensor_at == NULL) || (model->groups == NULL)) {
        return refuse(&reader, "no memory for the case");
    }
    for (uint32_t g = 0; g < model->n_groups; ++g) {
        read_group(model, g);
    }
    for (uint32_t t = 0; t < model->n_tensors; ++t) {
        if (!read_tensor(&reader, t)) {
            return false;
        }
    }
    return place_tensors(&reader) && check_buffers(&reader) && read_inputs(&reader) &&
           replay_model_options(model, problem, size, code_p);
}

void replay_model_release(replay_model_t *model)
{
    free(model->tensors);
    free(model->tensor_at);
    free(model->groups);
}

/* Three roundings in a closed case: difference, product, sum. */
void replay_gradient(const replay_model_t *model, uint32_t step, uint32_t rank, const float *x, float *out)
{
    const int16_t *drawn = (const int16_t *)model->drawn.data + ((size_t)step * model->n_ranks + rank) * model->n_elems;
    const float *h = model->quad_h.data, *c = model->quad_c.data;

    for (uint32_t t = 0; t < model->n_tensors; ++t) {
        const replay_tensor_t *tensor = &model->tensors[t];

        for (size_t i = tensor->at.offset; i < tensor->at.offset + tensor->at.count; ++i) {
            float noise = ldexpf((float)drawn[i], tensor->exponent);

            out[i] = model->closed ? h[i] * (x[i] - c[i]) + noise : noise;
        }
    }
}
