/* Update rules, reference: one element after the other. */
#include "update.h"

static void adam(const lnt_adam_consts_t *consts, const float *restrict g, const float *clip, uint64_t n,
                 float *restrict m, float *restrict v, float *restrict x)
{
    const lnt_adam_consts_t k = *consts;
    for (uint64_t i = 0; i < n; i++)
        lnt_adam_update(&k, clip ? g[i] * *clip : g[i], &m[i], &v[i], &x[i]);
}

static void momentum(const lnt_adam_consts_t *consts, const float *restrict m, uint64_t n, float *restrict value)
{
    const lnt_adam_consts_t k = *consts;
    for (uint64_t i = 0; i < n; i++)
        value[i] = lnt_adam_momentum(&k, m[i], value[i]);
}

static void frozen(const lnt_adam_consts_t *consts, const float *restrict value, const float *restrict denominator,
                   const uint8_t *restrict dead, bool stream, uint64_t n, float *restrict m, float *restrict x)
{
    (void)stream;
    const lnt_adam_consts_t k = *consts;
    for (uint64_t i = 0; i < n; i++) {
        if (dead && dead[i]) continue;
        m[i] = value[i];
        x[i] = lnt_adam_move(&k, x[i], m[i], denominator[i]);
    }
}

const lnt_update_ops_t lnt_update_ops_ref = {.adam = adam, .momentum = momentum, .frozen = frozen};
