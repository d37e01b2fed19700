/* What the oracle of 0/1 Adam (zero_one_oracle.h) holds, and its exchanges: those of tests/exchange_oracle.h.
 */
#ifndef TESTS_OPTIM_ZERO_ONE_ORACLE_STATE_H
#define TESTS_OPTIM_ZERO_ONE_ORACLE_STATE_H

#include <math.h>

#include "exchange_oracle.h"
#include "ranks.h"

enum { ZO_BLOCK = 64, ZO_SHORT = 64, ZO_GROUPS = 2 };
typedef enum zo_kind { ZO_VARIANCE, ZO_SIGN, ZO_LOCAL, ZO_SYNC } zo_kind_t;

typedef struct zo_settings {
    world_t world;
    model_t model;
    lnt_group_t groups[ZO_GROUPS];
    uint64_t freeze, var_scaler, local_scaler, local_clipper;
    int warm_codec;
    uint32_t warm_block;
    bool compression;
    double max_dead, loss_scale;
    uint32_t micro_steps;
    uint64_t lane_updates;
    bool stay;     /* late_idle=stay */
    uint32_t tiny; /* tensor whose gradients are tiny; UINT32_MAX: none */
    uint64_t seed;
} zo_settings_t;

/* A block with late comers; updates: -1 = none travel. */
typedef struct zo_late {
    int64_t updates;
    double power1, power2;
} zo_late_t;

typedef struct zo {
    zo_settings_t s;
    uint32_t M, n_ranks;
    uint64_t n, t; /* elements, committed steps */
    bool frozen;
    zo_kind_t kind; /* of the last step */
    uint64_t var_interval, var_counter, local_interval, local_counter;
    uint64_t counts[4];
    double power1[ZO_GROUPS], power2[MAX_TENSORS], sum[ZO_GROUPS], product[ZO_GROUPS];
    uint64_t v_updates[MAX_TENSORS];
    bool held[MAX_TENSORS];
    uint64_t at[MAX_TENSORS + 1], sign_at[MAX_TENSORS];
    oracle_t warm, sign;
    float *x, *m, *v, *d; /* the anchor and what is equal on all ranks */
    uint8_t *dead, *all, *live;
    float *ml[MAX_RANKS], *u[MAX_RANKS], *copy[MAX_RANKS], *grad[MAX_RANKS], *value[MAX_RANKS];
    double *x64, *m64, *v64, *ml64[MAX_RANKS], *u64[MAX_RANKS];
    double sum64[ZO_GROUPS], product64[ZO_GROUPS];
    double *d64;     /* of coordinates that have joined late; 0: of the freeze */
    uint64_t window; /* steps since the last sync */
    zo_late_t *late; /* per block, at its first element */
    uint64_t n_told, n_joined, n_left;
    bool gap[MAX_RANKS];
} zo_t;

static inline uint32_t zo_group(const zo_t *o, uint32_t t)
{
    return o->s.model.group_of[t];
}

static inline bool zo_lane(const zo_t *o, uint32_t t)
{
    return o->s.groups[zo_group(o, t)].non_freeze;
}

static inline bool zo_short(const zo_t *o, uint32_t t)
{
    return !zo_lane(o, t) && o->s.model.lengths[t] < ZO_SHORT;
}

static inline bool zo_long(const zo_t *o, uint32_t t)
{
    return !zo_lane(o, t) && o->s.model.lengths[t] >= ZO_SHORT;
}

static inline void zo_exchange(oracle_t *e, const zo_t *o, int codec, uint32_t block, bool feedback)
{
    uint64_t label[MAX_RANKS];

    memset(e, 0, sizeof(*e));
    for (uint32_t r = 0; r < o->n_ranks; r++)
        label[r] = o->s.world.nodes[r];
    oracle_map(e, label, o->n_ranks);
    e->codec = codec;
    e->block = block;
    e->segment = o->s.model.segment_bytes / sizeof(float);
    e->feedback = feedback;
    e->server_factor = (float)(1.0 / e->M);
}

static inline void zo_add(oracle_t *e, uint64_t count)
{
    e->count[e->n_extents++] = count;
}

static inline void *zo_room(uint64_t n, size_t size)
{
    return calloc(n + 1, size);
}

static inline void zo_rooms(zo_t *o)
{
    o->x = zo_room(o->n, 4);
    o->m = zo_room(o->n, 4);
    o->v = zo_room(o->n, 4);
    o->d = zo_room(o->n, 4);
    o->dead = zo_room(o->n, 1);
    o->live = zo_room(o->n, 1);
    o->all = zo_room(o->n, 1);
    o->x64 = zo_room(o->n, 8);
    o->m64 = zo_room(o->n, 8);
    o->v64 = zo_room(o->n, 8);
    o->d64 = zo_room(o->n, 8);
    o->late = zo_room(o->n, sizeof(*o->late));
    for (uint32_t r = 0; r < o->n_ranks; r++) {
        o->ml[r] = zo_room(o->n, 4);
        o->u[r] = zo_room(o->n, 4);
        o->copy[r] = zo_room(o->n, 4);
        o->grad[r] = zo_room(o->n, 4);
        o->value[r] = zo_room(o->n, 4);
        o->ml64[r] = zo_room(o->n, 8);
        o->u64[r] = zo_room(o->n, 8);
    }
}

static inline void zo_open(zo_t *o, const zo_settings_t *settings)
{
    memset(o, 0, sizeof(*o));
    o->s = *settings;
    o->n_ranks = settings->world.n_ranks;
    o->n = model_elems(&settings->model);
    o->var_interval = o->local_interval = 1;
    zo_rooms(o);
    zo_exchange(&o->warm, o, settings->warm_codec, settings->warm_block, true);
    zo_exchange(&o->sign, o, settings->compression ? ORACLE_SIGN1 : ORACLE_F32, ZO_BLOCK, true);
    for (uint32_t t = 0; t < settings->model.n_tensors; t++) {
        o->at[t + 1] = o->at[t] + settings->model.lengths[t];
        o->power2[t] = 1;
        zo_add(&o->warm, settings->model.lengths[t]);
        for (uint32_t b = 0; b < t; b++)
            o->sign_at[t] += zo_long(o, b) ? settings->model.lengths[b] : 0;
        if (zo_long(o, t)) zo_add(&o->sign, settings->model.lengths[t]);
    }
    for (uint32_t g = 0; g < ZO_GROUPS; g++)
        o->power1[g] = o->product[g] = o->product64[g] = 1;
    oracle_start(&o->warm);
    oracle_start(&o->sign);
    o->M = o->warm.M;
    memset(o->all, 1, o->n);
    memset(o->live, 1, o->n);
    o->warm.live = o->all;
    o->sign.live = o->live;
    for (uint64_t i = 0; i < o->n; i++) {
        o->late[i] = (zo_late_t){-1, 1, 1};
        o->x64[i] = o->x[i] = (float)normal_at(settings->model.start_seed, i);
        for (uint32_t r = 0; r < o->n_ranks; r++)
            o->copy[r][i] = o->x[i];
    }
}

static inline void zo_close(zo_t *o)
{
    oracle_end(&o->warm);
    oracle_end(&o->sign);
    free(o->x);
    free(o->m);
    free(o->v);
    free(o->d);
    free(o->dead);
    free(o->live);
    free(o->all);
    free(o->x64);
    free(o->m64);
    free(o->v64);
    free(o->d64);
    free(o->late);
    for (uint32_t r = 0; r < o->n_ranks; r++) {
        free(o->ml[r]);
        free(o->u[r]);
        free(o->copy[r]);
        free(o->grad[r]);
        free(o->value[r]);
        free(o->ml64[r]);
        free(o->u64[r]);
    }
}

/* ---- exchanges ---- */

static inline float zo_factor(const zo_t *o, bool scaled)
{
    double share = (double)o->M / o->n_ranks;

    return (float)(scaled ? share * 1.0 / o->s.loss_scale / o->s.micro_steps : share);
}

/* Mean over ranks in f32: node sums in rank order, factor, nodes in order. */
static inline float zo_mean(const zo_t *o, float *const *value, uint64_t i, bool scaled)
{
    float sum = 0;

    for (uint32_t a = 0; a < o->M; a++) {
        float node = value[o->warm.ranks[a][0]][i];
        for (uint32_t j = 1; j < o->warm.size[a]; j++)
            node = node + value[o->warm.ranks[a][j]][i];
        node = node * zo_factor(o, scaled);
        sum = a == 0 ? node : sum + node;
    }
    return sum * (float)(1.0 / o->M);
}

static inline void zo_feed(const zo_t *o, oracle_t *e, uint32_t t, uint64_t at, float *const *value)
{
    for (uint32_t r = 0; r < o->n_ranks; r++)
        memcpy(e->input[r] + at, value[r] + o->at[t], o->s.model.lengths[t] * sizeof(float));
}

/* Runs the sign exchange over all long tensors; false: poisoned. */
static inline bool zo_run_sign(zo_t *o, float *const *value, bool scaled)
{
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++)
        if (zo_long(o, t)) zo_feed(o, &o->sign, t, o->sign_at[t], value);
    o->sign.factor = zo_factor(o, scaled);
    oracle_run(&o->sign);
    if (o->sign.flags == 0) oracle_commit(&o->sign);
    return o->sign.flags == 0;
}

/* ---- constants of a step ---- */

typedef struct zo_consts {
    float b1, o1, b2, o2, i1, i2, lr, eps, w;
} zo_consts_t;

static inline zo_consts_t zo_consts(const zo_t *o, uint32_t t, double power2)
{
    const lnt_group_t *g = &o->s.groups[zo_group(o, t)];

    return (zo_consts_t){.b1 = (float)g->beta1,
                         .o1 = (float)(1 - g->beta1),
                         .b2 = (float)g->beta2,
                         .o2 = (float)(1 - g->beta2),
                         .i1 = (float)(1 / (1 - o->power1[zo_group(o, t)])),
                         .i2 = (float)(1 / (1 - power2)),
                         .lr = (float)g->lr,
                         .eps = (float)g->eps,
                         .w = (float)(g->lr * g->weight_decay)};
}

#endif
