/* Stages: how an optimizer plugs into the exchange. Experimental: this header may change between minor versions.
 *
 * A plan holds several *exchange programs* over the same buckets, for example a full-precision one for the warm-up,
 * sign1 for the compressed phase, and a small f32 lane beside it. A step runs one or more of them. A program says
 * which tensors take part, with which codec, and has three functions:
 *
 *   produce_local   every rank      gradient -> what enters the sum over the ranks of a node
 *   produce_wire    shard owners    the node's sum times the one factor -> what is coded (e.g. the momentum)
 *   consume         every rank      decoded values, after the vote, in the commit pass
 *
 * The one factor of a step is (float)((double)n_nodes / n_ranks * clip / loss_scale / micro_steps): the value that
 * reaches consume is the mean over ranks. Between produce_wire and consume lie worker error, coding, the server's
 * mean over nodes, server error and coding again (Tang et al. 2021, Algorithm 1; docs/architecture.md).
 *
 * Functions are called by the executor on *spans*, pieces of one tensor. A span begins at a block border of the
 * program's grid and is at most LNT_SPAN_MAX elements long. produce_* run on library threads, several at once on
 * different elements, overlapping with the caller; consume runs inside lnt_plan_end on the caller's thread. A function
 * is never called twice at once for the same elements. produce_* must not change anything consume or a later step
 * reads: the step may be skipped.
 */
#ifndef LINNET_STAGE_H
#define LINNET_STAGE_H

#include <linnet/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LNT_SPAN_MAX = 65536, LNT_PROGRAMS_MAX = 8 };

/* Programs whose coder has one scale per tensor, per group or for the whole model, as the published implementation has
 * it: the members of a unit follow each other by group, then in order of registration, and are padded to n * lcm(n, 8)
 * elements. One worker scale for all of it, one server scale per chunk of 1/n; the flat form, whatever the nodes. Pads
 * are ordinary elements: produce_wire and consume get their spans too, with tensor LNT_TENSOR_PAD; they are 0 unless
 * produce_wire writes something. `codec.block` and `packed` are ignored. Buckets are units then, for all programs of
 * the plan. */
typedef enum lnt_unit { LNT_UNIT_NONE, LNT_UNIT_TENSOR, LNT_UNIT_GROUP, LNT_UNIT_MODEL } lnt_unit_t;
#define LNT_TENSOR_PAD UINT32_MAX
/* Elements of a unit of `count` elements with its pads: a chunk per rank, each on whole bytes and divisible by n. */
static inline uint64_t lnt_unit_padded(uint64_t count, uint64_t n_ranks)
{
    uint64_t eights = n_ranks % 8 == 0 ? 1 : n_ranks % 4 == 0 ? 2 : n_ranks % 2 == 0 ? 4 : 8;
    uint64_t step = n_ranks * n_ranks * eights;

    return (count + step - 1) / step * step;
}

/* Place among the pads of its unit; the bits above it name the unit. */
#define LNT_PAD_PLACE(_offset) ((_offset) & ((UINT64_C(1) << 36) - 1))

typedef struct lnt_span {
    uint32_t tensor;
    uint32_t bucket;
    uint64_t offset; /* first element in the tensor */
    uint64_t count;
} lnt_span_t;

typedef struct lnt_stage {
    size_t struct_size;
    void *arg;
    /* out receives span->count floats. grad points at the span's first gradient element, NULL stands for zeros; it may
     * be `out` itself (accumulated gradients, f32). NULL function: the gradient, converted to f32. */
    void (*produce_local)(void *arg, const lnt_span_t *span, const void *grad, lnt_dtype_t dtype, float *out);
    /* In place. NULL function: the value itself is coded. */
    void (*produce_wire)(void *arg, const lnt_span_t *span, float *value);
    /* Called once per step and program between the vote and the first consume; may call lnt_plan_read. NULL: nothing.
     * An error makes `end` abort the step on this rank and return it: it must be the same on all ranks. */
    lnt_status_t (*survey)(void *arg, lnt_plan_t *plan, uint32_t program);
    /* value: span->count floats. live: NULL, or bits of the span's elements, first in the least significant bit. */
    void (*consume)(void *arg, const lnt_span_t *span, const float *value, const uint8_t *live);
} lnt_stage_t;

typedef struct lnt_program_params {
    size_t struct_size;
    const char *name; /* copied; part of the layout hash */
    lnt_codec_params_t codec;
    const uint8_t *member; /* one byte per tensor of the plan, 1 = takes part; NULL: all tensors */
    bool packed;    /* false: blocks begin at every tensor. true: blocks run over tensor borders (a lane of small ones);
                       codecs without scales only */
    bool feeds_v;   /* values are going to be squared: a mean whose f32 square overflows counts as non-finite */
    bool unscaled;  /* values are not gradients: clip, loss_scale and micro_steps of the step are not applied */
    bool by_bucket; /* results depend on where buckets are cut, which then is part of the layout hash */
    lnt_stage_t stage;
    bool changeable;  /* lnt_plan_set_parts may be used. Packed or without feedback. It may share tensors with another
                         program  of a step; the caller sees to it that they do not both act on an element */
    lnt_unit_t unit;  /* one scale per this; all programs of a plan that have a unit have the same */
    bool flat;        /* the flat form, whatever the nodes; implied by unit */
    bool no_feedback; /* keeps no errors, whatever the codec */
} lnt_program_params_t;

/* Before commit, after all tensors. */
LNT_API lnt_status_t lnt_plan_add_program(lnt_plan_t *plan, const lnt_program_params_t *params, uint32_t *program_p);

/* What an optimizer may learn of the gradients of a step before they leave, on the callers' threads (clipping).
 *
 *   bucket_ready  all gradients of a bucket are known (lnt_plan_local reads them); its frames leave after the return.
 *                 Several at once for different buckets. NULL: nothing.
 *   all_ready     inside lnt_plan_end, after every bucket_ready and before the frames of the last bucket leave: no rank
 *                 has all frames of the step before all_ready has returned on every rank, so a collective in it belongs
 *                 to the transaction. NULL: nothing. An error must be the communicator's failure.
 *   hold          nothing leaves before all_ready, which may set *clip_p, equal on all ranks: it stands for the clip of
 *                 lnt_step_params_t, which it is before (1 for 0). A barrier: no overlap of this step's exchange with
 *                 the caller's work. */
typedef struct lnt_step_hooks {
    void *arg;
    void (*bucket_ready)(void *arg, uint32_t bucket);
    lnt_status_t (*all_ready)(void *arg, double *clip_p);
    bool hold;
} lnt_step_hooks_t;

typedef struct lnt_step_params {
    size_t struct_size;
    uint32_t
        programs; /* bit p = program p runs; 0: nothing is exchanged. Programs of one step must not share elements */
    double clip;  /* factor on the gradients, 0 means 1 */
    double loss_scale;             /* gradients are divided by it, 0 means 1 */
    uint32_t micro_steps;          /* gradients are divided by it, 0 means 1 */
    uint32_t hyper_hash;           /* of the step's hyper-parameters */
    uint64_t step;                 /* committed steps so far; equal on all ranks. Seeds codecs that round by chance */
    const lnt_step_hooks_t *hooks; /* copied; NULL: none. The same functions on all ranks */
    bool local; /* the owner of programs reads the gradients itself (lnt_plan_local): those of tensors that do not
                   travel are kept until the next begin too, and no accumulated one outlives the step */
    uint32_t unscaled;       /* programs whose values are no gradients in this step, as lnt_program_params_t.unscaled */
    const uint8_t *left_out; /* one byte per tensor, 1 = of this step it shares the frames but nothing else: no consume,
                                and its errors stay as they are. Borrowed until `end` returns. Not with programs that
                                have a unit. NULL: none */
} lnt_step_params_t; /* All of it must be equal on all ranks: a hash of it and of the masks (lnt_plan_set_live) is in
                        every frame */

/* One owner of programs per plan: lnt_plan_destroy is refused while it is attached, a second one too. Detaching from an
 * open plan removes its programs; a committed plan cannot run steps afterwards. Not in a step, unless the communicator
 * failed: then detaching waits until no function of a stage runs any more. */
LNT_API lnt_status_t lnt_plan_attach(lnt_plan_t *plan);
LNT_API void lnt_plan_detach(lnt_plan_t *plan);

/* Open plan: what must be equal on all ranks beside tensors and programs, as texts of fewer than 120 bytes, such as
 * "option clip=1". lnt_plan_commit compares them and names the first that differs. Copied; `arg` is borrowed until the
 * owner detaches. */
typedef struct lnt_plan_settings {
    size_t struct_size;
    void *arg;
    uint64_t n_items;
    void (*describe)(void *arg, uint64_t item, char *text, size_t bytes);
} lnt_plan_settings_t;
LNT_API lnt_status_t lnt_plan_set_settings(lnt_plan_t *plan, const lnt_plan_settings_t *settings);

/* Begins a transaction. On a plan with an optimizer, lnt_plan_begin, lnt_plan_end, lnt_plan_set_live and
 * lnt_plan_drop_errors are the optimizer's to call. */
LNT_API lnt_status_t lnt_plan_begin(lnt_plan_t *plan, const lnt_step_params_t *params);

/* Waits for the exchange, votes, and commits or skips. LNT_OK, LNT_SKIPPED_NONFINITE, LNT_SKIPPED_VETO or an error. */
LNT_API lnt_status_t lnt_plan_end(lnt_plan_t *plan);

/* In a step: (float)(clip / loss_scale / micro_steps), what a gradient read by lnt_plan_local has still to be
 * multiplied by. */
LNT_API float lnt_plan_local_factor(const lnt_plan_t *plan);

/* Inside survey: the decoded values of elements [offset, offset + count) of a tensor; offset must be a block border,
 * and offset + count a block border or the tensor's end; anything in packed programs and in programs with a unit.
 * Elements that a changeable program does not carry are left alone in out. */
LNT_API lnt_status_t lnt_plan_read(lnt_plan_t *plan, uint32_t program, uint32_t tensor, uint64_t offset, uint64_t count,
                                   float *out);

/* In a step, when the tensor has been made ready: this rank's gradient of elements [offset, offset + count),
 * accumulated micro-batches added, in f32. Points at the gradient itself where it lies so, else at `out`, which has
 * been filled. */
LNT_API const float *lnt_plan_local(const lnt_plan_t *plan, uint32_t tensor, uint64_t offset, uint64_t count,
                                    float *out);

/* After commit: piece number `index` of a bucket. LNT_ERR_OUT_OF_RANGE ends the list. Pieces begin and end at block
 * borders of all programs, or at a tensor's end. */
LNT_API lnt_status_t lnt_plan_bucket_span(const lnt_plan_t *plan, uint32_t bucket, size_t index, lnt_span_t *span_p);

/* Idle, also after a failure: which elements of a tensor take part in a program; one byte per element, 0 or 1, NULL:
 * all. Not for packed programs. Must be equal on all ranks. Elements that leave have their errors set to +0. */
LNT_API lnt_status_t lnt_plan_set_live(lnt_plan_t *plan, uint32_t program, uint32_t tensor, const uint8_t *live);

/* Idle: what a changeable program carries from the next step on, instead of what it carried: sorted by tensor and
 * offset, without overlaps. Equal on all ranks (a hash of it is in every frame); local. Builds new exchanges for the
 * buckets in which something differs, so the memory of the plan changes. After an error nothing has changed. */
typedef struct lnt_tensor_part {
    uint32_t tensor;
    uint64_t offset, count;
} lnt_tensor_part_t;
LNT_API lnt_status_t lnt_plan_set_parts(lnt_plan_t *plan, uint32_t program, const lnt_tensor_part_t *parts, size_t n);

/* Idle: this rank cannot begin the step that the others begin, because of `status`. Aborts the communicator, with the
 * cause of the calling thread's last error, and returns LNT_ERR_ABORTED; a world of one rank is left alone: status. */
LNT_API lnt_status_t lnt_plan_give_up(lnt_plan_t *plan, lnt_status_t status);

/* Idle, after a committed step in which `program` ran, also after a failure: calls found, in plan order, for every
 * block where the node sum of an element that does not take part (lnt_plan_set_live) was not zero on some node. offset
 * is the first element of the block. The same on all ranks. Before the masks are changed. */
typedef void (*lnt_block_fn_t)(void *arg, uint32_t tensor, uint64_t offset);
LNT_API lnt_status_t lnt_plan_active(lnt_plan_t *plan, uint32_t program, lnt_block_fn_t found, void *arg);

/* Idle, also after a failure: sets all errors of a program to zero; *dropped_p (may be NULL) receives the sum of
 * squares of what this rank held. */
LNT_API lnt_status_t lnt_plan_drop_errors(lnt_plan_t *plan, uint32_t program, double *dropped_p);

/* Idle: the error feedback this rank owns, piece by piece, for saving and loading. Index from 0;
 * LNT_ERR_OUT_OF_RANGE ends the list. `data` points into the live errors and may be written; NULL where they are not
 * kept in f32. The two calls below copy, whatever they are kept in. */
typedef struct lnt_error_extent {
    uint32_t program;
    bool server;           /* server error, else worker error */
    uint32_t codec_worker; /* node whose error it is; 0 for the server */
    uint32_t tensor;
    uint64_t offset, count;
    float *data;
    void *place; /* for the calls below, together with position */
    uint64_t position;
    uint32_t codec_workers; /* how many the program has */
} lnt_error_extent_t;
LNT_API lnt_status_t lnt_plan_error_extent(lnt_plan_t *plan, size_t index, lnt_error_extent_t *extent_p);

/* Idle: all `count` values of an extent of the list, which is valid until the plan is destroyed. Writing rounds to what
 * errors are kept in; what was read before is written unchanged. values NULL: zeros. Never fail, do not allocate. */
LNT_API void lnt_plan_read_error(const lnt_error_extent_t *extent, float *out);
LNT_API void lnt_plan_write_error(const lnt_error_extent_t *extent, const float *values);

/* Idle: which programs have a carry. Where all ranks share a node no errors are kept, but a residual that comes from a
 * world of several nodes must not be lost: in these programs (others that could have one: not) there is room for it,
 * zeros at first, listed as server errors. The next step of the program that commits adds it to the exchanged value,
 * and it is gone; until then it is saved like other errors. Removing never fails. No effect in worlds of several nodes.
 */
LNT_API lnt_status_t lnt_plan_set_carry(lnt_plan_t *plan, uint32_t programs);
LNT_API uint32_t lnt_plan_get_carry(const lnt_plan_t *plan);

/* Bytes this rank sends for one step of these programs. After commit. */
LNT_API lnt_status_t lnt_plan_wire_bytes(const lnt_plan_t *plan, uint32_t programs, uint64_t *intra_p,
                                         uint64_t *inter_p);

/* The number the frames of the next transaction will carry. It counts all collectives of the communicator from its
 * creation and is no part of saved state. */
LNT_API uint64_t lnt_plan_sequence(const lnt_plan_t *plan);

/* What was registered. name is valid until the plan is destroyed. */
LNT_API lnt_status_t lnt_plan_get_tensor(const lnt_plan_t *plan, uint32_t tensor, lnt_tensor_params_t *params_p);
/* The f32 master of a tensor: the user's own buffer if its param_dtype is f32 and the library does not own masters. */
LNT_API float *lnt_plan_master(lnt_plan_t *plan, uint32_t tensor);
/* Open plan, after all tensors: the library owns the masters of f32 parameters too, and what the user sees is a model
 * copy that may differ from the master, and between ranks, while an algorithm takes steps of its own. These masters too
 * are taken from the parameters again by lnt_plan_sync_params and lnt_plan_commit while the plan is open. They alone
 * are compared between ranks from here on. Undone when the owner of programs detaches from the open plan. */
LNT_API lnt_status_t lnt_plan_own_masters(lnt_plan_t *plan);
/* Model copy <- master; no-op where the parameter is the master. To be called by consume for the span it changed. A
 * master beyond the largest value of the model's type becomes Inf there, as any conversion would make it; the master
 * keeps its value. */
LNT_API void lnt_plan_publish(lnt_plan_t *plan, uint32_t tensor, uint64_t offset, uint64_t count);
/* Model copy <- values (count of them, for elements from `offset` on) in place of the master, which keeps its own. Only
 * where the library owns masters. */
LNT_API void lnt_plan_publish_values(lnt_plan_t *plan, uint32_t tensor, uint64_t offset, uint64_t count,
                                     const float *values);
LNT_API lnt_comm_t *lnt_plan_comm(const lnt_plan_t *plan);

/* Everything that allocates through these counts as the library's memory and obeys its fault injection in tests.
 * For stage implementations; name appears in error messages. Memory is zeroed. */
LNT_API void *lnt_plan_alloc(size_t bytes, const char *name);
LNT_API void lnt_plan_free(void *memory);

#ifdef __cplusplus
}
#endif
#endif
