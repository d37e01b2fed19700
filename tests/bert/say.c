/* One write per line, so that lines of several ranks do not mix. */
#include "say.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void say_line(const char *format, va_list args)
{
    char line[1200] = "linnet-bert: ";
    size_t used = strlen(line);
    int length = vsnprintf(line + used, sizeof(line) - used - 1, format, args);

    used += (length < 0) ? 0 : (size_t)length;
    used = (used > sizeof(line) - 2) ? sizeof(line) - 2 : used;
    line[used] = '\n';
    if (write(STDERR_FILENO, line, used + 1) < 0) {
        return; /* nobody to tell */
    }
}

void bert_say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say_line(format, args);
    va_end(args);
}

bool bert_fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say_line(format, args);
    va_end(args);
    return false;
}
