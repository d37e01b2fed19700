/* Collectives as rows of a table. A row builds a graph for given arguments once; a run reads `input` while the graph is
 * executed and writes `output` afterwards, in lnt_coll_finish: so in-place calls need no special case, and a run that
 * is skipped leaves the output untouched.
 *
 * All-reduce is the exchange of exchange.h over one extent, hierarchical by topology. The others are flat: their frames
 * are plain data (phase 3) between ranks, cut from one vector per source (coll_vector.h). Without a codec values travel
 * as they are and are never voted on.
 */
#ifndef LNT_COLL_COLL_H
#define LNT_COLL_COLL_H

#include "coll_vector.h"
#include "exchange.h"

typedef enum lnt_coll_op {
    LNT_COLL_ALLREDUCE,
    LNT_COLL_REDUCE_SCATTER,
    LNT_COLL_ALLGATHER,
    LNT_COLL_BROADCAST,
    LNT_COLL_BARRIER,
    LNT_COLL_COUNT
} lnt_coll_op_t;

typedef struct lnt_coll_args {
    const lnt_topo_t *topo; /* outlives the collective */
    uint32_t rank;
    uint32_t root; /* broadcast */
    uint64_t count;
    lnt_dtype_t dtype;
    bool raw;          /* elements are bytes, not of a dtype (all-gather without a codec) */
    bool coded;        /* a codec was given: poisoned input is voted on */
    bool feedback;     /* all-reduce: errors are kept in the exchange */
    lnt_codec_t codec; /* what travels; without a codec the one that stands for the dtype */
    lnt_redop_t redop;
    uint64_t segment_elems;
} lnt_coll_args_t;

typedef struct lnt_coll lnt_coll_t;

typedef struct lnt_coll_row {
    const char *name;
    const char *doc;
    lnt_coll_op_t op;
    uint32_t min_ranks;
    lnt_status_t (*init)(
        lnt_coll_t *coll);             /* makes graph and workspace; what it made is released by lnt_coll_destroy */
    void (*prepare)(lnt_coll_t *coll); /* before every run; NULL: nothing */
    bool (*fits)(
        const lnt_coll_t *coll); /* coded runs: the result is finite in the dtype; same on all ranks. NULL: always */
    void (*finish)(lnt_coll_t *coll); /* writes the output of a run that counts; NULL: there is none */
} lnt_coll_row_t;

struct lnt_coll {
    const lnt_coll_row_t *row;
    lnt_coll_args_t args;
    lnt_coll_vector_t vector; /* of one source, or of one part; unused by all-reduce and barrier */
    uint32_t first_frame;     /* of source 0 (reduce-scatter: of part 0 that this rank makes) */
    uint32_t first_recv;      /* reduce-scatter: frame 0 from source 0 */
    lnt_graph_t *graph;
    lnt_graph_t own_graph;    /* what `graph` points to, unless it is the exchange's */
    lnt_exchange_t *exchange; /* all-reduce */
    lnt_source_t source;      /* all-reduce */
    float *tile;              /* all-reduce: where values are decoded before they are converted; reduce-scatter, coded:
                               * sums of the own part */
    uint32_t vote_frame;      /* reduce-scatter: what this rank says to all */

    const void *input; /* of the run */
    void *output;
    uint64_t seed; /* of the run, equal on all ranks, for codecs that round by chance */
};

/* The table: one row for every op below LNT_COLL_COUNT. */
const lnt_coll_row_t *lnt_coll_row(lnt_coll_op_t op);

/* args.codec is copied. */
lnt_status_t lnt_coll_create(lnt_coll_op_t op, const lnt_coll_args_t *args, lnt_coll_t **coll_p);
void lnt_coll_destroy(lnt_coll_t *coll); /* NULL is legal */

/* `sequence` is the run's number on its communicator. */
void lnt_coll_prepare(lnt_coll_t *coll, const void *input, void *output, uint64_t sequence);
/* After the job, with its flags. Writes the output and returns LNT_OK, or LNT_SKIPPED_NONFINITE. */
lnt_status_t lnt_coll_finish(lnt_coll_t *coll, uint8_t flags);

/* Hash and text of everything that must agree between ranks. The map of nodes is not in it: every rank makes it from
 * the same greetings when the communicator is created. */
uint64_t lnt_coll_hash(lnt_coll_op_t op, const lnt_coll_args_t *args);
void lnt_coll_describe(lnt_coll_op_t op, const lnt_coll_args_t *args, char *text, size_t size);

/* Bytes this rank sends in one run, headers included; `nodes` says which peers share its node. */
lnt_bytes_t lnt_coll_bytes(const lnt_coll_t *coll, const lnt_topo_t *nodes);

/* For init of flat rows: `vector` from the arguments. */
lnt_status_t lnt_coll_init_vector(lnt_coll_t *coll);

/* Adds header-only frames between all ranks, which carry flags: every rank sends when `gate` (a task) is done. Part of
 * a barrier and of collectives in which not every rank receives something from every other anyway. Returns the frame
 * this rank sends. */
uint32_t lnt_coll_add_vote(lnt_graph_builder_t *builder, const lnt_coll_args_t *args, const uint32_t *gate);

extern const lnt_coll_row_t lnt_coll_allreduce, lnt_coll_reduce_scatter, lnt_coll_allgather, lnt_coll_broadcast,
    lnt_coll_barrier;

#endif
