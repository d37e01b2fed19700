/* Adam, AdamW and the warm-up and the uncompressed twin of 1-bit Adam against plain loops written from the formulas, in
 * f32 byte by byte, over random worlds and models; the f32 oracle itself is held against one in f64.
 */
#include <math.h>

#include "ranks.h"

enum { STEPS = 9, FREEZE = 4, BLOCK = 128 };
static const double CANCELS = 1e-2; /* a sum this small beside its terms counts as cancelled */

typedef struct trial {
    world_t world;
    model_t model;
    lnt_group_t groups[2];
    double clip, loss_scale;
    uint32_t micro_steps;
    uint64_t seed;
    uint64_t n;
    uint32_t step; /* of the oracle */
    bool frozen;
    double ratios[STEPS], r,
        factor; /* |mean| / root of local squares, warm-up; their mean; what the step is clipped by */
    uint32_t n_ratios;
    double norm; /* of the mean, or its estimate */
    double c1[2], c2[2];
    float *x, *m, *v, *den; /* the f32 oracle */
    double *x64, *m64, *v64;
    bool *cancelled; /* the ranks' gradients cancelled once: f32 and f64 need not agree on the direction */
} trial_t;

static float grad_at(const trial_t *trial, uint32_t rank, uint32_t step, uint64_t i)
{
    double scale = pow(10.0, (double)(i / 200 % 4) - 2.0);

    return (float)(normal_at(test_mix_pair(trial->seed, step * 64u + rank), i) * scale * trial->loss_scale);
}

/* Mean over ranks as the exchange forms it: f32 in rank order inside a node, the factor, f32 in node order, 1/M. */
static float mean_grad(const trial_t *trial, uint64_t i)
{
    const world_t *world = &trial->world;
    uint32_t n_nodes = 0;
    float factor, sum = 0;

    for (uint32_t r = 0; r < world->n_ranks; r++)
        n_nodes = world->nodes[r] + 1 > n_nodes ? world->nodes[r] + 1 : n_nodes;
    factor = (float)((double)n_nodes / world->n_ranks * trial->factor / trial->loss_scale / trial->micro_steps);
    for (uint32_t a = 0; a < n_nodes; a++) {
        float node = 0;
        bool first = true;
        for (uint32_t r = 0; r < world->n_ranks; r++) {
            if (world->nodes[r] != a) continue;
            node = first ? grad_at(trial, r, trial->step, i) : node + grad_at(trial, r, trial->step, i);
            first = false;
        }
        node = node * factor;
        sum = a == 0 ? node : sum + node;
    }
    return sum * (float)(1.0 / n_nodes);
}

/* The same for the momentum form of the twin: every node codes b1 m + o1 g. */
static float mean_momentum(const trial_t *trial, uint64_t i, float b1, float o1)
{
    const world_t *world = &trial->world;
    uint32_t n_nodes = 0;
    float factor, sum = 0;

    for (uint32_t r = 0; r < world->n_ranks; r++)
        n_nodes = world->nodes[r] + 1 > n_nodes ? world->nodes[r] + 1 : n_nodes;
    factor = (float)((double)n_nodes / world->n_ranks * trial->factor / trial->loss_scale / trial->micro_steps);
    for (uint32_t a = 0; a < n_nodes; a++) {
        float node = 0, wire;
        bool first = true;
        for (uint32_t r = 0; r < world->n_ranks; r++) {
            if (world->nodes[r] != a) continue;
            node = first ? grad_at(trial, r, trial->step, i) : node + grad_at(trial, r, trial->step, i);
            first = false;
        }
        wire = b1 * trial->m[i] + o1 * (node * factor);
        sum = a == 0 ? wire : sum + wire;
    }
    return sum * (float)(1.0 / n_nodes);
}

/* f64 sums over blocks in the order of 128 lanes, added in block order. */
static double square(const trial_t *trial, const float *g)
{
    double total = 0;
    uint64_t at = 0;

    for (uint32_t t = 0; t < trial->model.n_tensors; at += trial->model.lengths[t++]) {
        for (uint64_t b = 0; b < trial->model.lengths[t]; b += BLOCK) {
            double lanes[128] = {0}, part[32];
            for (uint64_t i = b; i < trial->model.lengths[t] && i < b + BLOCK; i++)
                lanes[i - b] += (double)g[at + i] * (double)g[at + i];
            for (int l = 0; l < 32; l++)
                part[l] = (lanes[4 * l] + lanes[4 * l + 1]) + (lanes[4 * l + 2] + lanes[4 * l + 3]);
            for (int h = 16; h > 0; h /= 2) {
                for (int l = 0; l < h; l++)
                    part[l] += part[l + h];
            }
            total += part[0];
        }
    }
    return total;
}

static double clip_scale(const trial_t *trial, const float *g, double *norm_p)
{
    *norm_p = sqrt(square(trial, g));
    return trial->clip > 0 && *norm_p > trial->clip ? trial->clip / *norm_p : 0;
}

/* sqrt of the mean over ranks of the squares of what they give, as gradients. */
static double local_root(const trial_t *trial)
{
    float *g = calloc(trial->n + 1, sizeof(*g));
    double total = 0;

    for (uint32_t r = 0; r < trial->world.n_ranks; r++) {
        for (uint64_t i = 0; i < trial->n; i++)
            g[i] = grad_at(trial, r, trial->step, i);
        total += square(trial, g);
    }
    free(g);
    return sqrt(total / trial->world.n_ranks) / trial->loss_scale / trial->micro_steps;
}

/* After the freeze the factor comes before the exchange, from an estimate. */
static void choose_factor(trial_t *trial)
{
    double sum = 0;

    trial->factor = 1;
    if (!trial->frozen || trial->clip == 0) return;
    for (uint32_t k = 0; k < trial->n_ratios; k++)
        sum += trial->ratios[k];
    trial->r = trial->n_ratios != 0 ? sum / trial->n_ratios : 1;
    trial->norm = trial->r * local_root(trial);
    if (trial->norm > trial->clip) trial->factor = trial->clip / trial->norm;
}

static void record_ratio(trial_t *trial, double norm)
{
    double root = local_root(trial);

    trial->norm = norm;
    if (root > 0) trial->ratios[trial->n_ratios++] = norm / root;
}

static void oracle_element(trial_t *trial, uint32_t group, uint64_t i, float g, bool lane)
{
    const lnt_group_t *h = &trial->groups[group];
    const bool l2 = strcmp(trial->model.algorithm, "adam") == 0;
    const float b1 = (float)h->beta1, o1 = (float)(1.0 - h->beta1), b2 = (float)h->beta2, o2 = (float)(1.0 - h->beta2);
    const float i1 = (float)(1.0 / (1.0 - trial->c1[group])), i2 = (float)(1.0 / (1.0 - trial->c2[group]));
    const float w = l2 ? 0.0f : (float)(h->lr * h->weight_decay), x = trial->x[i];
    float den;

    if (trial->frozen && !lane) {
        trial->m[i] = g;
        den = trial->den[i];
    } else {
        if (l2 && h->weight_decay != 0) g = g + (float)h->weight_decay * x;
        trial->m[i] = b1 * trial->m[i] + o1 * g;
        trial->v[i] = b2 * trial->v[i] + o2 * (g * g);
        den = sqrtf(trial->v[i] * i2) + (float)h->eps;
        trial->den[i] = den;
    }
    trial->x[i] = (x - (float)h->lr * ((trial->m[i] * i1) / den)) - w * x;
}

/* f64, written with pow and no running products: formulas of the paper. Only before the freeze. */
static void oracle_element_f64(trial_t *trial, uint32_t group, uint64_t i, double g)
{
    const lnt_group_t *h = &trial->groups[group];
    const double t = trial->step + 1.0;
    const bool l2 = strcmp(trial->model.algorithm, "adam") == 0;

    if (l2) g += h->weight_decay * trial->x64[i];
    trial->m64[i] = h->beta1 * trial->m64[i] + (1 - h->beta1) * g;
    trial->v64[i] = h->beta2 * trial->v64[i] + (1 - h->beta2) * g * g;
    trial->x64[i] -=
        h->lr * ((trial->m64[i] / (1 - pow(h->beta1, t))) / (sqrt(trial->v64[i] / (1 - pow(h->beta2, t))) + h->eps) +
                 (l2 ? 0 : h->weight_decay * trial->x64[i]));
}

/* The mean, times scale; notes where the ranks' gradients, or the mean and an L2 decay, cancel each other. */
static double mean_grad_f64(trial_t *trial, uint32_t group, uint64_t i, double scale)
{
    const bool l2 = strcmp(trial->model.algorithm, "adam") == 0;
    const double decay = l2 ? trial->groups[group].weight_decay * trial->x64[i] : 0;
    const double unit = scale / (trial->world.n_ranks * trial->loss_scale * trial->micro_steps);
    double mean = 0, size = fabs(decay);

    for (uint32_t r = 0; r < trial->world.n_ranks; r++) {
        mean += unit * (double)grad_at(trial, r, trial->step, i);
        size += unit * fabs((double)grad_at(trial, r, trial->step, i));
    }
    if (fabs(mean + decay) < CANCELS * size) trial->cancelled[i] = true;
    return mean;
}

/* How far f32 may be from f64 after so many steps. u = 2^-24 is one rounding.
 *   Gradient: at most 8 ranks, 14 roundings (sums, factor, 1/M, clip, decay) of terms that are at most 1/CANCELS times
 *   their sum: relative error d <= 14 u / CANCELS = 8.4e-5; in a moment the same, plus 3 u for each step.
 *   Update: the error of m relative to sqrt(v) is at most d * sum(w |g|) / sqrt(sum(w' g^2)) <= sqrt(steps) d by
 *   Cauchy-Schwarz (w' is nearly 1 / steps), and the error of sqrt(v) counts as much: 2 * 3 * d = 5e-4, in units of lr.
 *   Twice that covers the small terms. Parameter: two roundings a step of |x|, which moves by less than 1.
 */
static double f32_error(const trial_t *trial, double x, uint32_t steps)
{
    const double lr = fmax(trial->groups[0].lr, trial->groups[1].lr);

    return steps * (1e-3 * lr + 2 * 0x1p-24 * (fabs(x) + 1));
}

static void oracle_step(trial_t *trial)
{
    float *g = calloc(trial->n + 1, sizeof(*g));
    double norm, scale;
    uint64_t at = 0;

    for (int k = 0; k < 2; k++) {
        trial->c1[k] *= trial->groups[k].beta1;
        trial->c2[k] *= trial->groups[k].beta2;
    }
    choose_factor(trial);
    for (uint64_t i = 0; i < trial->n; i++)
        g[i] = mean_grad(trial, i);
    scale = clip_scale(trial, g, &norm);
    if (!trial->frozen) record_ratio(trial, norm);
    for (uint32_t t = 0; t < trial->model.n_tensors; at += trial->model.lengths[t++]) {
        uint32_t group = trial->model.group_of[t];
        bool lane = trial->model.lengths[t] < 64 || trial->groups[group].non_freeze;
        for (uint64_t i = at; i < at + trial->model.lengths[t]; i++) {
            const lnt_group_t *h = &trial->groups[group];
            float value =
                trial->frozen && !lane ? mean_momentum(trial, i, (float)h->beta1, (float)(1.0 - h->beta1)) : g[i];
            if (scale != 0 && !trial->frozen) value = value * (float)scale;
            oracle_element(trial, group, i, value, lane);
            if (!trial->frozen) {
                double mean = mean_grad_f64(trial, group, i, scale != 0 ? scale : 1.0);
                oracle_element_f64(trial, group, i, mean);
            }
        }
    }
    trial->step++;
    if (strcmp(trial->model.algorithm, "onebit_adam") == 0 && trial->step == FREEZE) trial->frozen = true;
    free(g);
}

static void body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    float *grad, *seen;

    rank_open(rank, &trial->model);
    ranks_ok(lnt_optim_set_scaling(rank->optim, trial->loss_scale, trial->micro_steps));
    grad = calloc(rank->n_elems + 1, sizeof(*grad));
    seen = calloc(rank->n_elems + 1, sizeof(*seen));
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint64_t i = 0; i < rank->n_elems; i++)
            grad[i] = grad_at(trial, rank->rank, step, i);
        ranks_ok(lnt_optim_step(rank->optim, rank_grads(rank, grad)));
        if (rank->rank == 0) oracle_step(trial);
        expect_equal_ranks(rank);
        ck_assert_mem_eq(rank->x, trial->x, rank->n_elems * sizeof(float));
        rank_view(rank, "exp_avg", sizeof(float), seen);
        ck_assert_mem_eq(seen, trial->m, rank->n_elems * sizeof(float));
        rank_view(rank, "exp_avg_sq", sizeof(float), seen);
        ck_assert_mem_eq(seen, trial->v, rank->n_elems * sizeof(float));
        ck_assert_uint_eq(rank_info(rank).step, step + 1);
        if (trial->clip != 0) ck_assert_double_eq(rank_info(rank).grad_norm, trial->norm);
        for (uint64_t i = 0; i < rank->n_elems && !trial->frozen; i++) {
            if (trial->cancelled[i]) continue;
            ck_assert_double_le(fabs((double)rank->x[i] - trial->x64[i]), f32_error(trial, trial->x64[i], step + 1));
        }
        ranks_barrier();
    }
    free(grad);
    free(seen);
    rank_close(rank);
}

static void draw_group(lnt_group_t *group)
{
    lnt_group_defaults(group);
    group->lr = 0.001 + 0.01 * test_random_unit();
    group->beta1 = test_random_below(4) == 0 ? 0.0 : 0.8 + 0.15 * test_random_unit();
    group->beta2 = 0.99 + 0.0099 * test_random_unit();
    group->weight_decay = test_random_below(2) == 0 ? 0.0 : 0.1 * test_random_unit();
}

static void draw_world(world_t *world)
{
    world->n_ranks = (uint32_t)(1 + test_random_below(8));
    for (uint32_t r = 1, nodes = 1; r < world->n_ranks; r++) {
        world->nodes[r] = (uint32_t)test_random_below(nodes + 1u);
        if (world->nodes[r] == nodes) nodes++;
    }
}

static void run_with_memory(trial_t *trial)
{
    const uint64_t room = model_elems(&trial->model) + 1;

    trial->n = room - 1;
    trial->x = calloc(room, sizeof(float));
    trial->m = calloc(room, sizeof(float));
    trial->v = calloc(room, sizeof(float));
    trial->den = calloc(room, sizeof(float));
    trial->x64 = calloc(room, sizeof(double));
    trial->m64 = calloc(room, sizeof(double));
    trial->v64 = calloc(room, sizeof(double));
    trial->cancelled = calloc(room, sizeof(bool));
    for (uint64_t i = 0; i < trial->n; i++)
        trial->x64[i] = trial->x[i] = (float)normal_at(trial->model.start_seed, i);
    ranks_run(&trial->world, body, trial);
    free(trial->x);
    free(trial->m);
    free(trial->v);
    free(trial->den);
    free(trial->x64);
    free(trial->m64);
    free(trial->v64);
    free(trial->cancelled);
}

static void run_trial(const char *algorithm, const char *options, bool twin)
{
    static const uint64_t lengths[] = {0, 1, 7, 63, 64, 65, 127, 128, 129, 300, 500};
    trial_t trial = {.clip = test_random_below(2) == 0 ? 0 : 3.0,
                     .loss_scale = test_random_below(2) == 0 ? 1.0 : 1024.0,
                     .micro_steps = (uint32_t)(1 + test_random_below(3)),
                     .seed = test_random()};
    char text[160];

    trial.world.quiet = twin; /* warns about clip at the freeze */
    draw_world(&trial.world);
    draw_group(&trial.groups[0]);
    draw_group(&trial.groups[1]);
    trial.groups[1].non_freeze = twin;
    trial.model = (model_t){.n_tensors = (uint32_t)(1 + test_random_below(8)),
                            .algorithm = algorithm,
                            .options = text,
                            .groups = trial.groups,
                            .n_groups = 2,
                            .bucket_bytes = 256 + 4 * test_random_below(2000),
                            .segment_bytes = 4 + 4 * test_random_below(1000),
                            .start_seed = test_random()};
    for (uint32_t t = 0; t < trial.model.n_tensors; t++) {
        trial.model.lengths[t] = lengths[test_random_below(sizeof(lengths) / sizeof(lengths[0]))];
        trial.model.group_of[t] = (uint32_t)test_random_below(2);
        trial.c1[t % 2] = trial.c2[t % 2] = 1.0;
    }
    trial.c1[0] = trial.c1[1] = trial.c2[0] = trial.c2[1] = 1.0;
    (void)snprintf(text, sizeof(text), "%sblock=%d,clip=%g", options, BLOCK, trial.clip);
    run_with_memory(&trial);
}

START_TEST(adam_follows_the_formulas)
{
    for (int k = 0; k < 6; k++)
        run_trial("adam", "", false);
}
END_TEST

START_TEST(adamw_follows_the_formulas)
{
    for (int k = 0; k < 6; k++)
        run_trial("adamw", "", false);
}
END_TEST

START_TEST(the_uncompressed_twin_follows_the_formulas)
{
    for (int k = 0; k < 8; k++)
        run_trial("onebit_adam", "freeze_step=4,compression=off,", true);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("optim_oracle");
    TCase *tcase = tcase_create("oracle");

    tcase_add_test(tcase, adam_follows_the_formulas);
    tcase_add_test(tcase, adamw_follows_the_formulas);
    tcase_add_test(tcase, the_uncompressed_twin_follows_the_formulas);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
