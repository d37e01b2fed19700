/* The parts of linnet-ckpt: files in memory, and the three commands. Each returns an exit code of common_options.h. */
#ifndef PERF_CKPT_TOOL_H
#define PERF_CKPT_TOOL_H

#include "../optim/state_save.h"
#include "common_options.h"

#define CKPT_NAME "linnet-ckpt"

typedef struct ckpt_config {
    bool json;
    uint32_t ranks;
    char *nodes;
    char *out;
} ckpt_config_t;

/* Files mapped into memory, read only. */
typedef struct ckpt_files {
    uint32_t n;
    const char *const *names;
    const void **blobs; /* [n] */
    uint64_t *bytes;    /* [n] */
} ckpt_files_t;

int ckpt_files_open(ckpt_files_t *files, const char *const *names, uint32_t n);
void ckpt_files_close(ckpt_files_t *files);

int ckpt_info(const ckpt_config_t *config, const ckpt_files_t *files);
int ckpt_verify(const ckpt_config_t *config, const ckpt_files_t *files);
int ckpt_repartition(const ckpt_config_t *config, const ckpt_files_t *files);

bool ckpt_total_mass(const lnt_state_save_t *save, lnt_state_mass_t *mass_p); /* false after a complaint */
/* What is said of it, as text or as the last members of a JSON object. */
void ckpt_print_mass(const ckpt_config_t *config, const lnt_state_mass_t *mass);

#endif
