/* Everything of the model that is no matrix product, as a table of functions: one row compiled for any CPU, one for
 * AVX2, chosen when the program starts. Results may differ in the last bits between the two. */
#ifndef BERT_KERNELS_H
#define BERT_KERNELS_H

#include <stddef.h>

#include "real.h"

typedef struct bert_shape {
    int sequences, seq, heads, head_size; /* hidden = heads * head_size */
} bert_shape_t;

typedef struct bert_kernels {
    const char *name;
    /* y = x * Phi(x), slope = dy/dx */
    void (*gelu)(size_t n, const real_t *x, real_t *y, real_t *slope);
    void (*multiply)(size_t n, const real_t *factor, real_t *x);
    void (*add)(size_t n, const real_t *term, real_t *x);
    void (*add_bias)(int rows, int width, const real_t *bias, real_t *x);
    void (*column_sums)(int rows, int width, const real_t *x, real_t *sums);
    /* y = LayerNorm(x + residual); residual may be NULL. Keeps what backward needs: hat and rstd. */
    void (*norm)(int rows, int width, const real_t *x, const real_t *residual, const real_t *gain, const real_t *bias,
                 real_t *y, real_t *hat, real_t *rstd);
    /* In place: dx = gradient of the norm's input. d_gain and d_bias are overwritten. */
    void (*norm_back)(int rows, int width, const real_t *hat, const real_t *rstd, const real_t *gain, real_t *dx,
                      real_t *d_gain, real_t *d_bias);
    /* loss[r] = -log softmax(logits[r])[label[r]]; hit[r] = 1 if no logit is larger than the label's. The logits become
     * their gradient of the mean loss. */
    void (*cross_entropy)(int rows, int width, const int *label, real_t *logits, real_t *loss, int *hit);
    /* qkv[tokens][3 * hidden]: queries, keys, values; probs[sequences][heads][seq][seq]; out[tokens][hidden] */
    void (*attention)(const bert_shape_t *shape, const real_t *qkv, real_t *probs, real_t *out);
    void (*attention_back)(const bert_shape_t *shape, const real_t *qkv, const real_t *probs, const real_t *d_out,
                           real_t *d_qkv);
} bert_kernels_t;

enum { BERT_SEQ_MAX = 64 };

/* The table for this CPU. */
const bert_kernels_t *bert_kernels_get(void);

extern const bert_kernels_t bert_kernels_base;
#ifdef BERT_HAVE_AVX2
extern const bert_kernels_t bert_kernels_avx2;
#endif

#endif
