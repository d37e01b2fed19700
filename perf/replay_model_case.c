/* Reads a case of the model's 1-bit Adam: sizes, options, arrays, and its lists of owners and latches. */
#include <linnet/stage.h>

#include "replay_model.h"

#include <stdio.h>
#include <string.h>

enum { LANE_MIN = 64 };

const char *const replay_oracle_names[MODEL_ARRAYS] = {
    "param",    "exp_avg",     "exp_avg_sq", "worker_error", "server_error", "dead",  "denominator",
    "counters", "beta_powers", "clip_ratio", "wire",         "latches",      "owners"};

uint64_t replay_oracle_offset(const replay_oracle_t *set, uint32_t t)
{
    return (uint64_t)field_integer(case_element(set->file, "tensors", t), "offset", 0);
}

uint64_t replay_oracle_count(const replay_oracle_t *set, uint32_t t)
{
    return (uint64_t)field_integer(case_element(set->file, "tensors", t), "count", 0);
}

static const char *extent_list(bool warm)
{
    return warm ? "warmup_extents" : "extents";
}

int64_t replay_oracle_owner(const replay_oracle_t *set, bool warm, const lnt_error_extent_t *extent, uint64_t offset)
{
    const int64_t worker = extent->server ? -1 : (int64_t)extent->codec_worker;
    const char *line;

    for (size_t i = 0; (line = case_element(set->file, extent_list(warm), i)) != NULL; i++) {
        int64_t first = field_integer(line, "offset", 0);
        if (field_integer(line, "codec_worker", -2) == worker &&
            field_integer(line, "tensor", -1) == (int64_t)extent->tensor && first <= (int64_t)offset &&
            (int64_t)offset < first + field_integer(line, "count", 0)) {
            return field_integer(line, "rank", -1);
        }
    }
    return -1;
}

uint64_t replay_oracle_owned(const replay_oracle_t *set, bool warm, uint32_t rank)
{
    uint64_t n = 0;
    const char *line;

    for (size_t i = 0; (line = case_element(set->file, extent_list(warm), i)) != NULL; i++) {
        if (field_integer(line, "rank", -1) == (int64_t)rank) n += (uint64_t)field_integer(line, "count", 0);
    }
    return n;
}

int64_t replay_oracle_updates(const replay_oracle_t *set, uint32_t step, uint32_t tensor, uint64_t offset)
{
    const char *line;

    for (size_t i = 0; (line = case_element(set->file, "latches", i)) != NULL; i++) {
        if (field_integer(line, "step", -1) == (int64_t)step && field_integer(line, "tensor", -1) == (int64_t)tensor &&
            field_integer(line, "offset", -1) == (int64_t)offset) {
            return field_integer(line, "updates", -1);
        }
    }
    return -1;
}

/* Every row of an array has the length that the sizes ask for. */
static bool read_arrays(replay_oracle_t *set)
{
    const size_t n = set->n_elems, errors = set->n_nodes > 1 ? n : 0;
    const struct {
        const char *dtype;
        size_t count, size;
    } rows[MODEL_CASE_ARRAYS] = {[MODEL_PARAM] = {"f32", n, 4},
                                 [MODEL_M] = {"f32", n, 4},
                                 [MODEL_V] = {"f32", n, 4},
                                 [MODEL_WORKER_ERROR] = {"f32", errors * set->n_nodes, 4},
                                 [MODEL_SERVER_ERROR] = {"f32", errors, 4},
                                 [MODEL_DEAD] = {"u8", n, 1},
                                 [MODEL_DENOMINATOR] = {"f32", n, 4},
                                 [MODEL_COUNTERS] = {"i32", 5, 4},
                                 [MODEL_POWERS] = {"f64", 2, 8},
                                 [MODEL_CLIP_RATIO] = {"f64", 1, 8},
                                 [MODEL_WIRE] = {"i32", 2 * (size_t)set->n_ranks, 4}};
    case_array_t array;

    for (int i = 0; i < MODEL_CASE_ARRAYS; i++) {
        if (!case_array(set->file, replay_oracle_names[i], rows[i].dtype, &array) ||
            array.count != rows[i].count * set->n_steps) {
            return false;
        }
        set->wanted[i] = array.data;
        set->row_bytes[i] = rows[i].count * rows[i].size;
    }
    if (!case_array(set->file, "param_init", "f32", &array) || array.count != n) return false;
    set->start = array.data;
    if (!case_array(set->file, "grad", "f32", &array) || array.count != n * set->n_ranks * set->n_steps) return false;
    set->grads = array.data;
    return true;
}

/* One after the other, all elements of the case. */
static bool tensors_fit(const replay_oracle_t *set)
{
    uint64_t next = 0;

    for (uint32_t t = 0; t < set->n_tensors; t++) {
        if (replay_oracle_offset(set, t) != next || replay_oracle_count(set, t) > set->n_elems - next) return false;
        next += replay_oracle_count(set, t);
    }
    return next == set->n_elems;
}

/* Errors are laid out by node. */
static bool nodes_fit(const replay_oracle_t *set)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < set->n_ranks; r++) {
        uint32_t first = 0;
        while (set->nodes[first] != set->nodes[r])
            first++;
        n += first == r;
    }
    return n == set->n_nodes;
}

static bool read_sizes(replay_oracle_t *set)
{
    const case_file_t *file = set->file;
    const char *line;

    set->n_ranks = (uint32_t)case_integer(file, "world_size", 0);
    set->n_nodes = (uint32_t)case_integer(file, "node_count", 0);
    set->n_steps = (uint32_t)case_integer(file, "steps", 0);
    set->n_elems = (uint64_t)case_integer(file, "param_count", 0);
    set->n_tensors = (uint32_t)case_list_size(file, "tensors");
    set->segment = (uint64_t)case_integer(file, "segment", 0);
    set->freeze_step = (uint32_t)case_integer(file, "freeze_step", 0);
    set->block = (uint32_t)case_integer(file, "block", 0);
    /* buckets are cut greedily, so the largest one is a limit that cuts them all in the same places */
    for (size_t i = 0; (line = case_element(file, "buckets", i)) != NULL; i++) {
        uint64_t count = (uint64_t)field_integer(line, "count", 0);
        set->bucket_elems = count > set->bucket_elems ? count : set->bucket_elems;
    }
    return set->n_ranks != 0 && set->n_ranks <= REPLAY_MAX_RANKS && set->n_steps != 0 && set->block != 0 &&
           set->bucket_elems <= set->n_elems &&
           case_integers(file, "nodes", set->nodes, REPLAY_MAX_RANKS) == set->n_ranks && nodes_fit(set) &&
           tensors_fit(set);
}

static bool read_options(replay_oracle_t *set)
{
    const case_file_t *file = set->file;
    double clip;
    char codec[32];

    lnt_group_defaults(&set->group);
    if (!case_number(file, "lr", &set->group.lr) || !case_number(file, "beta1", &set->group.beta1) ||
        !case_number(file, "beta2", &set->group.beta2) || !case_number(file, "eps", &set->group.eps) ||
        !case_number(file, "weight_decay", &set->group.weight_decay) || !case_number(file, "clip", &clip) ||
        !case_number(file, "loss_scale", &set->loss_scale) || !case_text(file, "warmup_codec", codec, sizeof(codec))) {
        return false;
    }
    (void)snprintf(set->options, sizeof(set->options),
                   "freeze_step=%u,block=%u,warmup_codec=%s,warmup_block=%lld,clip=%.17g,lane_updates=%lld,"
                   "late_idle=stay,max_dead_share=1",
                   set->freeze_step, set->block, codec, (long long)case_integer(file, "warmup_block", 0), clip,
                   (long long)case_integer(file, "lane_updates", 0));
    return true;
}

bool replay_oracle_read(replay_oracle_t *set, const case_file_t *file, replay_report_t *report, int *code_p)
{
    set->file = file;
    *code_p = REPLAY_USAGE;
    if (!read_sizes(set) || !read_options(set) || !read_arrays(set)) {
        (void)snprintf(report->problem, sizeof(report->problem),
                       "the case is not complete, or its sizes do not fit each other");
        return false;
    }
    if (case_integer(file, "lane_min", LANE_MIN) != LANE_MIN) {
        *code_p = REPLAY_UNSUPPORTED;
        (void)snprintf(report->problem, sizeof(report->problem), "tensors shorter than %d are in the lane here",
                       LANE_MIN);
        return false;
    }
    return true;
}
