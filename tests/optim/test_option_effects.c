/* Every option of every algorithm has its effect: changing it changes the trajectory, or what the library reports. An
 * option without a row in `effects` fails the test, so a new one comes with the proof that it does something. Unknown
 * options give the nearest name.
 */
#include <math.h>

#include "../../optim/optim_impl.h"
#include "ranks.h"
#include "small_options.h"

enum { STEPS = 16 };

typedef enum effect { MOVES, REPORTS } effect_t; /* parameters differ; or statuses, phases, norms, loss scale */

#define SETTLED "freeze_criterion=variance,freeze_step=14"

/* base: what must be set for the option to mean anything, after the small options unless it begins with '!'; value:
 * other than the one there. Variants (compat=deepspeed, amsgrad=on) are algorithms of their own. */
static const struct {
    const char *algorithm; /* "*": all that have it and no row of their own */
    const char *option, *base, *value;
    effect_t effect;
} effects[] = {
    {"*", "codec", "", "int8", MOVES},
    {"*", "block", "codec=int8", "128", MOVES},
    {"*", "clip", "", "0.5", MOVES},
    {"*", "clip_mode", "clip=0.5", "bucket", MOVES},
    {"*", "error_feedback", "codec=int8", "none", MOVES},
    {"*", "loss_scale", "", "3", MOVES},
    {"*", "initial_scale_power", "loss_scale=0", "3", REPORTS},
    {"*", "loss_scale_window", "loss_scale=0", "2", REPORTS},
    {"*", "hysteresis", "loss_scale=0", "3", REPORTS},
    {"*", "consecutive_hysteresis", "loss_scale=0", "on", REPORTS},
    {"*", "min_loss_scale", "loss_scale=0,hysteresis=1,initial_scale_power=3", "4", REPORTS},
    {"*", "freeze_step", "", "6", MOVES},
    {"*", "warmup_codec", "", "int8", MOVES},
    {"*", "warmup_block", "warmup_codec=int8", "64", MOVES},
    {"*", "scale_rule", "", "l1", MOVES},
    {"*", "compression", "", "off", MOVES},
    {"*", "max_dead_share", "", "0.001", REPORTS},
    {"*", "amsgrad", "", "on", MOVES},
    {"*", "compat", "!freeze_step=4", "deepspeed", MOVES},
    {"*", "unit", "", "model", MOVES},
    {"*", "freeze_criterion", "freeze_step=14,freeze_window=1,freeze_threshold=100", "variance", MOVES},
    {"*", "freeze_threshold", SETTLED ",freeze_window=1,freeze_threshold=100", "1e-9", MOVES},
    {"*", "freeze_window", SETTLED ",freeze_window=1,freeze_threshold=100", "5", MOVES},
    {"*", "lr_warmup_steps", SETTLED ",freeze_window=1,freeze_threshold=100", "7", MOVES},
    {"*", "lane_updates", "", "1", MOVES},
    {"*", "late_idle", "lane_updates=1", "stay", REPORTS},
    {"*", "max_grad_norm", "", "0.5", MOVES},
    {"*", "max_coeff", "", "0.5", MOVES},
    {"*", "min_coeff", "max_coeff=1", "1", MOVES},
    {"*", "trust_clip", "max_coeff=10", "on", MOVES},
    {"*", "always_adapt", "", "off", MOVES},
    {"*", "clamp_value", "", "5", MOVES},
    {"*", "bias_correction", "", "off", MOVES},
    {"*", "debias", "bias_correction=off", "on", MOVES},
    {"*", "grad_averaging", "", "off", MOVES},
    {"*", "beta3", "", "0.9", MOVES},
    {"*", "eps1", "", "1e-3", MOVES},
    {"*", "eps2", "", "1e-3", MOVES},
    {"*", "clip_threshold", "", "0.5", MOVES},
    {"*", "coeff_beta", "", "0.5", MOVES},
    {"*", "factor_max", "factor_threshold=1,factor_min=1e-30", "1e-3", MOVES},
    {"*", "factor_min", "factor_threshold=1,factor_max=100", "100", MOVES},
    {"*", "factor_threshold", "factor_max=100,factor_min=100", "0.5", MOVES},
    {"*", "momentum_scaling", "", "off", MOVES}, /* by its roundings */
    {"*", "var_freeze_step", "", "6", MOVES},
    {"*", "var_update_scaler", "var_freeze_step=10", "1", MOVES},
    {"*", "local_step_scaler", "", "3", MOVES},
    {"*", "local_step_clipper", "local_step_scaler=2", "2", MOVES},
    {"zero_one_adam", "compat", "!var_freeze_step=4", "deepspeed", MOVES},
    {"zero_one_adam", "block", "", "128", MOVES},
    {"zero_one_adam", "error_feedback", "", "none", MOVES},
    {"onebit_adam", "block", "", "128", MOVES},
    {"onebit_lamb", "block", "", "128", MOVES},
    {"onebit_lamb", "error_feedback", "", "none", MOVES},
    {"onebit_adam", "error_feedback", "", "none", MOVES},
};

enum { N_EFFECTS = sizeof(effects) / sizeof(effects[0]) };

/* What can be seen of a run. */
typedef struct seen {
    lnt_status_t status[STEPS];
    lnt_phase_t phase[STEPS];
    double grad_norm[STEPS], clip_factor[STEPS], scale[STEPS];
    uint64_t lane[STEPS], late[STEPS]; /* elements in the lane, late blocks */
} seen_t;

typedef struct trial {
    model_t model;
    uint64_t seed;
    seen_t seen;
    float *x;
} trial_t;

/* Tails, coordinates that are touched never or late, and overflows on one rank: something for every option to work on.
 */
static void fill(const trial_t *trial, const rank_t *rank, uint32_t step, float *grad)
{
    static const bool overflow[STEPS] = {[2] = true, [5] = true, [7] = true, [8] = true, [12] = true};

    for (uint64_t i = 0; i < rank->n_elems; i++) {
        double g = normal_at(test_mix_pair(trial->seed, step * 64u + rank->rank), i);
        bool never = i >= 300 && i < (step >= 9 ? 310 : 320);
        grad[i] = never ? 0 : (float)(g * g * g + 0.3 * normal_at(trial->seed, i));
    }
    if (overflow[step] && rank->rank == 1) grad[step] = INFINITY;
}

static void body(rank_t *rank)
{
    trial_t *trial = rank->arg;
    float *grad;

    rank_open(rank, &trial->model);
    grad = calloc(rank->n_elems, sizeof(*grad));
    for (uint32_t step = 0; step < STEPS; step++) {
        lnt_status_t status;
        lnt_optim_info_t info;
        fill(trial, rank, step, grad);
        status = lnt_optim_step(rank->optim, rank_grads(rank, grad));
        info = rank_info(rank);
        if (rank->rank != 0) continue;
        trial->seen.status[step] = status;
        trial->seen.phase[step] = info.phase;
        trial->seen.grad_norm[step] = info.grad_norm;
        trial->seen.clip_factor[step] = info.clip_factor;
        trial->seen.scale[step] = lnt_optim_loss_scale(rank->optim);
        trial->seen.lane[step] = info.lane_elems;
        trial->seen.late[step] = info.late_blocks;
    }
    if (rank->rank == 0) memcpy(trial->x, rank->x, rank->n_elems * sizeof(float));
    free(grad);
    ranks_barrier();
    rank_close(rank);
}

static void run(trial_t *trial, const char *options)
{
    trial->model.options = options;
    ranks_run(&(world_t){.n_ranks = 3, .nodes = {0, 1, 1}, .quiet = true}, body, trial);
}

static void join(char *text, size_t size, const char *more)
{
    if (more[0] == '\0') return;
    (void)snprintf(text + strlen(text), size - strlen(text), "%s%s", text[0] != '\0' ? "," : "", more);
}

static void check_effect(const char *algorithm, size_t row)
{
    enum { N = 200 + 30 + 700 + 64 };
    static const lnt_group_t groups[2] = {
        {.struct_size = sizeof(groups[0]), .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-4, .weight_decay = 0.1},
        {.struct_size = sizeof(groups[0]), .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-4}};
    char base[512], flipped[512], change[64];
    float x[2][N];
    trial_t trial = {.model = {.n_tensors = 4,
                               .lengths = {200, 30, 700, 64},
                               .rows = {20, 0, 35, 0},
                               .algorithm = algorithm,
                               .group_of = {0, 0, 0, 1},
                               .groups = groups,
                               .n_groups = 2,
                               .bucket_bytes = 1600,
                               .max_skips = 1000,
                               .start_seed = 17},
                     .seed = 23,
                     .x = x[0]};
    seen_t first = {.status = {LNT_OK}};

    if (effects[row].base[0] == '!') {
        (void)snprintf(base, sizeof(base), "%s", effects[row].base + 1);
    } else {
        small_options(algorithm, base, sizeof(base));
        join(base, sizeof(base), effects[row].base);
    }
    (void)snprintf(flipped, sizeof(flipped), "%s", base);
    (void)snprintf(change, sizeof(change), "%s=%s", effects[row].option, effects[row].value);
    join(flipped, sizeof(flipped), change);
    run(&trial, base);
    first = trial.seen;
    trial.x = x[1];
    run(&trial, flipped);
    ck_assert_msg(memcmp(x[0], x[1], sizeof(x[0])) != 0 || effects[row].effect != MOVES,
                  "%s: \"%s\" and \"%s\" give the same parameters", algorithm, base, flipped);
    ck_assert_msg(memcmp(&first, &trial.seen, sizeof(first)) != 0 || effects[row].effect != REPORTS,
                  "%s: \"%s\" and \"%s\" look alike", algorithm, base, flipped);
}

static size_t find_row(const char *algorithm, const char *option)
{
    size_t found = N_EFFECTS;

    for (size_t i = 0; i < N_EFFECTS; i++) {
        if (strcmp(effects[i].option, option) != 0) continue;
        if (strcmp(effects[i].algorithm, algorithm) == 0) return i;
        if (strcmp(effects[i].algorithm, "*") == 0) found = i;
    }
    return found;
}

/* An algorithm, or a variant and the option that chooses it, which says nothing inside it. */
typedef struct name {
    const char *name, *chosen_by;
} name_t;

/* n of them. */
static const name_t *all_names(size_t *n_p)
{
    static name_t names[64];
    size_t n = 0;

    for (size_t i = 0; lnt_optim_list()[i] != NULL; i++) {
        const lnt_optim_variant_t *variant = lnt_optim_row_by_name(lnt_optim_list()[i])->variants;
        names[n++] = (name_t){lnt_optim_list()[i], ""};
        for (; variant != NULL && variant->row != NULL; variant++)
            names[n++] = (name_t){variant->row->name, variant->option};
    }
    ck_assert_uint_lt(n, sizeof(names) / sizeof(names[0]));
    *n_p = n;
    return names;
}

START_TEST(every_option_has_its_effect)
{
    size_t n;
    const name_t *names = all_names(&n);

    for (size_t k = 0; k < n; k++) {
        lnt_optim_option_t option;
        for (size_t i = 0; lnt_optim_option_get(names[k].name, i, &option) == LNT_OK; i++) {
            size_t row = find_row(names[k].name, option.name);
            if (strcmp(option.name, names[k].chosen_by) == 0) continue;
            ck_assert_msg(row < N_EFFECTS, "option %s of %s has no row in `effects`: show what it does", option.name,
                          names[k].name);
            check_effect(names[k].name, row);
        }
    }
}
END_TEST

/* A row whose option is gone proves nothing. */
START_TEST(every_row_has_its_option)
{
    size_t n;
    const name_t *names = all_names(&n);

    for (size_t row = 0; row < N_EFFECTS; row++) {
        bool used = false;
        for (size_t k = 0; k < n; k++)
            used |=
                has_option(names[k].name, effects[row].option) && find_row(names[k].name, effects[row].option) == row;
        ck_assert_msg(used, "no algorithm uses the row of %s, %s", effects[row].algorithm, effects[row].option);
    }
}
END_TEST

static void misspelt_body(rank_t *rank)
{
    const model_t model = {.n_tensors = 1, .lengths = {64}};

    ranks_ok(rank_plan(rank, &model));
    for (size_t n = 0; lnt_optim_list()[n] != NULL; n++) {
        lnt_optim_option_t option;
        for (size_t i = 0; lnt_optim_option_get(lnt_optim_list()[n], i, &option) == LNT_OK; i++) {
            char text[128];
            lnt_optim_t *optim = NULL;
            const lnt_optim_params_t params = {
                .struct_size = sizeof(params), .algorithm = lnt_optim_list()[n], .options = text};
            (void)snprintf(text, sizeof(text), "%sx=%s", option.name, option.default_text); /* one letter too many */
            ck_assert_int_eq(lnt_optim_create(rank->plan, &params, &optim), LNT_ERR_INVALID_ARG);
            (void)snprintf(text, sizeof(text), "\"%s\"", option.name);
            ck_assert_msg(strstr(lnt_last_error()->cure, text) != NULL, "%s: %s (%s)", text, lnt_last_error()->cause,
                          lnt_last_error()->cure);
        }
    }
    ranks_ok(lnt_plan_destroy(rank->plan));
    free(rank->x);
    free(rank->x16);
}

START_TEST(misspelt_options_give_the_nearest_name)
{
    ranks_run(&(world_t){.n_ranks = 1, .quiet = true}, misspelt_body, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("option_effects");
    TCase *tcase = tcase_create("options");

    tcase_add_test(tcase, every_option_has_its_effect);
    tcase_add_test(tcase, every_row_has_its_option);
    tcase_add_test(tcase, misspelt_options_give_the_nearest_name);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
