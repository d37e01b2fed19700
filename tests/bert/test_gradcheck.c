/* Backward against central differences, in double, on a tiny model: every parameter of every tensor. The reference is
 * the forward pass alone. Also: every tensor is announced once, in its order. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "batch.h"
#include "counter_rng.h"
#include "model.h"

static const bert_config_t TINY = {.vocab = 19,
                                   .positions = 9,
                                   .types = 2,
                                   .hidden = 8,
                                   .layers = 2,
                                   .heads = 2,
                                   .ff = 12,
                                   .seq = 7,
                                   .targets = 2,
                                   .batch = 3};

typedef struct fixture {
    bert_model_t *model;
    bert_batch_t *batch;
    uint16_t words[200];
} fixture_t;

static uint64_t seed_of_run(void)
{
    const char *text = getenv("LNT_TEST_SEED");
    uint64_t seed = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);

    printf("seed %llu (repeat with LNT_TEST_SEED)\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

static void fixture_create(fixture_t *f)
{
    uint64_t seed = seed_of_run();
    bert_stream_t stream = {f->words, 200};

    for (size_t i = 0; i < 200; i++) {
        f->words[i] = (uint16_t)(TOKEN_FIRST_WORD + (int)rng_below(seed, i, 14));
    }
    f->model = bert_model_create(&TINY, seed);
    f->batch = bert_batch_create(TINY.batch, TINY.seq, TINY.targets);
    ck_assert(f->model != NULL);
    ck_assert(f->batch != NULL);
    bert_batch_fill(f->batch, &stream, TINY.vocab, seed);
    for (int t = 0; t < bert_model_n_tensors(f->model); t++) { /* away from the symmetric start */
        for (size_t i = 0; i < bert_model_tensor(f->model, t)->count; i++) {
            bert_model_param(f->model, t)[i] += 0.3 * rng_normal(seed + 1, (uint64_t)t * 1000 + i);
        }
    }
}

static void fixture_destroy(fixture_t *f)
{
    bert_model_destroy(f->model);
    bert_batch_destroy(f->batch);
}

static double mean_loss(fixture_t *f)
{
    double sum = 0;

    bert_model_forward(f->model, f->batch);
    for (int i = 0; i < f->batch->targets; i++) {
        sum += bert_model_losses(f->model)[i];
    }
    return sum / f->batch->targets;
}

static double difference(fixture_t *f, double *x)
{
    const double h = 1e-5, before = *x;
    double up, down;

    *x = before + h;
    up = mean_loss(f);
    *x = before - h;
    down = mean_loss(f);
    *x = before;
    return (up - down) / (2 * h);
}

START_TEST(gradients_equal_differences)
{
    fixture_t f;
    double worst = 0;

    fixture_create(&f);
    mean_loss(&f);
    ck_assert(bert_model_backward(f.model, f.batch, NULL, NULL));
    for (int t = 0; t < bert_model_n_tensors(f.model); t++) {
        const bert_tensor_t *tensor = bert_model_tensor(f.model, t);

        for (size_t i = 0; i < tensor->count; i++) {
            double want = difference(&f, bert_model_param(f.model, t) + i);
            double have = bert_model_grad(f.model, t)[i], error = fabs(have - want) / (1e-2 + fabs(want));

            worst = fmax(worst, error);
            ck_assert_msg(error < 1e-6, "%s[%zu]: %.12g, differences say %.12g", tensor->name, i, have, want);
        }
    }
    printf("%zu parameters, worst error %.2g\n", bert_model_n_params(f.model), worst);
    fixture_destroy(&f);
}
END_TEST

typedef struct order {
    int next;
    int refuse_at;
} order_t;

static bool check_order(void *arg, int tensor, real_t *grad, size_t count)
{
    order_t *order = arg;

    ck_assert_int_eq(tensor, order->next);
    ck_assert(grad != NULL);
    ck_assert_uint_gt(count, 0);
    order->next++;
    return tensor != order->refuse_at;
}

START_TEST(tensors_come_in_order)
{
    fixture_t f;
    order_t all = {0, -1}, some = {0, 5};

    fixture_create(&f);
    mean_loss(&f);
    ck_assert(bert_model_backward(f.model, f.batch, check_order, &all));
    ck_assert_int_eq(all.next, bert_model_n_tensors(f.model));
    mean_loss(&f);
    ck_assert(!bert_model_backward(f.model, f.batch, check_order, &some));
    ck_assert_int_eq(some.next, 6);
    fixture_destroy(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gradcheck");
    TCase *tcase = tcase_create("gradcheck");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, gradients_equal_differences);
    tcase_add_test(tcase, tensors_come_in_order);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
