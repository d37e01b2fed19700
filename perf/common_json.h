/* JSON lines as the tools write them. */
#ifndef PERF_COMMON_JSON_H
#define PERF_COMMON_JSON_H

#include <stdio.h>

/* "text", with what JSON does not allow in text escaped. */
void json_string(FILE *file, const char *text);
/* "key": "text", and a comma and blank behind it. */
void json_text(FILE *file, const char *key, const char *text);
/* The number, exactly; null where it is not finite: JSON has no word for that. */
void json_value(FILE *file, double value);
/* "key": value, and a comma and blank behind it. */
void json_number(FILE *file, const char *key, double value);

#endif
