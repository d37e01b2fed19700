/* The update rules for every vector width: included by adam_<isa>.c, which names the table. The operations of
 * adam_math.h in the same order, so the same bytes; division and root are IEEE operations in vectors too.
 */
#include "../kernels/array_loop.h"
#include "../kernels/next.h"
#include "update.h"

typedef struct consts {
    vf b1, o1, b2, o2, i1, i2, lr, eps, w, l2;
} consts_t;

LNT_INLINE consts_t spread(const lnt_adam_consts_t *k)
{
    return (consts_t){vf_all(k->b1), vf_all(k->o1), vf_all(k->b2),  vf_all(k->o2), vf_all(k->i1),
                      vf_all(k->i2), vf_all(k->lr), vf_all(k->eps), vf_all(k->w),  vf_all(k->l2)};
}

LNT_INLINE vf momentum_of(const consts_t *k, vf m, vf g)
{
    return vf_add(vf_mul(k->b1, m), vf_mul(k->o1, g));
}

LNT_INLINE vf move(const consts_t *k, vf x, vf m, vf denominator)
{
    vf step = vf_mul(k->lr, vf_div(vf_mul(m, k->i1), denominator));
    return vf_sub(vf_sub(x, step), vf_mul(k->w, x));
}

/* ---- Adam ---- */

LNT_INLINE void adam_some(const consts_t *k, bool decays, vf g, float *m_p, float *v_p, float *x_p, size_t some)
{
    vf x = load_some(x_p, some), m, v;
    if (decays) g = vf_add(g, vf_mul(k->l2, x));
    m = momentum_of(k, load_some(m_p, some), g);
    v = vf_add(vf_mul(k->b2, load_some(v_p, some)), vf_mul(k->o2, vf_mul(g, g)));
    store_some(m_p, m, some);
    store_some(v_p, v, some);
    store_some(x_p, move(k, x, m, vf_add(vf_sqrt(vf_mul(v, k->i2)), k->eps)), some);
}

/* `decays` and `clip`, NULL or not, are known where this is inlined. */
LNT_INLINE void adam_all(const consts_t *k, bool decays, const float *g, const float *clip, uint64_t n, float *m,
                         float *v, float *x)
{
    const vf by = vf_all(clip ? *clip : 1.0f);
    LNT_EACH_VECTOR(n, {
        vf here = load_some(g + at, some);
        adam_some(k, decays, clip ? vf_mul(here, by) : here, m + at, v + at, x + at, some);
    });
}

static void adam(const lnt_adam_consts_t *consts, const float *g, const float *clip, uint64_t n, float *m, float *v,
                 float *x)
{
    const consts_t k = spread(consts);
    bool decays = consts->l2 != 0;
    if (decays && clip)
        adam_all(&k, true, g, clip, n, m, v, x);
    else if (decays)
        adam_all(&k, true, g, NULL, n, m, v, x);
    else if (clip)
        adam_all(&k, false, g, clip, n, m, v, x);
    else
        adam_all(&k, false, g, NULL, n, m, v, x);
}

/* ---- 1-bit Adam ---- */

static void momentum(const lnt_adam_consts_t *consts, const float *m, uint64_t n, float *value)
{
    const consts_t k = spread(consts);
    LNT_EACH_STRIP(n, strip_ahead(m + at, sizeof(*m)),
                   store_some(value + at, momentum_of(&k, load_some(m + at, some), load_some(value + at, some)), some));
    lnt_next_note(LNT_NEXT_MOMENTUM, m + n);
}

/* Bytes of 0 and 1 to a choice per lane. */
LNT_INLINE vm dead_some(const uint8_t *dead, size_t some)
{
    uint8_t room[VEC] = {0};
    if (some < VEC) dead = memcpy(room, dead, some);
    return vi_greater(vi_load_i8(dead), vi_all(0));
}

/* `dead`, NULL or not, and `stream` are known where this is inlined. Whole vectors are streamed. */
LNT_INLINE void frozen_some(const consts_t *k, const float *value, const float *denominator, const uint8_t *dead,
                            bool stream, float *m_p, float *x_p, size_t some)
{
    vf m = load_some(value, some), x = load_some(x_p, some), moved = move(k, x, m, load_some(denominator, some));
    vm stays = dead ? dead_some(dead, some) : vm_of_bits(0);
    uint32_t dead_lanes = dead ? vm_bits(stays) : 0;
    if (!stream || some < VEC)
        store_some(m_p, dead_lanes ? vf_choose(stays, load_some(m_p, some), m) : m, some);
    else if (dead_lanes)
        vf_stream_lanes(m_p, m, ~dead_lanes);
    else
        vf_stream(m_p, m);
    store_some(x_p, dead ? vf_choose(stays, x, moved) : moved, some);
}

/* In cache this costs 15 %: only for what is far larger, which is also what is streamed. */
LNT_INLINE void frozen_ahead(const float *denominator, const float *x, const uint8_t *dead)
{
    strip_ahead(denominator, sizeof(*denominator));
    strip_ahead(x, sizeof(*x));
    if (dead) strip_ahead(dead, sizeof(*dead));
}

LNT_INLINE void frozen_all(const consts_t *k, const float *value, const float *denominator, const uint8_t *dead,
                           bool stream, uint64_t n, float *m, float *x)
{
    if (dead) {
        LNT_EACH_STRIP(n, if (stream) frozen_ahead(denominator + at, x + at, dead + at),
                       frozen_some(k, value + at, denominator + at, dead + at, stream, m + at, x + at, some));
    } else {
        LNT_EACH_STRIP(n, if (stream) frozen_ahead(denominator + at, x + at, NULL),
                       frozen_some(k, value + at, denominator + at, NULL, stream, m + at, x + at, some));
    }
}

/* Elements in front of the first whole vector. */
LNT_INLINE uint64_t count_unaligned(const float *from, uint64_t n)
{
    uint64_t count = (0 - (uintptr_t)from / sizeof(*from)) % VEC;
    return count < n ? count : n;
}

static void frozen(const lnt_adam_consts_t *consts, const float *value, const float *denominator, const uint8_t *dead,
                   bool stream, uint64_t n, float *m, float *x)
{
    const consts_t k = spread(consts);
    uint64_t at = stream ? count_unaligned(m, n) : n;
    frozen_all(&k, value, denominator, dead, false, at, m, x);
    if (at == n) return;
    frozen_all(&k, value + at, denominator + at, dead ? dead + at : NULL, true, n - at, m + at, x + at);
    vec_stream_end();
}

const lnt_update_ops_t LNT_UPDATE_OPS = {.adam = adam, .momentum = momentum, .frozen = frozen};
