/* Matrix products over OpenBLAS, and the guard against kernels that are wrong on this CPU.
 *
 * OpenBLAS reads its settings when it is loaded, so a changed setting needs the program to be executed again. One
 * thread is set the same way: a pool created before ranks are forked would be of no use to them. */
#include "gemm.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef BERT_DOUBLE
#define BERT_GEMM cblas_dgemm
#define BERT_GEMM_TOLERANCE 1e-12
#else
#define BERT_GEMM cblas_sgemm
#define BERT_GEMM_TOLERANCE 1e-5
#endif

void gemm_nt(int m, int n, int k, const real_t *a, const real_t *b, real_t *c)
{
    BERT_GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, a, k, b, k, 0, c, n);
}

void gemm_nn(int m, int n, int k, const real_t *a, const real_t *b, real_t keep, real_t *c)
{
    BERT_GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a, k, b, n, keep, c, n);
}

void gemm_tn(int m, int n, int k, const real_t *a, const real_t *b, real_t *c)
{
    BERT_GEMM(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, k, 1, a, m, b, n, 0, c, n);
}

/* Values of both signs in (-1, 1), the same on every call. */
static real_t check_value(size_t i)
{
    return (real_t)((double)((i * 2654435761u) % 2003u) / 1001.0 - 1.0);
}

static double plain_product(char kind, int m, int n, int k, const real_t *a, const real_t *b, int i, int j)
{
    double sum = 0;

    for (int l = 0; l < k; l++) {
        size_t at_a = (kind == 't') ? (size_t)l * (size_t)m + (size_t)i : (size_t)i * (size_t)k + (size_t)l;
        size_t at_b = (kind == 'b') ? (size_t)j * (size_t)k + (size_t)l : (size_t)l * (size_t)n + (size_t)j;
        sum += (double)a[at_a] * (double)b[at_b];
    }
    return sum;
}

/* Looks at every seventh element: enough to see a kernel that is wrong in a tile, an edge or a tail. */
static bool product_matches(char kind, int m, int n, int k, const real_t *a, const real_t *b, const real_t *c)
{
    for (int at = 0; at < m * n; at += 7) {
        double want = plain_product(kind, m, n, k, a, b, at / n, at % n);
        if (!(fabs((double)c[at] - want) <= BERT_GEMM_TOLERANCE * k)) {
            return false;
        }
    }
    return true;
}

bool gemm_self_check(int m, int n, int k)
{
    size_t n_a = (size_t)m * (size_t)k, n_b = (size_t)n * (size_t)k, n_c = (size_t)m * (size_t)n;
    real_t *a = malloc((n_a + n_b + n_c) * sizeof(real_t)), *b = a + n_a, *c = b + n_b;
    bool right;

    if (a == NULL) {
        return false;
    }
    for (size_t i = 0; i < n_a + n_b; i++) {
        a[i] = check_value(i);
    }
    gemm_nt(m, n, k, a, b, c);
    right = product_matches('b', m, n, k, a, b, c);
    gemm_nn(m, n, k, a, b, 0, c);
    right = right && product_matches('n', m, n, k, a, b, c);
    gemm_tn(m, n, k, a, b, c);
    right = right && product_matches('t', m, n, k, a, b, c);
    free(a);
    return right;
}

static bool shapes_right(int m, int hidden, int ff, int vocab, int targets)
{
    const int shapes[][3] = {{m, 3 * hidden, hidden}, {m, hidden, hidden},      {m, ff, hidden},
                             {m, hidden, ff},         {targets, vocab, hidden}, {targets, hidden, vocab},
                             {hidden, hidden, m},     {3 * hidden, hidden, m},  {ff, hidden, m},
                             {hidden, ff, m},         {vocab, hidden, targets}, {targets, hidden, hidden}};

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (!gemm_self_check(shapes[i][0], shapes[i][1], shapes[i][2])) {
            return false;
        }
    }
    return true;
}

static bool setting_is(const char *name, const char *value)
{
    const char *have = getenv(name);
    return (have != NULL) && (strcmp(have, value) == 0);
}

/* Returns only on failure. */
static void execute_again(char **argv, const char *name, const char *value)
{
    if (setenv(name, value, 1) == 0) {
        execv("/proc/self/exe", argv);
    }
}

bool gemm_prepare(char **argv, int m, int hidden, int ff, int vocab, int targets)
{
    if (!setting_is("OPENBLAS_NUM_THREADS", "1")) {
        execute_again(argv, "OPENBLAS_NUM_THREADS", "1");
    }
    openblas_set_num_threads(1);
    if (shapes_right(m, hidden, ff, vocab, targets)) {
        return true;
    }
    if (!setting_is("OPENBLAS_CORETYPE", "Haswell")) {
        fprintf(stderr,
                "linnet-bert: OpenBLAS kernels for '%s' give wrong products on this CPU: starting again with "
                "OPENBLAS_CORETYPE=Haswell\n",
                openblas_get_corename());
        execute_again(argv, "OPENBLAS_CORETYPE", "Haswell");
    }
    fprintf(stderr, "linnet-bert: OpenBLAS gives wrong products on this CPU, with its Haswell kernels too\n");
    return false;
}
