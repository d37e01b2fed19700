/* Parses "2,4-5" into a set of cores. Strict: no spaces, no empty parts, no numbers beyond what a cpu_set_t holds. */
#include "cpu_list.h"

#include <ctype.h>
#include <stdlib.h>

#include "../base/error.h"

static bool parse_number(const char **text_p, unsigned long *value_p)
{
    char *end;

    if (!isdigit((unsigned char)**text_p)) return false;
    *value_p = strtoul(*text_p, &end, 10);
    *text_p = end;
    return *value_p < CPU_SETSIZE;
}

static bool parse_part(const char **text_p, cpu_set_t *cpus)
{
    unsigned long first, last;

    if (!parse_number(text_p, &first)) return false;
    last = first;
    if (**text_p == '-') {
        (*text_p)++;
        if (!parse_number(text_p, &last) || last < first) return false;
    }
    for (unsigned long cpu = first; cpu <= last; cpu++)
        CPU_SET(cpu, cpus);
    return true;
}

lnt_status_t lnt_cpu_list_parse(const char *text, cpu_set_t *cpus_p)
{
    cpu_set_t cpus;
    const char *rest = text;

    CPU_ZERO(&cpus);
    while (parse_part(&rest, &cpus)) {
        if (*rest == '\0') {
            *cpus_p = cpus;
            return LNT_OK;
        }
        if (*rest++ != ',') break;
    }
    return lnt_error(LNT_ERR_CONFIG, "write core numbers and ranges with commas, e.g. 2,4-5",
                     "LINNET_PROGRESS_CPUS or cpus: \"%s\" is not a list of cores", text);
}

uint32_t lnt_cpu_count(void)
{
    cpu_set_t cpus;
    int count = (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) ? CPU_COUNT(&cpus) : 1;

    return (count > 0) ? (uint32_t)count : 1;
}
