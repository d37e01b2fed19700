/* The 16-bit element types in f64, from their definition; nothing is shared with the library. NULL stands for f32.
 */
#ifndef PERF_PERF_HALF_H
#define PERF_PERF_HALF_H

#include <linnet/types.h>

typedef struct half {
    int bits, lowest; /* significant bits, and the exponent (of frexp) below which numbers lose them */
} half_t;

const half_t *half_of(lnt_dtype_t dtype); /* NULL for f32 */

double half_unit(const half_t *half, double x);  /* from one number of the type to the next, at x */
double half_round(const half_t *half, double x); /* nearest, half to even */

uint16_t half_code(const half_t *half, double x); /* of a finite number of the type */
double half_value(const half_t *half, uint16_t code);

#endif
