/* Text inside a JSON string. */
#include "common_json.h"

void json_text(FILE *file, const char *key, const char *text)
{
    (void)fprintf(file, "\"%s\": \"", key);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') (void)fputc('\\', file);
        (void)fputc(((unsigned char)*text < ' ') ? ' ' : *text, file);
    }
    (void)fprintf(file, "\", ");
}
