/* Sorting and quantiles. */
#include "common_stats.h"

#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void stats_sort(double *values, uint32_t n)
{
    qsort(values, n, sizeof(*values), compare_doubles);
}

double stats_quantile(const double *sorted, uint32_t n, double q)
{
    double place = q * (n - 1.0);
    uint32_t below = (uint32_t)place;

    if (n == 0) return 0;
    if (below + 1 >= n) return sorted[n - 1];
    return sorted[below] + (place - below) * (sorted[below + 1] - sorted[below]);
}
