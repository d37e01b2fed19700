/* Text and numbers as JSON has them. */
#include "common_json.h"

#include <math.h>

void json_string(FILE *file, const char *text)
{
    (void)fputc('"', file);
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ') {
            (void)fprintf(file, "\\u%04x", (unsigned)*text);
            continue;
        }
        if (*text == '"' || *text == '\\') (void)fputc('\\', file);
        (void)fputc(*text, file);
    }
    (void)fputc('"', file);
}

void json_text(FILE *file, const char *key, const char *text)
{
    json_string(file, key);
    (void)fputs(": ", file);
    json_string(file, text);
    (void)fputs(", ", file);
}

void json_value(FILE *file, double value)
{
    if (isfinite(value)) {
        (void)fprintf(file, "%.17g", value);
    } else {
        (void)fputs("null", file);
    }
}

void json_number(FILE *file, const char *key, double value)
{
    json_string(file, key);
    (void)fputs(": ", file);
    json_value(file, value);
    (void)fputs(", ", file);
}
