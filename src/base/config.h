/* Configuration tables. One table per module; names, help, parsing, docs/config.md and linnet-info come from it.
 *
 * Only config.c calls getenv. Order: params struct (the caller's business, after parsing) > LINNET_* > default.
 */
#ifndef LNT_BASE_CONFIG_H
#define LNT_BASE_CONFIG_H

#include <linnet/types.h>

typedef enum lnt_cfg_type {
    LNT_CFG_U32,     /* uint32_t, decimal */
    LNT_CFG_U64,     /* uint64_t, decimal */
    LNT_CFG_F64,     /* double */
    LNT_CFG_BOOL,    /* bool: y n yes no on off true false 1 0 */
    LNT_CFG_BYTES,   /* uint64_t: 25m 4k 1g (powers of 1024), plain number = bytes */
    LNT_CFG_TIME_MS, /* uint32_t: 10min 30s 500ms; plain number = seconds */
    LNT_CFG_ENUM,    /* int: index into the NULL-terminated `words` */
    LNT_CFG_STRING   /* char *, owned; "" becomes NULL */
} lnt_cfg_type_t;

typedef struct lnt_cfg_row {
    const char *name; /* without the LINNET_ prefix; NULL ends a table */
    const char *default_text;
    const char *help;
    size_t offset;
    lnt_cfg_type_t type;
    const char *const *words; /* for LNT_CFG_ENUM */
    double min, max;          /* both 0: no limits */
} lnt_cfg_row_t;

typedef struct lnt_cfg_table {
    const char *module;
    const lnt_cfg_row_t *rows;
} lnt_cfg_table_t;

/* Fill `config` from the environment and the defaults. LNT_ERR_CONFIG names the variable, the text and what would be
 * legal. Strings are allocated; release with lnt_config_release (after a failure there is nothing to release). */
lnt_status_t lnt_config_from_env(const lnt_cfg_row_t *rows, void *config);
void lnt_config_release(const lnt_cfg_row_t *rows, void *config);

/* Parse one value into its field; `what` names the source in messages ("LINNET_TIMEOUT" or "option freeze_step"). */
lnt_status_t lnt_config_set(const lnt_cfg_row_t *row, const char *what, const char *text, void *config);
/* The value of a field as a text that lnt_config_set reads back, whatever the locale. */
void lnt_config_get(const lnt_cfg_row_t *row, const void *config, char *text, size_t bytes);

/* "key=value,key=value" against a table (names compared case-insensitively), e.g. optimizer options. All fields must
 * hold their defaults already (lnt_config_defaults). Unknown key: LNT_ERR_INVALID_ARG naming the nearest. Of a key
 * that comes twice the last value counts: texts can be appended to presets. */
lnt_status_t lnt_config_defaults(const lnt_cfg_row_t *rows, void *config);
lnt_status_t lnt_config_from_text(const lnt_cfg_row_t *rows, const char *owner, const char *text, void *config);
/* The same for the keys of this table, others left to other tables. */
lnt_status_t lnt_config_pick(const lnt_cfg_row_t *rows, const char *owner, const char *text, void *config);

/* Calls warn(arg, name, nearest) for every LINNET_* variable of the environment that no table knows; both names carry
 * the prefix, nearest is NULL when none is near. */
void lnt_config_unknown(const lnt_cfg_table_t *tables, size_t n_tables,
                        void (*warn)(void *arg, const char *name, const char *nearest), void *arg);

/* The value a variable has in the environment (with prefix LINNET_ added), or NULL; for tools. And any other variable
 * (MASTER_ADDR, RANK...), by its full name. */
const char *lnt_config_env(const char *name);
const char *lnt_config_getenv(const char *full_name);

/* Nearest of n names by edit distance, NULL when none is near (distance > 1/2 of the length). */
const char *lnt_nearest_name(const char *name, const char *const *names, size_t n);

#endif
