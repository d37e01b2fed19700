/* Configuration tables: environment, defaults, option texts, unknown names. The only file that reads the environment.
 *
 * Values are parsed whole or not at all: trailing characters, overflow and values out of limits are errors that name
 * the source, the text and what would be legal. Numbers are read in the C locale whatever the program has set.
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "error.h"
#include "memory.h"

extern char **environ;

enum { NAME_MAX_BYTES = 64, LEGAL_MAX_BYTES = 256, VALUE_MAX_BYTES = 256 };

static const char PREFIX[] = "LINNET_";

/* Units of one kind; the first row is the plain number. */
typedef struct unit {
    const char *suffix;
    uint64_t    factor;
} unit_t;

static const unit_t byte_units[] = {{"", 1}, {"b", 1}, {"k", UINT64_C(1) << 10}, {"m", UINT64_C(1) << 20}, {"g", UINT64_C(1) << 30},
                                    {"t", UINT64_C(1) << 40}, {NULL, 0}};
static const unit_t time_units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {NULL, 0}};
static const unit_t no_units[] = {{"", 1}, {NULL, 0}};

/* ---- values ---- */

static bool within(const lnt_cfg_row_t *row, double value)
{
    return ((row->min == 0.0) && (row->max == 0.0)) || ((value >= row->min) && (value <= row->max));
}

/* Digits and one of the units, nothing else. */
static bool parse_unsigned(const char *text, const unit_t *units, uint64_t limit, uint64_t *out)
{
    char    *end;
    uint64_t number;

    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    errno  = 0;
    number = strtoull(text, &end, 10);
    if (errno != 0) {
        return false;
    }
    for (; units->suffix != NULL; units++) {
        if (strcasecmp(end, units->suffix) == 0) {
            return !__builtin_mul_overflow(number, units->factor, out) && (*out <= limit);
        }
    }
    return false;
}

static bool set_unsigned32(const lnt_cfg_row_t *row, const unit_t *units, const char *text, void *field)
{
    uint64_t value;

    if (!parse_unsigned(text, units, UINT32_MAX, &value) || !within(row, (double)value)) {
        return false;
    }
    *(uint32_t *)field = (uint32_t)value;
    return true;
}

static bool set_unsigned64(const lnt_cfg_row_t *row, const unit_t *units, const char *text, void *field)
{
    uint64_t value;

    if (!parse_unsigned(text, units, UINT64_MAX, &value) || !within(row, (double)value)) {
        return false;
    }
    *(uint64_t *)field = value;
    return true;
}

static bool set_u32(const lnt_cfg_row_t *row, const char *text, void *field)
{
    return set_unsigned32(row, no_units, text, field);
}

static bool set_time(const lnt_cfg_row_t *row, const char *text, void *field)
{
    return set_unsigned32(row, time_units, text, field);
}

static bool set_u64(const lnt_cfg_row_t *row, const char *text, void *field)
{
    return set_unsigned64(row, no_units, text, field);
}

static bool set_bytes(const lnt_cfg_row_t *row, const char *text, void *field)
{
    return set_unsigned64(row, byte_units, text, field);
}

static bool set_f64(const lnt_cfg_row_t *row, const char *text, void *field)
{
    char    *end;
    double   value;
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);

    if ((text[0] == '\0') || (strspn(text, "0123456789+-.eE") != strlen(text)) || (c_locale == (locale_t)0)) {
        return false;
    }
    value = strtod_l(text, &end, c_locale);
    freelocale(c_locale);
    if ((*end != '\0') || !isfinite(value) || !within(row, value)) {
        return false;
    }
    *(double *)field = value;
    return true;
}

static bool set_bool(const lnt_cfg_row_t *row, const char *text, void *field)
{
    static const char *const words[] = {"n", "y", "no", "yes", "off", "on", "false", "true", "0", "1"};

    (void)row;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *(bool *)field = (i % 2) == 1;
            return true;
        }
    }
    return false;
}

static bool set_enum(const lnt_cfg_row_t *row, const char *text, void *field)
{
    for (int i = 0; row->words[i] != NULL; i++) {
        if (strcasecmp(text, row->words[i]) == 0) {
            *(int *)field = i;
            return true;
        }
    }
    return false;
}

/* One row per type, in the order of lnt_cfg_type_t; strings have a setter of their own, because it can run out of memory. */
typedef struct type_row {
    bool (*set)(const lnt_cfg_row_t *row, const char *text, void *field);
    const char *legal;
} type_row_t;

static const type_row_t types[] = {
    [LNT_CFG_U32]     = {set_u32, "a whole number"},
    [LNT_CFG_U64]     = {set_u64, "a whole number"},
    [LNT_CFG_F64]     = {set_f64, "a finite decimal number"},
    [LNT_CFG_BOOL]    = {set_bool, "y, n, yes, no, on, off, true, false, 1 or 0"},
    [LNT_CFG_BYTES]   = {set_bytes, "a number of bytes, or one with k, m, g or t (powers of 1024)"},
    [LNT_CFG_TIME_MS] = {set_time, "a number of seconds, or one with ms, s, min or h"},
    [LNT_CFG_ENUM]    = {set_enum, "one of"},
    [LNT_CFG_STRING]  = {NULL, "any text"},
};

static void append(char *text, size_t room, const char *more)
{
    size_t used = strlen(text);

    (void)snprintf(text + used, room - used, "%s", more);
}

/* What would be legal for a row, in words. */
static void describe_legal(const lnt_cfg_row_t *row, char *text, size_t room)
{
    (void)snprintf(text, room, "use %s", types[row->type].legal);
    if (row->type == LNT_CFG_ENUM) {
        for (int i = 0; row->words[i] != NULL; i++) {
            append(text, room, (i > 0) ? ", " : " ");
            append(text, room, row->words[i]);
        }
    }
    if ((row->min != 0.0) || (row->max != 0.0)) {
        char limits[96];

        (void)snprintf(limits, sizeof(limits), " from %.10g to %.10g%s", row->min, row->max,
                       (row->type == LNT_CFG_TIME_MS) ? " ms" : "");
        append(text, room, limits);
    }
}

static lnt_status_t set_string(const char *text, char **field)
{
    char *copy = NULL;

    if (text[0] != '\0') {
        copy = lnt_strdup(text, "configuration text");
        if (copy == NULL) {
            return LNT_ERR_NO_MEMORY;
        }
    }
    lnt_free(*field);
    *field = copy;
    return LNT_OK;
}

lnt_status_t lnt_config_set(const lnt_cfg_row_t *row, const char *what, const char *text, void *config)
{
    void *field = (char *)config + row->offset;
    char  legal[LEGAL_MAX_BYTES];

    if (row->type == LNT_CFG_STRING) {
        return set_string(text, field);
    }
    if (!types[row->type].set(row, text, field)) {
        describe_legal(row, legal, sizeof(legal));
        return lnt_error(LNT_ERR_CONFIG, legal, "%s is \"%s\", which is not legal", what, text);
    }
    return LNT_OK;
}

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
        char        what[NAME_MAX_BYTES];

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
    size_t      n = 0;
    char        cure[NAME_MAX_BYTES + 32];

    for (; (rows->name != NULL) && (n < sizeof(names) / sizeof(names[0])); rows++) {
        names[n++] = rows->name;
    }
    near = lnt_nearest_name(key, names, n);
    (void)snprintf(cure, sizeof(cure), "did you mean \"%.48s\"?", (near != NULL) ? near : "");
    return lnt_error(LNT_ERR_INVALID_ARG, (near != NULL) ? cure : "see the list of options",
                     "%s has no option \"%s\"", owner, key);
}

static lnt_status_t set_pair(const lnt_cfg_row_t *rows, const char *owner, const char *key, const char *value, void *config)
{
    char what[NAME_MAX_BYTES * 2];

    for (const lnt_cfg_row_t *row = rows; row->name != NULL; row++) {
        if (strcasecmp(row->name, key) == 0) {
            (void)snprintf(what, sizeof(what), "%.48s option %.48s", owner, row->name);
            return lnt_config_set(row, what, value, config);
        }
    }
    return report_unknown_key(rows, owner, key);
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

static lnt_status_t parse_pair(const lnt_cfg_row_t *rows, const char *owner, const char *pair, size_t length, void *config)
{
    char        key[NAME_MAX_BYTES], value[VALUE_MAX_BYTES];
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
    return set_pair(rows, owner, key, value, config);
}

lnt_status_t lnt_config_from_text(const lnt_cfg_row_t *rows, const char *owner, const char *text, void *config)
{
    while ((text != NULL) && (*text != '\0')) {
        size_t length = strcspn(text, ",");

        LNT_TRY(parse_pair(rows, owner, text, length, config));
        text += length + ((text[length] == ',') ? 1 : 0);
    }
    return LNT_OK;
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

/* Edit distance without regard to case; both lengths are below NAME_MAX_BYTES. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n_b = strlen(b);
    size_t row[NAME_MAX_BYTES];

    for (size_t j = 0; j <= n_b; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t above  = row[j];
            bool   equal  = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            size_t change = diagonal + (equal ? 0 : 1);
            size_t shift  = ((above < row[j - 1]) ? above : row[j - 1]) + 1;

            row[j]   = (change < shift) ? change : shift;
            diagonal = above;
        }
    }
    return row[n_b];
}

const char *lnt_nearest_name(const char *name, const char *const *names, size_t n)
{
    size_t      length    = strlen(name);
    size_t      best      = length / 2 + 1; /* farther than this is not near */
    const char *best_name = NULL;

    for (size_t i = 0; (length < NAME_MAX_BYTES) && (i < n); i++) {
        size_t distance;

        if (strlen(names[i]) >= NAME_MAX_BYTES) {
            continue;
        }
        distance = edit_distance(name, names[i]);
        if (distance < best) {
            best      = distance;
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
        char        name[NAME_MAX_BYTES], full_near[NAME_MAX_BYTES * 2];
        const char *near   = NULL;
        size_t      length = strcspn(*entry, "=");

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
