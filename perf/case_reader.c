/* Reading of cases: both files whole into memory, then searches by line. */
#include "case_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, KEY_BYTES = 128 };

__attribute__((format(printf, 2, 3))) static bool refuse(case_file_t *file, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(file->problem, sizeof(file->problem), format, args);
    va_end(args);
    return false;
}

/* The whole file and a '\0' behind it. */
static bool read_all(case_file_t *file, const char *directory, const char *name, char **bytes_p, size_t *n_bytes_p)
{
    char path[PATH_BYTES];
    FILE *stream;
    long size = -1;
    bool good = false;

    if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path)) {
        return refuse(file, "the path of %s is too long", name);
    }
    stream = fopen(path, "rb");
    if (stream == NULL) {
        return refuse(file, "%.200s cannot be opened", path);
    }
    if (fseek(stream, 0, SEEK_END) == 0) {
        size = ftell(stream);
    }
    *bytes_p = (size >= 0) ? malloc((size_t)size + 1) : NULL;
    if ((*bytes_p != NULL) && (fseek(stream, 0, SEEK_SET) == 0)) {
        good = fread(*bytes_p, 1, (size_t)size, stream) == (size_t)size;
        (*bytes_p)[(size_t)size] = '\0';
        *n_bytes_p = (size_t)size;
    }
    fclose(stream);
    return good ? true : refuse(file, "%.200s cannot be read", path);
}

static bool split_lines(case_file_t *file)
{
    size_t n = 1;

    for (const char *c = file->text; *c != '\0'; ++c) {
        n += (*c == '\n');
    }
    file->lines = calloc(n, sizeof(*file->lines));
    if (file->lines == NULL) {
        return refuse(file, "no memory for %zu lines", n);
    }
    for (char *next = file->text; next != NULL;) {
        file->lines[file->n_lines++] = next;
        next = strchr(next, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
    }
    return true;
}

bool case_open(case_file_t *file, const char *directory)
{
    size_t text_bytes;

    memset(file, 0, sizeof(*file));
    return read_all(file, directory, "case.json", &file->text, &text_bytes) && split_lines(file) &&
           read_all(file, directory, "data.bin", (char **)&file->data, &file->n_bytes);
}

void case_close(case_file_t *file)
{
    free(file->lines);
    free(file->text);
    free(file->data);
    memset(file, 0, sizeof(*file));
}

/* What follows `"key": ` at the start of a line, or anywhere in it. */
static const char *after_key(const char *line, const char *key, bool anywhere)
{
    char quoted[KEY_BYTES];
    const char *found;
    int n = snprintf(quoted, sizeof(quoted), "\"%s\": ", key);

    if ((n < 0) || ((size_t)n >= sizeof(quoted))) {
        return NULL;
    }
    found = anywhere ? strstr(line, quoted) : ((strncmp(line, quoted, (size_t)n) == 0) ? line : NULL);
    return (found != NULL) ? found + n : NULL;
}

static const char *head_value(const case_file_t *file, const char *key)
{
    for (size_t i = 0; i < file->n_lines; ++i) {
        const char *value = after_key(file->lines[i], key, false);

        if (value != NULL) {
            return value;
        }
    }
    return NULL;
}

static bool parse_text(const char *value, char *text, size_t size)
{
    const char *end = ((value != NULL) && (*value == '"')) ? strchr(value + 1, '"') : NULL;

    if ((end == NULL) || ((size_t)(end - value) > size)) {
        return false;
    }
    memcpy(text, value + 1, (size_t)(end - value) - 1);
    text[end - value - 1] = '\0';
    return true;
}

static bool parse_number(const char *value, double *value_p)
{
    char *end;
    double number = (value != NULL) ? strtod(value, &end) : 0;

    if ((value == NULL) || (end == value)) {
        return false;
    }
    *value_p = number;
    return true;
}

static size_t parse_integers(const char *value, int64_t *values, size_t room)
{
    size_t n = 0;

    if ((value == NULL) || (*value != '[')) {
        return 0;
    }
    for (char *end; n < room; value = end) {
        ++value; /* the bracket or a comma */
        values[n] = strtoll(value, &end, 10);
        if (end == value) {
            break;
        }
        ++n;
        if (*end != ',') {
            break;
        }
    }
    return n;
}

static size_t parse_numbers(const char *value, double *values, size_t room)
{
    size_t n = 0;

    if ((value == NULL) || (*value != '[')) {
        return 0;
    }
    for (char *end; n < room; value = end) {
        ++value; /* the bracket or a comma */
        values[n] = strtod(value, &end);
        if (end == value) {
            break;
        }
        ++n;
        if (*end != ',') {
            break;
        }
    }
    return n;
}

bool case_text(const case_file_t *file, const char *key, char *text, size_t size)
{
    return parse_text(head_value(file, key), text, size);
}

bool case_number(const case_file_t *file, const char *key, double *value_p)
{
    return parse_number(head_value(file, key), value_p);
}

size_t case_integers(const case_file_t *file, const char *key, int64_t *values, size_t room)
{
    return parse_integers(head_value(file, key), values, room);
}

int64_t case_integer(const case_file_t *file, const char *key, int64_t otherwise)
{
    double value;

    return case_number(file, key, &value) ? (int64_t)value : otherwise;
}

size_t case_numbers(const case_file_t *file, const char *key, double *values, size_t room)
{
    return parse_numbers(head_value(file, key), values, room);
}

const char *case_hyper(const case_file_t *file, size_t index, char *key, size_t size)
{
    size_t i = 0;

    while ((i < file->n_lines) && (strcmp(file->lines[i], "\"hyper\": {") != 0)) {
        ++i;
    }
    for (size_t k = 0; k <= index; ++k) {
        if ((++i >= file->n_lines) || (file->lines[i][0] != '"')) {
            return NULL;
        }
    }
    if (!parse_text(file->lines[i], key, size)) {
        return NULL;
    }
    return after_key(file->lines[i], key, false);
}

/* First line of the list's elements, or n_lines. */
static size_t list_begin(const case_file_t *file, const char *list)
{
    for (size_t i = 0; i < file->n_lines; ++i) {
        const char *value = after_key(file->lines[i], list, false);

        if ((value != NULL) && (strcmp(value, "[") == 0)) {
            return i + 1;
        }
    }
    return file->n_lines;
}

const char *case_element(const case_file_t *file, const char *list, size_t index)
{
    size_t begin = list_begin(file, list);

    if (index >= file->n_lines - begin) {
        return NULL;
    }
    for (size_t i = begin; i <= begin + index; ++i) {
        if (file->lines[i][0] != '{') {
            return NULL;
        }
    }
    return file->lines[begin + index];
}

size_t case_list_size(const case_file_t *file, const char *list)
{
    size_t begin = list_begin(file, list), n = 0;

    while ((begin + n < file->n_lines) && (file->lines[begin + n][0] == '{')) {
        ++n;
    }
    return n;
}

bool field_text(const char *line, const char *key, char *text, size_t size)
{
    return parse_text(after_key(line, key, true), text, size);
}

bool field_number(const char *line, const char *key, double *value_p)
{
    return parse_number(after_key(line, key, true), value_p);
}

size_t field_integers(const char *line, const char *key, int64_t *values, size_t room)
{
    return parse_integers(after_key(line, key, true), values, room);
}

int64_t field_integer(const char *line, const char *key, int64_t otherwise)
{
    double value;

    return field_number(line, key, &value) ? (int64_t)value : otherwise;
}

static size_t dtype_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{"f32", 4}, {"f64", 8}, {"i32", 4}, {"i16", 2}, {"u8", 1}};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
        if (strcmp(types[i].name, dtype) == 0) {
            return types[i].bytes;
        }
    }
    return 0;
}

/* The product of the shape is the count, and all of it lies inside the data. */
static bool fill_array(const case_file_t *file, const char *line, size_t size, case_array_t *array)
{
    const int64_t offset = field_integer(line, "offset", -1), count = field_integer(line, "count", -1);
    int64_t shape[CASE_MAX_DIMS];
    size_t product = 1;

    array->n_dims = field_integers(line, "shape", shape, CASE_MAX_DIMS);
    for (size_t i = 0; i < array->n_dims; ++i) {
        if ((shape[i] < 0) || ((shape[i] != 0) && (product > file->n_bytes / (size_t)shape[i]))) {
            return false;
        }
        array->shape[i] = (size_t)shape[i];
        product *= (size_t)shape[i];
    }
    if ((offset < 0) || (count < 0) || (size == 0) || (offset % 8 != 0) || (product != (size_t)count) ||
        ((size_t)offset > file->n_bytes) || ((size_t)count > (file->n_bytes - (size_t)offset) / size)) {
        return false;
    }
    array->data = file->data + offset;
    array->count = (size_t)count;
    array->line = line;
    return true;
}

bool case_array(const case_file_t *file, const char *name, const char *dtype, case_array_t *array_p)
{
    const size_t n = case_list_size(file, "arrays");

    for (size_t i = 0; i < n; ++i) {
        const char *line = case_element(file, "arrays", i);
        case_array_t array;
        char found[KEY_BYTES];

        if (field_text(line, "name", found, sizeof(found)) && (strcmp(found, name) == 0)) {
            if (!field_text(line, "dtype", found, sizeof(found)) || (strcmp(found, dtype) != 0) ||
                !fill_array(file, line, dtype_bytes(dtype), &array)) {
                return false;
            }
            *array_p = array;
            return true;
        }
    }
    return false;
}
