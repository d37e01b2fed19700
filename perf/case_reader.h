/* Reader of stored cases: a folder with case.json (one value, list element or array per line, keys in fixed order) and
 * data.bin (arrays back to back, little-endian). Knows no algorithm; serves replay tools and tests.
 *
 * Lines are found by their key, so a file needs no JSON parser; what is missing or does not fit the data is reported by
 * the functions' results, never assumed.
 */
#ifndef PERF_CASE_READER_H
#define PERF_CASE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct case_file {
    char *text; /* of case.json; lines end with '\0' */
    const char **lines;
    size_t n_lines;
    unsigned char *data; /* of data.bin, 16-byte aligned */
    size_t n_bytes;
    char problem[256]; /* why opening failed */
} case_file_t;

enum { CASE_MAX_DIMS = 6 };

/* An array of the case. */
typedef struct case_array {
    const void *data;
    size_t count; /* elements */
    size_t n_dims, shape[CASE_MAX_DIMS];
    const char *line;
} case_array_t;

/* False with a text in file->problem. Close in any case. */
bool case_open(case_file_t *file, const char *directory);
void case_close(case_file_t *file);

/* Values of the head and of "hyper". False: no such key, or another type. */
bool case_text(const case_file_t *file, const char *key, char *text, size_t size);
bool case_number(const case_file_t *file, const char *key, double *value_p);
size_t case_integers(const case_file_t *file, const char *key, int64_t *values,
                     size_t room); /* "key": [1, 2]; 0: none */
int64_t case_integer(const case_file_t *file, const char *key, int64_t otherwise);
size_t case_numbers(const case_file_t *file, const char *key, double *values, size_t room); /* as case_integers */

/* Value `index` of "hyper" as its key and the text behind it (a comma may follow); NULL behind the last one. */
const char *case_hyper(const case_file_t *file, size_t index, char *key, size_t size);

/* Element `index` of a list, as its line; NULL behind the last one. */
const char *case_element(const case_file_t *file, const char *list, size_t index);
size_t case_list_size(const case_file_t *file, const char *list);

/* Fields of an element's line. */
bool field_text(const char *line, const char *key, char *text, size_t size);
bool field_number(const char *line, const char *key, double *value_p);
size_t field_integers(const char *line, const char *key, int64_t *values, size_t room);
int64_t field_integer(const char *line, const char *key, int64_t otherwise);

/* False: no array with that name and dtype ("f32", "f64", "i32", "i16", "u8"), or it does not lie inside the data. */
bool case_array(const case_file_t *file, const char *name, const char *dtype, case_array_t *array_p);

#endif
