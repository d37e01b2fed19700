/* Late comers in the oracle of 0/1 Adam: who tells in a sync, what travels of the windows' sums, who joins. In f32 as
 * the library must do it, and beside it in f64.
 */
#ifndef TESTS_OPTIM_ZERO_ONE_ORACLE_LATE_H
#define TESTS_OPTIM_ZERO_ONE_ORACLE_LATE_H

#include "zero_one_oracle_state.h"

static inline uint64_t zo_block_end(const zo_t *o, uint32_t t, uint64_t i)
{
    return i + ZO_BLOCK < o->at[t + 1] ? i + ZO_BLOCK : o->at[t + 1];
}

/* Calls visit for the blocks of tensors that take part in this sync, until it returns false. */
static inline bool zo_visit_blocks(zo_t *o, bool (*visit)(zo_t *o, uint32_t t, uint64_t begin, uint64_t end))
{
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++) {
        if (zo_lane(o, t) || (float)o->sum[zo_group(o, t)] == 0) continue;
        for (uint64_t i = o->at[t]; i < o->at[t + 1]; i += ZO_BLOCK)
            if (!visit(o, t, i, zo_block_end(o, t, i))) return false;
    }
    return true;
}

/* The mean over ranks of the window's sums, divided by the root of its length on every rank. */
static inline float zo_late_mean(const zo_t *o, uint64_t i)
{
    float values[MAX_RANKS], *places[MAX_RANKS];

    for (uint32_t r = 0; r < o->n_ranks; r++) {
        values[r] = o->value[r][i] / sqrtf((float)(o->window + 1));
        places[r] = &values[r];
    }
    return zo_mean(o, places, 0, false);
}

static inline bool zo_late_fits_block(zo_t *o, uint32_t t, uint64_t begin, uint64_t end)
{
    (void)t;
    for (uint64_t i = begin; i < end && o->late[begin].updates >= 0; i++) {
        float s = o->dead[i] ? zo_late_mean(o, i) : 0;
        if (!isfinite(s * s)) return false;
    }
    return true;
}

static inline bool zo_late_fits(zo_t *o)
{
    return zo_visit_blocks(o, zo_late_fits_block);
}

static inline void zo_late_element(zo_t *o, uint32_t t, const zo_late_t *late, uint64_t i)
{
    const uint32_t g = zo_group(o, t);
    const lnt_group_t *h = &o->s.groups[g];
    const zo_consts_t k = zo_consts(o, t, late->power2);
    const float i1 = (float)(1 / (1 - late->power1)), s = zo_late_mean(o, i);
    const double n = (double)(late->updates + 1), root = sqrt((double)(o->window + 1));
    double s64 = 0;

    for (uint32_t r = 0; r < o->n_ranks; r++)
        s64 += o->u64[r][i] / root / o->n_ranks;
    o->m[i] = k.b1 * o->m[i] + k.o1 * (s / sqrtf((float)(o->window + 1)));
    o->v[i] = k.b2 * o->v[i] + k.o2 * (s * s);
    o->x[i] = (o->x[i] - ((float)o->sum[g] * (o->m[i] * i1)) / (sqrtf(o->v[i] * k.i2) + k.eps)) * (float)o->product[g];
    o->m64[i] = h->beta1 * o->m64[i] + (1 - h->beta1) * s64 / root;
    o->v64[i] = h->beta2 * o->v64[i] + (1 - h->beta2) * s64 * s64;
    o->x64[i] -=
        o->sum64[g] * (o->m64[i] / (1 - pow(h->beta1, n))) / (sqrt(o->v64[i] / (1 - pow(h->beta2, n))) + h->eps);
    o->x64[i] *= o->product64[g];
}

/* Has a dead coordinate had a gradient, on some node? */
static inline bool zo_touched(const zo_t *o, uint64_t i)
{
    for (uint32_t a = 0; a < o->M; a++) {
        float node = 0;
        for (uint32_t j = 0; j < o->warm.size[a]; j++)
            node = node + o->value[o->warm.ranks[a][j]][i];
        if (node != 0) return true;
    }
    return false;
}

static inline void zo_join(zo_t *o, uint32_t t, uint64_t begin, uint64_t end)
{
    zo_late_t *late = &o->late[begin];
    const lnt_group_t *h = &o->s.groups[zo_group(o, t)];
    const zo_consts_t k = zo_consts(o, t, late->power2);
    uint64_t n_moving = 0, n_still = 0;

    for (uint64_t i = begin; i < end; i++) {
        float s = sqrtf(o->v[i] * k.i2);
        if (!o->dead[i]) continue;
        if (s > k.eps) {
            o->dead[i] = 0;
            o->d[i] = s + k.eps;
            o->d64[i] = sqrt(o->v64[i] / (1 - pow(h->beta2, (double)late->updates))) + h->eps;
            if (zo_long(o, t)) o->live[o->sign_at[t] + i - o->at[t]] = 1;
            o->n_joined++;
        } else if (o->v[i] != 0) {
            n_moving++;
        } else {
            n_still++;
        }
    }
    if (n_moving != 0 || (n_still != 0 && o->s.stay)) return;
    for (uint64_t i = begin; i < end; i++)
        if (o->dead[i]) o->m[i] = 0, o->m64[i] = 0;
    o->n_left += n_still;
    *late = (zo_late_t){-1, 1, 1};
}

static inline bool zo_late_block(zo_t *o, uint32_t t, uint64_t begin, uint64_t end)
{
    zo_late_t *late = &o->late[begin];
    const lnt_group_t *h = &o->s.groups[zo_group(o, t)];

    if (late->updates >= 0) {
        late->power1 *= h->beta1;
        late->power2 *= h->beta2;
        for (uint64_t i = begin; i < end; i++)
            if (o->dead[i]) zo_late_element(o, t, late, i);
        if (++late->updates >= (int64_t)o->s.lane_updates) zo_join(o, t, begin, end);
        return true;
    }
    for (uint64_t i = begin; i < end && late->updates < 0; i++)
        if (o->dead[i] && zo_touched(o, i)) late->updates = 0;
    o->n_told += late->updates == 0;
    return true;
}

static inline void zo_late_step(zo_t *o)
{
    (void)zo_visit_blocks(o, zo_late_block);
    oracle_mask(&o->sign);
}

#endif
