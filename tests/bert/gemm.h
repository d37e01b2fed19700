/* The three matrix products a linear layer needs, over OpenBLAS with one thread. Matrices are dense and row-major. */
#ifndef BERT_GEMM_H
#define BERT_GEMM_H

#include <stdbool.h>

#include "real.h"

/* c[m,n] = a[m,k] * b[n,k]^T */
void gemm_nt(int m, int n, int k, const real_t *a, const real_t *b, real_t *c);
/* c[m,n] = a[m,k] * b[k,n] + keep * c, keep is 0 or 1 */
void gemm_nn(int m, int n, int k, const real_t *a, const real_t *b, real_t keep, real_t *c);
/* c[m,n] = a[k,m]^T * b[k,n] */
void gemm_tn(int m, int n, int k, const real_t *a, const real_t *b, real_t *c);

/* Compares one product of each kind with a plain loop. A wrong answer comes from an OpenBLAS kernel that does not fit
 * a new CPU. */
bool gemm_self_check(int m, int n, int k);

/* Makes this process ready for OpenBLAS with one thread and right answers: executes the program again with other
 * OPENBLAS_* settings where needed. Call first in main. False: no setting gives right answers. */
bool gemm_prepare(char **argv, int m, int hidden, int ff, int vocab, int targets);

#endif
