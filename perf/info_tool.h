/* The parts of linnet-info. Each prints one section on stdout and returns an exit code of common_options.h. */
#ifndef PERF_INFO_TOOL_H
#define PERF_INFO_TOOL_H

#include "common_options.h"

#define INFO_NAME "linnet-info"

int info_version(void);
int info_transports(void);
int info_probes(void);
int info_knobs(void);
int info_config_md(void);
int info_topology(void);

typedef struct info_plan_options {
    char *file;
    uint32_t ranks;
    char *nodes;
    char *optim;
    char *options;
    uint64_t bucket_bytes;
    uint64_t segment_bytes;
    double gbps;
} info_plan_options_t;

int info_plan(const info_plan_options_t *options);

#endif
