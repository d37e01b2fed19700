/* 1-bit LAMB in f64, written from the formulas (docs/optimizers.md): warm-up, freeze, signs with error feedback at
 * nodes and server, factors, lane. Gradients are those of exact_trial.h, nodes have equal numbers of ranks.
 *
 * A sign near a tie would send f32 and f64 different ways, so a run tells how near it came (margin), and a trial is
 * drawn anew until nothing comes near.
 */
#ifndef TESTS_OPTIM_ONEBIT_LAMB_ORACLE_H
#define TESTS_OPTIM_ONEBIT_LAMB_ORACLE_H

#include "exact_trial.h"

enum { OL_ROOM = 1024, OL_NODES = 4 };

typedef struct ol_variant {
    const char *options;
    double least, most, coeff_beta, factor_least, factor_most, threshold;
    bool uncorrected, twin, lane_group; /* group 1 is non_freeze */
    bool late;                          /* the silent stretch gets gradients some steps after the freeze */
    double decay;                       /* of group 0; 0: drawn */
} ol_variant_t;

typedef struct onebit_lamb {
    exact_trial_t trial;
    const ol_variant_t *variant;
    uint32_t freeze, block, step; /* step: done */
    uint32_t late_from, lane_updates;
    int late_updates; /* of the block with the stretch; -1: not latched */
    bool frozen;
    double x[OL_ROOM], m[OL_ROOM], v[OL_ROOM], fresh[OL_ROOM], den[OL_ROOM];
    double e[OL_NODES][OL_ROOM], E[OL_ROOM];
    bool dead[OL_ROOM];
    double average[MAX_TENSORS], power[MAX_TENSORS], scaling[MAX_TENSORS], factor[MAX_TENSORS], coeff[MAX_TENSORS];
    double margin; /* nearest to a tie, in units of the scale */
} onebit_lamb_t;

static inline uint32_t ol_nodes(const onebit_lamb_t *o)
{
    return o->trial.world.nodes[o->trial.world.n_ranks - 1] + 1;
}

/* A stretch inside a block of the last tensor has no gradient, or a late one. */
static inline bool ol_silent(const onebit_lamb_t *o, uint32_t step, uint64_t i)
{
    bool inside = i >= o->trial.first[3] + 70 && i < o->trial.first[3] + 90;

    return inside && !(o->variant->late && step >= o->late_from);
}

/* Mean over the ranks of a node. */
static inline double ol_node_grad(const onebit_lamb_t *o, uint32_t node, uint64_t i)
{
    double sum = 0;
    uint32_t n = 0;

    if (ol_silent(o, o->step, i)) return 0;
    for (uint32_t r = 0; r < o->trial.world.n_ranks; r++) {
        if (o->trial.world.nodes[r] != node) continue;
        sum += exact_grad(&o->trial, r, o->step, i);
        n++;
    }
    return sum / n;
}

static inline double ol_mean(const onebit_lamb_t *o, uint64_t i)
{
    double sum = 0;

    for (uint32_t a = 0; a < ol_nodes(o); a++)
        sum += ol_node_grad(o, a, i);
    return sum / ol_nodes(o);
}

static inline bool ol_in_lane(const onebit_lamb_t *o, uint32_t t)
{
    return o->trial.model.lengths[t] < 64 || exact_group(&o->trial, t)->non_freeze;
}

static inline double ol_corrected(const onebit_lamb_t *o, double beta, double updates)
{
    return o->variant->uncorrected ? 1 : 1 - pow(beta, updates);
}

static inline double ol_correction(const onebit_lamb_t *o, double beta)
{
    return ol_corrected(o, beta, o->step + 1.0);
}

/* Plain LAMB on a tensor. */
static inline void ol_plain(onebit_lamb_t *o, uint32_t t)
{
    const lnt_group_t *h = exact_group(&o->trial, t);
    const uint64_t first = o->trial.first[t], n = o->trial.model.lengths[t];
    const double c1 = ol_correction(o, h->beta1), c2 = ol_correction(o, h->beta2);
    double u[OL_ROOM], x_norm = exact_norm(o->x + first, n), u_norm;

    for (uint64_t k = 0, i = first; k < n; k++, i++) {
        double g = ol_mean(o, i);
        o->m[i] = h->beta1 * o->m[i] + (1 - h->beta1) * g;
        o->v[i] = h->beta2 * o->v[i] + (1 - h->beta2) * g * g;
        u[k] = o->m[i] / c1 / (sqrt(o->v[i] / c2) + h->eps) + h->weight_decay * o->x[i];
    }
    u_norm = exact_norm(u, n);
    o->coeff[t] = 1;
    if (x_norm > 0 && u_norm > 0) {
        o->coeff[t] = fmin(fmax(x_norm / u_norm, o->variant->least), o->variant->most);
        if (!o->frozen) {
            o->average[t] = o->variant->coeff_beta * o->average[t] + (1 - o->variant->coeff_beta) * o->coeff[t];
            o->power[t] *= o->variant->coeff_beta;
        }
    }
    for (uint64_t k = 0; k < n; k++)
        o->x[first + k] -= h->lr * o->coeff[t] * u[k];
}

static inline void ol_freeze(onebit_lamb_t *o)
{
    double rms[MAX_TENSORS] = {0}, sum = 0;
    int n = 0;

    o->frozen = true;
    for (uint32_t t = 0; t < o->trial.model.n_tensors; t++) {
        const lnt_group_t *h = exact_group(&o->trial, t);
        const uint64_t first = o->trial.first[t], count = o->trial.model.lengths[t];
        double c2 = o->variant->uncorrected ? 1 : 1 - pow(h->beta2, o->step);
        for (uint64_t i = first; i < first + count; i++) {
            o->dead[i] = o->v[i] == 0 && !ol_in_lane(o, t);
            o->den[i] = ol_in_lane(o, t) ? 0 : sqrt(o->v[i] / c2) + h->eps;
            o->fresh[i] = o->dead[i] ? -1 : o->v[i];
        }
        o->factor[t] = o->scaling[t] = 1;
        if (count == 0 || ol_in_lane(o, t)) continue;
        rms[t] = exact_norm(o->m + first, count) / sqrt((double)count);
        sum += rms[t];
        n += rms[t] > 0;
    }
    for (uint32_t t = 0; t < o->trial.model.n_tensors; t++) {
        if (rms[t] > 0) o->scaling[t] = sum / n / rms[t];
    }
}

/* Signs of one block of `a` at its live elements; the rest goes to the error. */
static inline void ol_code(onebit_lamb_t *o, const double *a, uint64_t at, uint64_t n, double *y, double *error)
{
    double sum = 0, scale;
    uint64_t live = 0;

    for (uint64_t i = 0; i < n; i++) {
        sum += o->dead[at + i] ? 0 : a[i] * a[i];
        live += !o->dead[at + i];
    }
    scale = live != 0 ? sqrt(sum / (double)live) : 0;
    for (uint64_t i = 0; i < n; i++) {
        y[i] = o->dead[at + i] ? 0 : a[i] >= 0 ? scale : -scale;
        error[i] = o->dead[at + i] ? 0 : a[i] - y[i];
        if (!o->dead[at + i] && scale > 0) o->margin = fmin(o->margin, fabs(a[i]) / scale);
    }
}

/* One block of momentum through the exchange; out is what all ranks decode. */
static inline void ol_exchange(onebit_lamb_t *o, uint32_t t, uint64_t at, uint64_t n, double *out)
{
    const double b1 = exact_group(&o->trial, t)->beta1;
    const bool coded = !o->variant->twin && ol_nodes(o) > 1;
    double a[OL_ROOM], y[OL_ROOM];

    memset(out, 0, n * sizeof(*out));
    for (uint32_t node = 0; node < ol_nodes(o); node++) {
        for (uint64_t i = 0; i < n; i++) {
            double m = b1 * o->m[at + i] + (1 - b1) * ol_node_grad(o, node, at + i);
            y[i] = a[i] = m * o->scaling[t] + o->e[node][at + i];
        }
        if (coded) ol_code(o, a, at, n, y, o->e[node] + at);
        for (uint64_t i = 0; i < n; i++)
            out[i] += y[i] / ol_nodes(o);
    }
    if (!coded) return;
    for (uint64_t i = 0; i < n; i++)
        a[i] = out[i] + o->E[at + i];
    ol_code(o, a, at, n, out, o->E + at);
}

/* New momentum and fresh variance; p and u as the formulas have them; the factor follows from all of the tensor. */
static inline void ol_compressed(onebit_lamb_t *o, uint32_t t)
{
    const lnt_group_t *h = exact_group(&o->trial, t);
    const uint64_t first = o->trial.first[t], n = o->trial.model.lengths[t];
    const double c1 = ol_correction(o, h->beta1), c2 = ol_correction(o, h->beta2);
    double out[OL_ROOM], p[OL_ROOM] = {0}, u[OL_ROOM] = {0}, ratio = 0, share, f;

    for (uint64_t b = 0; b < n; b += o->block)
        ol_exchange(o, t, first + b, n - b < o->block ? n - b : o->block, out + b);
    for (uint64_t k = 0, i = first; k < n; k++, i++) {
        double m = out[k] / o->scaling[t], g = (m - h->beta1 * o->m[i]) / (1 - h->beta1);
        if (o->dead[i]) continue;
        if (o->fresh[i] < 0) o->fresh[i] = pow(o->den[i] - h->eps, 2) * c2; /* has just joined */
        o->m[i] = m;
        o->fresh[i] = h->beta2 * o->fresh[i] + (1 - h->beta2) * g * g;
        ratio = fmax(ratio, o->den[i] / (sqrt(o->fresh[i] / c2) + h->eps));
        p[k] = m / c1 / o->den[i];
        u[k] = p[k] + h->weight_decay * o->x[i];
    }
    share = h->weight_decay > 0 ? fmin(1, exact_norm(p, n) / exact_norm(u, n)) : 1;
    f = fmin(fmax(ratio * share + 1 - share, o->variant->factor_least), o->variant->factor_most);
    f = fmin(fmax(f, (1 - o->variant->threshold) * o->factor[t]), (1 + o->variant->threshold) * o->factor[t]);
    o->factor[t] = f;
    o->coeff[t] = (o->power[t] < 1 ? o->average[t] / (1 - o->power[t]) : 1) * f;
    for (uint64_t k = 0; k < n; k++)
        o->x[first + k] -= h->lr * o->coeff[t] * u[k];
}

/* Late comers: Adam with a count of updates of their own, times the tensor's coefficient; then they join. */
static inline void ol_late(onebit_lamb_t *o, uint32_t t)
{
    const lnt_group_t *h = exact_group(&o->trial, t);
    const double c1 = ol_corrected(o, h->beta1, o->late_updates + 1.0);
    const double c2 = ol_corrected(o, h->beta2, o->late_updates + 1.0);
    bool active = false;

    for (uint64_t i = o->trial.first[t]; i < o->trial.first[t + 1]; i++) {
        double g = ol_mean(o, i), root;
        if (!o->dead[i]) continue;
        active |= g != 0;
        if (o->late_updates < 0) continue;
        o->m[i] = h->beta1 * o->m[i] + (1 - h->beta1) * g;
        o->v[i] = h->beta2 * o->v[i] + (1 - h->beta2) * g * g;
        root = sqrt(o->v[i] / c2) + h->eps;
        o->x[i] -= h->lr * o->coeff[t] * (o->m[i] / c1 / root + h->weight_decay * o->x[i]);
        if (o->late_updates + 1 < (int)o->lane_updates) continue;
        o->dead[i] = false;
        o->den[i] = root;
    }
    if (active) o->late_updates = o->late_updates + 1 < (int)o->lane_updates ? o->late_updates + 1 : -1;
}

static inline void ol_step(onebit_lamb_t *o)
{
    for (uint32_t t = 0; t < o->trial.model.n_tensors; t++) {
        if (o->frozen && !ol_in_lane(o, t)) {
            ol_compressed(o, t);
            ol_late(o, t);
        } else {
            ol_plain(o, t);
        }
    }
    o->step++;
    if (!o->frozen && o->step == o->freeze) ol_freeze(o);
}

/* At the start of a trial. */
static inline void ol_start(onebit_lamb_t *o)
{
    o->step = 0;
    o->frozen = false;
    o->margin = 1;
    o->late_updates = -1;
    memset(o->m, 0, sizeof(o->m));
    memset(o->v, 0, sizeof(o->v));
    memset(o->e, 0, sizeof(o->e));
    memset(o->E, 0, sizeof(o->E));
    memset(o->dead, 0, sizeof(o->dead));
    for (uint64_t i = 0; i < o->trial.n; i++)
        o->x[i] = (double)(float)normal_at(o->trial.model.start_seed, i);
    for (uint32_t t = 0; t < o->trial.model.n_tensors; t++) {
        o->average[t] = 0;
        o->power[t] = 1;
    }
}

/* Gradients of a rank as the oracle sees them. */
static inline void ol_grad(const onebit_lamb_t *o, uint32_t rank, uint32_t step, float *grad)
{
    for (uint64_t i = 0; i < o->trial.n; i++)
        grad[i] = ol_silent(o, step, i) ? 0 : (float)exact_grad(&o->trial, rank, step, i);
}

#endif
