/* Internals shared by the files plan*.c.
 *
 * A plan is a list of tensors, cut into buckets; per bucket and program one exchange. One job serves all steps: its
 * list of graphs is refilled in `begin` (bucket by bucket, programs in plan order), nothing is allocated there.
 */
#ifndef LNT_CORE_PLAN_IMPL_H
#define LNT_CORE_PLAN_IMPL_H

#include "core.h"
#include "plan_health.h"

typedef enum lnt_plan_state { LNT_PLAN_OPEN, LNT_PLAN_IDLE, LNT_PLAN_STEP, LNT_PLAN_STATES } lnt_plan_state_t;

/* Columns of the table in linnet/plan.h, and the calls of linnet/stage.h that follow the same rules. */
typedef enum lnt_plan_call {
    LNT_PLAN_ADD_TENSOR,
    LNT_PLAN_ADD_PROGRAM,
    LNT_PLAN_COMMIT,
    LNT_PLAN_BEGIN,
    LNT_PLAN_ACCUMULATE,
    LNT_PLAN_READY,
    LNT_PLAN_VETO,
    LNT_PLAN_END,
    LNT_PLAN_SYNC,
    LNT_PLAN_CHECK,
    LNT_PLAN_ERRORS,
    LNT_PLAN_WIRE,
    LNT_PLAN_READ,
    LNT_PLAN_CALLS
} lnt_plan_call_t;

typedef struct lnt_plan_tensor {
    lnt_tensor_params_t params; /* the name is ours */
    float *master;              /* params.param itself for f32, unless the library owns masters */
    uint64_t base;              /* first element in the concatenation of all tensors */
    uint32_t first_bucket, end_bucket;
    bool accumulated;                     /* the accumulator holds something for the next step */
    bool travels;                         /* takes part in this step and is not empty */
    uint64_t hash;                        /* scratch of lnt_plan_check_params */
    uint64_t live_hash[LNT_PROGRAMS_MAX]; /* of the mask of live elements, 0: all live */
    _Atomic uint32_t ready;               /* in this step */
} lnt_plan_tensor_t;

typedef struct lnt_plan_program {
    char *name;
    uint8_t *member;     /* [n_tensors], or NULL: all */
    uint8_t *carries;    /* [n_tensors] where parts may be changed: it carries some of the tensor now; else NULL */
    uint64_t parts_hash; /* of the parts, 0: its members */
    lnt_codec_t codec;
    lnt_stage_t stage;
    bool packed, feeds_v, unscaled, by_bucket, flat, no_feedback;
    lnt_unit_t unit;
    uint64_t runs;   /* commits */
    uint32_t warned; /* of these causes */
} lnt_plan_program_t;

typedef struct lnt_plan_bucket {
    lnt_extent_t *extents; /* no empty ones */
    size_t n_extents;
    lnt_exchange_t *exchange[LNT_PROGRAMS_MAX]; /* NULL where no member lies in this bucket */
    uint32_t first_graph, end_graph;            /* in the job's list of this step */
    _Atomic uint32_t waiting;                   /* extents that travel in this step and are not ready yet */
} lnt_plan_bucket_t;

enum { LNT_PLAN_NOTE_BYTES = 192 };
#define LNT_PLAN_VETOED (UINT64_C(1) << 63)

struct lnt_plan {
    lnt_comm_t *comm;
    uint64_t bucket_elems, segment_elems;
    uint32_t max_skips;
    bool accumulate;
    bool own_masters;              /* of f32 parameters too */
    const lnt_error_row_t *errors; /* how they are kept */
    bool attached, orphaned;
    lnt_plan_settings_t settings; /* of the owner */
    lnt_plan_state_t state;

    lnt_plan_tensor_t *tensors;
    uint32_t n_tensors, room;
    uint64_t n_elems;
    lnt_plan_program_t programs[LNT_PROGRAMS_MAX];
    uint32_t n_programs;

    uint64_t model_hash, layout_hash, plan_hash;
    uint64_t live_hash; /* of all masks and parts: must be equal on all ranks in every step */
    lnt_plan_bucket_t *buckets;
    uint32_t n_buckets, buckets_room;
    lnt_plan_watch_t *watches; /* [n_buckets * n_programs] */
    lnt_source_t *sources;     /* [n_tensors] */
    float *accumulator;        /* [n_elems] */
    float *scratch;            /* [LNT_SPAN_MAX] decoded values in the commit pass */
    uint64_t reserved_tasks;
    lnt_plan_memory_t memory;
    char *notes; /* [n_ranks][LNT_PLAN_NOTE_BYTES] output of small gathers */

    lnt_job_t job;
    lnt_graph_t **graphs;   /* [n_buckets * n_programs] */
    _Atomic uint8_t *ready; /* the same */
    uint32_t step_programs;
    lnt_step_params_t step_params; /* of the running step */
    lnt_step_hooks_t hooks;        /* the same; no functions: none */
    uint32_t first_held;           /* buckets from here on are released by `end` */
    _Atomic uint64_t
        unready;        /* tensors that travel in this step and are not ready yet; LNT_PLAN_VETOED is a flag in it */
    uint64_t n_steps;   /* begun, for messages */
    uint64_t commits;   /* since the plan's commit; no statistics, which can be reset */
    uint64_t unchecked; /* commits since the last comparison of parameters */
    bool surveying;     /* lnt_plan_read is legal */
    lnt_plan_stats_t stats;
};

/* Entry check: the communicator's, then the state table (alone: for local calls that must work after a failure, so that
 * state can be saved and a committed step can be finished). */
lnt_status_t lnt_plan_check_state(const lnt_plan_t *plan, lnt_plan_call_t call);
lnt_status_t lnt_plan_enter(const lnt_plan_t *plan, lnt_plan_call_t call);

/* Collective. `mine` if it is an error, else the first rank's error, else LNT_OK. */
lnt_status_t lnt_plan_agree(lnt_plan_t *plan, lnt_status_t mine);

/* Collective search for the first item of a list that is not the same on all ranks. hash(plan, k): of the first k
 * items, also for k beyond this rank's list. LNT_OK when all are equal; else LNT_ERR_MISMATCH after calling describe on
 * every rank for the text. */
typedef struct lnt_plan_list {
    const char *noun; /* "tensor" */
    const char *cure;
    uint64_t n_items;
    uint64_t (*hash)(const lnt_plan_t *plan, uint64_t n);
    void (*describe)(const lnt_plan_t *plan, uint64_t item, char *text, size_t size);
} lnt_plan_list_t;
lnt_status_t lnt_plan_compare(lnt_plan_t *plan, const lnt_plan_list_t *list);

/* The commit's pieces. */
lnt_status_t lnt_plan_compare_settings(lnt_plan_t *plan); /* collective */

/* What the numerics depend on (plan_layout.c): the first difference between ranks is named on all; collective. */
lnt_status_t lnt_plan_compare_layout(lnt_plan_t *plan);
/* The identity of a plan that is committed, from the same. */
void lnt_plan_set_hashes(lnt_plan_t *plan);
lnt_status_t lnt_plan_build(lnt_plan_t *plan);
void lnt_plan_unbuild(lnt_plan_t *plan);
lnt_status_t lnt_plan_predict(const lnt_plan_t *plan, lnt_plan_memory_t *memory_p);
/* Before commit: buckets, and bytes this rank will send in a step of these programs; with another codec in place of
 * theirs if `instead` is not NULL. From the layout alone, so linnet-info can ask for worlds that do not exist. */
lnt_status_t lnt_plan_predict_wire(const lnt_plan_t *plan, uint32_t programs, const lnt_codec_t *instead,
                                   uint32_t *n_buckets_p, lnt_bytes_t *bytes_p);
lnt_status_t lnt_plan_check_grids(const lnt_plan_t *plan, uint32_t *block_p);

/* The library's masters: their values from the parameters again, while the plan is open; those of f32 parameters back
 * to none. */
void lnt_plan_refresh_masters(lnt_plan_t *plan);
void lnt_plan_release_masters(lnt_plan_t *plan);
/* Its master is the library's memory. */
static inline bool lnt_plan_owns_master(const lnt_plan_t *plan, uint32_t tensor)
{
    return plan->own_masters || plan->tensors[tensor].params.param_dtype != LNT_F32;
}

/* Units (plan_units.c). */
lnt_unit_t lnt_plan_unit(const lnt_plan_t *plan); /* of its programs */
lnt_status_t lnt_plan_check_units(const lnt_plan_t *plan);
/* Calls emit for the tensors of every unit; the buckets of a plan with units. */
lnt_status_t lnt_plan_cut_units(const lnt_plan_t *plan, lnt_bucket_fn_t emit, void *arg);
/* What a program with a unit makes of its members: adds pads (`extents` has room for one more) and the two grids. */
lnt_status_t lnt_plan_fit_unit(const lnt_plan_t *plan, lnt_extent_t *extents, lnt_exchange_params_t *params);

/* How the exchange of a bucket is built, without its extents. */
lnt_exchange_params_t lnt_plan_exchange_params(const lnt_plan_t *plan, uint32_t program, uint32_t bucket);

/* In the commit pass: is the health of a program to be measured in this step? Do so, right after the exchange's commit.
 */
bool lnt_plan_health_due(const lnt_plan_t *plan, uint32_t program);
void lnt_plan_watch(lnt_plan_t *plan, uint32_t bucket, uint32_t program, const lnt_exchange_t *exchange);

/* Collective part of lnt_plan_check_params. */
lnt_status_t lnt_plan_compare_params(lnt_plan_t *plan);

/* The map of ranks that a program exchanges over. */
static inline const lnt_topo_t *lnt_plan_topo(const lnt_plan_t *plan, const lnt_plan_program_t *program)
{
    return program->flat ? plan->comm->flat : plan->comm->topo;
}

static inline bool lnt_plan_is_member(const lnt_plan_program_t *program, uint32_t tensor)
{
    return program->member == NULL || program->member[tensor] != 0;
}

/* It exchanges something of the tensor in a step. */
static inline bool lnt_plan_carries(const lnt_plan_program_t *program, uint32_t tensor)
{
    return program->carries != NULL ? program->carries[tensor] != 0 : lnt_plan_is_member(program, tensor);
}

#endif
