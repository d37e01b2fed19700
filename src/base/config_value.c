/* Configuration values: one text into one typed field, by a table of types.
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
#include "fp_env.h"
#include "memory.h"

enum { LEGAL_MAX_BYTES = 256 };

/* Units of one kind; the first row is the plain number. */
typedef struct unit {
    const char *suffix;
    uint64_t factor;
} unit_t;

static const unit_t byte_units[] = {{"", 1},
                                    {"b", 1},
                                    {"k", UINT64_C(1) << 10},
                                    {"m", UINT64_C(1) << 20},
                                    {"g", UINT64_C(1) << 30},
                                    {"t", UINT64_C(1) << 40},
                                    {NULL, 0}};
static const unit_t time_units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {NULL, 0}};
static const unit_t no_units[] = {{"", 1}, {NULL, 0}};

static bool within(const lnt_cfg_row_t *row, double value)
{
    return ((row->min == 0.0) && (row->max == 0.0)) || ((value >= row->min) && (value <= row->max));
}

/* Digits and one of the units, nothing else. */
static bool parse_unsigned(const char *text, const unit_t *units, uint64_t limit, uint64_t *out)
{
    char *end;
    uint64_t number;

    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    errno = 0;
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
    LNT_FP_SCOPE(); /* a number is rounded as it is read */
    char *end;
    double value;
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

/* One row per type, in the order of lnt_cfg_type_t; strings have a setter of their own, because it can run out of
 * memory. */
typedef struct type_row {
    bool (*set)(const lnt_cfg_row_t *row, const char *text, void *field);
    const char *legal;
} type_row_t;

static const type_row_t types[] = {
    [LNT_CFG_U32] = {set_u32, "a whole number"},
    [LNT_CFG_U64] = {set_u64, "a whole number"},
    [LNT_CFG_F64] = {set_f64, "a finite decimal number"},
    [LNT_CFG_BOOL] = {set_bool, "y, n, yes, no, on, off, true, false, 1 or 0"},
    [LNT_CFG_BYTES] = {set_bytes, "a number of bytes, or one with k, m, g or t (powers of 1024)"},
    [LNT_CFG_TIME_MS] = {set_time, "a number of seconds, or one with ms, s, min or h"},
    [LNT_CFG_ENUM] = {set_enum, "one of"},
    [LNT_CFG_STRING] = {NULL, "any text"},
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
    char legal[LEGAL_MAX_BYTES];

    if (row->type == LNT_CFG_STRING) {
        return set_string(text, field);
    }
    if (!types[row->type].set(row, text, field)) {
        describe_legal(row, legal, sizeof(legal));
        return lnt_error(LNT_ERR_CONFIG, legal, "%s is \"%s\", which is not legal", what, text);
    }
    return LNT_OK;
}

/* ---- back to text ---- */

/* As few digits as say it, but 6 at least: 10, not 1e+01. */
static void get_f64(double value, char *text, size_t bytes)
{
    LNT_FP_SCOPE(); /* a number is rounded as it is written */
    const locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const locale_t before = c_locale != (locale_t)0 ? uselocale(c_locale) : (locale_t)0;

    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, bytes, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    if (c_locale == (locale_t)0) return;
    (void)uselocale(before);
    freelocale(c_locale);
}

void lnt_config_get(const lnt_cfg_row_t *row, const void *config, char *text, size_t bytes)
{
    const void *field = (const char *)config + row->offset;

    switch (row->type) {
    case LNT_CFG_U32:
    case LNT_CFG_TIME_MS:
        (void)snprintf(text, bytes, "%u%s", *(const uint32_t *)field, row->type == LNT_CFG_TIME_MS ? "ms" : "");
        break;
    case LNT_CFG_U64:
    case LNT_CFG_BYTES:
        (void)snprintf(text, bytes, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    case LNT_CFG_F64:
        get_f64(*(const double *)field, text, bytes);
        break;
    case LNT_CFG_BOOL:
        (void)snprintf(text, bytes, "%s", *(const bool *)field ? "on" : "off");
        break;
    case LNT_CFG_ENUM:
        (void)snprintf(text, bytes, "%s", row->words[*(const int *)field]);
        break;
    case LNT_CFG_STRING:
        (void)snprintf(text, bytes, "%s", *(char *const *)field != NULL ? *(char *const *)field : "");
        break;
    }
}
