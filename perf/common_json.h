/* JSON lines as the tools write them. */
#ifndef PERF_COMMON_JSON_H
#define PERF_COMMON_JSON_H

#include <stdio.h>

/* "key": "text", with what JSON does not allow in text replaced, and a comma and blank behind it. */
void json_text(FILE *file, const char *key, const char *text);

#endif
