/* Commit of a plan: cuts buckets, builds one exchange per bucket and program. What ranks compare before is in
 * plan_layout.c.
 *
 * Every collective step is followed by a vote, so that all ranks succeed or all fail; after a failure the plan is open
 * again and holds what it held before. The memory prediction walks the same loops without building.
 */
#include <string.h>

#include "plan_impl.h"

/* ---- buckets ---- */

lnt_status_t lnt_plan_check_grids(const lnt_plan_t *plan, uint32_t *block_p)
{
    uint32_t coarsest = 64;

    if (plan->n_programs == 0) {
        return lnt_error(LNT_ERR_INVALID_USAGE, "create an optimizer on it first (or add a program)",
                         "the plan has no exchange program");
    }
    LNT_TRY(lnt_plan_check_units(plan));
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const lnt_plan_program_t *program = &plan->programs[p];
        if (!program->packed && program->codec.cfg.block > coarsest) coarsest = program->codec.cfg.block;
    }
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const lnt_plan_program_t *program = &plan->programs[p];
        if (!program->packed && coarsest % program->codec.cfg.block != 0) {
            return lnt_error(
                LNT_ERR_INVALID_ARG, "choose blocks that divide the largest one (options block, warmup_block)",
                "program \"%s\": blocks of %u do not divide %u", program->name, program->codec.cfg.block, coarsest);
        }
    }
    *block_p = coarsest;
    return LNT_OK;
}

/* The part of a bucket that a program exchanges. out has room for n_extents. */
static size_t member_extents(const lnt_plan_program_t *program, const lnt_extent_t *extents, size_t n_extents,
                             lnt_extent_t *out)
{
    size_t n = 0;

    for (size_t i = 0; i < n_extents; i++) {
        if (extents[i].count != 0 && lnt_plan_is_member(program, extents[i].tensor)) out[n++] = extents[i];
    }
    return n;
}

lnt_exchange_params_t lnt_plan_exchange_params(const lnt_plan_t *plan, uint32_t program_number, uint32_t bucket)
{
    const lnt_plan_program_t *program = &plan->programs[program_number];

    return (lnt_exchange_params_t){.topo = lnt_plan_topo(plan, program),
                                   .rank = plan->comm->rank,
                                   .packed = program->packed,
                                   .codec = program->codec,
                                   .segment_elems = plan->segment_elems,
                                   .program = (uint16_t)program_number,
                                   .bucket = bucket,
                                   .feeds_v = program->feeds_v,
                                   .stream = plan->n_elems >= LNT_STREAM_ELEMS,
                                   .feedback = !program->no_feedback,
                                   .errors = plan->errors,
                                   .stage = program->stage,
                                   .sources = plan->sources};
}

/* Calls visit for every exchange of one bucket. */
typedef lnt_status_t (*visit_fn_t)(void *arg, uint32_t program, const lnt_exchange_params_t *params);

static lnt_status_t visit_bucket(const lnt_plan_t *plan, uint32_t bucket, const lnt_extent_t *extents, size_t n_extents,
                                 visit_fn_t visit, void *arg)
{
    lnt_extent_t *members = lnt_calloc(n_extents + 1, sizeof(*members), "extents");
    lnt_status_t status = LNT_OK;

    if (members == NULL) return LNT_ERR_NO_MEMORY;
    for (uint32_t p = 0; p < plan->n_programs && status == LNT_OK; p++) {
        lnt_exchange_params_t params = lnt_plan_exchange_params(plan, p, bucket);
        params.extents = members;
        params.n_extents = member_extents(&plan->programs[p], extents, n_extents, members);
        if (params.n_extents != 0 && plan->programs[p].unit != LNT_UNIT_NONE)
            status = lnt_plan_fit_unit(plan, members, &params);
        if (params.n_extents != 0 && status == LNT_OK) status = visit(arg, p, &params);
    }
    lnt_free(members);
    return status;
}

static lnt_status_t cut_buckets(const lnt_plan_t *plan, lnt_bucket_fn_t emit, void *arg)
{
    lnt_status_t status;
    uint64_t *counts;
    uint32_t block;

    LNT_TRY(lnt_plan_check_grids(plan, &block));
    if (lnt_plan_unit(plan) != LNT_UNIT_NONE) return lnt_plan_cut_units(plan, emit, arg);
    counts = lnt_calloc(plan->n_tensors, sizeof(*counts), "tensor lengths");
    if (counts == NULL) return LNT_ERR_NO_MEMORY;
    for (uint32_t t = 0; t < plan->n_tensors; t++)
        counts[t] = plan->tensors[t].params.count;
    status = lnt_layout_buckets(counts, plan->n_tensors, block, plan->bucket_elems, emit, arg);
    lnt_free(counts);
    return status;
}

/* ---- prediction ---- */

typedef struct prediction {
    const lnt_plan_t *plan;
    uint32_t n_buckets;
    lnt_plan_memory_t memory;
} prediction_t;

static lnt_status_t predict_exchange(void *arg, uint32_t program, const lnt_exchange_params_t *params)
{
    prediction_t *prediction = arg;
    lnt_exchange_memory_t memory;

    (void)program;
    LNT_TRY(lnt_exchange_predict(params, &memory));
    prediction->memory.errors += memory.errors;
    prediction->memory.shadows += memory.shadows;
    prediction->memory.frames += memory.frames;
    prediction->memory.graphs += memory.graphs;
    return LNT_OK;
}

static lnt_status_t predict_bucket(void *arg, const lnt_extent_t *extents, size_t n_extents)
{
    prediction_t *prediction = arg;

    return visit_bucket(prediction->plan, prediction->n_buckets++, extents, n_extents, predict_exchange, prediction);
}

lnt_status_t lnt_plan_predict(const lnt_plan_t *plan, lnt_plan_memory_t *memory_p)
{
    prediction_t prediction = {.plan = plan};
    lnt_plan_memory_t *memory = &prediction.memory;

    LNT_TRY(cut_buckets(plan, predict_bucket, &prediction));
    memory->other = LNT_SPAN_MAX * sizeof(float);
    if (plan->accumulate) memory->other += plan->n_elems * sizeof(float);
    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        const lnt_tensor_params_t *params = &plan->tensors[t].params;
        if (lnt_plan_owns_master(plan, t)) memory->other += params->count * sizeof(float);
    }
    memory->total = memory->errors + memory->shadows + memory->frames + memory->graphs + memory->other;
    memory->struct_size = sizeof(*memory);
    *memory_p = *memory;
    return LNT_OK;
}

typedef struct wire_prediction {
    const lnt_plan_t *plan;
    uint32_t programs;
    const lnt_codec_t *instead; /* of the programs' own codecs, or NULL */
    uint32_t n_buckets;
    lnt_bytes_t bytes;
} wire_prediction_t;

static lnt_status_t predict_exchange_wire(void *arg, uint32_t program, const lnt_exchange_params_t *params)
{
    wire_prediction_t *prediction = arg;
    const lnt_codec_t *codec = prediction->instead != NULL ? prediction->instead : &params->codec;
    lnt_grid_t grid;
    lnt_bytes_t bytes;
    lnt_status_t status;

    if ((prediction->programs >> program & 1) == 0) return LNT_OK;
    LNT_TRY(lnt_grid_init(&grid, params->extents, params->n_extents, params->codec.cfg.block, params->packed));
    status = lnt_layout_exchange_bytes(&grid, params->topo, codec, params->segment_elems, NULL, params->rank, &bytes);
    lnt_grid_release(&grid);
    if (status < 0) return status;
    prediction->bytes.intra += bytes.intra;
    prediction->bytes.inter += bytes.inter;
    return LNT_OK;
}

static lnt_status_t predict_bucket_wire(void *arg, const lnt_extent_t *extents, size_t n_extents)
{
    wire_prediction_t *prediction = arg;

    return visit_bucket(prediction->plan, prediction->n_buckets++, extents, n_extents, predict_exchange_wire,
                        prediction);
}

lnt_status_t lnt_plan_predict_wire(const lnt_plan_t *plan, uint32_t programs, const lnt_codec_t *instead,
                                   uint32_t *n_buckets_p, lnt_bytes_t *bytes_p)
{
    wire_prediction_t prediction = {.plan = plan, .programs = programs, .instead = instead};

    LNT_TRY(cut_buckets(plan, predict_bucket_wire, &prediction));
    *n_buckets_p = prediction.n_buckets;
    *bytes_p = prediction.bytes;
    return LNT_OK;
}

/* Comes and goes after the commit (lnt_plan_set_carry), in the exchanges alone. */
static void add_carry(const lnt_plan_t *plan, lnt_plan_memory_t *memory)
{
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        for (uint32_t p = 0; p < plan->n_programs; p++) {
            const lnt_exchange_t *exchange = plan->buckets[b].exchange[p];
            const uint64_t bytes = exchange != NULL ? lnt_exchange_carry_bytes(exchange) : 0;
            memory->errors += bytes;
            memory->shadows += bytes;
            memory->total += 2 * bytes;
        }
    }
}

lnt_status_t lnt_plan_get_memory(const lnt_plan_t *plan, lnt_plan_memory_t *memory_p)
{
    LNT_CHECK_ARG(plan != NULL && memory_p != NULL);
    LNT_CHECK_STRUCT(memory_p);
    if (plan->state == LNT_PLAN_OPEN) return lnt_plan_predict(plan, memory_p);
    *memory_p = plan->memory;
    add_carry(plan, memory_p);
    return LNT_OK;
}

/* ---- building ---- */

static lnt_status_t build_exchange(void *arg, uint32_t program, const lnt_exchange_params_t *params)
{
    lnt_plan_t *plan = arg;
    lnt_plan_bucket_t *bucket = &plan->buckets[plan->n_buckets - 1];
    uint64_t n_tasks;

    LNT_TRY(lnt_exchange_create(params, &bucket->exchange[program]));
    n_tasks = lnt_exchange_graph(bucket->exchange[program])->n_tasks;
    LNT_TRY(lnt_exec_reserve(plan->comm->exec, n_tasks));
    plan->reserved_tasks += n_tasks;
    return LNT_OK;
}

static lnt_status_t grow_buckets(lnt_plan_t *plan)
{
    lnt_plan_bucket_t *larger;
    uint32_t room = plan->buckets_room != 0 ? 2 * plan->buckets_room : 8;

    if (plan->n_buckets < plan->buckets_room) return LNT_OK;
    larger = lnt_calloc(room, sizeof(*larger), "buckets");
    if (larger == NULL) return LNT_ERR_NO_MEMORY;
    if (plan->n_buckets != 0) memcpy(larger, plan->buckets, plan->n_buckets * sizeof(*larger));
    lnt_free(plan->buckets);
    plan->buckets = larger;
    plan->buckets_room = room;
    return LNT_OK;
}

static lnt_status_t build_bucket(void *arg, const lnt_extent_t *extents, size_t n_extents)
{
    lnt_plan_t *plan = arg;
    lnt_plan_bucket_t *bucket;

    LNT_TRY(grow_buckets(plan));
    bucket = &plan->buckets[plan->n_buckets];
    bucket->extents = lnt_calloc(n_extents, sizeof(*extents), "extents of a bucket");
    if (bucket->extents == NULL) return LNT_ERR_NO_MEMORY;
    plan->n_buckets++;
    for (size_t i = 0; i < n_extents; i++) {
        lnt_plan_tensor_t *tensor = &plan->tensors[extents[i].tensor];
        if (extents[i].count == 0) continue;
        bucket->extents[bucket->n_extents++] = extents[i];
        if (extents[i].offset == 0) tensor->first_bucket = plan->n_buckets - 1;
        tensor->end_bucket = plan->n_buckets;
    }
    return visit_bucket(plan, plan->n_buckets - 1, bucket->extents, bucket->n_extents, build_exchange, plan);
}

static lnt_status_t build_workspace(lnt_plan_t *plan)
{
    size_t n_graphs = (size_t)plan->n_buckets * plan->n_programs, bytes = 0;

    plan->graphs = lnt_calloc(n_graphs, sizeof(*plan->graphs), "graphs of a step");
    plan->ready = lnt_calloc(n_graphs, sizeof(*plan->ready), "ready flags of a step");
    plan->watches = lnt_calloc(n_graphs, sizeof(*plan->watches), "health of buckets");
    plan->scratch = lnt_alloc_aligned(LNT_SPAN_MAX * sizeof(float), "commit scratch");
    if (plan->graphs == NULL || plan->ready == NULL || plan->watches == NULL || plan->scratch == NULL)
        return LNT_ERR_NO_MEMORY;
    if (!plan->accumulate) return LNT_OK;
    if (!lnt_size_mul(plan->n_elems, sizeof(float), &bytes))
        return lnt_error(LNT_ERR_OUT_OF_RANGE, NULL, "plan too large");
    plan->accumulator = lnt_alloc_aligned(bytes, "gradient accumulator");
    return plan->accumulator != NULL ? LNT_OK : LNT_ERR_NO_MEMORY;
}

lnt_status_t lnt_plan_build(lnt_plan_t *plan)
{
    plan->sources = lnt_calloc(plan->n_tensors, sizeof(*plan->sources), "gradient sources");
    if (plan->sources == NULL) return LNT_ERR_NO_MEMORY;
    for (uint32_t t = 0; t < plan->n_tensors; t++)
        plan->tensors[t].first_bucket = plan->tensors[t].end_bucket = 0;
    LNT_TRY(lnt_plan_predict(plan, &plan->memory));
    LNT_TRY(cut_buckets(plan, build_bucket, plan));
    return build_workspace(plan);
}

void lnt_plan_unbuild(lnt_plan_t *plan)
{
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        for (uint32_t p = 0; p < LNT_PROGRAMS_MAX; p++)
            lnt_exchange_destroy(plan->buckets[b].exchange[p]);
        lnt_free(plan->buckets[b].extents);
    }
    if (plan->reserved_tasks != 0) lnt_exec_unreserve(plan->comm->exec, plan->reserved_tasks);
    lnt_free(plan->buckets);
    lnt_free(plan->sources);
    lnt_free(plan->accumulator);
    lnt_free(plan->scratch);
    lnt_free(plan->graphs);
    lnt_free((void *)plan->ready);
    lnt_free(plan->watches);
    plan->buckets = NULL;
    plan->sources = NULL;
    plan->accumulator = plan->scratch = NULL;
    plan->graphs = NULL;
    plan->ready = NULL;
    plan->watches = NULL;
    plan->n_buckets = plan->buckets_room = 0;
    plan->reserved_tasks = 0;
}

lnt_status_t lnt_plan_commit(lnt_plan_t *plan)
{
    lnt_status_t status;
    uint32_t block;

    LNT_TRY(lnt_plan_enter(plan, LNT_PLAN_COMMIT));
    LNT_TRY(lnt_plan_agree(plan, lnt_plan_check_grids(plan, &block)));
    lnt_plan_refresh_masters(plan);
    LNT_TRY(lnt_plan_compare_layout(plan));
    lnt_plan_set_hashes(plan);
    LNT_TRY_GOTO(status, lnt_plan_agree(plan, lnt_plan_build(plan)), err_unbuild);
    LNT_TRY_GOTO(status, lnt_plan_compare_params(plan), err_unbuild);
    plan->state = LNT_PLAN_IDLE;
    return LNT_OK;

err_unbuild:
    lnt_plan_unbuild(plan);
    return status;
}
