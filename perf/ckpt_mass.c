/* What error feedback holds back in a save, and what is said of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckpt_tool.h"
#include "common_json.h"

bool ckpt_total_mass(const lnt_state_save_t *save, lnt_state_mass_t *mass_p)
{
    double *sums = calloc(lnt_state_longest(save) + 1, sizeof(*sums));

    if (sums == NULL) {
        (void)fprintf(stderr, "%s: out of memory\n", CKPT_NAME);
        return false;
    }
    *mass_p = lnt_state_total_mass(save, sums);
    free(sums);
    return true;
}

void ckpt_print_mass(const ckpt_config_t *config, const lnt_state_mass_t *mass)
{
    const double moved = mass->magnitude > 0 ? fabs(mass->after - mass->before) / mass->magnitude : 0;

    if (config->json) {
        printf(", ");
        json_number(stdout, "residual_before", mass->before);
        json_number(stdout, "residual_after", mass->after);
        json_number(stdout, "relative_difference", moved);
        json_number(stdout, "residual_norm", sqrt(mass->squares));
        printf("\"residual_magnitude\": ");
        json_value(stdout, mass->magnitude);
        printf("}\n");
    } else {
        printf("residual: mass %.9g before, %.9g after, relative difference %.3g (of the sum of magnitudes %.9g; norm "
               "%.9g)\n",
               mass->before, mass->after, moved, mass->magnitude, sqrt(mass->squares));
    }
}
