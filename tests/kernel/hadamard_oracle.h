/* The rotation of int4_hadamard by its recursion: the transform of both halves, then their sums and differences. Shares
 * nothing with kernels/.
 */
#ifndef HADAMARD_ORACLE_H
#define HADAMARD_ORACLE_H

static inline void oracle_hadamard(float *v, int n)
{
    if (n == 1) return;
    int half = n / 2;
    oracle_hadamard(v, half);
    oracle_hadamard(v + half, half);
    for (int i = 0; i < half; i++) {
        float sum = v[i] + v[half + i], difference = v[i] - v[half + i];
        v[i] = sum;
        v[half + i] = difference;
    }
}

#endif
