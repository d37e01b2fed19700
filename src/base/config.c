/* Configuration tables: environment, defaults, option texts, unknown names. The only file that reads the environment.
 *
 * A table is filled whole or released: after a failure no string of it is left. Values are parsed in config_value.c.
 */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "error.h"
#include "memory.h"

extern char **environ;

enum { NAME_MAX_BYTES = 64, VALUE_MAX_BYTES = 256 };

static const char PREFIX[] = "LINNET_";

/* ---- tables ---- */

static void clear_strings(const lnt_cfg_row_t *rows, void *config)
{
    for (; rows->name != NULL; rows++) {
        if (rows->type == LNT_CFG_STRING) {
            *(char **)((char *)config + rows->offset) = NULL;
        }
    }
}

void lnt_config_release(const lnt_cfg_row_t *rows, void *config)
{
    for (const lnt_cfg_row_t *row = rows; row->name != NULL; row++) {
        if (row->type == LNT_CFG_STRING) {
            lnt_free(*(char **)((char *)config + row->offset));
        }
    }
    clear_strings(rows, config);
}

/* Sets every field from what the environment says, when that counts, or else from its default. */
static lnt_status_t fill(const lnt_cfg_row_t *rows, bool environment, void *config)
{
    lnt_status_t status;

    clear_strings(rows, config);
    for (const lnt_cfg_row_t *row = rows; row->name != NULL; row++) {
        const char *text = environment ? lnt_config_env(row->name) : NULL;
        char what[NAME_MAX_BYTES];

        (void)snprintf(what, sizeof(what), "%s%s", (text != NULL) ? PREFIX : "default of ", row->name);
        LNT_TRY_GOTO(status, lnt_config_set(row, what, (text != NULL) ? text : row->default_text, config), err_release);
    }
    return LNT_OK;

err_release:
    lnt_config_release(rows, config);
    return status;
}

lnt_status_t lnt_config_from_env(const lnt_cfg_row_t *rows, void *config)
{
    return fill(rows, true, config);
}

lnt_status_t lnt_config_defaults(const lnt_cfg_row_t *rows, void *config)
{
    return fill(rows, false, config);
}

static lnt_status_t report_unknown_key(const lnt_cfg_row_t *rows, const char *owner, const char *key)
{
    const char *names[128];
    const char *near;
    size_t n = 0;
    char cure[NAME_MAX_BYTES + 32];

    for (; (rows->name != NULL) && (n < sizeof(names) / sizeof(names[0])); rows++) {
        names[n++] = rows->name;
    }
    near = lnt_nearest_name(key, names, n);
    (void)snprintf(cure, sizeof(cure), "did you mean \"%.48s\"?", (near != NULL) ? near : "");
    return lnt_error(LNT_ERR_INVALID_ARG, (near != NULL) ? cure : "see the list of options", "%s has no option \"%s\"",
                     owner, key);
}

/* others: there may be keys that the table does not know. */
static lnt_status_t set_pair(const lnt_cfg_row_t *rows, const char *owner, const char *key, const char *value,
                             bool others, void *config)
{
    char what[NAME_MAX_BYTES * 2];

    for (const lnt_cfg_row_t *row = rows; row->name != NULL; row++) {
        if (strcasecmp(row->name, key) == 0) {
            (void)snprintf(what, sizeof(what), "%.48s option %.48s", owner, row->name);
            return lnt_config_set(row, what, value, config);
        }
    }
    return others ? LNT_OK : report_unknown_key(rows, owner, key);
}

/* Copies the part of `text` up to `length` without the blanks around it; false when it does not fit. */
static bool copy_trimmed(const char *text, size_t length, char *out, size_t room)
{
    while ((length > 0) && isspace((unsigned char)text[0])) {
        text++;
        length--;
    }
    while ((length > 0) && isspace((unsigned char)text[length - 1])) {
        length--;
    }
    if (length >= room) {
        return false;
    }
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

static lnt_status_t parse_pair(const lnt_cfg_row_t *rows, const char *owner, const char *pair, size_t length,
                               bool others, void *config)
{
    char key[NAME_MAX_BYTES], value[VALUE_MAX_BYTES];
    const char *equals = memchr(pair, '=', length);

    if (equals == NULL) {
        return lnt_error(LNT_ERR_CONFIG, "write key=value,key=value", "%s options: \"%.*s\" has no value", owner,
                         (int)length, pair);
    }
    if (!copy_trimmed(pair, (size_t)(equals - pair), key, sizeof(key)) ||
        !copy_trimmed(equals + 1, length - (size_t)(equals + 1 - pair), value, sizeof(value))) {
        return lnt_error(LNT_ERR_CONFIG, "write key=value,key=value", "%s options: \"%.*s\" is too long", owner,
                         (int)length, pair);
    }
    return set_pair(rows, owner, key, value, others, config);
}

static lnt_status_t parse_text(const lnt_cfg_row_t *rows, const char *owner, const char *text, bool others,
                               void *config)
{
    while ((text != NULL) && (*text != '\0')) {
        size_t length = strcspn(text, ",");

        LNT_TRY(parse_pair(rows, owner, text, length, others, config));
        text += length + ((text[length] == ',') ? 1 : 0);
    }
    return LNT_OK;
}

lnt_status_t lnt_config_from_text(const lnt_cfg_row_t *rows, const char *owner, const char *text, void *config)
{
    return parse_text(rows, owner, text, false, config);
}

lnt_status_t lnt_config_pick(const lnt_cfg_row_t *rows, const char *owner, const char *text, void *config)
{
    return parse_text(rows, owner, text, true, config);
}

/* ---- the environment ---- */

const char *lnt_config_getenv(const char *full_name)
{
    return getenv(full_name);
}

const char *lnt_config_env(const char *name)
{
    char full[NAME_MAX_BYTES];

    (void)snprintf(full, sizeof(full), "%s%s", PREFIX, name);
    return getenv(full);
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static size_t lesser(size_t a, size_t b)
{
    return (a < b) ? a : b;
}

/* Edit distance without regard to case, two letters in the wrong order being one mistake; both lengths are below
 * NAME_MAX_BYTES. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n_b = strlen(b);
    size_t rows[3][NAME_MAX_BYTES]; /* of i letters of a; i modulo 3 */
    size_t i = 0;

    for (size_t j = 0; j <= n_b; j++) {
        rows[0][j] = j;
    }
    for (i = 1; a[i - 1] != '\0'; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3];

        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            row[j] = lesser(above[j], row[j - 1]) + 1;
            row[j] = lesser(row[j], above[j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1));
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1])) {
                row[j] = lesser(row[j], rows[(i + 1) % 3][j - 2] + 1);
            }
        }
    }
    return rows[(i + 2) % 3][n_b];
}

const char *lnt_nearest_name(const char *name, const char *const *names, size_t n)
{
    size_t length = strlen(name);
    size_t best = length * 2 / 5 + 1; /* farther than this is not near */
    const char *best_name = NULL;

    for (size_t i = 0; (length < NAME_MAX_BYTES) && (i < n); i++) {
        size_t distance;

        if (strlen(names[i]) >= NAME_MAX_BYTES) {
            continue;
        }
        distance = edit_distance(name, names[i]);
        if (distance < best) {
            best = distance;
            best_name = names[i];
        }
    }
    return best_name;
}

/* The name without its prefix is known, or *near_p is the nearest of all tables (NULL: none). */
static bool known(const lnt_cfg_table_t *tables, size_t n_tables, const char *name, const char **near_p)
{
    const char *candidates[2] = {NULL, NULL}; /* the best so far against the next row */

    for (size_t t = 0; t < n_tables; t++) {
        for (const lnt_cfg_row_t *row = tables[t].rows; row->name != NULL; row++) {
            if (strcmp(row->name, name) == 0) {
                return true;
            }
            candidates[1] = row->name;
            candidates[0] = (candidates[0] != NULL) ? lnt_nearest_name(name, candidates, 2)
                                                    : lnt_nearest_name(name, candidates + 1, 1);
        }
    }
    *near_p = candidates[0];
    return false;
}

void lnt_config_unknown(const lnt_cfg_table_t *tables, size_t n_tables,
                        void (*warn)(void *arg, const char *name, const char *nearest), void *arg)
{
    const size_t prefix = sizeof(PREFIX) - 1;

    for (char **entry = environ; (entry != NULL) && (*entry != NULL); entry++) {
        char name[NAME_MAX_BYTES], full_near[NAME_MAX_BYTES * 2];
        const char *near = NULL;
        size_t length = strcspn(*entry, "=");

        if ((strncmp(*entry, PREFIX, prefix) != 0) || (length >= sizeof(name))) {
            continue;
        }
        (void)snprintf(name, sizeof(name), "%.*s", (int)length, *entry);
        if (!known(tables, n_tables, name + prefix, &near)) {
            (void)snprintf(full_near, sizeof(full_near), "%s%s", PREFIX, (near != NULL) ? near : "");
            warn(arg, name, (near != NULL) ? full_near : NULL);
        }
    }
}
