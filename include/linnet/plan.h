/* Plans: registered tensors, packed into buckets, exchanged in one transaction per step.
 *
 * Life:    create -> add_tensor ... -> (an optimizer adds its exchange programs) -> commit -> steps -> destroy.
 * Tensors are registered in the order in which backward finishes their gradients. Buckets hold whole blocks in that
 * order; they start in that order on every rank, each as soon as its last gradient is ready.
 *
 * Step:    begin -> tensor_ready (each tensor at most once, any order) -> end.
 * Usually an optimizer is on top and its begin/tensor_ready/end are called instead (linnet/optim.h).
 * A tensor that was not made ready counts as zeros. Gradients are only read, and must stay untouched until `end`
 * returns. The step is a transaction: a non-finite value on any rank, or a veto, and nothing has changed anywhere.
 *
 *   state     add_tensor  commit  begin  accumulate  tensor_ready  veto  end    sync_params  destroy
 *   open      yes         ->idle  usage  usage       usage         usage usage  usage        yes
 *   idle      usage       usage   ->step yes         usage         usage usage  yes          yes
 *   step      usage       usage   usage  usage       yes           yes   ->idle usage        only if the comm failed
 *   failed    every call returns the communicator's error, but `end` commits if all frames came; destroy is legal
 *   ("usage" = LNT_ERR_INVALID_USAGE, nothing changes.) A failure of the communicator leads to failed; every other
 * error leaves the state as it was, except in `end`, which always leads to idle. LNT_ERR_MISMATCH from commit and
 * check_params is no failure: mend what differs and call again. State can be saved after a failure
 * (lnt_optim_state_export).
 *
 * Threads: one thread at a time per plan; tensor_ready and veto may be called by any number of threads at once.
 */
#ifndef LINNET_PLAN_H
#define LINNET_PLAN_H

#include <linnet/codec.h>
#include <linnet/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How error feedback is kept between steps. Fewer bytes round it: what rounding drops is not fed back
 * (docs/optimizers.md has the bounds). bf16 and int8 round to nearest even; int8 has one f32 scale per 64 elements.
 * Programs that pack small tensors, and those with one scale over several blocks, keep f32. Equal on all ranks. */
typedef enum lnt_error_dtype {
    LNT_ERROR_DEFAULT = 0, /* LINNET_ERROR_DTYPE */
    LNT_ERROR_F32 = 1,
    LNT_ERROR_BF16 = 2,
    LNT_ERROR_INT8 = 3
} lnt_error_dtype_t;

typedef struct lnt_plan_params {
    size_t struct_size;
    uint64_t bucket_bytes;  /* f32 bytes per bucket; 0: LINNET_BUCKET_BYTES (25 MiB). Never changes results */
    uint64_t segment_bytes; /* f32 bytes per task; 0: LINNET_SEGMENT_BYTES (1 MiB). Never changes results */
    uint32_t max_skips;     /* this many skipped steps in a row give LNT_ERR_DIVERGED; 0: LINNET_MAX_SKIPS (20) */
    bool accumulate;        /* reserve an f32 accumulator so that lnt_plan_accumulate can be used */
    lnt_error_dtype_t error_dtype;
} lnt_plan_params_t;

/* params may be NULL. Local. */
LNT_API lnt_status_t lnt_plan_create(lnt_comm_t *comm, const lnt_plan_params_t *params, lnt_plan_t **plan_p);
LNT_API lnt_status_t lnt_plan_destroy(lnt_plan_t *plan); /* NULL is legal; optimizers must be gone */

typedef struct lnt_tensor_params {
    size_t struct_size;
    const char *name;        /* copied; unique in the plan; appears in messages and in saved state */
    uint64_t count;          /* elements, 0 is legal */
    lnt_dtype_t grad_dtype;  /* any */
    lnt_dtype_t param_dtype; /* f32: `param` is the master copy. Else, and for f32 too under an algorithm with local
                                steps (zero_one_adam), `param` is the model copy, and the library keeps an f32 master,
                                taken from it here, and again by sync_params and commit while the plan is open */
    void *param; /* count elements, borrowed until the plan is destroyed, flat in an order equal on all ranks */
    lnt_memtype_t memtype;
    uint32_t group; /* hyper-parameter group, from 0 */
    /* Shape of a matrix, row after row; rows * cols = count. For algorithms that keep statistics of rows and columns
     * (came); others do not look at it. Both 0: a vector. */
    uint64_t rows, cols;
} lnt_tensor_params_t;

/* *tensor_p receives the number of the tensor, counting from 0. */
LNT_API lnt_status_t lnt_plan_add_tensor(lnt_plan_t *plan, const lnt_tensor_params_t *params, uint32_t *tensor_p);

/* Collective. Compares the layout (names, counts, dtypes, groups, programs) on all ranks: a difference is
 * LNT_ERR_MISMATCH on every rank, naming the first tensor that differs and a rank that differs. Builds buckets, graphs
 * and all workspace. Then compares a hash of the parameters: LNT_ERR_MISMATCH unless they are equal, see
 * lnt_plan_sync_params.
 *
 * Steps allocate nothing, with one exception: where what an optimizer's program carries changes (the lane of late
 * comers and masks; the tensors that zero_one_adam holds back), lnt_plan_set_parts builds exchanges. That is inside
 * lnt_optim_end, after the commit of the step; zero_one_adam does it inside the next lnt_optim_begin. Memory that is
 * missing in `end` is no error: the next lnt_optim_begin tries again. Alone in its world it returns LNT_ERR_NO_MEMORY,
 * no step has begun, and it may be called once more. Peers may wait for this rank's frames already: with them it is
 * LNT_ERR_ABORTED, on all ranks at once, naming this one and what could not be allocated. */
LNT_API lnt_status_t lnt_plan_commit(lnt_plan_t *plan);

/* Collective, before or after commit: parameters (and masters) of root to all. */
LNT_API lnt_status_t lnt_plan_sync_params(lnt_plan_t *plan, uint32_t root);

/* Collective: LNT_OK, or LNT_ERR_MISMATCH naming the first tensor whose parameters differ between ranks. */
LNT_API lnt_status_t lnt_plan_check_params(lnt_plan_t *plan);

/* Gradient accumulation: adds `grad` (count elements of the tensor's grad_dtype) to what the next step sends. No
 * exchange. Needs params.accumulate. */
LNT_API lnt_status_t lnt_plan_accumulate(lnt_plan_t *plan, uint32_t tensor, const void *grad);

/* The gradient of a tensor is complete; stream is NULL for host memory. grad NULL: zeros. */
LNT_API lnt_status_t lnt_plan_tensor_ready(lnt_plan_t *plan, uint32_t tensor, const void *grad, void *stream);

/* This rank wants the step skipped on all ranks (LNT_SKIPPED_VETO everywhere). Legal until the last tensor of the
 * step is ready; later LNT_ERR_INVALID_USAGE. */
LNT_API lnt_status_t lnt_plan_veto(lnt_plan_t *plan);

typedef struct lnt_plan_memory {
    size_t struct_size;
    uint64_t errors;  /* live error feedback of this rank */
    uint64_t shadows; /* shadow error feedback */
    uint64_t frames;  /* staging and received frames */
    uint64_t graphs;  /* task graphs */
    uint64_t other;   /* accumulators, f32 masters */
    uint64_t total;
} lnt_plan_memory_t;

/* Bytes the plan will take (before commit: prediction) or has taken. Everything that grows with the number of elements
 * is in it exactly, as asked of the allocator. Not counted: what the allocator rounds up; tables that grow with the
 * numbers of tensors, buckets and programs (less than 1 KiB per tensor and per bucket; per program in a bucket less
 * than 4 KiB, and 64 bytes per tensor or part of one; with a unit 64 bytes per scale); the optimizer's own state
 * (lnt_optim_info_t); what the communicator keeps ready for the tasks of its plans. */
LNT_API lnt_status_t lnt_plan_get_memory(const lnt_plan_t *plan, lnt_plan_memory_t *memory_p);

typedef struct lnt_plan_info {
    size_t struct_size;
    uint64_t n_elems;
    uint32_t n_tensors, n_buckets, n_programs;
    uint64_t layout_hash; /* of tensors (names, counts, shapes, dtypes, groups) and exchange programs */
    uint64_t plan_hash;   /* of world, nodes, error_dtype, buckets and segments too; carried in every frame */
    uint64_t model_hash;  /* of tensors alone */
} lnt_plan_info_t;
LNT_API lnt_status_t lnt_plan_get_info(const lnt_plan_t *plan, lnt_plan_info_t *info_p);

typedef struct lnt_plan_stats {
    size_t struct_size;
    uint64_t transactions; /* ended steps, skipped ones included */
    uint64_t committed;
    uint64_t skipped; /* because of non-finite values or vetoes */
    uint64_t skipped_in_a_row;
    uint64_t exposed_ns;  /* time spent in `end` waiting for peers, this rank */
    uint64_t commit_ns;   /* time spent in commit passes */
    lnt_status_t verdict; /* on the last ended step: LNT_OK, LNT_SKIPPED_NONFINITE or LNT_SKIPPED_VETO */
} lnt_plan_stats_t;
LNT_API lnt_status_t lnt_plan_get_stats(lnt_plan_t *plan, lnt_plan_stats_t *stats_p, bool reset);

/* Health of coding with error feedback, of what this rank codes: as the worker of its shard, and as the server of its
 * chunk. Norms are of this rank's part: over all ranks, squares add up. */
typedef struct lnt_health {
    double rho;         /* |a|_1 / (sqrt(n) |a|_2) of what is coded, per block, weighted by |a|_2^2: 1 = all of one
                           magnitude; signs with the L2 scale leave an error of 2 (1 - rho) of the squares */
    double input_norm;  /* what came in: the gradient, momentum...; of a server, the mean */
    double value_norm;  /* what was coded: input and old error */
    double error_norm;  /* what coding left */
    double error_ratio; /* error_norm / input_norm */
    double scale;       /* root mean square of what was coded */
    uint64_t n_elems;
} lnt_health_t;

typedef enum lnt_health_cause {
    LNT_HEALTH_GROWS = 1,  /* error_ratio above 10, and larger in three measurements running */
    LNT_HEALTH_EXPANDS = 2 /* rho <= 1/2 in two measurements running, with the L2 scale of signs */
} lnt_health_cause_t;

typedef struct lnt_plan_health {
    size_t struct_size;
    uint64_t step; /* the commit of this plan after which it was measured, counted from 1; 0: never */
    lnt_health_t worker, server;
    uint32_t causes; /* lnt_health_cause_t found so far; each is warned of once per program */
} lnt_plan_health_t;

#define LNT_ALL_BUCKETS UINT32_MAX

/* Measured in the commit pass of every LINNET_HEALTH_EVERY-th step of a program, from its first on; zeros where no
 * errors are kept (one node, f32, ranks without a shard). bucket: or LNT_ALL_BUCKETS, all together. After commit. */
LNT_API lnt_status_t lnt_plan_get_health(const lnt_plan_t *plan, uint32_t program, uint32_t bucket,
                                         lnt_plan_health_t *health_p);

#ifdef __cplusplus
}
#endif
#endif
