/* 0/1 Adam from the formulas, in f32 byte by byte and beside it in f64, for tests: plain loops, no library code.
 *
 * The exchanges are those of tests/exchange_oracle.h. The f64 trajectory takes what an exchange decoded from the f32
 * one (its bytes are checked there) and computes everything else by itself, with pow() in place of running products.
 */
#ifndef TESTS_OPTIM_ZERO_ONE_ORACLE_H
#define TESTS_OPTIM_ZERO_ONE_ORACLE_H

#include "zero_one_oracle_late.h"

/* ---- updates of the first phase ---- */

static inline void zo_adam(zo_t *o, uint32_t t, uint64_t i, float g)
{
    const lnt_group_t *h = &o->s.groups[zo_group(o, t)];
    const zo_consts_t k = zo_consts(o, t, o->power2[t] * h->beta2);
    const double n = (double)(o->v_updates[t] + 1), s = (double)(o->t + 1);

    o->m[i] = k.b1 * o->m[i] + k.o1 * g;
    o->v[i] = k.b2 * o->v[i] + k.o2 * (g * g);
    o->x[i] = (o->x[i] - k.lr * ((o->m[i] * k.i1) / (sqrtf(o->v[i] * k.i2) + k.eps))) - k.w * o->x[i];
    o->m64[i] = h->beta1 * o->m64[i] + (1 - h->beta1) * (double)g;
    o->v64[i] = h->beta2 * o->v64[i] + (1 - h->beta2) * (double)g * (double)g;
    o->x64[i] -= h->lr * (o->m64[i] / (1 - pow(h->beta1, s)) / (sqrt(o->v64[i] / (1 - pow(h->beta2, n))) + h->eps) +
                          h->weight_decay * o->x64[i]);
}

static inline double zo_d64(const zo_t *o, uint32_t t, uint64_t i)
{
    const lnt_group_t *h = &o->s.groups[zo_group(o, t)];

    if (o->d64[i] != 0) return o->d64[i];
    return sqrt(o->v64[i] / (1 - pow(h->beta2, (double)o->v_updates[t]))) + h->eps;
}

static inline void zo_follow_sign(zo_t *o, uint32_t t, uint64_t i, float g)
{
    const lnt_group_t *h = &o->s.groups[zo_group(o, t)];
    const zo_consts_t k = zo_consts(o, t, 0);

    if (o->dead[i]) return;
    o->m[i] = k.b1 * o->m[i] + k.o1 * g;
    o->x[i] = (o->x[i] - k.lr * ((o->m[i] * k.i1) / o->d[i])) - k.w * o->x[i];
    o->m64[i] = h->beta1 * o->m64[i] + (1 - h->beta1) * (double)g;
    o->x64[i] -=
        h->lr * (o->m64[i] / (1 - pow(h->beta1, (double)(o->t + 1))) / zo_d64(o, t, i) + h->weight_decay * o->x64[i]);
}

/* Windows are empty: this rank's momentum is the common one. */
static inline void zo_clear_windows(zo_t *o)
{
    for (uint32_t r = 0; r < o->n_ranks; r++) {
        memset(o->u[r], 0, o->n * sizeof(float));
        memset(o->u64[r], 0, o->n * sizeof(double));
        for (uint32_t t = 0; t < o->s.model.n_tensors; t++) {
            if (zo_lane(o, t)) continue;
            memcpy(o->ml[r] + o->at[t], o->m + o->at[t], o->s.model.lengths[t] * sizeof(float));
            memcpy(o->ml64[r] + o->at[t], o->m64 + o->at[t], o->s.model.lengths[t] * sizeof(double));
        }
    }
}

/* ---- dead coordinates ---- */

static inline uint64_t zo_find_dead_block(zo_t *o, const zo_consts_t *k, uint64_t i, uint64_t end)
{
    uint64_t n_dead = 0;
    float rms, s[ZO_BLOCK];
    uint8_t all[ZO_BLOCK];

    memset(all, 1, sizeof(all));
    for (uint64_t j = i; j < end; j++)
        s[j - i] = sqrtf(o->v[j] * k->i2);
    rms = (float)sqrt(oracle_tree(s, all, end - i, false) / (double)(end - i));
    for (uint64_t j = i; j < end; j++) {
        o->dead[j] = o->v[j] == 0 || (s[j - i] <= k->eps && rms > 10 * (s[j - i] + k->eps));
        o->d[j] = s[j - i] + k->eps;
        n_dead += o->dead[j];
    }
    return n_dead;
}

static inline void zo_find_dead(zo_t *o)
{
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++) {
        const zo_consts_t k = zo_consts(o, t, o->power2[t]);
        uint64_t n_dead = 0;
        if (zo_lane(o, t)) continue;
        for (uint64_t i = o->at[t]; i < o->at[t + 1]; i += ZO_BLOCK)
            n_dead += zo_find_dead_block(o, &k, i, i + ZO_BLOCK < o->at[t + 1] ? i + ZO_BLOCK : o->at[t + 1]);
        o->held[t] = zo_long(o, t) && (double)n_dead > o->s.max_dead * (double)o->s.model.lengths[t];
        for (uint64_t i = 0; i < o->s.model.lengths[t] && zo_long(o, t); i++)
            o->live[o->sign_at[t] + i] = !o->held[t] && !o->dead[o->at[t] + i];
    }
    oracle_mask(&o->sign);
}

static inline void zo_freeze(zo_t *o)
{
    zo_find_dead(o);
    o->frozen = true;
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++) {
        o->held[t] = false;
        for (uint64_t i = o->at[t]; i < o->at[t + 1] && !zo_lane(o, t); i++) {
            if (o->dead[i]) o->m[i] = o->v[i] = 0, o->m64[i] = o->v64[i] = 0;
            if (zo_long(o, t)) o->live[o->sign_at[t] + i - o->at[t]] = !o->dead[i];
        }
    }
    for (uint32_t a = 0; a < o->M; a++)
        memset(o->sign.e[a], 0, o->sign.N * sizeof(float));
    memset(o->sign.E, 0, o->sign.N * sizeof(float));
    zo_clear_windows(o);
}

/* ---- the first phase ---- */

static inline bool zo_variance_step(zo_t *o)
{
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++)
        zo_feed(o, &o->warm, t, o->at[t], o->grad);
    o->warm.factor = zo_factor(o, true);
    o->warm.feeds_v = true;
    oracle_run(&o->warm);
    if (o->warm.flags != 0) return false;
    oracle_commit(&o->warm);
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++)
        for (uint64_t i = o->at[t]; i < o->at[t + 1]; i++)
            zo_adam(o, t, i, o->warm.out[i]);
    return true;
}

/* Warm-up codec without errors for one tensor that is held back. */
static inline void zo_held_step(zo_t *o, uint32_t t)
{
    oracle_t e;

    zo_exchange(&e, o, o->s.warm_codec, o->s.warm_block, false);
    zo_add(&e, o->s.model.lengths[t]);
    oracle_start(&e);
    e.live = o->all;
    zo_feed(o, &e, t, 0, o->grad);
    e.factor = zo_factor(o, true);
    oracle_run(&e);
    for (uint64_t i = 0; i < o->s.model.lengths[t]; i++)
        zo_adam(o, t, o->at[t] + i, e.out[i]);
    oracle_end(&e);
}

static inline bool zo_sign_step(zo_t *o)
{
    if (!zo_run_sign(o, o->grad, true)) return false;
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++) {
        if (o->held[t]) zo_held_step(o, t);
        for (uint64_t i = o->at[t]; i < o->at[t + 1] && !o->held[t]; i++) {
            if (zo_long(o, t)) {
                zo_follow_sign(o, t, i, o->sign.out[o->sign_at[t] + i - o->at[t]]);
            } else {
                zo_adam(o, t, i, zo_mean(o, o->grad, i, true));
            }
        }
    }
    return true;
}

static inline void zo_first_committed(zo_t *o)
{
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++) {
        if (o->kind == ZO_SIGN && zo_long(o, t) && !o->held[t]) continue;
        o->power2[t] *= o->s.groups[zo_group(o, t)].beta2;
        o->v_updates[t]++;
    }
    if (o->kind == ZO_VARIANCE && ++o->var_counter == o->s.var_scaler) {
        o->var_counter = 0;
        o->var_interval *= 2;
    }
    if (o->t >= o->s.freeze) {
        zo_freeze(o);
    } else if (o->kind == ZO_VARIANCE) {
        zo_find_dead(o);
    }
    for (uint32_t r = 0; r < o->n_ranks; r++)
        memcpy(o->copy[r], o->x, o->n * sizeof(float));
}

/* ---- the second phase ---- */

static inline void zo_local_element(zo_t *o, uint32_t r, uint32_t t, uint64_t i, float *m, float *u)
{
    const lnt_group_t *h = &o->s.groups[zo_group(o, t)];
    const zo_consts_t k = zo_consts(o, t, 0);
    const float step = (float)(h->lr * (double)k.i1);
    const float g = o->grad[r][i] * (float)(1.0 / o->s.loss_scale / o->s.micro_steps);

    *m = o->ml[r][i];
    *u = o->u[r][i];
    if (o->gap[r]) return;
    if (o->dead[i]) { /* takes no step: the window sums up its gradients */
        *u = *u + g;
        return;
    }
    *m = k.b1 * *m + k.o1 * g;
    *u = *u + (step * *m) / o->d[i];
}

static inline void zo_local_element_64(zo_t *o, uint32_t r, uint32_t t, uint64_t i)
{
    const lnt_group_t *h = &o->s.groups[zo_group(o, t)];
    const double g = (double)o->grad[r][i] / o->s.loss_scale / o->s.micro_steps;

    if (o->gap[r]) return;
    if (o->dead[i]) {
        o->u64[r][i] += g;
        return;
    }
    o->ml64[r][i] = h->beta1 * o->ml64[r][i] + (1 - h->beta1) * g;
    o->u64[r][i] += h->lr / (1 - pow(h->beta1, (double)(o->t + 1))) * o->ml64[r][i] / zo_d64(o, t, i);
}

/* Every rank's share of the step into ml and u, or what it would exchange into value. */
static inline void zo_take_steps(zo_t *o, bool sync)
{
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++) {
        const float sum = (float)o->sum[zo_group(o, t)];
        for (uint64_t i = o->at[t]; i < o->at[t + 1] && !zo_lane(o, t); i++) {
            for (uint32_t r = 0; r < o->n_ranks; r++) {
                float m, u;
                zo_local_element_64(o, r, t, i);
                zo_local_element(o, r, t, i, &m, &u);
                o->value[r][i] = sum == 0 ? 0 : o->dead[i] ? u : (u * o->d[i]) / sum;
                if (sync) continue;
                o->ml[r][i] = m;
                o->u[r][i] = u;
            }
        }
    }
}

static inline void zo_publish(zo_t *o)
{
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++) {
        for (uint32_t r = 0; r < o->n_ranks; r++) {
            for (uint64_t i = o->at[t]; i < o->at[t + 1]; i++) {
                bool still = zo_lane(o, t) || o->dead[i];
                o->copy[r][i] = still ? o->x[i] : (o->x[i] - o->u[r][i]) * (float)o->product[zo_group(o, t)];
            }
        }
    }
}

static inline void zo_restart(zo_t *o)
{
    o->window = 0;
    for (uint32_t g = 0; g < ZO_GROUPS; g++) {
        o->sum[g] = o->sum64[g] = 0;
        o->product[g] = o->product64[g] = 1;
    }
    zo_clear_windows(o);
    zo_publish(o);
}

static inline void zo_sync_element(zo_t *o, uint32_t t, uint64_t i, float w)
{
    const uint32_t g = zo_group(o, t);

    if (o->dead[i]) return;
    o->m[i] = w;
    o->x[i] = (o->x[i] - ((float)o->sum[g] * w) / o->d[i]) * (float)o->product[g];
    o->m64[i] = (double)w;
    o->x64[i] = (o->x64[i] - o->sum64[g] * (double)w / zo_d64(o, t, i)) * o->product64[g];
}

/* Errors of groups that are left out go back. */
static inline bool zo_exchange_windows(zo_t *o)
{
    oracle_t *e = &o->sign;
    float *before = zo_room(e->N * (o->M + 1), sizeof(float));
    bool fine;

    for (uint32_t a = 0; a < o->M; a++)
        memcpy(before + a * e->N, e->e[a], e->N * sizeof(float));
    memcpy(before + o->M * e->N, e->E, e->N * sizeof(float));
    fine = zo_run_sign(o, o->value, false);
    for (uint32_t t = 0; t < o->s.model.n_tensors && fine; t++) {
        uint64_t at = o->sign_at[t], bytes = o->s.model.lengths[t] * sizeof(float);
        if (!zo_long(o, t) || (float)o->sum[zo_group(o, t)] != 0) continue;
        for (uint32_t a = 0; a < o->M; a++)
            memcpy(e->e[a] + at, before + a * e->N + at, bytes);
        memcpy(e->E + at, before + o->M * e->N + at, bytes);
    }
    free(before);
    return fine;
}

static inline bool zo_any_busy(const zo_t *o)
{
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++)
        if (!zo_lane(o, t) && (float)o->sum[zo_group(o, t)] != 0) return true;
    return false;
}

static inline bool zo_sync(zo_t *o)
{
    const bool busy = zo_any_busy(o);

    if (busy && !(zo_late_fits(o) && zo_exchange_windows(o))) return false;
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++) {
        if (zo_lane(o, t) || (float)o->sum[zo_group(o, t)] == 0) continue;
        for (uint64_t i = o->at[t]; i < o->at[t + 1]; i++)
            zo_sync_element(o, t, i,
                            zo_long(o, t) ? o->sign.out[o->sign_at[t] + i - o->at[t]] : zo_mean(o, o->value, i, false));
    }
    if (busy) zo_late_step(o);
    return true;
}

static inline bool zo_second_step(zo_t *o)
{
    const bool sync = o->kind == ZO_SYNC;
    bool fine = true;

    for (uint32_t g = 0; g < ZO_GROUPS; g++) {
        const lnt_group_t *h = &o->s.groups[g];
        o->sum[g] += h->lr * (double)(float)(1 / (1 - o->power1[g]));
        o->sum64[g] += h->lr / (1 - pow(h->beta1, (double)(o->t + 1)));
        o->product[g] *= 1 - h->lr * h->weight_decay;
        o->product64[g] *= 1 - h->lr * h->weight_decay;
    }
    zo_take_steps(o, sync);
    if (sync) fine = zo_sync(o);
    for (uint32_t t = 0; t < o->s.model.n_tensors && fine; t++) {
        if (!zo_lane(o, t)) continue;
        for (uint64_t i = o->at[t]; i < o->at[t + 1]; i++)
            zo_adam(o, t, i, zo_mean(o, o->grad, i, true));
        o->power2[t] *= o->s.groups[zo_group(o, t)].beta2;
        o->v_updates[t]++;
    }
    if (sync) {
        zo_restart(o);
    } else {
        o->window++;
        zo_publish(o);
    }
    return fine;
}

/* One step with the gradients in o->grad, and o->gap where a rank's are not finite. False: skipped. */
static inline bool zo_step(zo_t *o)
{
    const uint64_t number = o->t + 1;
    double power1[ZO_GROUPS];
    bool fine, was_frozen = o->frozen;

    memcpy(power1, o->power1, sizeof(power1));
    for (uint32_t g = 0; g < ZO_GROUPS; g++)
        o->power1[g] *= o->s.groups[g].beta1;
    o->kind = o->frozen ? (number % o->local_interval == 0 ? ZO_SYNC : ZO_LOCAL)
                        : (number % o->var_interval == 0 ? ZO_VARIANCE : ZO_SIGN);
    fine = o->frozen ? zo_second_step(o) : o->kind == ZO_VARIANCE ? zo_variance_step(o) : zo_sign_step(o);
    if (!fine) {
        memcpy(o->power1, power1, sizeof(power1));
        return false;
    }
    o->t = number;
    o->counts[o->kind]++;
    if (!was_frozen) {
        zo_first_committed(o);
    } else if (number > o->s.freeze + 1 && ++o->local_counter == o->s.local_scaler) {
        o->local_counter = 0;
        o->local_interval = 2 * o->local_interval < o->s.local_clipper ? 2 * o->local_interval : o->s.local_clipper;
    }
    return true;
}

/* ---- comparison ---- */

static inline void zo_expect_array(const rank_t *rank, const char *name, const float *expected)
{
    float *seen = zo_room(rank->n_elems, sizeof(float));

    rank_view(rank, name, sizeof(float), seen);
    for (uint64_t i = 0; i < rank->n_elems; i++)
        ck_assert_msg(memcmp(&seen[i], &expected[i], sizeof(float)) == 0, "%s[%llu]: %a, expected %a", name,
                      (unsigned long long)i, (double)seen[i], (double)expected[i]);
    free(seen);
}

/* Blocks are numbered in the order of tensors. */
static inline void zo_expect_late(const rank_t *rank, const zo_t *o)
{
    uint64_t n_blocks, block = 0;
    const double *updates = lnt_optim_values(rank->optim, "late_updates", &n_blocks);

    for (uint32_t t = 0; t < o->s.model.n_tensors; t++) {
        const uint8_t *dead = lnt_optim_view(rank->optim, "dead", t);
        if (zo_lane(o, t)) continue;
        ck_assert_mem_eq(dead, o->dead + o->at[t], o->s.model.lengths[t]);
        for (uint64_t i = o->at[t]; i < o->at[t + 1]; i += ZO_BLOCK)
            ck_assert(block < n_blocks && updates[block++] == (double)o->late[i].updates);
    }
    ck_assert_uint_eq(block, n_blocks);
    ck_assert_uint_eq(rank_info(rank).late_touched, o->n_told);
}

/* Everything this rank holds is what the oracle holds. */
static inline void zo_expect(const rank_t *rank, const zo_t *o)
{
    for (uint64_t i = 0; i < o->n; i++) {
        ck_assert_msg(memcmp(&rank->x[i], &o->copy[rank->rank][i], sizeof(float)) == 0,
                      "step %llu, kind %d: copy[%llu] is %a, expected %a", (unsigned long long)o->t, (int)o->kind,
                      (unsigned long long)i, (double)rank->x[i], (double)o->copy[rank->rank][i]);
    }
    for (uint32_t t = 0; t < o->s.model.n_tensors; t++)
        ck_assert_mem_eq(lnt_plan_master(rank->plan, t), o->x + o->at[t], o->s.model.lengths[t] * sizeof(float));
    zo_expect_array(rank, "exp_avg", o->m);
    zo_expect_array(rank, "exp_avg_sq", o->v);
    if (!o->frozen) return;
    zo_expect_array(rank, "exp_avg_local", o->ml[rank->rank]);
    zo_expect_array(rank, "accumulator", o->u[rank->rank]);
    zo_expect_late(rank, o);
}

#endif
