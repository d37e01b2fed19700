/* Every LINNET_* knob of the library: the list of tables, and the public view of it. */
#include "codec_api.h"
#include "core.h"

#include <stdio.h>

enum { KNOB_NAME_MAX = 64 };

const lnt_cfg_table_t *lnt_config_tables(size_t *n_tables_p)
{
    static const lnt_cfg_table_t tables[] = {
        {"core", lnt_core_config_rows},
        {"log", lnt_log_config_rows},
        {"bootstrap", lnt_boot_config_rows},
        {"kernels", lnt_kernels_config_rows},
    };

    *n_tables_p = sizeof(tables) / sizeof(tables[0]);
    return tables;
}

static const lnt_cfg_row_t *find_row(size_t index, const char **module_p)
{
    size_t n_tables;
    const lnt_cfg_table_t *tables = lnt_config_tables(&n_tables);

    for (size_t t = 0; t < n_tables; t++) {
        for (const lnt_cfg_row_t *row = tables[t].rows; row->name != NULL; row++) {
            if (index-- == 0) {
                *module_p = tables[t].module;
                return row;
            }
        }
    }
    return NULL;
}

lnt_status_t lnt_knob_get(size_t index, lnt_knob_t *knob_p)
{
    static _Thread_local char full_name[KNOB_NAME_MAX];
    const lnt_cfg_row_t *row;
    const char *module;

    LNT_CHECK_ARG(knob_p != NULL);
    row = find_row(index, &module);
    if (row == NULL) return LNT_ERR_OUT_OF_RANGE; /* the end of the list is no failure: not recorded, not logged */

    snprintf(full_name, sizeof(full_name), "LINNET_%s", row->name);
    *knob_p = (lnt_knob_t){
        .name = full_name,
        .default_text = row->default_text,
        .value = lnt_config_env(row->name),
        .help = row->help,
        .module = module,
    };
    return LNT_OK;
}
