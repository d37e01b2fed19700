/* Order statistics of measured times. */
#ifndef PERF_COMMON_STATS_H
#define PERF_COMMON_STATS_H

#include <stdint.h>

void stats_sort(double *values, uint32_t n);

/* Of sorted values; 0 for none. The quantile between two of them is on the line that joins them. */
double stats_quantile(const double *sorted, uint32_t n, double q);

#endif
