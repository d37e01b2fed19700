/* linnet-ckpt verify: every checksum, whether errors are finite, and whether the files are one save, whole. */
#include "ckpt_tool.h"

#include <stdio.h>

#include "common_json.h"

/* Which files are bad by themselves; all of them are named, not only the first. */
static uint32_t count_bad(const ckpt_files_t *files)
{
    uint32_t n_bad = 0;

    for (uint32_t i = 0; i < files->n; i++) {
        lnt_state_blob_t blob;
        if (lnt_state_parse(files->blobs[i], files->bytes[i], &blob) == LNT_OK &&
            lnt_state_check_errors(&blob) == LNT_OK) {
            continue;
        }
        (void)fprintf(stderr, "%s: in %s:\n", CKPT_NAME, files->names[i]);
        (void)tool_complain(CKPT_NAME);
        n_bad++;
    }
    return n_bad;
}

static int print_save(const ckpt_config_t *config, const lnt_state_save_t *save)
{
    const lnt_state_header_t *header = &save->blobs[0].header;
    lnt_state_mass_t mass;

    if (!ckpt_total_mass(save, &mass)) return TOOL_FAILED;
    mass.after = mass.before;
    if (config->json) {
        printf("{");
        json_text(stdout, "algorithm", header->algorithm);
        printf("\"sound\": true, \"step\": %llu, \"world\": %u, \"n_nodes\": %u, \"tensors\": %u",
               (unsigned long long)header->step, header->world, header->n_nodes, header->n_tensors);
    } else {
        printf("sound: one save of %s, step %llu, %u ranks on %u nodes, %u tensors\n", header->algorithm,
               (unsigned long long)header->step, header->world, header->n_nodes, header->n_tensors);
    }
    ckpt_print_mass(config, &mass);
    return TOOL_OK;
}

int ckpt_verify(const ckpt_config_t *config, const ckpt_files_t *files)
{
    lnt_state_save_t save;
    int code;

    if (count_bad(files) != 0) return TOOL_FAILED;
    if (lnt_state_save_open(files->blobs, files->bytes, files->n, &save) < 0) return tool_complain(CKPT_NAME);
    code = print_save(config, &save);
    lnt_state_save_close(&save);
    return code;
}
